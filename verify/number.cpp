#include "verify/number.h"

#include <cmath>

namespace roundoff {

namespace {

constexpr long double kInfinity = std::numeric_limits<long double>::infinity();

// The arithmetic that a number lives in, as far as functions and sums need it.
Arithmetic arithmetic_of(const Number& x) {
  Arithmetic a;
  a.accumulator = x.tracked().u > 0 && x.tracked().u < 0x1p-40 ? kFp64 : kFp32;
  a.libm_ulps = x.libm() / (2 * a.u());
  return a;
}

// Functions of a constant alone are constants.
template <class F, class G>
Number function(const Number& x, F tracked, G plain) {
  if (x.tracked().u == 0) return Number(plain(x.value()));
  return {tracked(Tracker(arithmetic_of(x)), x.tracked()), x.libm()};
}

}  // namespace

Tracked Number::in_arithmetic(const Tracked& x, const Tracked& other) {
  if (x.u != 0 || other.u == 0) return x;
  Tracked t = x;
  t.u = other.u;
  t.underflow = other.underflow;
  const auto v = static_cast<double>(x.value);
  const Format& format = other.u < 0x1p-40 ? kFp64 : kFp32;
  if (std::isfinite(v) && round_to_format(v, format).value != v)
    t.error = other.u * std::abs(x.value) + other.underflow;
  return t;
}

Number exp(const Number& x) {
  return function(
      x, [](const Tracker& t, const Tracked& v) { return t.exp(v); },
      [](double v) { return std::exp(v); });
}
Number log(const Number& x) {
  return function(
      x, [](const Tracker& t, const Tracked& v) { return t.log(v); },
      [](double v) { return std::log(v); });
}
Number tanh(const Number& x) {
  return function(
      x, [](const Tracker& t, const Tracked& v) { return t.tanh(v); },
      [](double v) { return std::tanh(v); });
}
Number erf(const Number& x) {
  return function(
      x,
      [](const Tracker& t, const Tracked& v) {
        // |erf'| is at most 2 / sqrt(pi).
        const long double value = std::erf(v.value);
        const long double error = 1.1283791670955126L * v.error;
        if (value == 0 && error == 0) return t.exact(0);
        return t.with_error(value, error + t.arithmetic().libm() * (std::abs(value) + error) +
                                       t.arithmetic().underflow());
      },
      [](double v) { return std::erf(v); });
}
Number sqrt(const Number& x) {
  return function(
      x, [](const Tracker&, const Tracked& v) { return sqrt(v); },
      [](double v) { return std::sqrt(v); });
}
Number abs(const Number& x) { return {abs(x.tracked()), x.libm()}; }

Number fma(const Number& a, const Number& b, const Number& c) {
  // The product's own rounding does not happen; what is left is the sum's.
  const Number product = a * b;
  Tracked exact = product.tracked();
  const Tracked &x = a.tracked(), &y = b.tracked();
  exact.error = std::abs(x.value) * y.error + std::abs(y.value) * x.error + x.error * y.error;
  return Number(exact, product.libm()) + c;
}

Number max(const Number& a, const Number& b) {
  if (std::isnan(a.value()) || std::isnan(b.value())) return Number(std::nan(""));
  Number larger = a < b ? b : a;
  // Either may win where their errors overlap; both are then as good.
  Tracked t = larger.tracked();
  t.error = std::max(a.tracked().error, b.tracked().error);
  return {t, std::max(a.libm(), b.libm())};
}
Number min(const Number& a, const Number& b) { return -max(-a, -b); }

Number sum(std::span<const Number> terms) {
  if (terms.empty()) return Number(0);
  Number widest = terms[0];
  std::vector<Tracked> tracked;
  for (const Number& x : terms) {
    tracked.push_back(x.tracked());
    if (x.tracked().u > widest.tracked().u) widest = x;
  }
  if (widest.tracked().u == 0) {
    double total = 0;
    for (const Number& x : terms) total += x.value();
    return Number(total);
  }
  return {Tracker(arithmetic_of(widest)).sum(tracked), widest.libm()};
}

Number dot(std::span<const Number> a, std::span<const Number> b) {
  ROUNDOFF_CHECK(a.size() == b.size(), "dot", a.size(), " and ", b.size(), " numbers");
  std::vector<Number> products;
  for (std::size_t i = 0; i < a.size(); ++i) products.push_back(a[i] * b[i]);
  return sum(products);
}

std::vector<Number> numbers(std::span<const double> values, const Arithmetic& arithmetic) {
  const Tracker t(arithmetic);
  std::vector<Number> all;
  for (const double v : values) all.emplace_back(t.exact(v), arithmetic.libm());
  return all;
}

Bound bound_of(std::span<const Number> results, const Arithmetic& arithmetic) {
  std::vector<double> reference;
  std::vector<Tracked> tracked;
  for (const Number& x : results) {
    reference.push_back(x.value());
    Tracked t = x.tracked();
    // A constant is rounded to the arithmetic before it is rounded to the output.
    if (t.u == 0 && std::isfinite(reference.back()) &&
        round_to_format(reference.back(), arithmetic.accumulator).value != reference.back())
      t.error += arithmetic.u() * std::abs(t.value);
    if (std::isnan(static_cast<double>(t.error))) t.error = kInfinity;
    tracked.push_back(t);
  }
  return bound_of(std::move(reference), tracked, arithmetic, BoundKind::derived);
}

}  // namespace roundoff
