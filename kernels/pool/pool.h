// 2-d max and average pooling, forward and backward; NHWC.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

struct Pool2dParams {
  // Vertical, horizontal; padding on both sides of an axis, at most half the kernel.
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{2, 2};
  std::array<std::int64_t, 2> padding{0, 0};
  // Average pooling: divide by the whole window where part of it lies in the padding.
  bool count_include_pad = true;
};

// The shape [N, P, Q, C] that x [N, H, W, C] is pooled to. Throws where x has not four axes, a
// kernel or stride is below 1, a padding below 0 or above half the kernel, or the kernel exceeds
// the padded image.
Shape pool2d_shape(const Shape& x, const Pool2dParams& params);

// y = the largest value of each window; a NaN wins. argmax (int32, y's shape, unless not wanted) is
// the winner's position h * W + w in its image: the first NaN, else the first largest value.
// Padding never wins. Throws for an image of 2^31 pixels or more.
void max_pool2d_forward(Ref, const Pool2dParams& params, const ConstView& x, const Out& y,
                        const Out& argmax, Scratch& scratch);
// dx = for each pixel, the sum of dy over the windows that it won, in fp32 (fp64 where dy is fp64).
void max_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& argmax,
                         const ConstView& dy, const Out& dx, Scratch& scratch);

// y = the mean of each window, the padding counted as zeros or not at all; summed in the
// accumulator (fp32 unless it is fp64 or x is), divided, rounded once.
void avg_pool2d_forward(Ref, const Pool2dParams& params, Accumulator accumulator,
                        const ConstView& x, const Out& y, Scratch& scratch);
// dx = for each pixel, the sum over its windows of dy / the window's divisor.
void avg_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& dy, const Out& dx,
                         Scratch& scratch);

// The same on a device, in the reference's bits. Images and batches have fewer than 2^31 pixels.
template <DeviceTarget T>
void max_pool2d_forward(T target, const Pool2dParams& params, const ConstView& x, const Out& y,
                        const Out& argmax, Scratch& scratch);
template <DeviceTarget T>
void max_pool2d_backward(T target, const Pool2dParams& params, const ConstView& argmax,
                         const ConstView& dy, const Out& dx, Scratch& scratch);
template <DeviceTarget T>
void avg_pool2d_forward(T target, const Pool2dParams& params, Accumulator accumulator,
                        const ConstView& x, const Out& y, Scratch& scratch);
template <DeviceTarget T>
void avg_pool2d_backward(T target, const Pool2dParams& params, const ConstView& dy, const Out& dx,
                         Scratch& scratch);

}  // namespace roundoff
