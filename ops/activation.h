// Element-wise functions of one tensor. Shapes are kept; the output has the input's dtype (exp and
// log run in fp32 under autocast). Numerics: kernels/elementwise/elementwise.h.
#pragma once

#include "engine/context.h"

namespace roundoff {

Tensor relu(Context& context, const Tensor& x);

enum class GeluKind : unsigned char { erf, tanh };
Tensor gelu(Context& context, const Tensor& x, GeluKind kind = GeluKind::erf);

Tensor tanh(Context& context, const Tensor& x);
Tensor sigmoid(Context& context, const Tensor& x);
Tensor exp(Context& context, const Tensor& x);
Tensor log(Context& context, const Tensor& x);

}  // namespace roundoff
