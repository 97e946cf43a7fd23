// The host compiler's half of simt.h: CUDA's spellings, bound to the emulator.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#include "kernels/simt/emulator/atomic.h"
#if defined(ROUNDOFF_TARGET_CHECKED)
#include "kernels/simt/emulator/instrumentation.h"
#endif
#include "kernels/simt/emulator/launch.h"
#include "kernels/simt/emulator/shared.h"
#include "kernels/simt/emulator/thread.h"
#include "kernels/simt/emulator/warp.h"
#include "kernels/simt/site.h"

#define ROUNDOFF_SIM 1
#define ROUNDOFF_HOPPER 1

// Which of the two host builds this is; the build system says Checked for the instrumented one.
#if defined(ROUNDOFF_TARGET_CHECKED)
#define ROUNDOFF_DEVICE_NAMESPACE inline namespace on_checked
namespace roundoff {
using Target = Checked;
}
#else
#define ROUNDOFF_DEVICE_NAMESPACE inline namespace on_sim
namespace roundoff {
using Target = Sim;
}
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Never __noinline__: the standard library spells an attribute so.
#define __forceinline__ inline __attribute__((always_inline))

#define ROUNDOFF_DEVICE inline
#define ROUNDOFF_UNROLL
#define ROUNDOFF_NO_UNROLL
// A variable's tag has one address for each instantiation of the kernel.
#define ROUNDOFF_SHARED(type, name, ...)                                          \
  static const char name##_tag = 0;                                               \
  using name##_type = type __VA_ARGS__;                                           \
  name##_type& name = *static_cast<name##_type*>(::roundoff::simt::static_shared( \
      &name##_tag, sizeof(name##_type), alignof(name##_type), #name))
#define ROUNDOFF_DYNAMIC_SHARED(name) \
  unsigned char* const name = static_cast<unsigned char*>(::roundoff::simt::dynamic_shared())

#define threadIdx (::roundoff::simt::t_current->index)
#define blockIdx (::roundoff::simt::t_current->geometry->block_index)
#define blockDim (::roundoff::simt::t_current->geometry->block_dim)
#define gridDim (::roundoff::simt::t_current->geometry->grid_dim)
inline constexpr int warpSize = 32;

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
  x = ((x >> 1) & 0x55555555U) | ((x & 0x55555555U) << 1);
  x = ((x >> 2) & 0x33333333U) | ((x & 0x33333333U) << 2);
  x = ((x >> 4) & 0x0F0F0F0FU) | ((x & 0x0F0F0F0FU) << 4);
  return __builtin_bswap32(x);
}
inline unsigned __float_as_uint(float x) {
  unsigned u;
  std::memcpy(&u, &x, sizeof(u));
  return u;
}
inline float __uint_as_float(unsigned u) {
  float x;
  std::memcpy(&x, &u, sizeof(x));
  return x;
}
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __int_as_float(int i) { return __uint_as_float(static_cast<unsigned>(i)); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
template <class T>
inline T __ldg(const T* p) {
  return *p;
}

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Out of line, so that an access stays whole: split by the optimiser, it would be counted as many
  // and hide from the check of its alignment.
  template <class V>
  [[gnu::noinline]] ROUNDOFF_UNINSTRUMENTED V load_vector(const void* p) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16);
#if defined(ROUNDOFF_TARGET_CHECKED)
    simt::vector_load(p, sizeof(V), __builtin_return_address(0));
#endif
    return *static_cast<const V*>(p);
  }
  template <class V>
  [[gnu::noinline]] ROUNDOFF_UNINSTRUMENTED void store_vector(void* p, V v) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16);
#if defined(ROUNDOFF_TARGET_CHECKED)
    simt::vector_store(p, sizeof(V), __builtin_return_address(0));
#endif
    *static_cast<V*>(p) = v;
  }

}  // namespace

using simt::bar_arrive;
using simt::bar_sync;

// Puts the kernel on the target's stream.
template <class... P, class... A>
void launch(Target target, const LaunchConfig& config, void (*kernel)(P...), A&&... arguments) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are copied as bytes");
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> values;
  };
  simt::sim_launch(target.stream, config, std::is_same_v<Target, Checked>,
                   [call = Call{kernel, {static_cast<P>(std::forward<A>(arguments))...}}] {
#if defined(ROUNDOFF_TARGET_CHECKED)
                     // A thread's arguments are its own, like its variables.
                     alignas(Call) unsigned char bytes[sizeof(Call)];
                     simt::copy_arguments(bytes, &call, sizeof(Call));
                     const Call& mine = *reinterpret_cast<const Call*>(bytes);
                     std::apply(mine.kernel, mine.values);
#else
                     std::apply(call.kernel, call.values);
#endif
                   });
}

}  // namespace roundoff
