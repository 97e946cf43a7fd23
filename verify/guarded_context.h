// A context of a device whose buffers are guarded. Internal to the library.
#pragma once

#include <cstring>
#include <memory>

#include "engine/context.h"
#include "engine/device.h"
#include "kernels/simt/runtime_sim.h"
#include "verify/check.h"
#include "verify/guard.h"

namespace roundoff::detail {

class GuardedContext {
 public:
  GuardedContext(std::shared_ptr<simt::Runtime> runtime, const RunnerOptions& options)
      : guard_(access()), context_(std::move(runtime), options.checked()) {
    // The sanitizer knows the bounds of buffers, and would take a margin for a part of them.
    if (!options.checked()) context_.allocator.observe(&guard_);
    context_.accumulator = options.accumulator;
  }

  Context& context() { return context_; }
  MemoryGuard& guard() { return guard_; }

 private:
  MemoryAccess access() {
    const MemoryAccess host = host_memory();
    return {[this, host](void* to, const void* from, std::size_t bytes) {
              DeviceQueue* queue = context_.queue().get();
              if (queue == nullptr)
                host.to_device(to, from, bytes);
              else if (bytes != 0)
                queue->write(to, from, bytes);
            },
            [this, host](void* to, const void* from, std::size_t bytes) {
              DeviceQueue* queue = context_.queue().get();
              if (queue == nullptr)
                host.to_host(to, from, bytes);
              else if (bytes != 0)
                queue->read(to, from, bytes);
            }};
  }

  MemoryGuard guard_;  // outlives the context's blocks
  Context context_;
};

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// Opens the device; null for cpu. On sim the accumulator chooses the arithmetic of tensor cores.
// Throws simt::DeviceAbsent where it cannot be used.
struct OpenedDevice {
  Device device = Device::cpu;
  std::shared_ptr<simt::Runtime> runtime;
  simt::Config config;

  // Before a run: the emulator's k-th schedule.
  void set_schedule(std::uint64_t k) const;
};
OpenedDevice open_device(Device device, const RunnerOptions& options);

// A device for many runs. The emulator hands out every address once, and its memory takes longer to
// open the more of it was used: a fresh one now and then.
class RenewedDevice {
 public:
  RenewedDevice(Device device, const RunnerOptions& options)
      : options_(options), opened_(open_device(device, options)) {}
  const OpenedDevice& next() {
    constexpr int kRuns = 32;
    if (opened_.device == Device::sim && ++runs_ % kRuns == 0)
      opened_ = open_device(opened_.device, options_);
    return opened_;
  }

 private:
  RunnerOptions options_;
  OpenedDevice opened_;
  int runs_ = 0;
};

}  // namespace roundoff::detail
