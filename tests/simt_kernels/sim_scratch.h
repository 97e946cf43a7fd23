// Workspace of kernels in a simulated device's memory: every piece an allocation of its own.
#pragma once

#include <memory>

#include "kernels/base/scratch.h"
#include "tests/simt_kernels/sim_device.h"

namespace roundoff::test {

class SimScratchSource : public ScratchSource {
 public:
  explicit SimScratchSource(SimDevice& device) : device_(device) {}
  void* allocate(std::size_t bytes) override { return device_.emulator().allocate(bytes); }
  void free(void* memory) noexcept override { device_.emulator().free(memory); }

 private:
  SimDevice& device_;
};

class SimScratch : public Scratch {
 public:
  explicit SimScratch(SimDevice& device)
      : Scratch(std::make_shared<SimScratchSource>(device), true) {}
};

}  // namespace roundoff::test
