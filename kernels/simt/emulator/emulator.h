// One simulated device: its memory, and how it runs grids of kernels that the host compiler built.
//
// Blocks (clusters, where a kernel asks for them) are spread over worker threads; inside a block
// every CUDA thread is a fiber, and a scheduler whose order is chosen decides which one runs. The
// results, and the counters, are a function of the configuration alone; they are the same for any
// number of workers as long as blocks do not depend on each other's order.
//
// What it cannot show: weak memory ordering, faults of ptxas, occupancy, speed; blocks that wait
// for each other. A run without a fault says "no fault diagnosed under this schedule", no more. An
// emulator belongs to one host thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/simt/emulator/api.h"
#include "kernels/simt/launch.h"

namespace roundoff::simt {

class Monitor;
class Memory;
class Watcher;
struct Profile;

// Which ready thread runs next.
enum class Schedule : std::uint8_t {
  depth_first,    // stay in the warp, lowest lane first
  breadth_first,  // the next block, warp and lane, in turn
  reverse,        // the highest block, warp and lane
  random          // by the seed
};
// When an asynchronous operation lands.
enum class Async : std::uint8_t {
  eager,  // at once
  late,   // when nothing else can run, or when it is waited for; the newest first
  random  // by the seed
};
// In which arithmetic mma and wgmma add.
enum class TensorCoreModel : std::uint8_t { fp32, v100, a100, h100 };
// What the simulated device claims to be.
enum class SimArchitecture : std::uint8_t { sm_80, sm_90a };

const char* name(Schedule schedule);
const char* name(Async async);

struct Config {
  Schedule schedule = Schedule::depth_first;
  Async async = Async::eager;
  std::uint64_t seed = 1;
  TensorCoreModel tensor_core = TensorCoreModel::fp32;
  SimArchitecture architecture = SimArchitecture::sm_90a;
  unsigned workers = 1;
  // A thread gives way at one in so many of its instrumented accesses; 0: at none.
  unsigned preempt_one_in = 0;
  // For instrumented kernels; they run on one worker then.
  bool sanitize = false;
  bool profile = false;
  // Blocks start in an order drawn from the seed.
  bool shuffle_blocks = false;
  // At most so many clusters of a grid run (a block is a cluster where a launch asks for none),
  // spread evenly over it; 0: all. What the others would have written is not there.
  std::size_t sample_clusters = 0;
  // Keeps what each launch counted (Emulator::launches()).
  bool record_launches = false;
  // That persistent kernels have work for: as many as an H100 has.
  unsigned multiprocessors = 132;
  std::size_t max_shared = 227 * 1024;
  // Outside launches and copies, device memory cannot be read or written by the host.
  bool guard_host = true;
};

// The k-th of a family of schedules that differ in every respect: what "under n schedules" means.
ROUNDOFF_SIMT_API Config with_schedule(Config config, std::uint64_t k);
// What of a configuration decides the order of events, as faults name it: a run with the same
// values meets the same fault.
ROUNDOFF_SIMT_API std::string schedule_text(const Config& config);

// Counted in every run, instrumented or not.
struct Counters {
  std::uint64_t launches = 0, blocks = 0, threads = 0, switches = 0;
  std::uint64_t barriers = 0, warp_syncs = 0, shuffles = 0, votes = 0, reductions = 0, atomics = 0;
  std::uint64_t mma = 0, wgmma = 0, ldmatrix = 0, stmatrix = 0;
  std::uint64_t cp_async = 0, cp_async_bytes = 0, tma = 0, tma_bytes = 0;
  // By the profiler, of instrumented kernels: requests of a warp, the 32-byte sectors that they
  // touch, bytes asked for; and for shared memory the passes (wavefronts) over its banks.
  std::uint64_t global_load_requests = 0, global_load_sectors = 0, global_load_bytes = 0;
  std::uint64_t global_store_requests = 0, global_store_sectors = 0, global_store_bytes = 0;
  std::uint64_t shared_load_requests = 0, shared_load_wavefronts = 0;
  std::uint64_t shared_store_requests = 0, shared_store_wavefronts = 0;
  // Wavefronts beyond the least that the requests' bytes need.
  std::uint64_t shared_excess_wavefronts = 0;

  ROUNDOFF_SIMT_API Counters& operator+=(const Counters& other);
};

// One launch, and what it counted.
struct LaunchRecord {
  LaunchConfig launch;
  std::size_t clusters = 0;  // of its grid
  std::size_t ran = 0;       // of those
  Counters counters;         // of those that ran

  // As if all had run: each count times clusters / ran, to the nearest whole number. Exact where
  // all clusters do the same.
  ROUNDOFF_SIMT_API Counters scaled() const;
};

// A kernel did what it must not. what() names kernel, block, thread, warp, lane, cause, and the
// source line where it is known.
class ROUNDOFF_SIMT_API KernelFault : public Error {
 public:
  using Error::Error;
};

class ROUNDOFF_SIMT_API Emulator {
 public:
  explicit Emulator(const Config& config = {});
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  // May be changed between launches.
  Config config;

  // Device memory, 256-byte aligned, with zones between allocations that nobody may touch. New
  // memory holds bytes 0xA5. Zero bytes give a pointer that may not be read.
  void* allocate(std::size_t bytes);
  void free(void* p);
  std::size_t allocated_bytes() const;
  // Throw for ranges that are not inside one allocation.
  void copy_in(void* device, const void* host, std::size_t bytes);
  void copy_out(void* host, const void* device, std::size_t bytes);
  void copy_within(void* to, const void* from, std::size_t bytes);
  void fill(void* device, int byte, std::size_t bytes);
  // Whether p points into this device's address range.
  bool owns(const void* p) const;

  // Runs one grid to its end. Throws KernelFault for a fault in it, and Error for a launch that no
  // device would take; the next launch is not affected.
  void run(const LaunchConfig& launch, bool checked, const std::function<void()>& body);

  // Since the start or the last reset.
  const Counters& counters() const { return counters_; }
  // The launches since then, in their order, where config.record_launches says so.
  const std::vector<LaunchRecord>& launches() const { return launches_; }
  void reset_counters() {
    counters_ = {};
    launches_.clear();
  }
  Memory& memory() { return *memory_; }
  // The sanitizer and profiler of this device, made when they are first needed.
  Monitor& monitor();
  // Of the instrumented kernels that ran with config.profile, since the start or the last reset
  // (profiler/profile.h).
  Profile profile() const;
  void reset_profile();

 private:
  struct Workers;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Watcher> watcher_;
  Counters counters_;
  std::vector<LaunchRecord> launches_;
};

}  // namespace roundoff::simt
