// What tolerances of element-wise operations, reductions and losses are computed from, and values
// to feed them with.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/sum_bound.h"

namespace roundoff::test {

inline constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

// Deterministic values in (-1, 1) without a random library.
class Uniform {
 public:
  explicit Uniform(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  double next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(static_cast<std::int64_t>(state_ >> 11)) * 0x1p-52 - 1;
  }
  std::vector<double> take(std::int64_t n, double scale = 1) {
    std::vector<double> v(static_cast<std::size_t>(n));
    for (double& x : v) x = scale * next();
    return v;
  }

 private:
  std::uint64_t state_;
};

// The type that a kernel computes in.
constexpr double arithmetic_roundoff(DType dtype) {
  return dtype == DType::fp64 ? 0x1p-53 : 0x1p-24;
}

constexpr double gamma(double k, double u) { return k * u / (1 - k * u); }

// Tolerance of a result that was computed within `error` of `value` and rounded once to `dtype`.
inline double rounded_tolerance(double value, double error, DType dtype) {
  return error + format(dtype).unit * (std::abs(value) + error) + format(dtype).eta;
}

// The largest |got - want| / tolerance(i, want). A NaN is due where want is one; an infinity where
// want is infinite, or lies within its tolerance of the output's overflow threshold.
template <class Tolerance>
double worst_of(const std::vector<double>& got, const std::vector<double>& want, DType output,
                Tolerance tolerance) {
  if (got.size() != want.size()) return HUGE_VAL;
  const double threshold = output == DType::fp16   ? 65520
                           : output == DType::bf16 ? 0x1.FFp127
                           : output == DType::fp32 ? 0x1.FFFFFFp127
                                                   : HUGE_VAL;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;
    const double allowed = tolerance(i, want[i]);
    if (std::isinf(got[i]) && std::signbit(got[i]) == std::signbit(want[i]) &&
        std::abs(want[i]) + allowed >= threshold)
      continue;
    const double ratio = std::abs(got[i] - want[i]) / allowed;
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? HUGE_VAL : ratio;
  }
  return worst;
}

}  // namespace roundoff::test
