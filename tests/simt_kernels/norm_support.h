// What the tests of the norms' kernels share.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound/norm.h"
#include "verify/compare.h"

namespace roundoff::test {

using Values = std::vector<double>;

inline DType wide(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

// Roundings that a term of a sum passes through at most: rows in registers 33 and the tree; longer
// rows n / 256 and the tree; channels at most an eighth of the rows beyond the first 16 of a
// thread (kernels/norm/columns.cuh), the block and the chunks. Never more than there are terms.
inline std::int64_t norm_depth(std::int64_t n) { return std::min<std::int64_t>(n, n / 8 + 80); }

inline Arithmetic norm_arithmetic(DType in, DType out) {
  return {.accumulator = in == DType::fp64 ? kFp64 : kFp32,
          .output = format_of(out),
          .depth = norm_depth};
}

inline void check_bound(const Array& got, const Bound& want) {
  const Comparison c = compare(got, want);
  CHECK_MESSAGE(c.holds, describe(c));
}

inline Values normal_values(std::int64_t n, std::uint32_t seed, double mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution(mean, 1.0);
  Values v(static_cast<std::size_t>(n));
  for (double& x : v) x = distribution(engine);
  return v;
}

}  // namespace roundoff::test
