// The ladder of checks, strictest first: 1. operands that are small whole numbers, so that every
// sum is exact in every order and the result must be bit-equal; 2. the hard (or probabilistic)
// bound; 3. the running bound; 4. bit-equality with a host model of the same arithmetic. A kernel
// is held to the strictest rungs that apply to it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "verify/bound/base.h"

namespace roundoff {

enum class Rung : unsigned char { integers, hard_bound, running_bound, host_model };
std::string_view name(Rung rung);

// The largest m such that sums of `terms` products of whole numbers of magnitude up to m are exact
// in `accumulator` in every order and with every partial sum, the results are in `output`, and m is
// in `operands`: terms m^2 <= 2^p of both, and m <= 2^p of the operands. 0 where not even m = 1
// fits.
std::int64_t exact_integer_limit(std::int64_t terms, const Format& operands,
                                 const Format& accumulator, const Format& output);

// n whole numbers, uniform in [-limit, limit], from the seed.
std::vector<double> small_integers(std::int64_t n, std::int64_t limit, std::uint64_t seed);

// Nothing but the reference itself.
Bound exactly(std::vector<double> reference);

}  // namespace roundoff
