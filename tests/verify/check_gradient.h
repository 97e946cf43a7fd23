// Checks a gradient of vectors against central differences of the scalar function.
#pragma once

#include <doctest/doctest.h>

#include <functional>

#include "verify/difference.h"
#include "verify/oracle/base.h"

namespace roundoff {

inline void check_gradient(const std::function<double(const oracle::Values&)>& f,
                           const oracle::Values& x, const oracle::Values& gradient) {
  REQUIRE(gradient.size() == x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto along = [&](double value) {
      oracle::Values moved = x;
      moved[i] = value;
      return f(moved);
    };
    const Difference d = best_difference(along, x[i], gradient[i]);
    INFO("element ", i, ": gradient ", gradient[i], ", difference ", d.value, " +- ", d.tolerance);
    CHECK(d.ratio(gradient[i]) <= 1);
  }
}

inline double dot(const oracle::Values& a, const oracle::Values& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Values in (-1.5, 1.5), some four significant bits apart, the same every run.
inline oracle::Values sample(std::int64_t n, unsigned seed) {
  oracle::Values v(oracle::at(n));
  unsigned state = seed * 2654435761U + 12345U;
  for (double& x : v) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<double>(state >> 8) / 0x1p24 * 3 - 1.5;
  }
  return v;
}

}  // namespace roundoff
