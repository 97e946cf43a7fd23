// How many multiprocessors a persistent kernel has work for.
#pragma once

#include "kernels/simt/simt.h"

#if !defined(__CUDACC__)
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"
#endif

namespace roundoff {

#if defined(__CUDACC__)
// Of the current GPU.
inline unsigned multiprocessors(Cuda) {
  int device = 0;
  int count = 0;
  const LaunchConfig nothing{};
  simt::check_launch(cudaGetDevice(&device), nothing, "no current GPU");
  simt::check_launch(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                     nothing, "the GPU's number of multiprocessors is unknown");
  return static_cast<unsigned>(count);
}
#else
// As the simulated device says (simt::Config::multiprocessors).
template <DeviceTarget T>
unsigned multiprocessors(T target) {
  return static_cast<simt::SimStream*>(target.stream.handle)->device().config.multiprocessors;
}
#endif

}  // namespace roundoff
