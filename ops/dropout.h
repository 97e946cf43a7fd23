// Dropout. The mask's rule and errors: kernels/dropout/dropout.h.
#pragma once

#include <cstdint>

#include "engine/context.h"

namespace roundoff {

// x is [samples, ...]. In training (context.training) every element is dropped with probability p
// and the rest divided by 1 - p; the mask is a function of context.rng (seed, step, index of the
// first sample), of `tensor`, which tells the dropouts of a model apart (below 2^31), and of the
// element. In evaluation, and for p = 0, the result is x itself. p outside [0, 1] is always an
// error (UsageError).
Tensor dropout(Context& context, const Tensor& x, double p, std::uint32_t tensor);

}  // namespace roundoff
