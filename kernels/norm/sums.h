// Sums of the norms' reference kernels: fixed order, shallow trees. Not a public header.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace roundoff::norm {

// Leaves of the trees: elements of one line, rows of a matrix.
inline constexpr std::int64_t kLeafElements = 256;
inline constexpr std::int64_t kLeafRows = 64;
inline constexpr std::int64_t kLanes = 16;

// The largest leaf * 2^k below n: where a tree of more than one leaf splits.
inline std::int64_t split(std::int64_t n, std::int64_t leaf) {
  const auto leaves = static_cast<std::uint64_t>((n - 1) / leaf);
  return leaf * static_cast<std::int64_t>(std::bit_floor(leaves));
}

// f(first) + ... + f(first + n - 1): leaves in 16 lanes, then pairs of subtrees.
// Depth: min(n, 256)/16 + 4 + ceil(log2(n / 256)).
template <class T, class F>
T sum(std::int64_t first, std::int64_t n, const F& f) {
  if (n > kLeafElements) {
    const std::int64_t half = split(n, kLeafElements);
    const T left = sum<T>(first, half, f);
    return left + sum<T>(first + half, n - half, f);
  }
  T lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) lane[j] += f(first + i + j);
  for (std::int64_t j = 0; i + j < n; ++j) lane[j] += f(first + i + j);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}

// Vectors of `width` sums that row_sums needs beside its result.
inline std::int64_t spare_rows(std::int64_t n) {
  if (n <= kLeafRows) return 0;
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>((n - 1) / kLeafRows)));
}

// result[j] = sum over rows [first, first + n) of a matrix's contributions. leaf(row, count, sums)
// adds the contributions of at most 64 rows, one row after the other, to `sums`, which starts from
// zero. spare: spare_rows(n) * width elements. Depth: min(n, 64) + ceil(log2(n / 64)).
template <class T, class Leaf>
void row_sums(std::int64_t first, std::int64_t n, std::int64_t width, T* result, T* spare,
              const Leaf& leaf) {
  if (n <= kLeafRows) {
    std::fill_n(result, width, T(0));
    if (n > 0) leaf(first, n, result);
    return;
  }
  const std::int64_t half = split(n, kLeafRows);
  row_sums(first, half, width, result, spare, leaf);
  row_sums(first + half, n - half, width, spare, spare + width, leaf);
  for (std::int64_t j = 0; j < width; ++j) result[j] += spare[j];
}

}  // namespace roundoff::norm
