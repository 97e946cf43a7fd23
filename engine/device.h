// A device as a context uses it: the opened runtime, the one stream on which the context's work
// runs, and ways for bytes to get in and out. Work of the stream is in order, so memory that is
// freed while it is still in use may be handed out again at once: what uses it next comes later.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/base/device_error.h"
#include "kernels/base/scratch.h"
#include "kernels/simt/runtime.h"

namespace roundoff {

class DeviceQueue {
 public:
  explicit DeviceQueue(std::shared_ptr<simt::Runtime> runtime);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  Device device() const { return stream_.runtime().device(); }
  simt::Runtime& runtime() const { return stream_.runtime(); }
  simt::Stream& stream() { return stream_; }

  // Queues a copy of host memory to the device; `from` may change on return. It goes through pinned
  // memory that is used again; the host waits only where all of that is still in flight, or for
  // more bytes than that is made for. Throws while a graph is captured, which would repeat today's
  // bytes for ever.
  void write(void* to, const void* from, std::size_t bytes);
  // Waits for all work that was queued, and copies to the host.
  void read(void* to, const void* from, std::size_t bytes);
  // Queue a copy within the device, and zeros.
  void copy(void* to, const void* from, std::size_t bytes) { stream_.copy_within(to, from, bytes); }
  void zero(void* to, std::size_t bytes) { stream_.fill(to, 0, bytes); }

 private:
  struct Staging {
    simt::PinnedBuffer memory;
    simt::Event copied;
  };
  Staging& staging(std::size_t bytes);

  simt::Stream stream_;
  std::vector<Staging> staging_;
  std::size_t next_ = 0;
};

// Workspace for the kernels of a device.
class DeviceWorkspace final : public ScratchSource {
 public:
  explicit DeviceWorkspace(std::shared_ptr<DeviceQueue> queue) : queue_(std::move(queue)) {}
  void* allocate(std::size_t bytes) override { return queue_->runtime().allocate(bytes); }
  void free(void* memory) noexcept override { queue_->runtime().free(memory); }

 private:
  std::shared_ptr<DeviceQueue> queue_;
};

// What kernels report of bad data (kernels/base/device_error.h), brought to the host without
// waiting for it.
class DeviceReports {
 public:
  explicit DeviceReports(std::shared_ptr<DeviceQueue> queue);

  // For launchers.
  DeviceErrors* device() const { return report_.as<DeviceErrors>(); }
  // Queues a copy of the report as it will be when the work before it is done; once a step, say.
  // Waits only where two earlier copies have still not arrived.
  void request();
  // Throws DeviceDataError where a copy that has arrived holds an error, and clears the report.
  // Never waits.
  void check();
  // The same for all work that was queued so far; waits for it.
  void wait_and_check();

 private:
  struct Copy {
    simt::PinnedBuffer memory;
    simt::Event arrived;
    bool pending = false;
  };
  void take(Copy& copy);

  std::shared_ptr<DeviceQueue> queue_;
  simt::DeviceBuffer report_;
  std::array<Copy, 2> copies_;
  std::size_t next_ = 0;  // the older one
};

}  // namespace roundoff
