// Casting, with its gradient; and the casts that autocast makes.
#pragma once

#include "engine/tape.h"

namespace roundoff {

class Context;

// x rounded to `dtype` (RNE), recorded: the gradient is rounded to x's dtype. The same tensor where
// it has that dtype already.
Tensor cast(Context& context, const Tensor& x, DType dtype);

// An input as autocast wants it: fp32 and 16-bit tensors cast to `dtype`, all others as they are.
// A leaf's rounded copy is kept with the leaf and made again when its version has changed. Its
// gradient goes straight to the leaf in fp32, or, with weight_grad_16bit, through a recorded cast.
Tensor autocast_input(Context& context, const Tensor& x, DType dtype);

}  // namespace roundoff
