// Element-wise arithmetic of two tensors, with NumPy's broadcasting. The output has the wider of
// the two dtypes (fp16 with bf16 gives fp32). The gradient of a broadcast operand is summed in fp32
// or fp64 before it is rounded. Numerics: kernels/elementwise/elementwise.h.
#pragma once

#include "engine/context.h"

namespace roundoff {

Tensor add(Context& context, const Tensor& a, const Tensor& b);
Tensor sub(Context& context, const Tensor& a, const Tensor& b);
Tensor mul(Context& context, const Tensor& a, const Tensor& b);
Tensor div(Context& context, const Tensor& a, const Tensor& b);

}  // namespace roundoff
