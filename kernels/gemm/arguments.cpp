#include "kernels/gemm/arguments.h"

#include <algorithm>

namespace roundoff {

namespace {
constexpr std::string_view kName = "gemm";
}  // namespace

void check_in_order(std::string_view operation, Accumulator accumulator, const Out& y,
                    std::initializer_list<DType> operands) {
  ROUNDOFF_CHECK(accumulator == Accumulator::fp32 || accumulator == Accumulator::fp64, operation,
                 "sums in order are formed in fp32 or fp64; accumulator ", name(accumulator),
                 " adds in another way");
  if (!y.wanted || y.write == Write::overwrite) return;
  const bool wide = accumulator == Accumulator::fp64 ||
                    std::find(operands.begin(), operands.end(), DType::fp64) != operands.end();
  const DType sum = wide ? DType::fp64 : DType::fp32;
  ROUNDOFF_CHECK(y.view.dtype == sum, operation, "a sum in order in ", name(sum),
                 " cannot begin with what an output in ", name(y.view.dtype), " holds");
}

GemmAddend check_gemm(const GemmParams& p, const ConstView& a, const ConstView& b,
                      const ConstView& c, const Out& y) {
  ROUNDOFF_CHECK(p.batch >= 0 && p.m >= 0 && p.n >= 0 && p.k >= 0, kName, "sizes batch ", p.batch,
                 ", m ", p.m, ", n ", p.n, ", k ", p.k, ", none may be negative");
  const auto holds = [&](const char* which, const ConstView& v, std::int64_t stride,
                         std::int64_t rows, std::int64_t columns) {
    ROUNDOFF_CHECK(is_floating(v.dtype), kName, which, " is ", name(v.dtype),
                   ", a floating type expected");
    ROUNDOFF_CHECK(stride >= 0, kName, "batch stride ", stride, " of ", which, " is negative");
    const std::int64_t need =
        rows * columns == 0 || p.batch == 0 ? 0 : (p.batch - 1) * stride + rows * columns;
    ROUNDOFF_CHECK(v.numel() >= need, kName, which, " of shape ", v.shape, " holds ", v.numel(),
                   " values, ", p.batch, " x [", rows, ", ", columns, "] needs ", need);
  };
  holds("A", a, p.stride_a, p.m, p.k);
  holds("B", b, p.stride_b, p.k, p.n);
  holds("y", y.view, p.sum_batch ? 0 : p.m * p.n, p.m, p.n);
  ROUNDOFF_CHECK(y.write == Write::overwrite || !is_16bit(y.view.dtype), kName,
                 "cannot accumulate into ", name(y.view.dtype), "; fp32 or fp64 expected");
  ROUNDOFF_CHECK(y.write == Write::overwrite || p.activation == Activation::none, kName,
                 "cannot accumulate after an activation");
  ROUNDOFF_CHECK(!p.half_sums || (a.dtype == DType::fp16 && b.dtype == DType::fp16), kName,
                 "half_sums takes fp16 operands, ", name(a.dtype), " and ", name(b.dtype),
                 " given");
  ROUNDOFF_CHECK(!p.half_sums || (p.accumulator != Accumulator::fp16 &&
                                  p.accumulator != Accumulator::fp64 && p.split == 0),
                 kName, "half_sums is tensor cores': no accumulator ", name(p.accumulator),
                 ", and no split");
  ROUNDOFF_CHECK(p.order != SumOrder::by_matrix || p.sum_batch, kName,
                 "a sum by matrix is a sum over the batch: sum_batch expected");
  if (p.order == SumOrder::in_order || p.order == SumOrder::by_matrix) {
    check_in_order(kName, p.accumulator, y, {a.dtype, b.dtype, c.present ? c.dtype : a.dtype});
    ROUNDOFF_CHECK(p.alpha == 1 || p.alpha == 0, kName, "alpha is ", p.alpha,
                   ": a sum in order begins with what y holds, which alpha would scale too");
    ROUNDOFF_CHECK(p.split <= 1 && !p.half_sums, kName,
                   "a sum in order is neither split nor formed in fp16");
  }
  GemmAddend addend{.used = c.present && p.beta != 0};
  if (addend.used) {
    addend.bias = c.numel() == p.n && p.stride_c == 0;
    if (!addend.bias) holds("C", c, p.stride_c, p.m, p.n);
    ROUNDOFF_CHECK(is_floating(c.dtype), kName, "C is ", name(c.dtype),
                   ", a floating type expected");
  }
  return addend;
}

GemmParams merge_batch(GemmParams p, const GemmAddend& addend) {
  if (p.batch <= 1 || p.order == SumOrder::by_matrix) return p;
  const bool rows = !p.sum_batch && !p.trans_a && p.stride_a == p.m * p.k && p.stride_b == 0 &&
                    (!addend.used || addend.bias || p.stride_c == p.m * p.n);
  const bool sums =
      p.sum_batch && p.trans_a && !p.trans_b && p.stride_a == p.m * p.k && p.stride_b == p.k * p.n;
  if (rows) p.m *= p.batch;
  if (sums) p.k *= p.batch;
  if (rows || sums) p.batch = 1;
  return p;
}

void check_column_sums(const ColumnSumsParams& p, const ConstView& x, const Out& y) {
  constexpr std::string_view kSums = "column_sums";
  ROUNDOFF_CHECK(p.rows >= 0 && p.columns >= 0, kSums, "sizes ", p.rows, " x ", p.columns,
                 ", none may be negative");
  ROUNDOFF_CHECK(is_floating(x.dtype) && is_floating(y.view.dtype), kSums, "takes ", name(x.dtype),
                 " to ", name(y.view.dtype), ", floating types expected");
  ROUNDOFF_CHECK(x.numel() == p.rows * p.columns && y.view.numel() == p.columns, kSums,
                 "x of shape ", x.shape, " and y of shape ", y.view.shape, ", ", p.rows, " x ",
                 p.columns, " and ", p.columns, " values expected");
  ROUNDOFF_CHECK(y.write == Write::overwrite || !is_16bit(y.view.dtype), kSums,
                 "cannot accumulate into ", name(y.view.dtype), "; fp32 or fp64 expected");
  ROUNDOFF_CHECK(p.group >= 0 && (p.group == 0 || (p.in_order && p.rows % p.group == 0)), kSums,
                 "groups of ", p.group, " rows: sums in order, and a divisor of the ", p.rows,
                 " rows expected");
  if (p.in_order) check_in_order(kSums, p.accumulator, y, {x.dtype});
}

}  // namespace roundoff
