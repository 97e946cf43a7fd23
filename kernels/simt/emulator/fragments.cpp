#include "kernels/simt/emulator/fragments.h"

namespace roundoff::simt {

namespace {

void gather_a_scalar(const LaneRegisters<const std::uint32_t>& lanes, int at, const MmaKind& kind,
                     float (*a)[kMmaMaxK]) {
  const int registers = a_registers(kind);
  std::uint16_t bits[kMmaRows][kMmaMaxK];
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t* from = lanes[static_cast<std::size_t>(lane)] + at;
    for (int r = 0; r < registers; ++r) {
      const int row = lane / 4 + (r & 1) * 8;
      if (kind.operand == Operand::tf32) {
        a[row][lane % 4 + (r >> 1) * 4] = tf32_value(from[r]);
      } else {
        std::uint16_t* to = &bits[row][lane % 4 * 2 + (r >> 1) * 8];
        to[0] = static_cast<std::uint16_t>(from[r]);
        to[1] = static_cast<std::uint16_t>(from[r] >> 16);
      }
    }
  }
  if (kind.operand == Operand::tf32) return;
  for (int i = 0; i < kMmaRows; ++i) widen(kind.operand, bits[i], kind.k, a[i]);
}

void gather_b_scalar(const LaneRegisters<const std::uint32_t>& lanes, int at, const MmaKind& kind,
                     float* b, int pitch) {
  const int registers = b_registers(kind);
  std::uint16_t bits[kMmaMaxK][kMmaColumns];
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t* from = lanes[static_cast<std::size_t>(lane)] + at;
    for (int r = 0; r < registers; ++r) {
      if (kind.operand == Operand::tf32) {
        b[(lane % 4 + 4 * r) * pitch + lane / 4] = tf32_value(from[r]);
      } else {
        bits[lane % 4 * 2 + 8 * r][lane / 4] = static_cast<std::uint16_t>(from[r]);
        bits[lane % 4 * 2 + 8 * r + 1][lane / 4] = static_cast<std::uint16_t>(from[r] >> 16);
      }
    }
  }
  if (kind.operand == Operand::tf32) return;
  for (int l = 0; l < kind.k; ++l) widen(kind.operand, bits[l], kMmaColumns, b + l * pitch);
}

#if ROUNDOFF_VECTOR_FRAGMENTS

__m128i load_words(const std::uint32_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// Eight 16-bit patterns as fp32.
__m256 widen_8(Operand operand, __m128i bits) {
  if (operand == Operand::fp16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

__m128i tf32_words(__m128i words) {
  return _mm_and_si128(words, _mm_set1_epi32(static_cast<int>(0xFFFFE000U)));
}

// The shapes with four registers of A and two of B: m16n8k16, and m16n8k8 of tf32.
void gather_a_vector(const LaneRegisters<const std::uint32_t>& lanes, int at, Operand operand,
                     float (*a)[kMmaMaxK]) {
  for (int g = 0; g < 8; ++g) {
    const auto first = static_cast<std::size_t>(4 * g);
    __m128i word[4];
    for (std::size_t t = 0; t < 4; ++t) word[t] = load_words(lanes[first + t] + at);
    transpose_words(word[0], word[1], word[2], word[3]);
    for (int r = 0; r < 4; ++r) {
      float* row = a[g + (r & 1) * 8];
      if (operand == Operand::tf32) {
        _mm_storeu_ps(row + (r >> 1) * 4, _mm_castsi128_ps(tf32_words(word[r])));
      } else {
        _mm256_storeu_ps(row + (r >> 1) * 8, widen_8(operand, word[r]));
      }
    }
  }
}

// One column's word of eight lanes: the line it stands on, or both lines.
void store_lines(Operand operand, __m128i low, __m128i high, int t, int r, float* b, int pitch) {
  if (operand == Operand::tf32) {
    float* line = b + (t + 4 * r) * pitch;
    _mm_storeu_ps(line, _mm_castsi128_ps(tf32_words(low)));
    _mm_storeu_ps(line + 4, _mm_castsi128_ps(tf32_words(high)));
    return;
  }
  float* line = b + (2 * t + 8 * r) * pitch;
  const __m128i mask = _mm_set1_epi32(0xFFFF);
  const __m128i even = _mm_packus_epi32(_mm_and_si128(low, mask), _mm_and_si128(high, mask));
  const __m128i odd = _mm_packus_epi32(_mm_srli_epi32(low, 16), _mm_srli_epi32(high, 16));
  _mm256_storeu_ps(line, widen_8(operand, even));
  _mm256_storeu_ps(line + pitch, widen_8(operand, odd));
}

void gather_b_pair(const LaneRegisters<const std::uint32_t>& lanes, int at, Operand operand,
                   float* b, int pitch) {
  for (int t = 0; t < 4; ++t) {
    // word[i][h]: register i % 2 of tile i / 2, columns 4 h on.
    __m128i word[4][2];
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t g = 0; g < 4; ++g)
        word[g][h] = load_words(lanes[16 * h + 4 * g + static_cast<std::size_t>(t)] + at);
      transpose_words(word[0][h], word[1][h], word[2][h], word[3][h]);
    }
    for (int i = 0; i < 4; ++i)
      store_lines(operand, word[i][0], word[i][1], t, i % 2, b + i / 2 * kMmaColumns, pitch);
  }
}

// Rows g and g + 8 of eight columns, in four lanes' registers.
struct RowPair {
  __m256 row, row_8;
};
RowPair load_rows(const LaneRegisters<float>& lanes, std::size_t first, int at) {
  const auto two = [&](std::size_t t) {
    return _mm256_castps_pd(
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lanes[first + t] + at)),
                             _mm_loadu_ps(lanes[first + t + 2] + at), 1));
  };
  const __m256d even = two(0), odd = two(1);
  return {_mm256_castpd_ps(_mm256_unpacklo_pd(even, odd)),
          _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd))};
}
void store_rows(__m256 row, __m256 row_8, const LaneRegisters<float>& lanes, std::size_t first,
                int at) {
  const __m256d a = _mm256_castps_pd(row), b = _mm256_castps_pd(row_8);
  const __m256 even = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
  const __m256 odd = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
  _mm_storeu_ps(lanes[first] + at, _mm256_castps256_ps128(even));
  _mm_storeu_ps(lanes[first + 1] + at, _mm256_castps256_ps128(odd));
  _mm_storeu_ps(lanes[first + 2] + at, _mm256_extractf128_ps(even, 1));
  _mm_storeu_ps(lanes[first + 3] + at, _mm256_extractf128_ps(odd, 1));
}

#endif

}  // namespace

void gather_a(const LaneRegisters<const std::uint32_t>& lanes, int at, const MmaKind& kind,
              float (*a)[kMmaMaxK]) {
#if ROUNDOFF_VECTOR_FRAGMENTS
  if (a_registers(kind) == 4) return gather_a_vector(lanes, at, kind.operand, a);
#endif
  gather_a_scalar(lanes, at, kind, a);
}

void gather_b(const LaneRegisters<const std::uint32_t>& lanes, int at, int tiles,
              const MmaKind& kind, float* b, int pitch) {
#if ROUNDOFF_VECTOR_FRAGMENTS
  if (tiles == 2 && b_registers(kind) == 2) return gather_b_pair(lanes, at, kind.operand, b, pitch);
#endif
  for (int j = 0; j < tiles; ++j)
    gather_b_scalar(lanes, at + j * b_registers(kind), kind, b + j * kMmaColumns, pitch);
}

void fma_fragments(const LaneRegisters<float>& c, int at, int tiles, const float (*a)[kMmaMaxK],
                   const float* b, int pitch, int k) {
#if ROUNDOFF_VECTOR_FRAGMENTS
  if (tiles == 2) {
    // Eight chains: rows g, g + 8, g + 1, g + 9 of two tiles.
    for (std::size_t g = 0; g < 8; g += 2) {
      const std::size_t lane = 4 * g;
      RowPair x0 = load_rows(c, lane, at), y0 = load_rows(c, lane, at + 4);
      RowPair x1 = load_rows(c, lane + 4, at), y1 = load_rows(c, lane + 4, at + 4);
      for (int l = 0; l < k; ++l) {
        const __m256 left = _mm256_loadu_ps(b + l * pitch);
        const __m256 right = _mm256_loadu_ps(b + l * pitch + kMmaColumns);
        const auto row = [&](std::size_t i) { return _mm256_broadcast_ss(&a[i][l]); };
        __m256 factor = row(g);
        x0.row = _mm256_fmadd_ps(factor, left, x0.row);
        y0.row = _mm256_fmadd_ps(factor, right, y0.row);
        factor = row(g + 8);
        x0.row_8 = _mm256_fmadd_ps(factor, left, x0.row_8);
        y0.row_8 = _mm256_fmadd_ps(factor, right, y0.row_8);
        factor = row(g + 1);
        x1.row = _mm256_fmadd_ps(factor, left, x1.row);
        y1.row = _mm256_fmadd_ps(factor, right, y1.row);
        factor = row(g + 9);
        x1.row_8 = _mm256_fmadd_ps(factor, left, x1.row_8);
        y1.row_8 = _mm256_fmadd_ps(factor, right, y1.row_8);
      }
      store_rows(x0.row, x0.row_8, c, lane, at);
      store_rows(y0.row, y0.row_8, c, lane, at + 4);
      store_rows(x1.row, x1.row_8, c, lane + 4, at);
      store_rows(y1.row, y1.row_8, c, lane + 4, at + 4);
    }
    return;
  }
#endif
  constexpr int kPitch = 2 * kMmaColumns;
  float tile[kMmaRows * kPitch];
  for (int j = 0; j < tiles; ++j) gather_c(c, at + 4 * j, tile + j * kMmaColumns, kPitch);
  fma_tile({a[0], kMmaMaxK, b, pitch, tile, kPitch, kMmaRows, tiles * kMmaColumns, k});
  for (int j = 0; j < tiles; ++j) scatter_c(tile + j * kMmaColumns, kPitch, c, at + 4 * j);
}

}  // namespace roundoff::simt
