// Values and derivatives of the functions of one element, against the oracle, within bounds derived
// here. u is the unit roundoff of the arithmetic type; the C library's documented errors are exp,
// log and log1p 1 ulp (2u), tanh 2 ulp (4u), erfc 5 ulp (10u).
#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "kernels/elementwise/elementwise.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "verify/oracle/unary.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr Unary kAll[] = {Unary::relu,    Unary::gelu, Unary::gelu_tanh, Unary::tanh,
                          Unary::sigmoid, Unary::exp,  Unary::log};

oracle::Unary oracle_of(Unary op) {
  switch (op) {
    case Unary::relu:
      return oracle::Unary::relu;
    case Unary::gelu:
      return oracle::Unary::gelu;
    case Unary::gelu_tanh:
      return oracle::Unary::gelu_tanh;
    case Unary::tanh:
      return oracle::Unary::tanh;
    case Unary::sigmoid:
      return oracle::Unary::sigmoid;
    case Unary::exp:
      return oracle::Unary::exp;
    case Unary::log:
      return oracle::Unary::log;
  }
  return oracle::Unary::relu;
}

double gelu_tanh_argument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

// |computed - exact| <= factor u |exact|, before the rounding to the output's type.
double forward_factor(Unary op, double x) {
  switch (op) {
    case Unary::relu:
      return 0;
    case Unary::exp:
    case Unary::log:
      return 2;
    case Unary::tanh:
      return 4;
    case Unary::sigmoid:
      // e: 2, 1 + e: at most 2, quotient: 1
      return 5;
    case Unary::gelu:
      // The argument z = -x / sqrt 2 carries 2u; |z erfc'(z) / erfc(z)| <= 2 z^2 + 1 = x^2 + 1.
      // erfc itself 10, the product with x 1.
      return 13 + 2 * x * x;
    case Unary::gelu_tanh: {
      // The argument v = 2u: cube 4, sum 1, factor 2; |v s'(v) / s(v)| <= |v|. Then a sigmoid and a
      // product.
      return 6 + 14 * std::abs(gelu_tanh_argument(x));
    }
  }
  return 0;
}

// Absolute error of dx for dy = g, in units of u, from the value that was saved (x or y, exact).
double backward_error(Unary op, double saved, double g) {
  const double x = saved;
  const auto slope_terms = [&](double weight, double weight_error, double term, double term_error) {
    return std::abs(g) *
           (weight * weight_error + std::abs(term) * term_error + 2 * (weight + std::abs(term)));
  };
  switch (op) {
    case Unary::relu:
      return 0;
    case Unary::exp:
    case Unary::log:
      return std::abs(op == Unary::exp ? g * x : g / x);
    case Unary::tanh:
      return 4 * std::abs(g * (1 - x) * (1 + x));
    case Unary::sigmoid:
      return 3 * std::abs(g * x * (1 - x));
    case Unary::gelu: {
      // Phi + x phi: the exponent -x^2 / 2 carries one rounding.
      const double phi = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      return slope_terms(std::erfc(-x / std::numbers::sqrt2) / 2, 12 + 2 * x * x, x * phi,
                         5 + x * x / 2);
    }
    case Unary::gelu_tanh: {
      const double v = 2 * gelu_tanh_argument(x);
      const double s = 1 / (1 + std::exp(-v));
      const double dv = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
      return slope_terms(s, 5 + 7 * std::abs(v), x * s / (1 + std::exp(v)) * dv,
                         20 + 14 * std::abs(v));
    }
  }
  return 0;
}

// The derivative as a function of what was saved.
double slope_from_saved(Unary op, double saved) {
  switch (op) {
    case Unary::relu:
      return saved > 0 ? 1 : 0;
    case Unary::tanh:
      return static_cast<double>((1.0L - saved) * (1.0L + saved));
    case Unary::sigmoid:
      return static_cast<double>(saved * (1.0L - saved));
    case Unary::exp:
      return saved;
    default:
      return oracle::unary_derivative(oracle_of(op), saved);
  }
}

// From far in one tail to far in the other, with values near 0, over a chunk's end.
std::vector<double> grid(Unary op) {
  std::vector<double> x = Uniform(17).take(1100, op == Unary::exp ? 20 : 9);
  for (int e = -20; e <= 3; ++e) x.insert(x.end(), {std::ldexp(1.0, e), -std::ldexp(1.0, e)});
  if (op == Unary::log)
    for (double& v : x) v = v == 0 ? 1 : std::abs(v);
  return x;
}

}  // namespace

TEST_CASE("functions of one element stay within their bounds, values and gradients") {
  for (const Unary op : kAll) {
    for (const DType dtype : kFloating) {
      CAPTURE(name(op));
      CAPTURE(name(dtype));
      const double u = arithmetic_roundoff(dtype);
      const double eta = format(widest(dtype, DType::fp32)).eta;
      const std::vector<double> values = grid(op);
      const auto n = static_cast<std::int64_t>(values.size());
      const Array x(dtype, {n}, values);
      Array y(dtype, {n});
      unary_forward(Ref{}, {.op = op}, x, y.out());
      CHECK(y.guards_intact());
      CHECK(worst_of(y.values(), oracle::unary(oracle_of(op), x.values()), dtype,
                     [&](std::size_t i, double want) {
                       const double in = x[static_cast<std::int64_t>(i)];
                       const double error =
                           forward_factor(op, in) * u * std::abs(want) + eta * (1 + std::abs(in));
                       return rounded_tolerance(want, error, dtype);
                     }) <= 1);

      const Array dy(dtype, {n}, Uniform(18).take(n, 3));
      const Array& saved = saves_input(op) ? x : y;
      std::vector<double> want;
      for (std::int64_t i = 0; i < n; ++i) want.push_back(dy[i] * slope_from_saved(op, saved[i]));
      Array dx(dtype, {n});
      unary_backward(Ref{}, {.op = op}, saved, dy, dx.out());
      CHECK(dx.guards_intact());
      CHECK(worst_of(dx.values(), want, dtype, [&](std::size_t i, double exact) {
              const auto k = static_cast<std::int64_t>(i);
              const double error = backward_error(op, saved[k], dy[k]) * u +
                                   eta * (1 + std::abs(saved[k]) + std::abs(dy[k])) +
                                   2 * 0x1p-53 * std::abs(exact);
              return rounded_tolerance(exact, error, dtype);
            }) <= 1);
    }
  }
}

TEST_CASE("functions of one element at their limits") {
  struct Limit {
    Unary op;
    double x, y, slope;
  };
  const Limit limits[] = {
      {Unary::gelu, kInf, kInf, 1},      {Unary::gelu, -kInf, 0, 0},
      {Unary::gelu, -40, 0, 0},          {Unary::gelu_tanh, kInf, kInf, 1},
      {Unary::gelu_tanh, -kInf, 0, 0},   {Unary::gelu_tanh, -1e13, 0, 0},
      {Unary::gelu_tanh, 1e13, 1e13, 1}, {Unary::tanh, kInf, 1, 0},
      {Unary::tanh, -kInf, -1, 0},       {Unary::sigmoid, kInf, 1, 0},
      {Unary::sigmoid, -kInf, 0, 0},     {Unary::exp, -kInf, 0, 0},
      {Unary::exp, kInf, kInf, kInf},    {Unary::log, 0, -kInf, kInf},
      {Unary::log, kInf, kInf, 0},       {Unary::relu, -kInf, 0, 0},
  };
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    for (const Limit& limit : limits) {
      CAPTURE(name(limit.op));
      CAPTURE(limit.x);
      const Array x(dtype, {1}, {limit.x});
      Array y(dtype, {1});
      unary_forward(Ref{}, {.op = limit.op}, x, y.out());
      CHECK(y[0] == Array(dtype, {1}, {limit.y})[0]);
      const Array dy(dtype, {1}, {1});
      Array dx(dtype, {1});
      unary_backward(Ref{}, {.op = limit.op}, saves_input(limit.op) ? x : y, dy, dx.out());
      CHECK(dx[0] == limit.slope);
    }
    for (const Unary op : kAll) {
      const Array x(dtype, {1}, {kNan});
      Array y(dtype, {1});
      unary_forward(Ref{}, {.op = op}, x, y.out());
      CHECK(std::isnan(y[0]));
    }
    Array y(dtype, {1});
    unary_forward(Ref{}, {.op = Unary::log}, Array(dtype, {1}, {-1}), y.out());
    CHECK(std::isnan(y[0]));
  }
  // Where exp(-x) overflows in fp32 the sigmoid is still a number, as small as it is.
  Array tail(DType::fp32, {1});
  unary_forward(Ref{}, {.op = Unary::sigmoid}, Array(DType::fp32, {1}, {-89}), tail.out());
  CHECK(tail[0] > 0);
}

TEST_CASE("fp64 accumulation computes in fp64 whatever the operands") {
  const Array x(DType::fp32, {1}, {0.7});
  Array y(DType::fp64, {1});
  unary_forward(Ref{}, {.op = Unary::exp, .accumulator = Accumulator::fp64}, x, y.out());
  CHECK(std::abs(y[0] - std::exp(x[0])) <= 4 * 0x1p-53);
  unary_forward(Ref{}, {.op = Unary::exp}, x, y.out());
  CHECK(std::abs(y[0] - std::exp(x[0])) > 4 * 0x1p-53);
}

TEST_CASE("relu of 16-bit patterns is what conversions to fp32 and back give, for every pattern") {
  constexpr std::int64_t kPatterns = 1 << 16;
  std::vector<std::uint16_t> x(kPatterns), dy(kPatterns), y(kPatterns), dx(kPatterns);
  std::vector<float> wide(kPatterns);
  std::mt19937 random(3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<std::uint16_t>(i);
    dy[i] = static_cast<std::uint16_t>(random());
  }
  const Shape shape{kPatterns};
  const auto check = [&](DType dtype, const std::vector<std::uint16_t>& got) {
    std::vector<std::uint16_t> want(kPatterns);
    narrow(wide.data(), kPatterns, View{want.data(), dtype, shape}, 0);
    CHECK(got == want);
  };
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    const ConstView values{x.data(), dtype, shape}, gradient{dy.data(), dtype, shape};
    const View through_fp32{wide.data(), DType::fp32, shape};
    unary_forward(Ref{}, {.op = Unary::relu}, values, View{y.data(), dtype, shape});
    unary_forward(Ref{}, {.op = Unary::relu}, values, through_fp32);
    check(dtype, y);
    unary_backward(Ref{}, {.op = Unary::relu}, values, gradient, View{dx.data(), dtype, shape});
    unary_backward(Ref{}, {.op = Unary::relu}, values, gradient, through_fp32);
    check(dtype, dx);
  }
}
