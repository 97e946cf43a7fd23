#include "verify/bound/linear.h"

#include <algorithm>
#include <cmath>

namespace roundoff::bound {

using oracle::In;
using oracle::Values;

namespace {

// |x|, as the magnitudes S sees it: raised to 2^emin where a tensor core would align it there.
Values magnitudes(In x, const Arithmetic& a) {
  Values m(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    m[i] = std::abs(x[i]);
    if (a.tensor_core && m[i] != 0) m[i] = std::max(m[i], a.tensor_core->operands.min_normal());
  }
  return m;
}

Values absolute(In x) {
  Values m(x.begin(), x.end());
  for (double& v : m) v = std::abs(v);
  return m;
}

oracle::MatmulParams absolute(oracle::MatmulParams p) {
  p.alpha = std::abs(p.alpha);
  p.beta = std::abs(p.beta);
  return p;
}

// Roundings that alpha, and beta with C, add after the sum.
double scaling_roundings(const oracle::MatmulParams& p) {
  return (std::abs(p.alpha) == 1 || p.alpha == 0 ? 0 : 1) + (p.beta == 0 ? 0 : 2);
}

}  // namespace

double before_alpha(double alpha) {
  const double size = std::abs(alpha);
  return size > 0 && size < 1 ? 1 / size : 1;
}

Bound products(std::vector<double> reference, std::span<const double> magnitude, std::int64_t terms,
               const Arithmetic& a, double extra, double before, std::int64_t runs) {
  double g = 0;
  double underflow = static_cast<double>(terms) * a.underflow();
  BoundKind kind = a.sum_kind();
  if (a.tensor_core) {
    const AlignedSums& t = *a.tensor_core;
    double blocks = std::ceil(static_cast<double>(terms) / t.block);
    if (a.or_plain) {
      const auto stretches = static_cast<double>(std::max<std::int64_t>(runs, 1));
      blocks = stretches * std::ceil(static_cast<double>(terms) / stretches / t.block);
    }
    g = blocks * ((t.block + 1) * std::exp2(-t.extra_bits) + 1) * 0x1p-23 + gamma(extra, a.u());
    underflow = blocks * kFp32.min_subnormal();  // cut, not rounded
    kind = BoundKind::derived;
    if (a.or_plain) {
      // There are fewer parts than blocks.
      g = std::max(g + gamma(blocks, a.u()), sum_factor(a, terms, extra));
      underflow = std::max(underflow, static_cast<double>(terms) * a.underflow());
    }
  } else {
    g = sum_factor(a, terms, extra);
  }
  if (a.operand_rounding) {
    const double low = a.operand_rounding->unit_roundoff();
    const double operands = 2 * low + low * low;
    g = g + operands + g * operands;
  }
  Bound bound{std::move(reference), std::vector<double>(magnitude.size()), kind, a.lambda};
  for (std::size_t i = 0; i < magnitude.size(); ++i) {
    if (!std::isfinite(bound.reference[i])) continue;
    const double error = magnitude[i] == 0 ? 0 : g * magnitude[i] + underflow;
    bound.tolerance[i] = rounded_tolerance(
        bound.reference[i], unless_overflow(error, before * magnitude[i], a), a.output);
  }
  return bound;
}

Bound matmul(const oracle::MatmulParams& p, In a, In b, In c, const Arithmetic& arithmetic) {
  const Values s = oracle::matmul(absolute(p), magnitudes(a, arithmetic), magnitudes(b, arithmetic),
                                  absolute(c));
  return products(oracle::matmul(p, a, b, c), s, p.k, arithmetic, scaling_roundings(p),
                  before_alpha(p.alpha));
}

MatmulGradients matmul_backward(const oracle::MatmulParams& p, In a, In b, In dy,
                                const Arithmetic& arithmetic) {
  auto exact = oracle::matmul_backward(p, a, b, dy);
  const auto s = oracle::matmul_backward(absolute(p), magnitudes(a, arithmetic),
                                         magnitudes(b, arithmetic), magnitudes(dy, arithmetic));
  const double extra = std::abs(p.alpha) == 1 || p.alpha == 0 ? 0 : 1;
  // dC = beta dY is one product, without a tensor core.
  Arithmetic elementwise = arithmetic;
  elementwise.tensor_core.reset();
  elementwise.operand_rounding.reset();
  elementwise.depth = nullptr;
  Values dc_magnitude = absolute(exact.c);
  return {products(std::move(exact.a), s.a, p.n * (p.shared_a ? p.batch : 1), arithmetic, extra,
                   before_alpha(p.alpha)),
          products(std::move(exact.b), s.b, p.m * (p.shared_b ? p.batch : 1), arithmetic, extra,
                   before_alpha(p.alpha)),
          products(std::move(exact.c), dc_magnitude, 1, elementwise)};
}

Bound matmul_running(const oracle::MatmulParams& p, In a, In b, const Arithmetic& arithmetic) {
  ROUNDOFF_CHECK(p.alpha == 1 && p.beta == 0, "matmul running bound", "alpha ", p.alpha, ", beta ",
                 p.beta, "; 1 and 0 expected");
  const double u = arithmetic.u();
  const auto k = static_cast<double>(p.k);
  Bound bound{oracle::matmul(p, a, b), std::vector<double>(oracle::at(p.y_size())),
              arithmetic.sum_kind(), arithmetic.lambda};
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        const std::int64_t a0 = p.shared_a ? 0 : batch * p.m * p.k;
        const std::int64_t b0 = p.shared_b ? 0 : batch * p.k * p.n;
        long double partial = 0;
        long double sum = 0;
        long double squares = 0;
        for (std::int64_t l = 0; l < p.k; ++l) {
          const double x = a[oracle::at(a0 + (p.trans_a ? l * p.m + i : i * p.k + l))];
          const double y = b[oracle::at(b0 + (p.trans_b ? j * p.k + l : l * p.n + j))];
          partial += static_cast<long double>(x) * y;
          sum += std::abs(partial);
          squares += partial * partial;
        }
        // Computed partial sums differ from the exact ones by u sum |s_k| in their turn; 1 - K u
        // covers it.
        long double error = k * u < 1 ? u * sum / (1 - k * u) : INFINITY;
        if (arithmetic.lambda > 0) error = arithmetic.lambda * u * std::sqrt(squares) / (1 - k * u);
        if (sum != 0) error += k * arithmetic.underflow();
        const std::size_t iy = oracle::at((batch * p.m + i) * p.n + j);
        if (std::isfinite(bound.reference[iy]))
          bound.tolerance[iy] = rounded_tolerance(bound.reference[iy], error, arithmetic.output);
      }
  return bound;
}

Bound products_random_order(std::vector<double> reference, std::span<const double> sum,
                            std::span<const double> squares, std::int64_t terms,
                            const Arithmetic& a, double lambda, std::span<const double> bias) {
  ROUNDOFF_CHECK(!a.tensor_core, "running bound", "tensor cores truncate");
  Bound bound{std::move(reference), std::vector<double>(sum.size()), BoundKind::probabilistic,
              lambda};
  const auto n = static_cast<long double>(terms);
  const long double u = a.u();
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (!std::isfinite(bound.reference[i])) continue;
    long double error = 0;
    if (terms > 0 && squares[i] != 0) {
      const long double mean = sum[i] / n;
      const long double variance = std::max(squares[i] / n - mean * mean, 0.0L);
      const long double b = bias.empty() ? 0.0L : std::abs(static_cast<long double>(bias[i]));
      const long double partial = mean * mean * n * (n + 1) * (2 * n + 1) / 6 +
                                  variance * n * (n + 1) / 6 + n * b * b +
                                  b * std::abs(mean) * n * (n + 1);
      error = lambda * u * std::sqrt(partial + squares[i]) / (1 - n * u) + n * a.underflow();
    }
    if (!bias.empty() && bias[i] != 0) error += u * (std::abs(bound.reference[i]) + error);
    bound.tolerance[i] = rounded_tolerance(bound.reference[i], error, a.output);
  }
  return bound;
}

Bound conv2d(const oracle::Conv2dParams& p, In x, In w, In bias, const Arithmetic& arithmetic) {
  const Values s =
      oracle::conv2d(p, magnitudes(x, arithmetic), magnitudes(w, arithmetic), absolute(bias));
  return products(oracle::conv2d(p, x, w, bias), s, p.c / p.groups * p.r * p.s, arithmetic,
                  bias.empty() ? 0 : 1, 1, p.r * p.s);
}

Bound conv2d_dgrad(const oracle::Conv2dParams& p, In w, In dy, const Arithmetic& arithmetic) {
  const Values s = oracle::conv2d_dgrad(p, magnitudes(w, arithmetic), magnitudes(dy, arithmetic));
  return products(oracle::conv2d_dgrad(p, w, dy), s, p.k / p.groups * p.r * p.s, arithmetic, 0, 1,
                  p.r * p.s);
}

Bound conv2d_wgrad(const oracle::Conv2dParams& p, In x, In dy, const Arithmetic& arithmetic) {
  const Values s = oracle::conv2d_wgrad(p, magnitudes(x, arithmetic), magnitudes(dy, arithmetic));
  return products(oracle::conv2d_wgrad(p, x, dy), s, p.n * p.p() * p.q(), arithmetic, 0, 1,
                  p.n * p.p());
}

Bound conv2d_bias_grad(const oracle::Conv2dParams& p, In dy, const Arithmetic& arithmetic) {
  // A plain sum: no products, so no tensor core and no operand rounding.
  Arithmetic sum = arithmetic;
  sum.tensor_core.reset();
  sum.operand_rounding.reset();
  return products(oracle::conv2d_bias_grad(p, dy), oracle::conv2d_bias_grad(p, absolute(dy)),
                  p.n * p.p() * p.q(), sum);
}

}  // namespace roundoff::bound
