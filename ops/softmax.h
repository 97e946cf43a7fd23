// Softmax and log-softmax along one axis, computed in fp32 inside whatever the dtype. The output
// has the input's dtype (fp32 under autocast). Numerics: kernels/softmax/softmax.h.
#pragma once

#include "engine/context.h"

namespace roundoff {

Tensor softmax(Context& context, const Tensor& x, std::int64_t axis = -1);
Tensor log_softmax(Context& context, const Tensor& x, std::int64_t axis = -1);

}  // namespace roundoff
