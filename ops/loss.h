// Mean squared error, and binary cross-entropy on logits: x against a target of the same shape.
// The loss is fp32 (fp64 where x or the target is). Gradients flow to both. Binary cross-entropy on
// probabilities is not offered: it is unsafe in 16 bit. Formulas: kernels/loss/pointwise.h.
#pragma once

#include "engine/context.h"
#include "kernels/loss/reduction.h"

namespace roundoff {

Tensor mse(Context& context, const Tensor& x, const Tensor& target,
           Reduction reduction = Reduction::mean);
Tensor bce_with_logits(Context& context, const Tensor& x, const Tensor& target,
                       Reduction reduction = Reduction::mean);

}  // namespace roundoff
