// One vector of fp32 with fused multiply-add, in the widest form that the build's target has.
// Internal to the reference path; for what compilers do not vectorise well on their own.
#pragma once

#include <cstdint>

#if (defined(__AVX2__) && defined(__FMA__)) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace roundoff::simd {

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

#endif

}  // namespace roundoff::simd
