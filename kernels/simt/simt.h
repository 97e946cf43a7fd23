// The language that kernels are written in: CUDA C++, with these few names in place of what only
// nvcc reads. nvcc builds a kernel for the GPU, the host compiler builds the same text onto the
// emulator; this folder is the only place where they differ.
//
//   ROUNDOFF_SHARED(float, partial, [32]);   static shared memory, inside a __global__ function
//   ROUNDOFF_DYNAMIC_SHARED(bytes);          unsigned char* bytes, 1024-byte aligned
//   ROUNDOFF_DEVICE                          a function for kernels, always inlined on the GPU
//   ROUNDOFF_UNROLL, ROUNDOFF_NO_UNROLL      before a loop
//   load_vector<uint4>(p), store_vector(p, v)  one access of 8 or 16 bytes, aligned to its size
//   bar_sync(id, threads), bar_arrive(id, threads)  named barriers
//   launch(target, config, kernel, arguments...)
//
// Target is the tag that this compilation is for. Kernels and device functions live in
// `namespace roundoff { ROUNDOFF_DEVICE_NAMESPACE { ... } }`: an inline namespace for each target,
// because the same inline name with two bodies would be merged by the linker.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/base/target.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/site.h"

#if defined(__CUDACC__)
#include "kernels/simt/cuda/language.h"
#else
#include "kernels/simt/emulator/language.h"
#endif
