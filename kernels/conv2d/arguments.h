// What the launchers of conv2d check before they run, on every target.
#pragma once

#include <string>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/select.h"

namespace roundoff {

// Each throws for what its launcher refuses.
Conv2dShape check_conv2d_forward(const Conv2dParams& params, const ConstView& x, const ConstView& w,
                                 const ConstView& bias, const Out& y);
Conv2dShape check_conv2d_grad_input(const Conv2dParams& params, const ConstView& dy,
                                    const ConstView& w, const Out& dx);
Conv2dShape check_conv2d_grad_weight(const Conv2dParams& params, const ConstView& x,
                                     const ConstView& dy, const Out& dw);
void check_conv2d_grad_bias(const ConstView& dy, const Out& db);

// Why a kernel does not take a convolution's product; empty where it does.
std::string conv2d_refusal(ProductKernel kernel, const ProductProblem& p, const ProductTraits& t);

// A 1x1 kernel that visits every pixel is a plain product over pixels.
inline bool is_pointwise(const Conv2dShape& z, const Conv2dParams& p) {
  return z.r == 1 && z.s == 1 && p.groups == 1 && p.stride[0] == 1 && p.stride[1] == 1 &&
         p.padding[0] == 0 && p.padding[1] == 0;
}

}  // namespace roundoff
