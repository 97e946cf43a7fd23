// The rungs of the ladder of checks (verify/ladder.h) beyond the hard bound, for named calls.
#pragma once

#include "verify/reference.h"

namespace roundoff {

// The running bound of sums of products, for random operands in any order of summation
// (bound::products_random_order, lambda = 6): matmul, linear, conv2d and sum, results and
// gradients, with plain fp32 or fp64 accumulators. Empty for everything else.
NamedBounds running_bounds(const OpParameters& parameters, const NamedTensors& inputs,
                           const Tensor& dy, const JudgedArithmetic& judged, Pass pass);

// How many terms are added up, one by one, to what an accumulating gradient holds; 0 where the
// gradient is one value that is added.
std::map<std::string, std::int64_t> accumulated_terms(const OpParameters& parameters,
                                                      const NamedTensors& inputs,
                                                      std::int64_t y_elements);

// What a model of the same arithmetic on the host gives, bit for bit (every tolerance is 0):
//   add, sub, mul, div, forward: the operation in fp32 (fp64), rounded to the output;
//   matmul and linear without anything added, forward, with a v100, a100, h100 or fp16 accumulator:
//   the products in the order of k.
// Empty for everything else. Where a hard bound's tolerances are all 0 it is such a model itself.
NamedBounds host_model(const OpParameters& parameters, const NamedTensors& inputs,
                       const JudgedArithmetic& judged);

}  // namespace roundoff
