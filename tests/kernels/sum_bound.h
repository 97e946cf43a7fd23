// The hard error bound of a sum of products whose result is rounded once: g S + u_o (|r| + g S) +
// eta, with S the same sum of magnitudes, g = gamma_h of the accumulator and h the number of
// roundings that one term meets (Higham, Accuracy and Stability of Numerical Algorithms, 3.1).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace roundoff::test {

struct Format {
  double unit, eta;  // relative rounding error; half the smallest subnormal
};
inline Format format(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return {0x1p-11, 0x1p-25};
    case DType::bf16:
      return {0x1p-8, 0x1p-134};
    case DType::fp32:
      return {0x1p-24, 0x1p-150};
    default:
      return {0x1p-53, 0x1p-1074};
  }
}

// accumulator: fp32 or fp64; terms: h above.
inline double tolerance(double result, double magnitudes, std::int64_t terms, DType accumulator,
                        DType output) {
  const double u = format(accumulator).unit;
  const auto h = static_cast<double>(terms);
  const double g = h * u / (1 - h * u);
  const double eta = h * format(accumulator).eta;
  return g * magnitudes + format(output).unit * (std::abs(result) + g * magnitudes) +
         format(output).eta + eta;
}

// The largest |got - want| / tolerance, with magnitudes[i] the sum of |terms| of element i.
inline double worst_ratio(const std::vector<double>& got, const std::vector<double>& want,
                          const std::vector<double>& magnitudes, std::int64_t terms,
                          DType accumulator, DType output) {
  if (got.size() != want.size()) return HUGE_VAL;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double ratio =
        std::abs(got[i] - want[i]) / tolerance(want[i], magnitudes[i], terms, accumulator, output);
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? HUGE_VAL : ratio;
  }
  return worst;
}

}  // namespace roundoff::test
