// Matrix products. Under autocast a, b, x and w go to the 16-bit type; c and the bias stay as they
// are and join the fp32 sum before its one rounding. Numerics: kernels/gemm/gemm.h.
#pragma once

#include "engine/context.h"
#include "kernels/gemm/kernel.h"

namespace roundoff {

struct MatmulOptions {
  bool trans_a = false;  // a is held as [..., k, m]
  bool trans_b = false;  // b is held as [..., n, k]
  double alpha = 1;      // 0 never reads a and b
  double beta = 1;       // of c, where there is one; 0 never reads it
  // On a device, of the result and of the gradients; throws where it does not take a product.
  ProductKernel kernel = ProductKernel::automatic;
};

// alpha op(a) op(b) + beta c: a [..., m, k], b [..., k, n], result [..., m, n]. The leading axes
// broadcast as the field has it (aligned at the end, 1 stretches). c: absent, [n], [m, n], or the
// result's shape. The result has the widest dtype of a and b.
// Throws where an operand has fewer than two axes or the shapes do not fit.
Tensor matmul(Context& context, const Tensor& a, const Tensor& b, const MatmulOptions& options = {},
              const Tensor& c = {});

// x w^T + bias: x [..., in], w [out, in], bias absent or [out], result [..., out].
Tensor linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& bias = {},
              ProductKernel kernel = ProductKernel::automatic);

}  // namespace roundoff
