// Convolution in fp32 without patches: the sums of a few pixels and of a block of channels stay in
// vector registers while the taps run past. Internal to the reference path.
//
// A sum is one chain of fused multiply-adds over (r, s, c) that begins with the bias; a gradient of
// a weight is a chain over the pixels of a block of output rows, and the blocks' sums are added in
// order. So an element of y and dx does not depend on the rest of the batch. With in_order the
// input's gradient runs over (r, s, k) of the weights as devices do, and a gradient of a weight is
// one chain over all pixels that begins with what dw holds.
#pragma once

#include "kernels/base/scratch.h"
#include "kernels/conv2d/conv2d.h"

namespace roundoff {

// Whether these serve a convolution better than patches and a product: one group, images and
// channels that fill vectors, a target with fused multiply-adds on 256 or 512 bit; the input's
// gradient with stride 1.
bool direct_forward_serves(const Conv2dShape& z, const Conv2dParams& params);
bool direct_grad_input_serves(const Conv2dShape& z, const Conv2dParams& params);
bool direct_grad_weight_serves(const Conv2dShape& z, const Conv2dParams& params);

// As conv2d_forward and its gradients, on arguments that those have checked: no operand is fp64,
// no view empty.
void direct_forward(const Conv2dShape& z, const Conv2dParams& params, const ConstView& x,
                    const ConstView& w, const ConstView& bias, const Out& y, Scratch& scratch);
void direct_grad_input(const Conv2dShape& z, const Conv2dParams& params, const ConstView& dy,
                       const ConstView& w, const Out& dx, Scratch& scratch);
void direct_grad_weight(const Conv2dShape& z, const Conv2dParams& params, const ConstView& x,
                        const ConstView& dy, const Out& dw, Scratch& scratch);

}  // namespace roundoff
