// The row reductions of kernels/reduce/block.cuh, one launcher a kind.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

// Rows of `width` threads (1, 2, 8, 32, 64, 128, 256 or 1024), `rows` of them, one value a thread.
// What thread i sees goes to out[i]: the sum, then the largest, the smallest, the sum once more,
// of reversed rows.
template <DeviceTarget T>
void launch_row_sums(T target, int width, unsigned rows, const float* x, float* sum, float* max,
                     float* min, float* again);

// Indices of the first largest and of the first smallest value of the row; sums of x and x * x.
template <DeviceTarget T>
void launch_row_pairs(T target, int width, unsigned rows, const double* x, std::int64_t* largest,
                      std::int64_t* smallest, double* sum, double* squares);

}  // namespace roundoff
