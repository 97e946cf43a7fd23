// Numbers for writing down what a kernel should compute. A Number holds an exact value (as far as
// long double is) and a bound on the error of what an implementation in the stated arithmetic holds
// in its place: one formula, written plainly, gives the fp64 reference and its bound
// (verify/bound/tracked.h has the rules).
//
//   Number s = sum(exponentials);        // a sum in any order: gamma_n sum |x|
//   y = exp(x - m) / s;
//
// A loop of += is analysed in that order; sum() holds for every order, trees and blocks included.
#pragma once

#include <span>
#include <vector>

#include "verify/bound/tracked.h"

namespace roundoff {

class Number {
 public:
  // A constant. One that the arithmetic cannot hold is rounded to it where it meets another number.
  Number(double value = 0) : t_{value, 0, 0, 0} {}
  Number(const Tracked& t, double libm) : t_(t), libm_(libm) {}

  double value() const { return static_cast<double>(t_.value); }
  double error() const { return static_cast<double>(t_.error); }
  const Tracked& tracked() const { return t_; }
  // exp and the like are within so much, relatively.
  double libm() const { return libm_; }

  Number operator-() const { return {-t_, libm_}; }
  friend Number operator+(const Number& a, const Number& b) {
    return both(a, b, [](const Tracked& x, const Tracked& y) { return x + y; });
  }
  friend Number operator-(const Number& a, const Number& b) {
    return both(a, b, [](const Tracked& x, const Tracked& y) { return x - y; });
  }
  friend Number operator*(const Number& a, const Number& b) {
    return both(a, b, [](const Tracked& x, const Tracked& y) { return x * y; });
  }
  friend Number operator/(const Number& a, const Number& b) {
    return both(a, b, [](const Tracked& x, const Tracked& y) { return x / y; });
  }
  Number& operator+=(const Number& other) { return *this = *this + other; }
  Number& operator-=(const Number& other) { return *this = *this - other; }
  Number& operator*=(const Number& other) { return *this = *this * other; }
  Number& operator/=(const Number& other) { return *this = *this / other; }

  // By value: a branch that errors could turn is the caller's to know.
  friend bool operator<(const Number& a, const Number& b) { return a.t_.value < b.t_.value; }
  friend bool operator>(const Number& a, const Number& b) { return b < a; }
  friend bool operator<=(const Number& a, const Number& b) { return a.t_.value <= b.t_.value; }
  friend bool operator>=(const Number& a, const Number& b) { return b <= a; }
  friend bool operator==(const Number& a, const Number& b) { return a.t_.value == b.t_.value; }

 private:
  template <class F>
  static Number both(const Number& a, const Number& b, F f) {
    return {f(in_arithmetic(a.t_, b.t_), in_arithmetic(b.t_, a.t_)), std::max(a.libm_, b.libm_)};
  }
  static Tracked in_arithmetic(const Tracked& x, const Tracked& other);

  Tracked t_;
  double libm_ = 0;
};

// exp(x) - 1 and the like are not here: write what the kernel computes.
Number exp(const Number& x);
Number log(const Number& x);
Number tanh(const Number& x);
Number erf(const Number& x);
Number sqrt(const Number& x);
Number abs(const Number& x);
// a b + c, rounded once.
Number fma(const Number& a, const Number& b, const Number& c);
// NaN wins.
Number max(const Number& a, const Number& b);
Number min(const Number& a, const Number& b);
Number sum(std::span<const Number> terms);
Number dot(std::span<const Number> a, std::span<const Number> b);

// Values as an implementation in the arithmetic holds them, exactly.
std::vector<Number> numbers(std::span<const double> values, const Arithmetic& arithmetic);
// What was expected, rounded once to the arithmetic's output.
Bound bound_of(std::span<const Number> results, const Arithmetic& arithmetic);

}  // namespace roundoff
