// Arrays of a dtype for bound tests: rounded samples, and results of plain fp32 loops.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "kernels/base/convert.h"
#include "verify/bound.h"

namespace roundoff {

// N(0, 1) times `scale`, rounded to the dtype's format.
inline oracle::Values normal(std::int64_t n, DType dtype, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution;
  oracle::Values v(oracle::at(n));
  for (double& x : v) x = round_to_format(scale * distribution(generator), format_of(dtype)).value;
  return v;
}

// Stores fp32 results as `dtype`, with one rounding, and compares them.
inline Comparison check(const std::vector<float>& results, DType dtype, const Bound& bound) {
  const auto n = static_cast<std::int64_t>(results.size());
  std::vector<double> storage(results.size());  // large enough for every dtype
  const View view{storage.data(), dtype, {n}};
  narrow(results.data(), n, view, 0);
  const Comparison c = compare(view, bound);
  INFO(describe(c), ", ", bound.kind_name());
  CHECK(c.holds);
  CHECK(c.bound_ratio <= 1);
  return c;
}

// Whether fp32 results lie within the bound.
inline bool holds(const std::vector<float>& y, const Bound& bound) {
  return compare({y.data(), DType::fp32, {static_cast<std::int64_t>(y.size())}}, bound).holds;
}

inline float sum_of(const std::vector<float>& v) {
  float s = 0;
  for (const float x : v) s += x;
  return s;
}

inline std::vector<float> as_float(const oracle::Values& v) { return {v.begin(), v.end()}; }

}  // namespace roundoff
