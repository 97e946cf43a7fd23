#include <algorithm>

#include "kernels/base/convert.h"
#include "kernels/gemm/arguments.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/modelled.h"
#include "kernels/gemm/operand.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "gemm";

// Where 16-bit results wait, in fp32, for their one rounding: rows enough to repay the packing of
// B, few enough to stay in cache.
constexpr std::int64_t kBufferBytes = std::int64_t{1} << 18;
constexpr std::int64_t kMinRows = 128;

// beta C, in T: the bias's n values, or nullptr for a matrix, which is widened where it is used.
template <class T>
const T* scaled_bias(const GemmParams& p, const GemmAddend& addend, const ConstView& c,
                     Scratch& scratch) {
  if (!addend.used || !addend.bias) return nullptr;
  T* bias = scratch.get<T>(p.n);
  widen(c, 0, p.n, bias);
  for (std::int64_t j = 0; j < p.n; ++j) bias[j] *= static_cast<T>(p.beta);
  return bias;
}

// to[i] (= or +=) beta c[i] over `rows` rows of the result that begin at element `offset` of C.
template <class T>
void add_c(const GemmParams& p, const T* bias, const ConstView& c, std::int64_t offset,
           std::int64_t rows, bool accumulate, T* to) {
  const auto add = [accumulate](const T* from, T factor, std::int64_t n, T* y) {
    if (accumulate) {
      for (std::int64_t j = 0; j < n; ++j) y[j] += factor * from[j];
    } else {
      for (std::int64_t j = 0; j < n; ++j) y[j] = factor * from[j];
    }
  };
  if (bias != nullptr) {
    for (std::int64_t r = 0; r < rows; ++r) add(bias, T{1}, p.n, to + r * p.n);
    return;
  }
  constexpr std::int64_t kChunk = 512;
  T buffer[kChunk];
  for (std::int64_t i = 0; i < rows * p.n; i += kChunk) {
    const std::int64_t m = std::min(kChunk, rows * p.n - i);
    widen(c, offset + i, m, buffer);
    add(buffer, static_cast<T>(p.beta), m, to + i);
  }
}

template <class T>
void gemm_in(const GemmParams& p, const ProductArithmetic& arithmetic, const GemmAddend& addend,
             const ConstView& a, const ConstView& b, const ConstView& c, const Out& y,
             Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const bool multiplies = p.alpha != 0 && p.k != 0;
  const T* left = multiplies ? operand<T>(a, 0, a.numel(), p.tf32, scratch) : nullptr;
  const T* right = multiplies ? operand<T>(b, 0, b.numel(), p.tf32, scratch) : nullptr;
  const T* bias = scaled_bias<T>(p, addend, c, scratch);
  // Whether alpha and the other addends wait until the products are summed.
  const bool late =
      !arithmetic.chains() || ((arithmetic.modelled || arithmetic.in_order) && p.alpha != 1);
  const auto add_products = [&](std::int64_t index, std::int64_t first, std::int64_t rows, T* to,
                                bool accumulate) {
    multiply(arithmetic,
             Product<T>{.m = rows,
                        .n = p.n,
                        .k = p.k,
                        .a = left + index * p.stride_a + (p.trans_a ? first : first * p.k),
                        .lda = p.trans_a ? p.m : p.k,
                        .trans_a = p.trans_a,
                        .b = right + index * p.stride_b,
                        .ldb = p.trans_b ? p.k : p.n,
                        .trans_b = p.trans_b,
                        .c = to,
                        .ldc = p.n,
                        .alpha = late ? T{1} : static_cast<T>(p.alpha),
                        .accumulate = accumulate},
             scratch);
  };
  // The same of every matrix of the batch: sums from 0, one after the other added to `to`.
  const auto fold_matrices = [&](std::int64_t first, std::int64_t rows, bool holds, T* to) {
    Scratch::Frame matrix_frame(scratch);
    const std::int64_t size = rows * p.n;
    T* sums = scratch.get<T>(size);
    if (!holds) std::fill_n(to, size, T{0});
    for (std::int64_t i = 0; i < p.batch; ++i) {
      add_products(i, first, rows, sums, false);
      for (std::int64_t j = 0; j < size; ++j) to[j] += sums[j];
    }
  };
  // The rows [first, first + rows) of result `index`, into `to`, which may already hold a term.
  const auto rows_of = [&](std::int64_t index, std::int64_t first, std::int64_t rows, bool holds,
                           T* to) {
    const auto add_addend = [&] {
      if (addend.used) add_c(p, bias, c, index * p.stride_c + first * p.n, rows, holds, to);
      holds = holds || addend.used;
    };
    if (!late) add_addend();
    if (p.order == SumOrder::by_matrix) {
      if (multiplies) fold_matrices(first, rows, holds, to);
      holds = holds || multiplies;
    } else {
      const std::int64_t last = p.sum_batch ? p.batch : index + 1;
      for (std::int64_t i = index; multiplies && i < last; ++i) {
        add_products(i, first, rows, to, holds);
        holds = true;
      }
    }
    if (late) {
      if (holds && p.alpha != 1)
        for (std::int64_t i = 0; i < rows * p.n; ++i) to[i] *= static_cast<T>(p.alpha);
      add_addend();
    }
    if (!holds) std::fill_n(to, rows * p.n, T{0});
    activate(p.activation, to, rows * p.n);
  };
  const std::int64_t results = p.sum_batch ? 1 : p.batch;
  // A late addend must not be overwritten first: C may be y itself.
  const bool in_place = !late || (y.write == Write::overwrite && !addend.used);
  if (y.view.dtype == dtype_of<T> && in_place) {
    for (std::int64_t i = 0; i < results; ++i)
      rows_of(i, 0, p.m, y.write == Write::accumulate, y.view.as<T>() + i * p.m * p.n);
    return;
  }
  const std::int64_t fitting = kBufferBytes / static_cast<std::int64_t>(sizeof(T)) / p.n;
  const std::int64_t block = std::min(p.m, std::max(kMinRows, fitting));
  T* buffer = scratch.get<T>(block * p.n);
  for (std::int64_t i = 0; i < results; ++i) {
    for (std::int64_t first = 0; first < p.m; first += block) {
      const std::int64_t rows = std::min(block, p.m - first);
      rows_of(i, first, rows, false, buffer);
      narrow(buffer, rows * p.n, y, (i * p.m + first) * p.n);
    }
  }
}

}  // namespace

void gemm(Ref, const GemmParams& params, const ConstView& a, const ConstView& b, const ConstView& c,
          const Out& y, Scratch& scratch) {
  if (!y.wanted) return;
  const GemmAddend addend = check_gemm(params, a, b, c, y);
  ROUNDOFF_CHECK(!params.half_sums, kName, "half_sums is for the devices sim and cuda");
  const std::int64_t results = params.sum_batch ? 1 : params.batch;
  if (results == 0 || params.m == 0 || params.n == 0) return;
  const GemmParams p = merge_batch(params, addend);
  const bool wide = a.dtype == DType::fp64 || b.dtype == DType::fp64 ||
                    (addend.used && c.dtype == DType::fp64) || p.accumulator == Accumulator::fp64;
  ProductArithmetic sums;
  if (!wide) sums = arithmetic(kName, p.accumulator, a.dtype, b.dtype, p.tf32);
  sums.in_order = p.order != SumOrder::fastest;
  if (wide) {
    gemm_in<double>(p, sums, addend, a, b, c, y, scratch);
  } else {
    gemm_in<float>(p, sums, addend, a, b, c, y, scratch);
  }
}

}  // namespace roundoff
