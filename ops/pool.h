// 2-d pooling, NHWC. The result has the input's dtype. Numerics: kernels/pool/pool.h.
#pragma once

#include "engine/context.h"
#include "kernels/pool/pool.h"

namespace roundoff {

// x [N, H, W, C] to [N, P, Q, C]. A NaN in a window wins. The gradient goes to the winner: the
// first NaN, else the first largest value.
Tensor max_pool2d(Context& context, const Tensor& x, const Pool2dParams& params = {});
// The mean of each window; padding counts as zeros unless params.count_include_pad is false.
Tensor avg_pool2d(Context& context, const Tensor& x, const Pool2dParams& params = {});

}  // namespace roundoff
