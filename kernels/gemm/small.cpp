#include "kernels/gemm/small.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/simd.h"

namespace roundoff {

namespace {

using simd::kLanes;
using simd::Vector;

// ---- B [k, n]: columns of C side by side

// Rows of C that are summed at once, beside two vectors of columns.
constexpr int kRows = simd::kRegisters == 32 ? 8 : 4;

// Rows [0, kCount) of C and kVectors vectors of columns, of the last of which `part_width` are
// there.
template <int kCount, int kVectors, bool kTransA>
void columns_tile(const Product<float>& p, const float* a, const float* b, std::int64_t part_width,
                  float* c) {
  const simd::Part part(part_width);
  Vector sums[kCount][kVectors];
  for (auto& row : sums)
    for (Vector& v : row) v = simd::broadcast(0.0F);
  // Four rows share a base, so that few registers hold addresses.
  constexpr int kBases = (kCount + 3) / 4;
  const std::int64_t row = kTransA ? 1 : p.lda, next = kTransA ? p.lda : 1, ldb = p.ldb;
  const std::int64_t offset[4] = {0, row, 2 * row, 3 * row};
  const float* base[kBases];
  for (int i = 0; i < kBases; ++i) base[i] = a + 4 * i * row;
  for (std::int64_t l = 0; l < p.k; ++l, b += ldb) {
    Vector right[kVectors];
    for (int v = 0; v + 1 < kVectors; ++v) right[v] = simd::load(b + v * kLanes);
    right[kVectors - 1] = part.load(b + (kVectors - 1) * kLanes);
    for (int i = 0; i < kCount; ++i) {
      const Vector left = simd::broadcast(base[i / 4][offset[i % 4]]);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = simd::fma(left, right[v], sums[i][v]);
    }
    for (const float*& from : base) from += next;
  }
  // No lane of C is read unless it is continued.
  const simd::Part held_whole(p.accumulate ? kLanes : 0), held_part(p.accumulate ? part_width : 0);
  const Vector alpha = simd::broadcast(p.alpha);
  simd::unroll<kCount>([&](auto i) __attribute__((always_inline)) {
    simd::unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      constexpr bool kLast = v == kVectors - 1;
      float* to = c + i * p.ldc + v * kLanes;
      const Vector held = (kLast ? held_part : held_whole).load(to);
      const Vector value = simd::fma(alpha, sums[i][v], held);
      if constexpr (kLast)
        part.store(to, value);
      else
        simd::store(to, value);
    });
  });
}

using ColumnsTile = decltype(&columns_tile<1, 1, false>);
template <int kVectors, bool kTransA, int... kCounts>
constexpr std::array<ColumnsTile, sizeof...(kCounts)> columns_tiles(
    std::integer_sequence<int, kCounts...>) {
  return {&columns_tile<kCounts + 1, kVectors, kTransA>...};
}
constexpr auto kCounts = std::make_integer_sequence<int, kRows>();
// [trans_a][vectors - 1][rows - 1]
constexpr std::array<std::array<std::array<ColumnsTile, kRows>, 2>, 2> kColumnsTiles{
    {{columns_tiles<1, false>(kCounts), columns_tiles<2, false>(kCounts)},
     {columns_tiles<1, true>(kCounts), columns_tiles<2, true>(kCounts)}}};

void columns_product(const Product<float>& p) {
  for (std::int64_t j = 0; j < p.n; j += 2 * kLanes) {
    const std::int64_t columns = std::min(2 * kLanes, p.n - j);
    const std::size_t vectors = columns > kLanes ? 2 : 1;
    const std::int64_t last = columns - static_cast<std::int64_t>(vectors - 1) * kLanes;
    for (std::int64_t i = 0; i < p.m; i += kRows) {
      const std::int64_t rows = std::min<std::int64_t>(kRows, p.m - i);
      kColumnsTiles[p.trans_a ? 1 : 0][vectors - 1][static_cast<std::size_t>(rows - 1)](
          p, p.a + (p.trans_a ? i : i * p.lda), p.b + j, last, p.c + i * p.ldc + j);
    }
  }
}

// ---- A [m, k], B [n, k]: terms of a sum side by side

constexpr int kSquare = simd::kRegisters == 32 ? 4 : 3;

// kM rows of C and kN of its columns.
template <int kM, int kN>
void dots_tile(const Product<float>& p, const float* a, const float* b, float* c) {
  Vector sums[kM][kN];
  for (auto& row : sums)
    for (Vector& v : row) v = simd::broadcast(0.0F);
  const auto add = [&](const auto& load) {
    Vector left[kM];
    for (int i = 0; i < kM; ++i) left[i] = load(a + i * p.lda);
    for (int j = 0; j < kN; ++j) {
      const Vector right = load(b + j * p.ldb);
      for (int i = 0; i < kM; ++i) sums[i][j] = simd::fma(left[i], right, sums[i][j]);
    }
    a += kLanes;
    b += kLanes;
  };
  std::int64_t l = 0;
  for (; l + kLanes <= p.k; l += kLanes) add([](const float* from) { return simd::load(from); });
  if (l < p.k) {
    const simd::Part part(p.k - l);
    add([&](const float* from) { return part.load(from); });
  }
  simd::unroll<kM>([&](auto i) __attribute__((always_inline)) {
    simd::unroll<kN>([&](auto j) __attribute__((always_inline)) {
      float* to = c + i * p.ldc + j;
      *to = std::fma(p.alpha, simd::sum(sums[i][j]), p.accumulate ? *to : 0.0F);
    });
  });
}

using DotsTile = decltype(&dots_tile<1, 1>);
template <int kM, int... kCounts>
constexpr std::array<DotsTile, sizeof...(kCounts)> dots_tiles(
    std::integer_sequence<int, kCounts...>) {
  return {&dots_tile<kM, kCounts + 1>...};
}
template <int... kCounts>
constexpr std::array<std::array<DotsTile, sizeof...(kCounts)>, sizeof...(kCounts)> all_dots_tiles(
    std::integer_sequence<int, kCounts...> counts) {
  return {dots_tiles<kCounts + 1>(counts)...};
}
// [rows - 1][columns - 1]
constexpr auto kDotsTiles = all_dots_tiles(std::make_integer_sequence<int, kSquare>());

void dots_product(const Product<float>& p) {
  for (std::int64_t i = 0; i < p.m; i += kSquare) {
    const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(kSquare, p.m - i));
    for (std::int64_t j = 0; j < p.n; j += kSquare) {
      const auto columns = static_cast<std::size_t>(std::min<std::int64_t>(kSquare, p.n - j));
      kDotsTiles[rows - 1][columns - 1](p, p.a + i * p.lda, p.b + j * p.ldb, p.c + i * p.ldc + j);
    }
  }
}

}  // namespace

bool small_product_serves(const Product<float>& p) {
  // Compared as floating-point numbers: a product of extents may leave 64 bit.
  constexpr double kLargest = 64.0 * 64 * 64;
  if (!simd::kPresent || (p.trans_a && p.trans_b)) return false;
  if (static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) > kLargest)
    return false;
  // The vectors' axis should fill at least half of one.
  return 2 * (p.trans_b ? p.k : p.n) >= kLanes;
}

void small_product(const Product<float>& p) { p.trans_b ? dots_product(p) : columns_product(p); }

}  // namespace roundoff
