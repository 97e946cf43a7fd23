// What a launcher asks its device before it chooses a kernel.
#pragma once

#include "kernels/simt/simt.h"
#if !defined(__CUDACC__)
#include "kernels/simt/emulator/stream.h"
#endif

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Whether the target's device runs kernels that need `architecture`. On the host.
  inline bool runs(Target target, Architecture architecture) {
    if (architecture == Architecture::any) return true;
#if !defined(__CUDACC__)
    return simt::sim_runs(target.stream, architecture);
#else
    (void)target;
    const LaunchConfig config{.name = "device"};
    int device = 0;
    int major = 0;
    int minor = 0;
    simt::check_launch(cudaGetDevice(&device), config, "no current GPU");
    simt::check_launch(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                       config, "the GPU's architecture is unknown");
    simt::check_launch(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                       config, "the GPU's architecture is unknown");
    return major == 9 && minor == 0;
#endif
  }

}  // namespace

}  // namespace roundoff
