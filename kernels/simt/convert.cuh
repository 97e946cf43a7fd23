// Storage types in kernels: values in and out of registers with one rounding (RNE) on the way out,
// and the loop over arrays in vector accesses.
//
//   widen_value<A>(x)         a stored value as A = float or double; only fp64 to float rounds
//   narrow_value<T>(a)        a rounded once to the storage type T
//   add_value(y, a)           y += a, formed in the wider of the two types; y is fp32 or fp64
//   load_pack(p, values)      values[i] = p[i], one access of kCount * sizeof(T) <= 16 bytes
//   store_pack(p, values)     p[i] = values[i], the same back
//   add_pack(p, values)       p[i] += values[i]
//   pack_size<T...>()         elements of a pack: 16 bytes of the widest type, so that a warp's
//                             request asks for whole sectors whatever the types
//   pack_head<kCount>(p...)   elements before the first place where every pointer is aligned to its
//                             pack, or kNoPacks; on the host as well
//   for_each_pack<kCount>()   head and tail one by one, the rest in packs
//
// All bits are those of Half, BFloat16 and kernels/base/convert.h. fp16 from and to fp32 is an
// instruction on a GPU, but for NaN, whose sign and payload instructions drop.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/simt/simt.h"

#if !defined(__CUDACC__) && defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

namespace roundoff {

// No element is aligned for every pointer: all of them go one by one.
inline constexpr int kNoPacks = -1;

template <class... T>
constexpr int pack_size() {
  return static_cast<int>(16 / std::max({sizeof(T)...}));
}

ROUNDOFF_DEVICE_NAMESPACE {
  template <class A, class T>
  ROUNDOFF_DEVICE A widen_value(T x) {
    static_assert(std::is_same_v<A, float> || std::is_same_v<A, double>);
    if constexpr (std::is_same_v<A, T>) {
      return x;
    } else if constexpr (std::is_same_v<T, Half>) {
#if defined(__CUDA_ARCH__)
      float value = 0;
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
      if ((x.bits & 0x7FFFU) > 0x7C00U) value = static_cast<float>(x);
      return widen_value<A>(value);
#else
      return static_cast<A>(x);
#endif
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return widen_value<A>(static_cast<float>(x));
    } else if constexpr (std::is_same_v<T, float>) {
      // Instructions keep no NaN's payload on a GPU.
      const auto value = static_cast<double>(x);
      return x == x
                 ? value
                 : std::bit_cast<double>(detail::widen_fp32_bits(std::bit_cast<std::uint32_t>(x)));
    } else if constexpr (std::is_same_v<T, double>) {
      const auto value = static_cast<float>(x);
      return x == x ? value
                    : std::bit_cast<float>(
                          detail::narrow_bits<11, 52, 8, 23>(std::bit_cast<std::uint64_t>(x)));
    } else {
      static_assert(std::is_integral_v<T>);
      return static_cast<A>(x);
    }
  }

  template <class T, class A>
  ROUNDOFF_DEVICE T narrow_value(A a) {
    if constexpr (std::is_same_v<T, BFloat16> && std::is_same_v<A, float>) {
      const auto bits = std::bit_cast<std::uint32_t>(a);
      const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
      const std::uint32_t quiet = (bits >> 16) | 0x0040U;
      return BFloat16::from_bits(
          static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded));
    } else if constexpr (std::is_same_v<T, Half> && std::is_same_v<A, float>) {
#if defined(__CUDA_ARCH__)
      const auto bits = std::bit_cast<std::uint32_t>(a);
      std::uint16_t rounded = 0;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(a));
      const std::uint32_t quiet = ((bits >> 16) & 0x8000U) | 0x7E00U | ((bits >> 13) & 0x3FFU);
      return Half::from_bits((bits & 0x7FFFFFFFU) > 0x7F800000U ? static_cast<std::uint16_t>(quiet)
                                                                : rounded);
#elif defined(__F16C__) && defined(__AVX__) && !defined(__CUDACC__)
      return Half::from_bits(static_cast<std::uint16_t>(
          _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(a), _MM_FROUND_TO_NEAREST_INT), 0)));
#else
      return Half(a);
#endif
    } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      return widen_value<T>(a);
    } else {
      return T(a);
    }
  }

  template <class T, class A>
  ROUNDOFF_DEVICE T add_value(T y, A a) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
    if constexpr (std::is_same_v<T, float> && std::is_same_v<A, double>)
      return narrow_value<float>(widen_value<double>(y) + a);
    else
      return y + widen_value<T>(a);
  }

  template <std::size_t kBytes>
  struct PackWord;
  template <>
  struct PackWord<4> {
    using Type = unsigned;
  };
  template <>
  struct PackWord<8> {
    using Type = uint2;
  };
  template <>
  struct PackWord<16> {
    using Type = uint4;
  };
  // What an access carries, as the values that are in it.
  template <class T, int kCount>
  struct PackLanes {
    T lane[kCount];
  };

  // Values as they are stored: for what moves bits.
  template <class T, int kCount>
  ROUNDOFF_DEVICE PackLanes<T, kCount> load_lanes(const T* p) {
    constexpr std::size_t kBytes = sizeof(T) * kCount;
    static_assert(kBytes <= 16, "one access is at most 16 bytes");
    if constexpr (kBytes >= 4) {
      return std::bit_cast<PackLanes<T, kCount>>(load_vector<typename PackWord<kBytes>::Type>(p));
    } else {
      PackLanes<T, kCount> lanes;
      ROUNDOFF_UNROLL
      for (int i = 0; i < kCount; ++i) lanes.lane[i] = p[i];
      return lanes;
    }
  }
  template <class T, int kCount>
  ROUNDOFF_DEVICE void store_lanes(T * p, const PackLanes<T, kCount>& lanes) {
    constexpr std::size_t kBytes = sizeof(T) * kCount;
    static_assert(kBytes <= 16, "one access is at most 16 bytes");
    if constexpr (kBytes >= 4) {
      store_vector(p, std::bit_cast<typename PackWord<kBytes>::Type>(lanes));
    } else {
      ROUNDOFF_UNROLL
      for (int i = 0; i < kCount; ++i) p[i] = lanes.lane[i];
    }
  }

  template <class T, class A, int kCount>
  ROUNDOFF_DEVICE void load_pack(const T* p, A(&values)[kCount]) {
    const auto lanes = load_lanes<T, kCount>(p);
#if !defined(__CUDACC__) && defined(__F16C__) && defined(__AVX__)
    if constexpr (std::is_same_v<T, Half> && std::is_same_v<A, float> && kCount == 8) {
      _mm256_storeu_ps(values, _mm256_cvtph_ps(std::bit_cast<__m128i>(lanes)));
      return;
    }
#endif
    ROUNDOFF_UNROLL
    for (int i = 0; i < kCount; ++i) values[i] = widen_value<A>(lanes.lane[i]);
  }
  template <class T, class A, int kCount>
  ROUNDOFF_DEVICE void store_pack(T * p, const A(&values)[kCount]) {
    PackLanes<T, kCount> lanes;
#if !defined(__CUDACC__) && defined(__F16C__) && defined(__AVX__)
    if constexpr (std::is_same_v<T, Half> && std::is_same_v<A, float> && kCount == 8) {
      store_lanes(p, std::bit_cast<PackLanes<T, kCount>>(
                         _mm256_cvtps_ph(_mm256_loadu_ps(values), _MM_FROUND_TO_NEAREST_INT)));
      return;
    }
#endif
    ROUNDOFF_UNROLL
    for (int i = 0; i < kCount; ++i) lanes.lane[i] = narrow_value<T>(values[i]);
    store_lanes(p, lanes);
  }
  template <class T, class A, int kCount>
  ROUNDOFF_DEVICE void add_pack(T * p, const A(&values)[kCount]) {
    auto lanes = load_lanes<T, kCount>(p);
    ROUNDOFF_UNROLL
    for (int i = 0; i < kCount; ++i) lanes.lane[i] = add_value(lanes.lane[i], values[i]);
    store_lanes(p, lanes);
  }

  template <int kCount, class T>
  ROUNDOFF_HD int head_of(const T* p) {
    constexpr std::size_t kBytes = sizeof(T) * kCount;
    static_assert(kBytes <= 16, "one access is at most 16 bytes");
    return static_cast<int>((kBytes - reinterpret_cast<std::uintptr_t>(p) % kBytes) % kBytes /
                            sizeof(T));
  }

  // Pointers are aligned to their own type.
  template <int kCount, class T, class... More>
  ROUNDOFF_HD int pack_head(const T* p, const More*... more) {
    const int head = head_of<kCount>(p);
    return (true && ... && (head_of<kCount>(more) == head)) ? head : kNoPacks;
  }

  // One of `threads` threads over n >= 0 elements: single(i) for the `head` first elements (all of
  // them for kNoPacks) and for what the last pack leaves, pack(i) for elements i to i + kCount - 1.
  // Packs are handed out in turn, so that neighbours read neighbours.
  template <int kCount, class Pack, class Single>
  ROUNDOFF_DEVICE void for_each_pack(std::int64_t n, int head, std::int64_t thread,
                                     std::int64_t threads, Pack pack, Single single) {
    std::int64_t first = n;
    std::int64_t packs = 0;
    if (head >= 0 && head <= n) {
      first = head;
      packs = (n - first) / kCount;
    }
    for (std::int64_t i = thread; i < packs; i += threads) pack(first + i * kCount);
    const std::int64_t past = first + packs * kCount;
    for (std::int64_t i = thread; i < first; i += threads) single(i);
    for (std::int64_t i = past + thread; i < n; i += threads) single(i);
  }

}  // namespace

}  // namespace roundoff
