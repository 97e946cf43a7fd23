// y[j] = scale * sum over i of x[i, j].
//
// Layout: x [rows, columns], row-major; neighbouring threads take neighbouring columns.
// Numerics: in fp32 (fp64 where x is), four interleaved sums over a block of 128 rows, then the
// blocks' sums in order; scaled, rounded once. No atomics. In order: one chain a column, or one for
// each group of rows and one over those.
#include "kernels/gemm/column_sums.h"

#include "kernels/gemm/arguments.h"
#include "kernels/gemm/product.cuh"

namespace roundoff {

namespace {
constexpr std::int64_t kBlockRows = 128;
constexpr unsigned kThreads = 128;
}  // namespace

ROUNDOFF_DEVICE_NAMESPACE {
  // One column of a block of rows a thread.
  template <class C>
  __global__ void __launch_bounds__(kThreads) sum_row_blocks(
      const void* x, DType dtype, std::int64_t rows, std::int64_t columns, C* partial) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t block = index / columns, first = block * kBlockRows;
    if (first >= rows) return;
    const std::int64_t n = rows - first < kBlockRows ? rows - first : kBlockRows;
    const std::int64_t at = first * columns + index % columns;
    C sums[4] = {};
    std::int64_t i = 0;
    ROUNDOFF_NO_UNROLL
    for (; i + 4 <= n; i += 4) {
      ROUNDOFF_UNROLL
      for (int lane = 0; lane < 4; ++lane)
        sums[lane] += load_one<C>(x, dtype, at + (i + lane) * columns, false);
    }
    for (; i < n; ++i) sums[0] += load_one<C>(x, dtype, at + i * columns, false);
    partial[index] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  template <class C>
  __global__ void __launch_bounds__(kThreads) add_row_blocks(
      const C* partial, std::int64_t blocks, std::int64_t columns, ProductOutput out) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    C sum(0);
    for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block * columns + column];
    write_element(out, 0, 0, static_cast<unsigned>(column), sum);
  }

  // sum = fma(scale, x, sum) over `rows` elements from `at` on, a row apart.
  template <class C>
  ROUNDOFF_DEVICE C chain_rows(const void* x, DType dtype, std::int64_t at, std::int64_t rows,
                               std::int64_t columns, C scale, C sum) {
    constexpr int kAhead = 8;  // loads that are on their way while additions wait for each other
    std::int64_t i = 0;
    ROUNDOFF_NO_UNROLL
    for (; i + kAhead <= rows; i += kAhead) {
      C terms[kAhead];
      ROUNDOFF_UNROLL
      for (int k = 0; k < kAhead; ++k)
        terms[k] = load_one<C>(x, dtype, at + (i + k) * columns, false);
      ROUNDOFF_UNROLL
      for (int k = 0; k < kAhead; ++k) sum = multiply_add(scale, terms[k], sum);
    }
    for (; i < rows; ++i)
      sum = multiply_add(scale, load_one<C>(x, dtype, at + i * columns, false), sum);
    return sum;
  }

  // One column a thread.
  template <class C>
  __global__ void __launch_bounds__(kThreads) sum_rows_in_order(
      const void* x, DType dtype, std::int64_t rows, std::int64_t columns, ProductOutput out) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const C held = begin_sum<C>(out, 0, 0, static_cast<unsigned>(column));
    write_element(out, 0, 0, static_cast<unsigned>(column),
                  chain_rows(x, dtype, column, rows, columns, static_cast<C>(out.alpha), held));
  }

  // One column of a group of rows a thread.
  template <class C>
  __global__ void __launch_bounds__(kThreads)
      sum_groups(const void* x, DType dtype, std::int64_t rows, std::int64_t groups,
                 std::int64_t columns, C scale, C* partial) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= groups * columns) return;
    const std::int64_t group = index / columns, at = group * rows * columns + index % columns;
    partial[index] = chain_rows(x, dtype, at, rows, columns, scale, C(0));
  }

  template <class C, class T>
  void sum_columns(T target, const ColumnSumsParams& p, const ConstView& x,
                   const ProductOutput& out, Scratch& scratch) {
    const auto blocks_for = [](std::int64_t threads) {
      return device_extent("column_sums", "the number of blocks",
                           (threads + kThreads - 1) / kThreads);
    };
    if (p.group != 0 && p.rows != 0) {
      Scratch::Frame frame(scratch);
      const std::int64_t groups = p.rows / p.group;
      C* partial = scratch.get<C>(groups * p.columns);
      launch(target,
             {.name = "column_sums", .grid = {blocks_for(groups * p.columns)}, .block = {kThreads}},
             sum_groups<C>, x.data, x.dtype, p.group, groups, p.columns, static_cast<C>(p.scale),
             partial);
      ProductOutput sums = out;
      sums.alpha = 1;
      return launch(target,
                    {.name = "column_sums", .grid = {blocks_for(p.columns)}, .block = {kThreads}},
                    sum_rows_in_order<C>, static_cast<const void*>(partial), dtype_of<C>, groups,
                    p.columns, sums);
    }
    if (p.in_order)
      return launch(target,
                    {.name = "column_sums", .grid = {blocks_for(p.columns)}, .block = {kThreads}},
                    sum_rows_in_order<C>, x.data, x.dtype, p.rows, p.columns, out);
    Scratch::Frame frame(scratch);
    const std::int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
    C* partial = scratch.get<C>(blocks * p.columns);
    if (blocks != 0)
      launch(target,
             {.name = "column_sums", .grid = {blocks_for(blocks * p.columns)}, .block = {kThreads}},
             sum_row_blocks<C>, x.data, x.dtype, p.rows, p.columns, partial);
    launch(target, {.name = "column_sums", .grid = {blocks_for(p.columns)}, .block = {kThreads}},
           add_row_blocks<C>, static_cast<const C*>(partial), blocks, p.columns, out);
  }

}  // namespace

template <DeviceTarget T>
void column_sums(T target, const ColumnSumsParams& p, const ConstView& x, const Out& y,
                 Scratch& scratch) {
  if (!y.wanted) return;
  check_column_sums(p, x, y);
  if (p.columns == 0) return;
  ProductProblem problem;
  problem.name = "column_sums";
  problem.size = {.m = 1,
                  .n = device_extent("column_sums", "columns", p.columns),
                  .depth = device_extent("column_sums", "rows", p.rows),
                  .terms = 1,
                  .results = 1};
  problem.wide = x.dtype == DType::fp64 || p.accumulator == Accumulator::fp64;
  if (!problem.wide)
    problem.arithmetic = arithmetic("column_sums", p.accumulator, x.dtype, x.dtype, false);

  ProductOutput out;
  out.y = y.view.data;
  out.dtype = y.view.dtype;
  out.accumulate = y.write == Write::accumulate;
  out.alpha = p.scale;
  out.late = !p.in_order;
  if (problem.wide) return sum_columns<double>(target, p, x, out, scratch);
  if (!problem.arithmetic.modelled || p.rows == 0)
    return sum_columns<float>(target, p, x, out, scratch);

  // Products with 1, in the rows' order.
  MatrixSource one;
  one.all_ones = true;
  one.dtype = x.dtype;
  one.rows = 1;
  one.depth = problem.size.depth;
  MatrixSource values;
  values.data = x.data;
  values.dtype = x.dtype;
  values.depth_contiguous = false;
  values.rows = problem.size.n;
  values.depth = problem.size.depth;
  values.pitch = p.columns;
  values.aligned = lanes_aligned(x.data, x.dtype, 4, p.columns, 0);
  launch_modelled(target, problem, one, values, out, scratch);
}

template void column_sums(Target, const ColumnSumsParams&, const ConstView&, const Out&, Scratch&);

}  // namespace roundoff
