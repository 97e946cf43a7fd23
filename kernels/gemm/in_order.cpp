// Tiles of C stay in vector registers while a block of k runs past; between blocks they wait in C,
// which is fp32 as they are, so that no blocking shows in a result. B is packed into panels of a
// tile's columns, A is read where it lies, or packed where it is held transposed.
#include "kernels/gemm/in_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/simd.h"

namespace roundoff {

namespace {

using simd::kLanes;
using simd::Vector;

// With two vectors of B and one broadcast value of A the sums fill the registers.
constexpr int kRows = simd::kRegisters == 32 ? 12 : 6;
constexpr int kMaxVectors = 2;
constexpr std::int64_t kWidth = kMaxVectors * kLanes;

// A panel of B and a tile's rows of A fit into a first-level cache, all panels into a second-level
// one.
constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kColumns = 256;

// One operand's tile: element (row i, term l) at from[i * row + l * next].
struct Rows {
  const float* from;
  std::int64_t row, next;
};

// Rows [0, kCount) of C and kVectors vectors of its columns, of the last of which `part_width` are
// there; b: `ldb` from term to term. kPacked: all lanes of b may be read.
template <int kCount, int kVectors, bool kPacked>
void chain_tile(const Rows& a, const float* b, std::int64_t ldb, std::int64_t k,
                std::int64_t part_width, bool holds, float* c, std::int64_t ldc) {
  const simd::Part part(part_width);
  Vector sums[kCount][kVectors];
  for (auto& row : sums)
    for (Vector& v : row) v = simd::broadcast(0.0F);
  if (holds) {
    for (int i = 0; i < kCount; ++i) {
      for (int v = 0; v + 1 < kVectors; ++v) sums[i][v] = simd::load(c + i * ldc + v * kLanes);
      sums[i][kVectors - 1] = part.load(c + i * ldc + (kVectors - 1) * kLanes);
    }
  }
  // Four rows share a base, so that few registers hold addresses.
  constexpr int kBases = (kCount + 3) / 4;
  const std::int64_t offset[4] = {0, a.row, 2 * a.row, 3 * a.row};
  const float* base[kBases];
  for (int i = 0; i < kBases; ++i) base[i] = a.from + 4 * i * a.row;
  for (std::int64_t l = 0; l < k; ++l, b += ldb) {
    Vector right[kVectors];
    for (int v = 0; v + 1 < kVectors; ++v) right[v] = simd::load(b + v * kLanes);
    const float* last = b + (kVectors - 1) * kLanes;
    right[kVectors - 1] = kPacked ? simd::load(last) : part.load(last);
    for (int i = 0; i < kCount; ++i) {
      const Vector left = simd::broadcast(base[i / 4][offset[i % 4]]);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = simd::fma(left, right[v], sums[i][v]);
    }
    for (const float*& from : base) from += a.next;
  }
  simd::unroll<kCount>([&](auto i) __attribute__((always_inline)) {
    simd::unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      float* to = c + i * ldc + v * kLanes;
      if constexpr (v == kVectors - 1)
        part.store(to, sums[i][v]);
      else
        simd::store(to, sums[i][v]);
    });
  });
}

using ChainTile = decltype(&chain_tile<1, 1, false>);
template <int kVectors, bool kPacked, int... kCounts>
constexpr std::array<ChainTile, sizeof...(kCounts)> chain_tiles(
    std::integer_sequence<int, kCounts...>) {
  return {&chain_tile<kCounts + 1, kVectors, kPacked>...};
}
constexpr auto kCounts = std::make_integer_sequence<int, kRows>();
// [packed][vectors - 1][rows - 1]
constexpr std::array<std::array<std::array<ChainTile, kRows>, kMaxVectors>, 2> kChainTiles{
    {{chain_tiles<1, false>(kCounts), chain_tiles<2, false>(kCounts)},
     {chain_tiles<1, true>(kCounts), chain_tiles<2, true>(kCounts)}}};

// Columns of a panel, and elements from one of its terms to the next.
std::int64_t panel_width(std::int64_t columns) { return columns > kLanes ? kWidth : kLanes; }

#if defined(__AVX2__)
// to[l * step + j] = from[j * ld + l] for 8 x 8 elements.
void turn_8x8(const float* from, std::int64_t ld, float* to, std::int64_t step) {
  const auto row = [&](std::int64_t i) { return _mm256_loadu_ps(from + i * ld); };
  __m256 pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(row(i), row(i + 1));
    pairs[i + 1] = _mm256_unpackhi_ps(row(i), row(i + 1));
  }
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * step, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * step, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
  }
}
#endif

// to[l * width + j] = B's term l of column j; columns beyond `columns` are 0.
void pack_panel(const Product<float>& p, std::int64_t first_term, std::int64_t terms,
                std::int64_t first, std::int64_t columns, std::int64_t width, float* to) {
  if (!p.trans_b) {
    const float* from = p.b + first_term * p.ldb + first;
    for (std::int64_t l = 0; l < terms; ++l, from += p.ldb, to += width) {
      std::copy_n(from, columns, to);
      std::fill_n(to + columns, width - columns, 0.0F);
    }
    return;
  }
  const float* from = p.b + first * p.ldb + first_term;
  std::int64_t j = 0;
#if defined(__AVX2__)
  for (; j + 8 <= columns; j += 8) {
    std::int64_t l = 0;
    for (; l + 8 <= terms; l += 8) turn_8x8(from + j * p.ldb + l, p.ldb, to + l * width + j, width);
    for (; l < terms; ++l)
      for (std::int64_t i = j; i < j + 8; ++i) to[l * width + i] = from[i * p.ldb + l];
  }
#endif
  for (; j < columns; ++j)
    for (std::int64_t l = 0; l < terms; ++l) to[l * width + j] = from[j * p.ldb + l];
  for (; j < width; ++j)
    for (std::int64_t l = 0; l < terms; ++l) to[l * width + j] = 0.0F;
}

// Cuts [0, n) into parts of at most kRows that differ by at most 1: f(begin, count).
template <class F>
void each_tile(std::int64_t n, F&& f) {
  const std::int64_t parts = (n + kRows - 1) / kRows;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t count = n / parts + (i < n % parts ? 1 : 0);
    f(begin, count);
    begin += count;
  }
}

// Terms [first, first + terms) of columns [left, left + columns), for all rows.
void chain_block(const Product<float>& p, std::int64_t first, std::int64_t terms, std::int64_t left,
                 std::int64_t columns, bool holds, float* panels, float* turned) {
  // One tile's rows do not repay the packing of a matrix that is read along its lines anyway.
  const bool packs = p.trans_b || p.m > kRows;
  if (packs)
    for (std::int64_t j = 0; j < columns; j += kWidth) {
      const std::int64_t n = std::min(kWidth, columns - j);
      pack_panel(p, first, terms, left + j, n, panel_width(n), panels + j * terms);
    }
  each_tile(p.m, [&](std::int64_t row, std::int64_t count) {
    Rows a{p.a + row * p.lda + first, p.lda, 1};
    if (p.trans_a) {
      const float* from = p.a + first * p.lda + row;
      for (std::int64_t l = 0; l < terms; ++l, from += p.lda)
        for (std::int64_t i = 0; i < count; ++i) turned[l * kRows + i] = from[i];
      a = {turned, 1, kRows};
    }
    for (std::int64_t j = 0; j < columns; j += kWidth) {
      const std::int64_t n = std::min(kWidth, columns - j);
      const std::size_t vectors = n > kLanes ? 2 : 1;
      const std::int64_t last = n - static_cast<std::int64_t>(vectors - 1) * kLanes;
      const ChainTile tile =
          kChainTiles[packs ? 1 : 0][vectors - 1][static_cast<std::size_t>(count - 1)];
      tile(a, packs ? panels + j * terms : p.b + first * p.ldb + left + j,
           packs ? panel_width(n) : p.ldb, terms, last, holds, p.c + row * p.ldc + left + j, p.ldc);
    }
  });
}

template <class T>
void fill_zeros(const Product<T>& p) {
  for (std::int64_t i = 0; i < p.m; ++i) std::fill_n(p.c + i * p.ldc, p.n, T{0});
}

}  // namespace

void product_in_order(const Product<float>& p, Scratch& scratch) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    if (!p.accumulate) fill_zeros(p);
    return;
  }
  Scratch::Frame frame(scratch);
  const std::int64_t depth = std::min(kDepth, p.k);
  float* panels =
      scratch.get<float>(depth * ((std::min(kColumns, p.n) + kWidth - 1) / kWidth * kWidth));
  float* turned = p.trans_a ? scratch.get<float>(depth * kRows) : nullptr;
  for (std::int64_t left = 0; left < p.n; left += kColumns)
    for (std::int64_t first = 0; first < p.k; first += kDepth)
      chain_block(p, first, std::min(kDepth, p.k - first), left, std::min(kColumns, p.n - left),
                  p.accumulate || first != 0, panels, turned);
}

void product_in_order(const Product<double>& p, Scratch& scratch) {
  if (p.m == 0 || p.n == 0) return;
  if (!p.accumulate) fill_zeros(p);
  Scratch::Frame frame(scratch);
  const double* b = p.b;
  std::int64_t ldb = p.ldb;
  if (p.trans_b) {
    double* turned = scratch.get<double>(p.n * p.k);
    for (std::int64_t j = 0; j < p.n; ++j)
      for (std::int64_t l = 0; l < p.k; ++l) turned[l * p.n + j] = p.b[j * p.ldb + l];
    b = turned;
    ldb = p.n;
  }
  for (std::int64_t i = 0; i < p.m; ++i) {
    double* c = p.c + i * p.ldc;
    for (std::int64_t l = 0; l < p.k; ++l) {
      const double a = p.trans_a ? p.a[l * p.lda + i] : p.a[i * p.lda + l];
      const double* from = b + l * ldb;
      for (std::int64_t j = 0; j < p.n; ++j) c[j] = std::fma(a, from[j], c[j]);
    }
  }
}

}  // namespace roundoff
