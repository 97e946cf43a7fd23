#include "kernels/norm/arguments.h"
#include "kernels/norm/common.h"

namespace roundoff {

namespace {

using norm::sum;
using norm::widened;

template <class T>
struct Statistics {
  T mean;
  T rstd;
};

// A is what sums are formed in.
template <class T, class A>
Statistics<T> statistics_in(const T* x, std::int64_t n, double eps) {
  const A count = static_cast<A>(n);
  const A first = sum<A>(0, n, [&](std::int64_t i) { return static_cast<A>(x[i]); }) / count;
  const auto deviation = [&](std::int64_t i) { return static_cast<A>(x[i]) - first; };
  const A rest = sum<A>(0, n, deviation) / count;
  const A squares = sum<A>(0, n, [&](std::int64_t i) { return deviation(i) * deviation(i); });
  const A var = squares / count - rest * rest;
  return {static_cast<T>(first + rest), static_cast<T>(norm::reciprocal_deviation(var, eps))};
}

template <class T>
Statistics<T> statistics(const T* x, std::int64_t n, double eps) {
  if (n == 0) return {T(0), norm::reciprocal_deviation(T(0), eps)};
  const Statistics<T> s = statistics_in<T, T>(x, n, eps);
  if constexpr (sizeof(T) < sizeof(double))
    if (norm::out_of_range(s.mean, s.rstd)) return statistics_in<T, double>(x, n, eps);
  return s;
}

template <class T>
void forward(const LayerNormParams& params, const NormMatrix& shape, const ConstView& x,
             const ConstView& gamma, const ConstView& beta, const Out& y, const Out& mean,
             const Out& rstd, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::int64_t n = shape.channels;
  const T* scale = widened(gamma, n, T(1), scratch);
  const T* shift = widened(beta, n, T(0), scratch);
  T* row = scratch.get<T>(n);
  for (std::int64_t r = 0; r < shape.outer; ++r) {
    widen(x, r * n, n, row);
    const Statistics<T> s = statistics(row, n, params.eps);
    if (mean.wanted) narrow(&s.mean, 1, mean, r);
    if (rstd.wanted) narrow(&s.rstd, 1, rstd, r);
    if (!y.wanted) continue;
    for (std::int64_t i = 0; i < n; ++i) row[i] = (row[i] - s.mean) * s.rstd * scale[i] + shift[i];
    narrow(row, n, y, r * n);
  }
}

template <class T>
void backward(const LayerNormParams& params, const NormMatrix& shape, const ConstView& x,
              const ConstView& gamma, const ConstView& mean, const ConstView& rstd,
              const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
              Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::int64_t n = shape.channels;
  const T* scale = widened(gamma, n, T(1), scratch);
  T* xhat = scratch.get<T>(n);
  T* d = scratch.get<T>(n);

  // One row: dx, and the row's part of dgamma (sums[0, n)) and dbeta (sums[n, 2n)).
  const auto row = [&](std::int64_t r, T* sums) {
    T mu, inverse;
    widen(mean, r, 1, &mu);
    widen(rstd, r, 1, &inverse);
    widen(x, r * n, n, xhat);
    widen(dy, r * n, n, d);
    for (std::int64_t i = 0; i < n; ++i) xhat[i] = (xhat[i] - mu) * inverse;
    if (sums != nullptr) {
      for (std::int64_t i = 0; i < n; ++i) sums[i] += d[i] * xhat[i];
      for (std::int64_t i = 0; i < n; ++i) sums[n + i] += d[i];
    }
    if (!dx.wanted) return;
    const T count = static_cast<T>(n);
    for (std::int64_t i = 0; i < n; ++i) d[i] *= scale[i];
    // Corrected like the mean of x: exactly d for a constant d.
    const T first = sum<T>(0, n, [&](std::int64_t i) { return d[i]; }) / count;
    const T mean_d = first + sum<T>(0, n, [&](std::int64_t i) { return d[i] - first; }) / count;
    const T mean_dx = sum<T>(0, n, [&](std::int64_t i) { return d[i] * xhat[i]; }) / count;
    for (std::int64_t i = 0; i < n; ++i) d[i] = inverse * (d[i] - mean_d - xhat[i] * mean_dx);
    narrow(d, n, dx, r * n);
  };

  norm::affine_gradients(params.in_order, shape.outer, n, dgamma, dbeta, static_cast<T*>(nullptr),
                         scratch, [&](std::int64_t r, std::int64_t count, T* sums) {
                           for (std::int64_t k = 0; k < count; ++k) row(r + k, sums);
                         });
}

}  // namespace

void layer_norm_forward(Ref, const LayerNormParams& params, const ConstView& x,
                        const ConstView& gamma, const ConstView& beta, const Out& y,
                        const Out& mean, const Out& rstd, Scratch& scratch) {
  const NormMatrix m = check_layer_norm(params, x, gamma, beta, y, mean, rstd);
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype},
                 [&]<class T>() { forward<T>(params, m, x, gamma, beta, y, mean, rstd, scratch); });
}

void layer_norm_backward(Ref, const LayerNormParams& params, const ConstView& x,
                         const ConstView& gamma, const ConstView& mean, const ConstView& rstd,
                         const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
                         Scratch& scratch) {
  const NormMatrix m =
      check_layer_norm_backward(params, x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class T>() {
    backward<T>(params, m, x, gamma, mean, rstd, dy, dx, dgamma, dbeta, scratch);
  });
}

}  // namespace roundoff
