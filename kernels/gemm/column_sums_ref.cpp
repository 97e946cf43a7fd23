#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/gemm/arguments.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/modelled.h"
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

// Products with 1 in modelled arithmetic, in the rows' order, one chain.
void sum_columns_modelled(const ColumnSumsParams& p, const ProductArithmetic& arithmetic,
                          const ConstView& x, float* total, Scratch& scratch) {
  constexpr std::int64_t kRows = 1024;  // whole blocks of every tensor core
  Scratch::Frame frame(scratch);
  float* one = scratch.get<float>(kRows);
  std::fill_n(one, kRows, 1.0F);
  for (std::int64_t i = 0; i < p.rows; i += kRows) {
    Scratch::Frame rows_frame(scratch);
    const std::int64_t n = std::min(kRows, p.rows - i);
    modelled_product(arithmetic,
                     {.m = 1,
                      .n = p.columns,
                      .k = n,
                      .a = one,
                      .lda = n,
                      .b = operand<float>(x, i * p.columns, n * p.columns, false, scratch),
                      .ldb = p.columns,
                      .c = total,
                      .ldc = p.columns,
                      .accumulate = true},
                     scratch);
  }
}

template <class T>
void sum_in_order(const ColumnSumsParams& p, const ConstView& x, const Out& y, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* total = scratch.get<T>(p.columns);
  if (y.write == Write::accumulate)
    widen(y.view, 0, p.columns, total);
  else
    std::fill_n(total, p.columns, T{0});
  const T scale = static_cast<T>(p.scale);
  const auto add_rows = [&](std::int64_t begin, std::int64_t end, T* to) {
    for (std::int64_t i = begin; i < end; i += kBlock) {
      Scratch::Frame rows_frame(scratch);
      const std::int64_t n = std::min(kBlock, end - i);
      const T* row = operand<T>(x, i * p.columns, n * p.columns, false, scratch);
      for (std::int64_t r = 0; r < n; ++r, row += p.columns) {
        // A product with 1 is exact.
        if (scale == T{1})
          for (std::int64_t j = 0; j < p.columns; ++j) to[j] += row[j];
        else
          for (std::int64_t j = 0; j < p.columns; ++j) to[j] = std::fma(scale, row[j], to[j]);
      }
    }
  };
  if (p.group == 0) {
    add_rows(0, p.rows, total);
  } else {
    T* group = scratch.get<T>(p.columns);
    for (std::int64_t i = 0; i < p.rows; i += p.group) {
      std::fill_n(group, p.columns, T{0});
      add_rows(i, i + p.group, group);
      for (std::int64_t j = 0; j < p.columns; ++j) total[j] += group[j];
    }
  }
  narrow(total, p.columns, Out(y.view), 0);
}

template <class T>
void sum_and_write(const ColumnSumsParams& p, const ProductArithmetic& arithmetic,
                   const ConstView& x, const Out& y, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* total = scratch.get<T>(p.columns);
  std::fill_n(total, p.columns, T{0});
  if constexpr (std::is_same_v<T, float>) {
    if (arithmetic.modelled) sum_columns_modelled(p, arithmetic, x, total, scratch);
  }
  if (!arithmetic.modelled) sum_columns(p, x, total, scratch);
  if (p.scale != 1)
    for (std::int64_t j = 0; j < p.columns; ++j) total[j] *= static_cast<T>(p.scale);
  narrow(total, p.columns, y, 0);
}

}  // namespace

void column_sums(Ref, const ColumnSumsParams& p, const ConstView& x, const Out& y,
                 Scratch& scratch) {
  if (!y.wanted) return;
  check_column_sums(p, x, y);
  if (p.in_order) {
    if (x.dtype == DType::fp64 || p.accumulator == Accumulator::fp64)
      return sum_in_order<double>(p, x, y, scratch);
    return sum_in_order<float>(p, x, y, scratch);
  }
  if (x.dtype == DType::fp64 || p.accumulator == Accumulator::fp64) {
    sum_and_write<double>(p, {}, x, y, scratch);
  } else {
    sum_and_write<float>(p, arithmetic(kName, p.accumulator, x.dtype, x.dtype, false), x, y,
                         scratch);
  }
}

}  // namespace roundoff
