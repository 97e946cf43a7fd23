// What softmax and the losses over classes share.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/elementwise/chunks.h"
#include "kernels/reduce/sum_tree.h"

namespace roundoff::detail {

// Largest of the n elements from `at` on, -inf for none.
// A NaN need not win here: it makes the sum of exponentials NaN.
template <class T>
T row_maximum(const ConstView& row, std::int64_t at, std::int64_t n) {
  T buffer[kChunk];
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<T>::infinity());
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t m = std::min(kChunk, n - i);
    const T* x = load(row, at + i, m, buffer);
    std::int64_t k = 0;
    for (; k + kLanes <= m; k += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] = x[k + j] > lanes[j] ? x[k + j] : lanes[j];
    for (int j = 0; k + j < m; ++j) lanes[j] = x[k + j] > lanes[j] ? x[k + j] : lanes[j];
  }
  return *std::max_element(lanes, lanes + kLanes);
}

}  // namespace roundoff::detail
