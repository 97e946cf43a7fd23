#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "kernels/base/convert.h"

namespace roundoff {

double overflow_threshold(const Format& format) {
  // Half a spacing beyond the largest finite number. For fp64 that is no double: infinity.
  const double spacing = std::ldexp(1.0, format.emax - format.precision + 1);
  return format.max_finite() + spacing / 2;
}

double ulp(double x, const Format& format) {
  const double size = std::abs(x);
  int exponent = format.emin;
  if (size >= format.min_normal()) exponent = std::min(std::ilogb(size), format.emax);
  return std::ldexp(1.0, exponent - format.precision + 1);
}

bool judge(double actual, double reference, double tolerance, const Format& format) {
  if (std::isnan(reference) || std::isnan(actual))
    return std::isnan(reference) && std::isnan(actual);
  if (actual == reference) return true;
  if (std::isinf(actual)) {
    const double towards = std::signbit(actual) ? -reference : reference;
    return towards + tolerance >= overflow_threshold(format);
  }
  return std::abs(actual - reference) <= tolerance;
}

Comparison compare(const ConstView& actual, std::span<const double> reference,
                   std::span<const double> tolerance) {
  constexpr std::string_view kName = "compare";
  ROUNDOFF_CHECK(is_floating(actual.dtype), kName, "does not take ", name(actual.dtype));
  const std::int64_t n = actual.numel();
  ROUNDOFF_CHECK(n == static_cast<std::int64_t>(reference.size()) &&
                     n == static_cast<std::int64_t>(tolerance.size()),
                 kName, n, " values of shape ", actual.shape, ", ", reference.size(),
                 " references, ", tolerance.size(), " tolerances");
  const Format format = format_of(actual.dtype);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> values(static_cast<std::size_t>(n));
  widen(actual, 0, n, values.data());

  Comparison c;
  long double squares = 0;
  std::int64_t finite = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double a = values[i];
    const double r = reference[i];
    const bool right = judge(a, r, tolerance[i], format);
    double ratio = right ? 0 : kInfinity;
    if (std::isfinite(a) && std::isfinite(r)) {
      const double error = std::abs(a - r);
      ++finite;
      squares += static_cast<long double>(error) * error;
      c.max_abs = std::max(c.max_abs, error);
      if (r != 0) c.max_rel = std::max(c.max_rel, error / std::abs(r));
      c.max_ulp = std::max(c.max_ulp, error / ulp(r, format));
      if (error != 0 && tolerance[i] > 0) ratio = error / tolerance[i];
    }
    c.holds = c.holds && right;
    c.outside += right ? 0 : 1;
    if (c.worst < 0 || ratio > c.bound_ratio) {
      c.bound_ratio = ratio;
      c.worst = static_cast<std::int64_t>(i);
      c.worst_actual = a;
      c.worst_reference = r;
      c.worst_tolerance = tolerance[i];
    }
  }
  if (finite > 0)
    c.rms = static_cast<double>(std::sqrt(squares / static_cast<long double>(finite)));
  return c;
}

Comparison compare(const ConstView& actual, const Bound& bound) {
  return compare(actual, bound.reference, bound.tolerance);
}

std::string element_text(std::int64_t index, const Shape& shape) {
  std::string text;
  for (int axis = shape.rank(); axis-- > 0;) {
    text = concat(index % shape[axis], text.empty() ? "" : ",", text);
    index /= shape[axis];
  }
  return text.empty() ? "" : concat("[", text, "]");
}

std::string describe(const Comparison& c) {
  if (c.worst < 0) return "empty";
  std::ostringstream out;
  out.precision(9);
  out << "worst at element " << c.worst << ": got " << c.worst_actual << ", expected "
      << c.worst_reference << " +- " << c.worst_tolerance << ", " << c.bound_ratio
      << " of the bound";
  return std::move(out).str();
}

}  // namespace roundoff
