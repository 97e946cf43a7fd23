// A warp's fragments (layouts: kernels/simt/mma.h) as matrices, and back. Internal to the emulator.
// Four lanes 4 g .. 4 g + 3 hold a row, so that a transpose of four vectors brings it together.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/base/simd.h"
#include "kernels/simt/emulator/mma.h"
#include "kernels/simt/emulator/products.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define ROUNDOFF_VECTOR_FRAGMENTS 1
#else
#define ROUNDOFF_VECTOR_FRAGMENTS 0
#endif

namespace roundoff::simt {

inline constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaMaxK = 16;

// Registers of each lane.
template <class Register>
using LaneRegisters = std::array<Register*, 32>;

constexpr int a_registers(const MmaKind& kind) {
  return kind.operand == Operand::tf32 ? kind.k / 2 : kind.k / 4;
}
constexpr int b_registers(const MmaKind& kind) { return a_registers(kind) / 2; }

// A's rows, 16 x k, from the registers that begin with number `at`.
void gather_a(const LaneRegisters<const std::uint32_t>& lanes, int at, const MmaKind& kind,
              float (*a)[kMmaMaxK]);

// B's lines, k x 8 for each of `tiles` (1 or 2) neighbours, `pitch` floats apart.
void gather_b(const LaneRegisters<const std::uint32_t>& lanes, int at, int tiles,
              const MmaKind& kind, float* b, int pitch);

// Accumulators of a 16 x 8 tile, four registers from `at` on.
template <class Float>
void gather_c(const LaneRegisters<Float>& lanes, int at, float* c, int pitch) {
  for (int g = 0; g < 8; ++g) {
    float *row = c + g * pitch, *row_8 = c + (g + 8) * pitch;
    for (int t = 0; t < 4; ++t) {
      const float* from = lanes[static_cast<std::size_t>(4 * g + t)] + at;
      for (int i = 0; i < 2; ++i) {
        row[2 * t + i] = from[i];
        row_8[2 * t + i] = from[2 + i];
      }
    }
  }
}
inline void scatter_c(const float* c, int pitch, const LaneRegisters<float>& lanes, int at) {
  for (int lane = 0; lane < 32; ++lane) {
    float* to = lanes[static_cast<std::size_t>(lane)] + at;
    const float* from = c + lane / 4 * pitch + lane % 4 * 2;
    std::memcpy(to, from, 8);
    std::memcpy(to + 2, from + 8 * pitch, 8);
  }
}

// c += a b by chains of fused multiply-adds, the accumulators staying where lanes have them: 16
// rows of A by one or two tiles of columns.
void fma_fragments(const LaneRegisters<float>& c, int at, int tiles, const float (*a)[kMmaMaxK],
                   const float* b, int pitch, int k);

#if ROUNDOFF_VECTOR_FRAGMENTS
// Four vectors of four words, rows becoming columns.
inline void transpose_words(__m128i& a, __m128i& b, __m128i& c, __m128i& d) {
  const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
  const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
  a = _mm_unpacklo_epi64(ab, cd);
  b = _mm_unpackhi_epi64(ab, cd);
  c = _mm_unpacklo_epi64(ab_high, cd_high);
  d = _mm_unpackhi_epi64(ab_high, cd_high);
}
#endif

// An 8 x 8 matrix of 16-bit elements, in place.
inline void transpose_elements(std::uint16_t (&m)[8][8]) {
#if ROUNDOFF_VECTOR_FRAGMENTS
  const auto row = [&m](int i) { return reinterpret_cast<__m128i*>(m[i]); };
  __m128i pair[8];  // rows 2 i and 2 i + 1, their elements in turn: columns 0 to 3, then 4 to 7
  for (int i = 0; i < 4; ++i) {
    const __m128i a = _mm_loadu_si128(row(2 * i)), b = _mm_loadu_si128(row(2 * i + 1));
    pair[i] = _mm_unpacklo_epi16(a, b);
    pair[i + 4] = _mm_unpackhi_epi16(a, b);
  }
  transpose_words(pair[0], pair[1], pair[2], pair[3]);
  transpose_words(pair[4], pair[5], pair[6], pair[7]);
  for (int i = 0; i < 8; ++i) _mm_storeu_si128(row(i), pair[i]);
#else
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < i; ++j) std::swap(m[i][j], m[j][i]);
#endif
}

}  // namespace roundoff::simt
