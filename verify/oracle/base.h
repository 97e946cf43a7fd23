// What the oracles share. An oracle is the definition of an operation as plain loops in fp64: slow,
// readable, and sharing no code with the reference kernels, so that it can judge them.
// Sums are formed in long double (64 significant bits on x86-64), so that an oracle also judges
// results that were themselves computed in fp64; elsewhere long double may be no wider than fp64.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/view.h"

namespace roundoff::oracle {

using Values = std::vector<double>;
using In = std::span<const double>;
using Sums = std::vector<long double>;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

inline Sums zeros(std::int64_t n) { return Sums(at(n), 0.0L); }

// One rounding, from the sums to fp64.
inline Values rounded(const Sums& sums) {
  Values values(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) values[i] = static_cast<double>(sums[i]);
  return values;
}

inline void check_size(std::string_view operation, std::string_view operand, In values,
                       std::int64_t expected) {
  ROUNDOFF_CHECK(static_cast<std::int64_t>(values.size()) == expected, operation, operand, " has ",
                 values.size(), " values, ", expected, " expected");
}

}  // namespace roundoff::oracle
