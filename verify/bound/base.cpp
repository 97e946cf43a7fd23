#include "verify/bound/base.h"

#include <cmath>
#include <limits>

namespace roundoff {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

std::string_view name(BoundKind kind) {
  switch (kind) {
    case BoundKind::proven:
      return "proven";
    case BoundKind::probabilistic:
      return "probabilistic";
    case BoundKind::derived:
      return "derived";
  }
  return "?";
}

std::string Bound::kind_name() const {
  return kind == BoundKind::probabilistic ? concat(name(kind), " (lambda = ", lambda, ")")
                                          : std::string(name(kind));
}

double gamma(double k, double u) { return k * u < 1 ? k * u / (1 - k * u) : kInfinity; }

double compounded(double t) { return t < 1 ? t / (1 - t) : kInfinity; }

double sum_factor(const Arithmetic& a, std::int64_t terms, double extra) {
  const double h = a.sum_depth(terms) + extra;
  const double u = a.u();
  if (a.lambda > 0) return std::expm1(a.lambda * std::sqrt(h) * u + h * u * u / (1 - u));
  return gamma(h, u);
}

double rounded_tolerance(long double value, long double error, const Format& output) {
  const auto v = static_cast<double>(value);
  if (error == 0 && static_cast<long double>(v) == value && round_to_format(v, output).value == v)
    return 0;
  const long double size = std::abs(value);
  // fp64's eta, 2^-1075, is no double.
  const double eta = std::max(output.eta(), 0x1p-1074);
  return static_cast<double>(error + output.unit_roundoff() * (size + error) + eta +
                             0x1p-53L * size);
}

double unless_overflow(double error, double magnitude, const Arithmetic& a) {
  return magnitude + error < a.accumulator.max_finite() ? error : INFINITY;
}

Bound accumulated(const Bound& bound, std::span<const double> before, const Format& output,
                  std::int64_t terms) {
  ROUNDOFF_CHECK(before.size() == bound.reference.size(), "accumulated bound", "before has ",
                 before.size(), " values, ", bound.reference.size(), " expected");
  Bound out = bound;
  const auto n = static_cast<double>(terms);
  const double u = output.unit_roundoff();
  for (std::size_t i = 0; i < before.size(); ++i) {
    out.reference[i] += before[i];
    double error = bound.tolerance[i];
    if (terms > 0 && error != 0)
      error = error * (n + 1) / n * (1 + 0x1p-20) + gamma(n + 1, u) * std::abs(before[i]);
    out.tolerance[i] = rounded_tolerance(out.reference[i], error, output);
  }
  return out;
}

}  // namespace roundoff
