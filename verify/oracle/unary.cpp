#include "verify/oracle/unary.h"

#include <cmath>
#include <numbers>

namespace roundoff::oracle {

namespace {

using Real = long double;

constexpr Real kSqrt2 = std::numbers::sqrt2_v<Real>;
constexpr Real kInvSqrtPi = std::numbers::inv_sqrtpi_v<Real>;
constexpr Real kCubic = 0.044715L;

Real sigmoid(Real x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
// erfc, not 1 + erf, keeps the negative tail's relative accuracy.
Real normal_cdf(Real x) { return std::erfc(-x / kSqrt2) / 2; }
Real normal_pdf(Real x) { return std::exp(-x * x / 2) * kInvSqrtPi / kSqrt2; }
// (1 + tanh(t)) / 2 is sigmoid(2 t), which does not cancel.
Real gelu_tanh_argument(Real x) { return kSqrt2 * kInvSqrtPi * (x + kCubic * x * x * x); }

Real value(Unary f, Real x) {
  switch (f) {
    case Unary::relu:
      return x < 0 ? 0 : x;
    case Unary::gelu:
      if (std::isinf(x)) return x < 0 ? 0 : x;  // the limits
      return x * normal_cdf(x);
    case Unary::gelu_tanh:
      if (std::isinf(x)) return x < 0 ? 0 : x;
      return x * sigmoid(2 * gelu_tanh_argument(x));
    case Unary::tanh:
      return std::tanh(x);
    case Unary::sigmoid:
      return sigmoid(x);
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return std::log(x);
  }
  fail("unary oracle", "unknown function");
}

Real derivative(Unary f, Real x) {
  switch (f) {
    case Unary::relu:
      return x <= 0 ? 0 : 1;
    case Unary::gelu:
      if (std::isinf(x)) return x < 0 ? 0 : 1;
      return normal_cdf(x) + x * normal_pdf(x);
    case Unary::gelu_tanh: {
      if (std::isinf(x)) return x < 0 ? 0 : 1;
      const Real t = 2 * gelu_tanh_argument(x);
      const Real dt = 2 * kSqrt2 * kInvSqrtPi * (1 + 3 * kCubic * x * x);
      return sigmoid(t) + x * sigmoid(t) * sigmoid(-t) * dt;
    }
    case Unary::tanh:
      return 1 / (std::cosh(x) * std::cosh(x));
    case Unary::sigmoid:
      return sigmoid(x) * sigmoid(-x);
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return 1 / x;
  }
  fail("unary oracle", "unknown function");
}

}  // namespace

double unary(Unary f, double x) { return static_cast<double>(value(f, x)); }
double unary_derivative(Unary f, double x) { return static_cast<double>(derivative(f, x)); }

Values unary(Unary f, In x) {
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = unary(f, x[i]);
  return y;
}

Values unary_backward(Unary f, In x, In dy) {
  check_size("unary oracle", "dy", dy, static_cast<std::int64_t>(x.size()));
  Values dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (f == Unary::relu)
      dx[i] = x[i] <= 0 ? 0.0 : dy[i];
    else
      dx[i] = static_cast<double>(dy[i] * derivative(f, x[i]));
  }
  return dx;
}

}  // namespace roundoff::oracle
