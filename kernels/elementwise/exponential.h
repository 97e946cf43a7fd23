// exp, sigmoid, tanh and log(1 + exp(-|x|)) as loops that compilers vectorise, with the same bits
// from every compiler and C library. fp32 results are computed in double and rounded once: within
// 0.5001 ulp, subnormal ones included. fp64 takes the C library's exp, log1p and tanh (within 1, 1
// and 2 ulp).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace roundoff::detail {

// exp(x) for |x| <= 700, relative error below 2^-45; NaN stays NaN. x = n ln 2 + r with
// |r| <= ln 2 / 2; the Taylor series of exp(r) to r^11 leaves r^12 / 12! < 2^-47.
inline double exp_in_double(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa0000p-1;  // n times this is exact
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds to an integer, in the lowest bits
  const double shifted = x * kLog2E + kToInteger;
  const double n = shifted - kToInteger;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const double low = (1 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
  const double middle = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
  const double high =
      (1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800));
  const double p = low + r4 * (middle + r4 * high);
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) +
                               (std::bit_cast<std::uint64_t>(shifted) << 52));
}

// Beyond +-104 fp32's exp is infinite or 0. (One comparison: compilers vectorise it.)
inline double clamp_exponent(double x) {
  const double size = std::abs(x);
  return std::copysign(size > 104.0 ? 104.0 : size, x);
}

inline double exponential(double x) { return std::exp(x); }
inline float exponential(float x) {
  return static_cast<float>(exp_in_double(clamp_exponent(static_cast<double>(x))));
}

// 1 / (1 + exp(-x)).
inline double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1.0) / (1 + e);
}
inline float sigmoid(float x) {
  return static_cast<float>(1 / (1 + exp_in_double(-clamp_exponent(static_cast<double>(x)))));
}

// Below 2^-8 by its series (the next term is 17 x^7 / 315 < 2^-52 x), beyond from exp(-2 |x|),
// where 1 - exp loses 7 of 45 bits.
inline double tangent(double x) { return std::tanh(x); }
inline float tangent(float value) {
  const auto x = static_cast<double>(value);
  const double size = std::abs(x);
  const double e = exp_in_double(-2 * (size > 20.0 ? 20.0 : size));
  const double x2 = x * x;
  const double series = size * (1 - x2 * (1.0 / 3 - x2 * (2.0 / 15)));
  const double result = size < 0x1p-8 ? series : (1 - e) / (1 + e);
  return static_cast<float>(std::copysign(result, x));
}

// log(1 + e), e = exp(-|x|): 2 artanh(s) with s = e / (2 + e) <= 1 / 3, whose series' eleventh term
// is below 2^-36 of the first.
inline double softplus_tail(double x) { return std::log1p(std::exp(-std::abs(x))); }
inline float softplus_tail(float x) {
  const double e = exp_in_double(clamp_exponent(-std::abs(static_cast<double>(x))));
  const double s = e / (2 + e);
  const double s2 = s * s;
  double sum = 1.0 / 19;
  for (int k = 17; k > 0; k -= 2) sum = sum * s2 + 1.0 / k;
  return static_cast<float>(2 * s * sum);
}

}  // namespace roundoff::detail
