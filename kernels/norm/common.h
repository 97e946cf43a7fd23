// What the norms' reference kernels share. Not a public header.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "kernels/base/convert.h"
#include "kernels/base/scratch.h"
#include "kernels/norm/sums.h"

namespace roundoff::norm {

inline void check_operand(const ConstView& v, std::int64_t n, std::string_view operation,
                          std::string_view what) {
  if (!v.present) return;
  ROUNDOFF_CHECK(is_floating(v.dtype), operation, what, " is ", name(v.dtype),
                 "; a floating type expected");
  ROUNDOFF_CHECK(v.numel() == n, operation, what, " has shape ", v.shape, ", ", n,
                 " elements expected");
}

inline void check_out(const Out& out, std::int64_t n, std::string_view operation,
                      std::string_view what) {
  if (!out.wanted) return;
  check_operand(out.view, n, operation, what);
  ROUNDOFF_CHECK(out.write == Write::overwrite || !is_16bit(out.view.dtype), operation,
                 "cannot accumulate ", what, " in ", name(out.view.dtype),
                 "; fp32 or fp64 expected");
}

inline void check_eps(double eps, std::string_view operation) {
  ROUNDOFF_CHECK(eps >= 0.0 && std::isfinite(eps), operation, "eps ", eps,
                 ", expected finite and at least 0");
}

// Calls f.operator()<T>() with double where the accumulator or an operand is fp64, else float.
template <class F>
void dispatch(Accumulator accumulator, std::initializer_list<DType> dtypes, const F& f) {
  bool wide = accumulator == Accumulator::fp64;
  for (const DType d : dtypes) wide = wide || d == DType::fp64;
  if (wide)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

// All of `v` in T, or n times `otherwise` where it is absent.
template <class T>
T* widened(const ConstView& v, std::int64_t n, T otherwise, Scratch& scratch) {
  T* to = scratch.get<T>(n);
  if (v.present)
    widen(v, 0, n, to);
  else
    std::fill_n(to, n, otherwise);
  return to;
}

// Statistics in fp32 whose squares or sums left its range; formed again in fp64, an infinite
// variance does not turn into a silent rstd of 0.
template <class T>
bool out_of_range(T mean, T rstd) {
  return !(rstd > T(0)) || !std::isfinite(rstd) || !std::isfinite(mean);
}

// rstd of a variance that rounding may have left just below 0.
template <class A>
A reciprocal_deviation(A var, double eps) {
  return A(1) / std::sqrt((var < A(0) ? A(0) : var) + static_cast<A>(eps));
}

// Runs leaf(row, count, sums) over all rows, at most 64 at a time; each adds the rows' parts of
// dgamma to sums[0, width) and of dbeta to sums[width, 2 width), unless neither is wanted (sums is
// null then). Writes both. In order, or as a tree (LayerNormParams::in_order).
// keep: 2 width elements where the sums of these rows stay for the caller (not in order); or null.
template <class T, class Leaf>
void affine_gradients(bool in_order, std::int64_t rows, std::int64_t width, const Out& dgamma,
                      const Out& dbeta, T* keep, Scratch& scratch, const Leaf& leaf) {
  const bool wanted = dgamma.wanted || dbeta.wanted || keep != nullptr;
  if (!wanted) {
    for (std::int64_t r = 0; r < rows; r += kLeafRows)
      leaf(r, std::min(kLeafRows, rows - r), static_cast<T*>(nullptr));
    return;
  }
  const Scratch::Frame frame(scratch);
  T* sums = keep != nullptr ? keep : scratch.get<T>(2 * width);
  Out to_gamma = dgamma, to_beta = dbeta;
  if (in_order) {
    std::fill_n(sums, 2 * width, T(0));
    const auto load = [&](Out& out, T* to) {
      if (!out.wanted || out.write == Write::overwrite) return;
      widen(out.view, 0, width, to);
      out.write = Write::overwrite;
    };
    load(to_gamma, sums);
    load(to_beta, sums + width);
    for (std::int64_t r = 0; r < rows; r += kLeafRows) leaf(r, std::min(kLeafRows, rows - r), sums);
  } else {
    T* spare = scratch.get<T>(spare_rows(rows) * 2 * width);
    row_sums(std::int64_t{0}, rows, 2 * width, sums, spare, leaf);
  }
  if (to_gamma.wanted) narrow(sums, width, to_gamma, 0);
  if (to_beta.wanted) narrow(sums + width, width, to_beta, 0);
}

}  // namespace roundoff::norm
