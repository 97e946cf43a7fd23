// Forward error analysis by running it: a value together with a bound on the error of what an
// implementation holds in its place. Every operation propagates the operands' errors and adds one
// rounding of the arithmetic, so that writing an implementation's formula in Tracked numbers
// derives its bound. Values are formed in long double; errors are proven to first order and beyond
// (quotients and square roots use the worst operand within its error).
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "verify/bound/base.h"

namespace roundoff {

struct Tracked {
  long double value = 0;
  long double error = 0;
  double u = 0;          // of the arithmetic that the number lives in
  double underflow = 0;  // largest absolute error of an underflow

  bool exact() const { return error == 0; }
};

namespace detail {

// Whether the implementation may hold an infinity here: nothing that is formed from it is known.
inline bool may_overflow(const Tracked& x) {
  const long double limit = x.u > 0x1p-25 ? static_cast<long double>(kFp32.max_finite())
                                          : static_cast<long double>(kFp64.max_finite());
  return std::isfinite(x.value) && std::abs(x.value) + x.error > limit;
}

constexpr long double kUnknown = std::numeric_limits<long double>::infinity();

inline Tracked rounded(const Tracked& like, long double value, long double error,
                       bool can_underflow = true) {
  if (value == 0 && error == 0) return {0, 0, like.u, like.underflow};
  return {value, error + like.u * (std::abs(value) + error) + (can_underflow ? like.underflow : 0),
          like.u, like.underflow};
}

inline bool is(const Tracked& x, long double value) { return x.exact() && x.value == value; }

}  // namespace detail

// Makes the numbers of one arithmetic.
class Tracker {
 public:
  explicit Tracker(const Arithmetic& a)
      : u_(a.u()), underflow_(a.underflow()), libm_(a.libm()), arithmetic_(a) {}

  // A number that the implementation holds exactly.
  Tracked exact(long double value) const { return {value, 0, u_, underflow_}; }
  // A number that was rounded to the arithmetic's format: a setting, a quotient formed in fp64.
  Tracked constant(long double value) const {
    const auto v = static_cast<double>(value);
    if (static_cast<long double>(v) == value &&
        round_to_format(v, arithmetic_.accumulator).value == v)
      return exact(value);
    return detail::rounded(exact(0), value, 0);
  }
  Tracked with_error(long double value, long double error) const {
    return {value, error, u_, underflow_};
  }

  // The sum of terms, in any order that `depth` allows: error sum(e_i) + g sum(|x_i| + e_i).
  Tracked sum(std::span<const Tracked> terms) const {
    long double value = 0;
    long double error = 0;
    long double magnitude = 0;
    for (const Tracked& t : terms) {
      value += t.value;
      error += detail::may_overflow(t) ? kInfinity : t.error;
      magnitude += std::abs(t.value) + t.error;
    }
    // A sum of n terms has n - 1 additions; one term is not rounded.
    const auto n = static_cast<std::int64_t>(terms.size());
    const double g = n < 2 ? 0 : sum_factor(arithmetic_, n);
    error += g * magnitude;
    // Partial sums may leave the range in some order.
    const bool leaves =
        n > 1 && std::isfinite(magnitude) && detail::may_overflow(with_error(magnitude, error));
    return with_error(value, leaves ? kInfinity : error);
  }

  // Elementary functions within libm_ulps: the operand's error through the derivative's largest
  // size, plus the library's.
  Tracked exp(const Tracked& x) const {
    if (detail::may_overflow(x)) return with_error(std::exp(x.value), kInfinity);
    const long double v = std::exp(x.value);
    return library(v, v * std::expm1(x.error));
  }
  Tracked log(const Tracked& x) const {
    if (detail::may_overflow(x)) return with_error(std::log(x.value), kInfinity);
    const long double low = x.value - x.error;
    return library(std::log(x.value), low > 0 ? std::log(x.value / low) : kInfinity);
  }
  Tracked log1p(const Tracked& x) const {  // x >= 0
    return library(std::log1p(x.value), x.error);
  }
  Tracked tanh(const Tracked& x) const {
    // An infinite argument gives 1 or -1, as a large one does.
    const long double c = std::cosh(std::max(std::abs(x.value) - x.error, 0.0L));
    return library(std::tanh(x.value), x.error / (c * c));
  }
  Tracked erfc(const Tracked& x) const {
    constexpr long double kTwoOverSqrtPi = 1.1283791670955125738961589031215452L;
    const long double near = std::max(std::abs(x.value) - x.error, 0.0L);
    return library(std::erfc(x.value), x.error * kTwoOverSqrtPi * std::exp(-near * near));
  }

  const Arithmetic& arithmetic() const { return arithmetic_; }

 private:
  static constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
  Tracked library(long double value, long double error) const {
    if (value == 0 && error == 0) return exact(0);
    return with_error(value, error + libm_ * (std::abs(value) + error) + underflow_);
  }

  double u_, underflow_, libm_;
  Arithmetic arithmetic_;
};

inline Tracked operator-(const Tracked& x) { return {-x.value, x.error, x.u, x.underflow}; }

inline Tracked operator+(const Tracked& a, const Tracked& b) {
  if (detail::is(a, 0)) return b;
  if (detail::is(b, 0)) return a;
  if (detail::may_overflow(a) || detail::may_overflow(b))
    return {a.value + b.value, detail::kUnknown, a.u, a.underflow};
  return detail::rounded(a, a.value + b.value, a.error + b.error, false);
}
inline Tracked operator-(const Tracked& a, const Tracked& b) { return a + (-b); }

inline Tracked operator*(const Tracked& a, const Tracked& b) {
  if (detail::is(a, 1)) return b;
  if (detail::is(b, 1)) return a;
  if (detail::may_overflow(a) || detail::may_overflow(b))
    return {a.value * b.value, detail::kUnknown, a.u, a.underflow};
  return detail::rounded(
      a, a.value * b.value,
      std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error);
}

inline Tracked operator/(const Tracked& a, const Tracked& b) {
  if (detail::is(b, 1)) return a;
  const long double q = a.value / b.value;
  if (detail::may_overflow(a) || detail::may_overflow(b))
    return {q, detail::kUnknown, a.u, a.underflow};
  const long double least = std::abs(b.value) - b.error;
  const long double error = a.error == 0 && b.error == 0
                                ? 0.0L
                                : (least > 0 ? (a.error + std::abs(q) * b.error) / least
                                             : std::numeric_limits<long double>::infinity());
  return detail::rounded(a, q, error);
}

inline Tracked sqrt(const Tracked& x) {
  const long double v = std::sqrt(x.value);
  if (detail::may_overflow(x)) return {v, detail::kUnknown, x.u, x.underflow};
  // |sqrt(x + d) - sqrt(x)| = |d| / (sqrt(x + d) + sqrt(x))
  const long double least = std::sqrt(std::max(x.value - x.error, 0.0L));
  const long double error = x.error == 0 ? 0.0L : x.error / (v + least);
  return detail::rounded(x, v, v + least > 0 || x.error == 0 ? error : std::sqrt(x.error), false);
}

inline Tracked abs(const Tracked& x) { return {std::abs(x.value), x.error, x.u, x.underflow}; }

// The bound of results that are rounded once to the arithmetic's output, against the oracle's
// reference.
Bound bound_of(std::vector<double> reference, std::span<const Tracked> results, const Arithmetic& a,
               BoundKind kind);

}  // namespace roundoff
