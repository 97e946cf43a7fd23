// Workspace in a simulated device's memory, every piece an allocation of its own.
#pragma once

#include <memory>

#include "tests/simt_kernels/sim_device.h"

namespace roundoff::test {

class DeviceScratchSource : public ScratchSource {
 public:
  explicit DeviceScratchSource(SimDevice& device) : device_(device) {}
  void* allocate(std::size_t bytes) override { return device_.emulator().allocate(bytes); }
  void free(void* memory) noexcept override { device_.emulator().free(memory); }

 private:
  SimDevice& device_;
};

struct ScratchOnDevice {
  explicit ScratchOnDevice(SimDevice& device)
      : scratch(std::make_shared<DeviceScratchSource>(device), true) {}
  Scratch scratch;
};

}  // namespace roundoff::test
