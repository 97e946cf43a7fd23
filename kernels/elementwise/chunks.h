// What the element-wise reference kernels share: operands of any floating type are widened chunk by
// chunk into the arithmetic type T, and results are rounded once on their way out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/convert.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff::detail {

inline constexpr std::int64_t kChunk = 512;

// n elements of `view` from `offset` on, as T: in place where the type agrees, else in `buffer`.
template <class T>
const T* load(const ConstView& view, std::int64_t offset, std::int64_t n, T* buffer) {
  if (view.dtype == dtype_of<T>) return view.as<T>() + offset;
  widen(view, offset, n, buffer);
  return buffer;
}

// Arithmetic happens in double where an operand or the accumulator is fp64, else in float.
template <class... Views>
bool wants_fp64(Accumulator accumulator, const Views&... views) {
  return accumulator == Accumulator::fp64 || ((views.dtype == DType::fp64) || ...);
}

// Calls f with a T{} of the arithmetic type.
template <class F>
void with_arithmetic(bool fp64, F&& f) {
  if (fp64)
    f(double{});
  else
    f(float{});
}

inline void check_floating(const ConstView& view, std::string_view operation,
                           std::string_view operand) {
  ROUNDOFF_CHECK(is_floating(view.dtype), operation, operand, " is ", name(view.dtype),
                 "; a floating type expected");
}

// A wanted output: a floating type of the expected shape, fp32 or fp64 where it is accumulated.
inline void check_out(const Out& out, const Shape& shape, std::string_view operation,
                      std::string_view operand) {
  if (!out.wanted) return;
  ROUNDOFF_CHECK(is_floating(out.view.dtype), operation, operand, " is ", name(out.view.dtype),
                 "; a floating type expected");
  ROUNDOFF_CHECK(out.view.shape == shape, operation, operand, " has shape ", out.view.shape,
                 ", expected ", shape);
  ROUNDOFF_CHECK(out.write == Write::overwrite || !is_16bit(out.view.dtype), operation,
                 "cannot accumulate into ", operand, " of type ", name(out.view.dtype),
                 "; fp32 or fp64 expected");
}

// out[offset + i] (= or +=) values[i].
template <class T>
void store(const T* values, std::int64_t n, const Out& out, std::int64_t offset) {
  narrow(values, n, out, offset);
}

// y[i] = f(x[i]); the loop runs on the pointers themselves where all types are T, so that compilers
// vectorise it.
template <class T, class F>
void map(const ConstView& x, const Out& y, F f) {
  const std::int64_t n = x.numel();
  if (x.dtype == dtype_of<T> && y.view.dtype == dtype_of<T> && y.write == Write::overwrite) {
    const T* xs = x.as<T>();
    T* ys = y.view.as<T>();
    for (std::int64_t i = 0; i < n; ++i) ys[i] = f(xs[i]);
    return;
  }
  T in[kChunk];
  T out[kChunk];
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t m = std::min(kChunk, n - i);
    const T* xs = load(x, i, m, in);
    for (std::int64_t j = 0; j < m; ++j) out[j] = f(xs[j]);
    store(out, m, y, i);
  }
}

// y[i] = f(a[i], b[i]).
template <class T, class F>
void map(const ConstView& a, const ConstView& b, const Out& y, F f) {
  const std::int64_t n = a.numel();
  if (a.dtype == dtype_of<T> && b.dtype == dtype_of<T> && y.view.dtype == dtype_of<T> &&
      y.write == Write::overwrite) {
    const T* as = a.as<T>();
    const T* bs = b.as<T>();
    T* ys = y.view.as<T>();
    for (std::int64_t i = 0; i < n; ++i) ys[i] = f(as[i], bs[i]);
    return;
  }
  T in_a[kChunk];
  T in_b[kChunk];
  T out[kChunk];
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t m = std::min(kChunk, n - i);
    const T* as = load(a, i, m, in_a);
    const T* bs = load(b, i, m, in_b);
    for (std::int64_t j = 0; j < m; ++j) out[j] = f(as[j], bs[j]);
    store(out, m, y, i);
  }
}

}  // namespace roundoff::detail
