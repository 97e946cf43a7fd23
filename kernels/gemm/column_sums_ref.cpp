#include <algorithm>
#include <type_traits>

#include "kernels/base/half.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/operand.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "column_sums";
constexpr std::int64_t kBlock = 128;

// to[j] += the sum of rows 0 to n - 1 of x, `step` elements apart, for kWidth columns: four
// interleaved sums, so that additions do not wait for each other.
template <class T, std::int64_t kWidth>
void add_block(const T* x, std::int64_t n, std::int64_t step, T* to) {
  T sums[4][kWidth] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::int64_t lane = 0; lane < 4; ++lane)
      for (std::int64_t j = 0; j < kWidth; ++j) sums[lane][j] += x[(i + lane) * step + j];
  for (; i < n; ++i)
    for (std::int64_t j = 0; j < kWidth; ++j) sums[0][j] += x[i * step + j];
  for (std::int64_t j = 0; j < kWidth; ++j)
    to[j] += (sums[0][j] + sums[1][j]) + (sums[2][j] + sums[3][j]);
}

template <class T>
void sum_columns(const ColumnSumsParams& p, const ConstView& x, T* total, Scratch& scratch) {
  for (std::int64_t i = 0; i < p.rows; i += kBlock) {
    Scratch::Frame frame(scratch);
    const std::int64_t n = std::min(kBlock, p.rows - i);
    const T* rows = operand<T>(x, i * p.columns, n * p.columns, false, scratch);
    std::int64_t j = 0;
    for (; j + 16 <= p.columns; j += 16) add_block<T, 16>(rows + j, n, p.columns, total + j);
    for (; j < p.columns; ++j) add_block<T, 1>(rows + j, n, p.columns, total + j);
  }
}

// One chain: partial sums would each start afresh.
void sum_columns_in_half(const ColumnSumsParams& p, const ConstView& x, float* total,
                         Scratch& scratch) {
  for (std::int64_t i = 0; i < p.rows; ++i) {
    Scratch::Frame frame(scratch);
    const float* row = operand<float>(x, i * p.columns, p.columns, false, scratch);
    for (std::int64_t j = 0; j < p.columns; ++j)
      total[j] =
          static_cast<float>(Half(static_cast<double>(total[j]) + static_cast<double>(row[j])));
  }
}

template <class T>
void sum_and_write(const ColumnSumsParams& p, const ConstView& x, const Out& y, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* total = scratch.get<T>(p.columns);
  std::fill_n(total, p.columns, T{0});
  if (p.accumulator != Accumulator::fp16) {
    sum_columns(p, x, total, scratch);
  } else if constexpr (std::is_same_v<T, float>) {
    sum_columns_in_half(p, x, total, scratch);
  } else {
    sum_columns(p, x, total, scratch);
  }
  if (p.scale != 1)
    for (std::int64_t j = 0; j < p.columns; ++j) total[j] *= static_cast<T>(p.scale);
  narrow(total, p.columns, y, 0);
}

}  // namespace

void column_sums(Ref, const ColumnSumsParams& p, const ConstView& x, const Out& y,
                 Scratch& scratch) {
  if (!y.wanted) return;
  ROUNDOFF_CHECK(p.rows >= 0 && p.columns >= 0, kName, "sizes ", p.rows, " x ", p.columns,
                 ", none may be negative");
  ROUNDOFF_CHECK(is_floating(x.dtype) && is_floating(y.view.dtype), kName, "takes ", name(x.dtype),
                 " to ", name(y.view.dtype), ", floating types expected");
  ROUNDOFF_CHECK(x.numel() == p.rows * p.columns && y.view.numel() == p.columns, kName,
                 "x of shape ", x.shape, " and y of shape ", y.view.shape, ", ", p.rows, " x ",
                 p.columns, " and ", p.columns, " values expected");
  ROUNDOFF_CHECK(y.write == Write::overwrite || !is_16bit(y.view.dtype), kName,
                 "cannot accumulate into ", name(y.view.dtype), "; fp32 or fp64 expected");
  if (x.dtype == DType::fp64 || p.accumulator == Accumulator::fp64) {
    sum_and_write<double>(p, x, y, scratch);
  } else {
    sum_and_write<float>(p, x, y, scratch);
  }
}

}  // namespace roundoff
