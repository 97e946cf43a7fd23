// 2-d convolution (cross-correlation, as the field has it), forward and all gradients.
// Activations NHWC: x [N, H, W, C], y [N, P, Q, K]; weights KRSC: w [K, R, S, C / groups].
//   y[n,p,q,k] = b[k] + sum over r, s, c of
//                x[n, p stride_h + r dilation_h - pad_h, q stride_w + s dilation_w - pad_w, c]
//                w[k,r,s,c]
// where c runs over the channels of k's group and x outside the image is 0.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"
#include "kernels/gemm/activation.h"
#include "kernels/gemm/kernel.h"

namespace roundoff {

// With Conv2dParams::in_order: pixels of y from which on a sample's sums are formed on their own. A
// block of a cut sum has as many (kernels/gemm/problem.h).
inline constexpr std::int64_t kSamplePixels = 64;

struct Conv2dParams {
  // Vertical, horizontal; padding on both sides of an axis.
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  Accumulator accumulator = Accumulator::fp32;
  bool tf32 = false;  // fp32 operands are first rounded to 11 significant bits (RNE)
  // Forward: applied to the sum with its bias, before the rounding; not where y is added to.
  Activation activation = Activation::none;
  ProductKernel kernel = ProductKernel::automatic;  // as in GemmParams
  // Sums over taps by_row, sums over samples in_order (SumOrder, kernels/gemm/kernel.h): y and dx
  // of a sample do not depend on the others, and dw and db begin with what they hold: chains over
  // (n, p, q), or, for samples of at least kSamplePixels pixels, a chain from 0 for each sample,
  // which are then added sample by sample (by_matrix; dw of grouped convolutions that are not
  // depthwise stays one chain). The input's gradient runs over (r, s, k) as on devices.
  bool in_order = false;
};

// The extents of one convolution.
struct Conv2dShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0;  // x
  std::int64_t k = 0, r = 0, s = 0;         // w
  std::int64_t p = 0, q = 0;                // y's image
  Shape x() const { return {n, h, w, c}; }
  Shape y() const { return {n, p, q, k}; }
};

// Throws where an axis is missing, groups do not divide the channels or the channels do not match,
// a stride or dilation is below 1, a padding below 0, or the kernel exceeds the padded image.
Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dParams& params);

// Operands are widened exactly, sums are formed in the accumulator (fp64 where an operand is fp64),
// bias included, over all samples for the weights' and the bias's gradient, and rounded once to the
// output's type. An accumulating output joins the sum before that. N = 0 gives empty outputs and
// zero gradients of the weights. The accumulators beyond fp32 and fp64 are as in gemm.h.
// bias: absent or [K]. Throws as conv2d_shape does, and for views of other shapes.
void conv2d_forward(Ref, const Conv2dParams& params, const ConstView& x, const ConstView& w,
                    const ConstView& bias, const Out& y, Scratch& scratch);
void conv2d_grad_input(Ref, const Conv2dParams& params, const ConstView& dy, const ConstView& w,
                       const Out& dx, Scratch& scratch);
void conv2d_grad_weight(Ref, const Conv2dParams& params, const ConstView& x, const ConstView& dy,
                        const Out& dw, Scratch& scratch);
// db[k] = sum over n, p, q of dy[n,p,q,k].
void conv2d_grad_bias(Ref, const Conv2dParams& params, const ConstView& dy, const Out& db,
                      Scratch& scratch);

// Why the kernel that `params` names does not take a product of operands of these types; empty
// where it does, and for `automatic`. What `sm90` takes depends on shapes too: sm90.h. (A 1 x 1
// kernel that visits every pixel is a product of matrices: gemm.h.)
std::string conv2d_refuses(const Conv2dParams& params, DType left, DType right);

// The same on a device; each sum is one chain of multiply-adds, over (r, s, c), over (r, s, k) or
// over (n, p, q), that begins with the bias and what the output holds, except that the weights'
// gradient may be cut into parts as gemm.h says. In (r, s, k) stand the taps alone that a stride
// does not pass by; taps in the padding are products with 0. The kernels (conv2d_refuses says what
// they take) are `sm80` and `sm90`, on tensor cores, and `tiles`; `automatic` is sm80 where it
// takes the operands, loops over pixels and taps where every channel is a group, else tiles. They
// differ in no bit where tensor cores add as fused multiply-adds do (the emulator's fast
// arithmetic). Samples have fewer than 2^31 pixels together.
template <DeviceTarget T>
void conv2d_forward(T target, const Conv2dParams& params, const ConstView& x, const ConstView& w,
                    const ConstView& bias, const Out& y, Scratch& scratch);
template <DeviceTarget T>
void conv2d_grad_input(T target, const Conv2dParams& params, const ConstView& dy,
                       const ConstView& w, const Out& dx, Scratch& scratch);
template <DeviceTarget T>
void conv2d_grad_weight(T target, const Conv2dParams& params, const ConstView& x,
                        const ConstView& dy, const Out& dw, Scratch& scratch);
template <DeviceTarget T>
void conv2d_grad_bias(T target, const Conv2dParams& params, const ConstView& dy, const Out& db,
                      Scratch& scratch);

}  // namespace roundoff
