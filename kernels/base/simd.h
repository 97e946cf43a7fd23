// One vector of fp32 with fused multiply-add, in the widest form that the build's target has.
// Internal to the reference path; for what compilers do not vectorise well on their own.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#if (defined(__AVX2__) && defined(__FMA__)) || defined(__AVX512F__)
// g++ 12 takes its own "undefined" vector operands for variables that nobody initialised.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

namespace roundoff::simd {

#if (defined(__AVX2__) && defined(__FMA__)) || defined(__AVX512F__)
inline float sum_of_8(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
#endif

#if defined(__AVX512F__)

inline constexpr bool kPresent = true;
inline constexpr std::int64_t kLanes = 16;
inline constexpr int kRegisters = 32;
using Vector = __m512;
inline Vector load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
inline Vector broadcast(float value) { return _mm512_set1_ps(value); }
// a * b + c, rounded once.
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
// The sum of the lanes, halves added to halves.
inline float sum(Vector v) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
  return sum_of_8(_mm256_add_ps(_mm512_castps512_ps256(v), high));
}
// The first n lanes, 0 <= n <= kLanes: of others nothing is read or written.
class Part {
 public:
  explicit Part(std::int64_t n) : mask_(static_cast<__mmask16>((1U << n) - 1U)) {}
  // 0 in the other lanes.
  Vector load(const float* p) const { return _mm512_maskz_loadu_ps(mask_, p); }
  void store(float* p, Vector v) const { _mm512_mask_storeu_ps(p, mask_, v); }

 private:
  __mmask16 mask_;
};

#elif defined(__AVX2__) && defined(__FMA__)

inline constexpr bool kPresent = true;
inline constexpr std::int64_t kLanes = 8;
inline constexpr int kRegisters = 16;
using Vector = __m256;
inline Vector load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
inline Vector broadcast(float value) { return _mm256_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
inline float sum(Vector v) { return sum_of_8(v); }
class Part {
 public:
  explicit Part(std::int64_t n)
      : mask_(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                                 _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))) {}
  Vector load(const float* p) const { return _mm256_maskload_ps(p, mask_); }
  void store(float* p, Vector v) const { _mm256_maskstore_ps(p, mask_, v); }

 private:
  __m256i mask_;
};

#else

// Never called: what needs these vectors asks for kPresent first.
inline constexpr bool kPresent = false;
inline constexpr std::int64_t kLanes = 4;
inline constexpr int kRegisters = 16;
struct Vector {
  float lane[4];
};
inline Vector load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
inline void store(float* p, Vector v) {
  for (int i = 0; i < 4; ++i) p[i] = v.lane[i];
}
inline Vector broadcast(float value) { return {{value, value, value, value}}; }
inline Vector fma(Vector a, Vector b, Vector c) {
  for (int i = 0; i < 4; ++i) c.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
inline Vector add(Vector a, Vector b) {
  for (int i = 0; i < 4; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline float sum(Vector v) { return (v.lane[0] + v.lane[2]) + (v.lane[1] + v.lane[3]); }
class Part {
 public:
  explicit Part(std::int64_t n) : n_(n) {}
  Vector load(const float* p) const {
    Vector v{};
    for (std::int64_t i = 0; i < n_; ++i) v.lane[i] = p[i];
    return v;
  }
  void store(float* p, Vector v) const {
    for (std::int64_t i = 0; i < n_; ++i) p[i] = v.lane[i];
  }

 private:
  std::int64_t n_;
};

#endif

// f(0), f(1), ... f(kCount - 1) in straight line, each number a constant: a loop over an array of
// vectors that a compiler does not unroll holds them in memory.
template <int kCount, class F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, kIndex>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

}  // namespace roundoff::simd
