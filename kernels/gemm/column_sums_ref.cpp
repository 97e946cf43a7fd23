#include <algorithm>

#include "kernels/base/half.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/operand.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "column_sums";
constexpr std::int64_t kBlock = 128;
// Columns of a block that stay in cache.
constexpr std::int64_t kStripe = 4096;

template <class T>
struct Plain {
  T operator()(T sum, T term) const { return sum + term; }
};
struct RoundedToHalf {
  float operator()(float sum, float term) const { return static_cast<float>(Half(sum + term)); }
};

template <class T, class Add>
void sum_columns(const ColumnSumsParams& p, const ConstView& x, const Out& y, std::int64_t block,
                 Scratch& scratch, Add add) {
  for (std::int64_t first = 0; first < p.columns; first += kStripe) {
    Scratch::Frame frame(scratch);
    const std::int64_t n = std::min(kStripe, p.columns - first);
    T* total = scratch.get<T>(n);
    T* partial = scratch.get<T>(n);
    std::fill_n(total, n, T{0});
    for (std::int64_t i = 0; i < p.rows; i += block) {
      std::fill_n(partial, n, T{0});
      for (std::int64_t r = i; r < std::min(i + block, p.rows); ++r) {
        Scratch::Frame row_frame(scratch);
        const T* row = operand<T>(x, r * p.columns + first, n, false, scratch);
        for (std::int64_t j = 0; j < n; ++j) partial[j] = add(partial[j], row[j]);
      }
      for (std::int64_t j = 0; j < n; ++j) total[j] = add(total[j], partial[j]);
    }
    if (p.scale != 1)
      for (std::int64_t j = 0; j < n; ++j) total[j] *= static_cast<T>(p.scale);
    narrow(total, n, y, first);
  }
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
    sum_columns<double>(p, x, y, kBlock, scratch, Plain<double>{});
  } else if (p.accumulator == Accumulator::fp16) {
    // One chain: partial sums would each start afresh.
    sum_columns<float>(p, x, y, std::max<std::int64_t>(p.rows, 1), scratch, RoundedToHalf{});
  } else {
    sum_columns<float>(p, x, y, kBlock, scratch, Plain<float>{});
  }
}

}  // namespace roundoff
