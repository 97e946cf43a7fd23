// Bounds on what the norms' kernels may differ from the oracle (verify/oracle/norm.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/convert.h"

namespace roundoff::norm_bound {

using Values = std::vector<double>;

// gamma_k = k u / (1 - k u)
inline double gamma_k(double k, double u) { return k * u / (1.0 - k * u); }
inline double unit(DType d) {
  return d == DType::fp64   ? 0x1p-53
         : d == DType::fp32 ? 0x1p-24
         : d == DType::fp16 ? 0x1p-11
                            : 0x1p-8;
}
inline double half_smallest(DType d) {
  return d == DType::fp64   ? 0.0
         : d == DType::fp32 ? 0x1p-150
         : d == DType::fp16 ? 0x1p-25
                            : 0x1p-134;
}
// A result within `tol` before it is rounded to `d`.
inline double rounded_tolerance(double want, double tol, DType d) {
  return tol + unit(d) * (std::abs(want) + tol) + half_smallest(d);
}
// The largest |got - want| / tolerance of many; a NaN counts as infinite.
struct Worst {
  double ratio = 0;
  void add(double got, double want, double tolerance) {
    const double r = got == want ? 0.0 : std::abs(got - want) / tolerance;
    if (!(r <= ratio)) ratio = std::isnan(r) ? std::numeric_limits<double>::infinity() : r;
  }
};
inline double log2_ceil(std::int64_t n) {
  return n <= 1 ? 0.0 : static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}
// Depths of the kernels' summation trees (kernels/norm/sums.h).
inline double line_depth(std::int64_t n) {
  return std::ceil(static_cast<double>(std::min<std::int64_t>(n, 256)) / 16.0) + 4.0 +
         log2_ceil((n + 255) / 256);
}
inline double row_depth(std::int64_t n) {
  return static_cast<double>(std::min<std::int64_t>(n, 64)) + log2_ceil((n + 63) / 64);
}

// What is normalised together: a row of LayerNorm, a channel of BatchNorm.
struct Group {
  Values xhat, xhat_tol;
  double mean = 0, mean_tol = 0, var = 0, rstd = 0, rstd_rel = 0;
};

// xhat within gamma_{h+1} mean|x| / sigma + |xhat| (gamma_{h+3}/2 + 4u), numerics.md. The first
// term is the mean's error times rstd; rstd's relative error is gamma_{h+3}/2 from the variance,
// 3u from adding eps, square root and division.
inline Group forward(const Values& x, double eps, double h, double u) {
  Group g;
  const auto n = static_cast<long double>(x.size());
  long double sum = 0, sum_abs = 0, squares = 0;
  for (const double v : x) sum += v, sum_abs += std::abs(v);
  const long double mean = sum / n;
  for (const double v : x) squares += (v - mean) * (v - mean);
  const long double rstd = 1.0L / std::sqrt(squares / n + static_cast<long double>(eps));
  g.mean = static_cast<double>(mean);
  g.mean_tol = gamma_k(h + 1, u) * static_cast<double>(sum_abs / n);
  g.var = static_cast<double>(squares / n);
  g.rstd = static_cast<double>(rstd);
  g.rstd_rel = gamma_k(h + 3, u) / 2 + 3 * u;
  for (const double v : x) {
    g.xhat.push_back(static_cast<double>((v - mean) * rstd));
    g.xhat_tol.push_back(g.mean_tol * g.rstd +
                         std::abs(g.xhat.back()) * (gamma_k(h + 3, u) / 2 + 4 * u));
  }
  return g;
}

// dx = rstd (d - A - xhat B) with d = dy gamma, A = mean d, B = mean(d xhat). To first order:
//   d: one rounding, u |d|;  A: gamma_{h+3} mean|d|, the correction of the mean included;
//   B: gamma_{h+3} mean|d xhat| + mean(|d| xhat_tol);
//   xhat B: |xhat| B_tol + xhat_tol |B|;  3u for the product and the two subtractions;
//   rstd: rstd_rel, and u for the last product. The true reference takes exact statistics, so the
//   errors of the saved ones are inside xhat_tol and rstd_rel.
inline Values backward_tolerance(const Group& g, const Values& d, double h, double u) {
  const std::size_t n = d.size();
  long double a = 0, b = 0, a_abs = 0, b_abs = 0, b_hat = 0;
  for (std::size_t i = 0; i < n; ++i) {
    a += d[i];
    b += static_cast<long double>(d[i]) * g.xhat[i];
    a_abs += std::abs(d[i]);
    b_abs += std::abs(d[i] * g.xhat[i]);
    b_hat += std::abs(d[i]) * g.xhat_tol[i];
  }
  const auto count = static_cast<long double>(n);
  const auto mean_d = static_cast<double>(a / count), mean_dx = static_cast<double>(b / count);
  const double a_tol = gamma_k(h + 3, u) * static_cast<double>(a_abs / count);
  const double b_tol =
      gamma_k(h + 3, u) * static_cast<double>(b_abs / count) + static_cast<double>(b_hat / count);
  Values tolerance;
  for (std::size_t i = 0; i < n; ++i) {
    const double xhat = g.xhat[i];
    const double dx = g.rstd * (d[i] - mean_d - xhat * mean_dx);
    const double inner = u * std::abs(d[i]) + a_tol + std::abs(xhat) * b_tol +
                         g.xhat_tol[i] * std::abs(mean_dx) +
                         3 * u * (std::abs(d[i]) + std::abs(mean_d) + std::abs(xhat * mean_dx));
    tolerance.push_back(g.rstd * inner + std::abs(dx) * (g.rstd_rel + u));
  }
  return tolerance;
}

// Storage of any dtype for a kernel's operand or output.
struct Array {
  std::vector<double> bytes;  // aligned for every type
  View view;

  Array() = default;
  Array(const Shape& shape, DType dtype, double fill = 0.0)
      : Array(Values(static_cast<std::size_t>(shape.numel()), fill), shape, dtype) {}
  Array(const Values& values, const Shape& shape, DType dtype) : bytes(values.size() + 1) {
    view = {bytes.data(), dtype, shape};
    narrow(values.data(), shape.numel(), view, 0);
  }
  Array(Array&& other) noexcept : bytes(std::move(other.bytes)), view(other.view) {
    view.data = bytes.data();
  }
  Array(const Array&) = delete;
  operator ConstView() const { return view; }
  operator Out() const { return view; }
  Out accumulated() const { return {view, Write::accumulate}; }
  Values values() const {
    Values v(static_cast<std::size_t>(view.numel()));
    widen(view, 0, view.numel(), v.data());
    return v;
  }
};

inline Values random_values(std::int64_t n, std::uint32_t seed, double mean = 0.0,
                            double deviation = 1.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, deviation);
  Values v(static_cast<std::size_t>(n));
  for (double& x : v) x = normal(engine);
  return v;
}

}  // namespace roundoff::norm_bound
