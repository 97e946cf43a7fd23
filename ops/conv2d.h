// 2-d convolution, NHWC x KRSC. Under autocast x and w go to the 16-bit type; the bias stays as it
// is and joins the fp32 sum before its one rounding. Numerics: kernels/conv2d/conv2d.h.
#pragma once

#include <array>

#include "engine/context.h"
#include "kernels/gemm/kernel.h"

namespace roundoff {

struct Conv2dOptions {
  // Vertical, horizontal; padding on both sides of an axis.
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  // On a device, of the result and of the gradients; throws where it does not take a product.
  ProductKernel kernel = ProductKernel::automatic;
};

// x [N, H, W, C], w [K, R, S, C / groups], bias absent or [K]; result [N, P, Q, K] in the widest
// dtype of x and w. Throws where shapes or geometry do not fit, before anything is computed.
Tensor conv2d(Context& context, const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv2dOptions& options = {});

}  // namespace roundoff
