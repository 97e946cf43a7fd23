// The device runtime: memory, queues of work (streams), events and graphs, with one meaning on the
// emulator (`sim`) and on a GPU (`cuda`). It follows CUDA's: work of one stream runs in order, work
// of different streams in any order that events allow, and the host waits only where it says so.
// Every wait, allocation, copy and launch is counted.
//
//   auto runtime = simt::open(Device::sim);
//   simt::Stream stream(runtime);
//   simt::DeviceBuffer x(runtime, bytes);
//   simt::PinnedBuffer staging(runtime, bytes);
//   stream.copy_to_device(x.data(), staging.data(), bytes);
//   launch(Sim{stream.ref()}, ...);
//   stream.copy_to_host(staging.data(), x.data(), bytes);
//   stream.synchronize();                                  // only now may staging be read
//
// A runtime and what belongs to it are used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/target.h"

namespace roundoff::simt {

// What a runtime has done since it was opened.
struct RuntimeCounters {
  // The host waited, or would have had to: synchronize() of a stream, an event or the device,
  // upload(), download(), and giving memory back to the device.
  std::int64_t synchronisations = 0;
  std::int64_t queries = 0;      // asked, without waiting, whether work was done
  std::int64_t allocations = 0;  // of device and of pinned memory
  std::int64_t releases = 0;
  // Kernels, those of launched graphs included. On cuda only those of graphs are known here.
  std::int64_t launches = 0;
  std::int64_t copies = 0;
  std::int64_t copied_bytes = 0;
  std::int64_t fills = 0;
  std::int64_t callbacks = 0;
  std::int64_t graph_launches = 0;

  friend bool operator==(const RuntimeCounters&, const RuntimeCounters&) = default;
  // What happened between two readings.
  friend RuntimeCounters operator-(const RuntimeCounters& after, const RuntimeCounters& before);
};

struct DeviceDescription {
  Device device = Device::sim;
  int ordinal = 0;
  std::string name;
  int capability = 80;  // 10 major + minor
  int multiprocessors = 1;
  std::size_t memory = 0;            // bytes in all; 0 where it is the host's
  std::size_t shared_per_block = 0;  // bytes that a block may ask for
  std::string driver;                // empty on sim
};

// A point in a stream; a handle of a backend.
struct EventRef {
  void* handle = nullptr;
};
// An executable graph of a backend.
struct GraphRef {
  void* handle = nullptr;
};

class Stream;
class Event;
class Graph;

// An opened device. The virtual functions are what a backend implements; everybody else uses the
// public ones, and the classes below.
class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Device device() const { return description_.device; }
  const DeviceDescription& description() const { return description_; }
  const RuntimeCounters& counters() const { return counters_; }

  // Waits for all work of all streams. Throws the first error among it.
  void synchronize();

  // Device memory, aligned to 256 bytes, not initialised; zero bytes give a unique address. Throws
  // Error where memory is short. Freeing waits for all work that was queued before, so that nothing
  // uses the memory any more; what goes wrong in that work is thrown by the next wait.
  void* allocate(std::size_t bytes);
  void free(void* memory) noexcept;
  // Host memory that the device can copy from and to while the host goes on.
  void* allocate_pinned(std::size_t bytes);
  void free_pinned(void* memory) noexcept;
  // Whether all of [memory, memory + bytes) is pinned.
  bool is_pinned(const void* memory, std::size_t bytes) const;
  // Bytes of device memory that are allocated.
  std::size_t allocated_bytes() const { return allocated_bytes_; }

 protected:
  explicit Runtime(DeviceDescription description) : description_(std::move(description)) {}

  enum class CopyKind : unsigned char { to_device, to_host, within };

  virtual void do_synchronize() = 0;
  virtual void* do_allocate(std::size_t bytes) = 0;
  virtual void do_free(void* memory) noexcept = 0;
  virtual void* do_allocate_pinned(std::size_t bytes) = 0;
  virtual void do_free_pinned(void* memory) noexcept = 0;

  virtual StreamRef do_create_stream() = 0;
  virtual void do_destroy_stream(StreamRef stream) noexcept = 0;
  virtual void do_synchronize(StreamRef stream) = 0;
  virtual bool do_query(StreamRef stream) = 0;
  virtual void do_copy(StreamRef stream, CopyKind kind, void* to, const void* from,
                       std::size_t bytes) = 0;
  virtual void do_fill(StreamRef stream, void* to, unsigned char value, std::size_t bytes) = 0;
  virtual void do_call(StreamRef stream, std::function<void()> function) = 0;

  virtual EventRef do_create_event() = 0;
  virtual void do_destroy_event(EventRef event) noexcept = 0;
  virtual void do_record(EventRef event, StreamRef stream) = 0;
  virtual void do_wait(StreamRef stream, EventRef event) = 0;
  virtual bool do_query(EventRef event) = 0;
  virtual void do_synchronize(EventRef event) = 0;
  virtual double do_milliseconds(EventRef from, EventRef to) = 0;

  virtual void do_begin_capture(StreamRef stream) = 0;
  // Leaves capturing, whatever happens; kernels: how many kernel launches the graph holds.
  virtual GraphRef do_end_capture(StreamRef stream, std::int64_t& kernels) = 0;
  virtual void do_launch(GraphRef graph, StreamRef stream) = 0;
  virtual void do_destroy_graph(GraphRef graph) noexcept = 0;

  // For a backend that sees its launches.
  void count_launch() { ++counters_.launches; }

 private:
  friend class Stream;
  friend class Event;
  friend class Graph;
  // Waiting and allocating are no part of a graph: they throw, naming `what`, while one is
  // captured.
  void forbid_in_capture(const char* what) const;
  void release_postponed() noexcept;

  DeviceDescription description_;
  RuntimeCounters counters_;
  std::map<const std::byte*, std::size_t> pinned_;
  std::map<const void*, std::size_t> allocated_;
  std::size_t allocated_bytes_ = 0;
  int capturing_ = 0;
  // Given back while a graph was being captured.
  std::vector<std::pair<void*, bool>> postponed_;
};

// A runtime on the device with default settings (kernels/simt/runtime_sim.h has the emulator's).
// Throws DeviceAbsent where it cannot be used here, with the reason and the way on; Error for cpu,
// which needs no runtime.
std::shared_ptr<Runtime> open(Device device, int ordinal = 0);

// Why a device cannot be used here; empty where it can.
std::string refusal(Device device);

class DeviceAbsent : public Error {
 public:
  using Error::Error;
};

class Stream {
 public:
  explicit Stream(std::shared_ptr<Runtime> runtime);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  StreamRef ref() const { return ref_; }
  Runtime& runtime() const { return *runtime_; }
  const std::shared_ptr<Runtime>& shared_runtime() const { return runtime_; }

  // Queue a copy of `bytes`. The host side must be pinned memory (throws otherwise), and neither
  // side may be touched until the copy is done.
  void copy_to_device(void* to, const void* from_pinned, std::size_t bytes);
  void copy_to_host(void* to_pinned, const void* from, std::size_t bytes);
  // Within the device; the ranges do not overlap.
  void copy_within(void* to, const void* from, std::size_t bytes);
  void fill(void* to, unsigned char value, std::size_t bytes);
  // Copies from or to any host memory, and wait until they are done.
  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  // Calls `function` on the host once the work before it is done; later work waits for it. It may
  // run on another thread and must not use the runtime. What it throws, the next wait throws.
  void call(std::function<void()> function);
  // Work that is queued from now on waits for what `event` was last recorded after.
  void wait(const Event& event);
  // Whether all work is done, without waiting for it.
  bool query();
  // Waits for all work. Throws the first error among it.
  void synchronize();

  // What is queued here until end_capture() does not run, it becomes a graph. Nothing may wait or
  // allocate meanwhile; what is freed is freed afterwards.
  void begin_capture();
  Graph end_capture();
  bool capturing() const { return capturing_; }

 private:
  friend class Event;
  friend class Graph;
  void copy(Runtime::CopyKind kind, void* to, const void* from, std::size_t bytes);
  void release() noexcept;

  std::shared_ptr<Runtime> runtime_;
  StreamRef ref_;
  bool capturing_ = false;
};

class Event {
 public:
  explicit Event(std::shared_ptr<Runtime> runtime);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Marks the work that `stream` has now. Recording again replaces the mark.
  void record(Stream& stream);
  // Whether the marked work is done; true for an event that was never recorded.
  bool query() const;
  void synchronize() const;
  Runtime& runtime() const { return *runtime_; }
  // Between two marks whose work is done. On sim it is the host's time, and says nothing of a GPU.
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  void release() noexcept;

  std::shared_ptr<Runtime> runtime_;
  EventRef ref_;
  bool recorded_ = false;
  bool in_capture_ = false;  // the mark is inside a graph
};

// Work that was captured once and can be launched as one. The arguments of kernels and the
// addresses of copies are those of the capture: the memory must outlive the graph.
class Graph {
 public:
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch(Stream& stream);
  std::int64_t kernels() const { return kernels_; }

 private:
  friend class Stream;
  Graph(std::shared_ptr<Runtime> runtime, GraphRef ref, std::int64_t kernels)
      : runtime_(std::move(runtime)), ref_(ref), kernels_(kernels) {}
  void release() noexcept;

  std::shared_ptr<Runtime> runtime_;
  GraphRef ref_;
  std::int64_t kernels_ = 0;
};

namespace detail {
// Memory of a runtime, owned.
template <void* (Runtime::*Allocate)(std::size_t), void (Runtime::*Free)(void*) noexcept>
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Runtime> runtime, std::size_t bytes)
      : runtime_(std::move(runtime)), data_(((*runtime_).*Allocate)(bytes)), bytes_(bytes) {}
  ~Buffer() { release(); }
  Buffer(Buffer&& other) noexcept
      : runtime_(std::move(other.runtime_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    release();
    runtime_ = std::move(other.runtime_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void release() noexcept {
    if (data_ != nullptr) ((*runtime_).*Free)(data_);
  }
  std::shared_ptr<Runtime> runtime_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};
}  // namespace detail

// The host cannot dereference it.
using DeviceBuffer = detail::Buffer<&Runtime::allocate, &Runtime::free>;
using PinnedBuffer = detail::Buffer<&Runtime::allocate_pinned, &Runtime::free_pinned>;

}  // namespace roundoff::simt
