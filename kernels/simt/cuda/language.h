// nvcc's half of simt.h.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "kernels/base/architecture.h"
#include "kernels/base/check.h"
#include "kernels/simt/launch.h"

#define ROUNDOFF_SIM 0
#define ROUNDOFF_DEVICE_NAMESPACE inline namespace on_cuda
#define ROUNDOFF_DEVICE __device__ __forceinline__
#define ROUNDOFF_SHARED(type, name, ...) __shared__ type name __VA_ARGS__
#define ROUNDOFF_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#define ROUNDOFF_UNROLL _Pragma("unroll")
#define ROUNDOFF_NO_UNROLL _Pragma("unroll 1")
// Bodies of sm_90a instructions: this compilation has them.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ROUNDOFF_HOPPER 1
#else
#define ROUNDOFF_HOPPER 0
#endif

namespace roundoff {

using Target = Cuda;

ROUNDOFF_DEVICE_NAMESPACE {
  template <class V>
  ROUNDOFF_DEVICE V load_vector(const void* p) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16);
    return *static_cast<const V*>(p);
  }
  template <class V>
  ROUNDOFF_DEVICE void store_vector(void* p, V v) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16);
    *static_cast<V*>(p) = v;
  }

}  // namespace

// Named barriers: `threads` is a multiple of 32.
ROUNDOFF_DEVICE void bar_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
ROUNDOFF_DEVICE void bar_arrive(unsigned id, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

namespace simt {

inline void check_launch(cudaError_t status, const LaunchConfig& config, const char* what) {
  ROUNDOFF_CHECK(status == cudaSuccess, config.name, what, ": ", cudaGetErrorString(status));
}

// Refuses what the current GPU cannot run.
inline void check_architecture(const LaunchConfig& config) {
  if (config.needs == Architecture::any && config.cluster.count() == 1 && !config.tensor_core)
    return;
  int device = 0;
  int major = 0;
  int minor = 0;
  check_launch(cudaGetDevice(&device), config, "no current GPU");
  check_launch(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), config,
               "the GPU's architecture is unknown");
  check_launch(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), config,
               "the GPU's architecture is unknown");
  if (config.tensor_core) {
    ROUNDOFF_CHECK(adds_as(*config.tensor_core, 10 * major + minor), config.name, "accumulator ",
                   name(*config.tensor_core), " is asked for, this GPU is sm_", major, minor,
                   " and adds otherwise; the devices cpu and sim model it");
  }
  if (config.needs == Architecture::any && config.cluster.count() == 1) return;
  const bool fits = config.needs == Architecture::sm_90a ? major == 9 && minor == 0 : major >= 9;
  ROUNDOFF_CHECK(fits, config.name, "is written for ",
                 config.needs == Architecture::sm_90a ? "sm_90a" : "clusters (sm_90 and later)",
                 ", this GPU is sm_", major, minor, "; its body would be empty here");
}

}  // namespace simt

// Starts the kernel on the target's stream and returns at once.
template <class... P, class... A>
void launch(Cuda target, const LaunchConfig& config, void (*kernel)(P...), A&&... arguments) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are copied as bytes");
  simt::check_architecture(config);
  const void* function = reinterpret_cast<const void*>(kernel);
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (config.shared > kWithoutAsking)
    simt::check_launch(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(config.shared)),
                       config, "dynamic shared memory");
  std::tuple<P...> values(static_cast<P>(std::forward<A>(arguments))...);
  std::apply(
      [&](auto&... value) {
        std::array<void*, sizeof...(P) + 1> pointers{
            const_cast<void*>(static_cast<const void*>(&value))...};
        cudaLaunchConfig_t launch{};
        launch.gridDim = dim3(config.grid.x, config.grid.y, config.grid.z);
        launch.blockDim = dim3(config.block.x, config.block.y, config.block.z);
        launch.dynamicSmemBytes = config.shared;
        launch.stream = static_cast<cudaStream_t>(target.stream.handle);
        cudaLaunchAttribute cluster{};
        if (config.cluster.count() > 1) {
          cluster.id = cudaLaunchAttributeClusterDimension;
          cluster.val.clusterDim.x = config.cluster.x;
          cluster.val.clusterDim.y = config.cluster.y;
          cluster.val.clusterDim.z = config.cluster.z;
          launch.attrs = &cluster;
          launch.numAttrs = 1;
        }
        simt::check_launch(cudaLaunchKernelExC(&launch, function, pointers.data()), config,
                           "launch");
      },
      values);
}

}  // namespace roundoff
