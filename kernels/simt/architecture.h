// What a launcher asks of its device before it chooses a kernel.
#pragma once

#include "kernels/simt/simt.h"

#if !defined(__CUDACC__)
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"
#endif

namespace roundoff {

// sm_90a where the device runs kernels that need it, else any.
#if defined(__CUDACC__)
// Of the current GPU.
inline Architecture architecture(Cuda) {
  int device = 0;
  int major = 0;
  int minor = 0;
  const LaunchConfig nothing{};
  const char* const unknown = "the GPU's architecture is unknown";
  simt::check_launch(cudaGetDevice(&device), nothing, "no current GPU");
  simt::check_launch(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                     nothing, unknown);
  simt::check_launch(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                     nothing, unknown);
  return major == 9 && minor == 0 ? Architecture::sm_90a : Architecture::any;
}
#else
// As the simulated device says (simt::Config::architecture).
template <DeviceTarget T>
Architecture architecture(T target) {
  const simt::Config& config = static_cast<simt::SimStream*>(target.stream.handle)->device().config;
  return config.architecture == simt::SimArchitecture::sm_90a ? Architecture::sm_90a
                                                              : Architecture::any;
}
#endif

}  // namespace roundoff
