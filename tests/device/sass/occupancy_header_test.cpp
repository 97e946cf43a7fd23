// Our occupancy against the CUDA toolkit's own calculator, which is a header.
#include <cuda_occupancy.h>
#include <doctest/doctest.h>

#include "bench/evidence/occupancy.h"

using namespace roundoff::evidence;

namespace {

int toolkit_blocks(int architecture, const BlockResources& block) {
  const SmLimits& limits = sm_limits(architecture);
  cudaOccDeviceProp device{};
  device.computeMajor = architecture / 10;
  device.computeMinor = architecture % 10;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = limits.threads;
  device.regsPerBlock = device.regsPerMultiprocessor = limits.registers;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 * 1024;
  device.sharedMemPerMultiprocessor = static_cast<std::size_t>(limits.shared);
  device.sharedMemPerBlockOptin = static_cast<std::size_t>(limits.shared_per_block);
  device.reservedSharedMemPerBlock = static_cast<std::size_t>(limits.shared_reserved);
  device.numSms = 108;
  cudaOccFuncAttributes attributes{};
  attributes.maxThreadsPerBlock = 1024;
  attributes.numRegs = block.registers;
  attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = static_cast<std::size_t>(limits.shared_per_block);
  cudaOccDeviceState state{};
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result{};
  const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
      &result, &device, &attributes, &state, block.threads, static_cast<std::size_t>(block.shared));
  return error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : 0;
}

}  // namespace

TEST_CASE("occupancy is the toolkit's, over threads, registers and shared memory") {
  for (const int architecture : {80, 90})
    for (const int threads : {1, 32, 33, 64, 96, 128, 160, 224, 256, 288, 384, 512, 640, 768, 1024})
      for (int registers = 0; registers <= 255; registers += registers < 24 ? 8 : 3)
        for (const int kilobytes : {0, 1, 7, 16, 33, 48, 72, 96, 112, 113, 160, 163, 224, 227})
          for (const int more : {0, 16, 127}) {
            const BlockResources block{threads, registers, kilobytes * 1024 + more};
            CAPTURE(architecture);
            CAPTURE(threads);
            CAPTURE(registers);
            CAPTURE(block.shared);
            REQUIRE(occupancy(sm_limits(architecture), block).blocks ==
                    toolkit_blocks(architecture, block));
          }
}
