// Softmax and log-softmax along one axis, and their gradients.
// y_i = exp(x_i - max x) / s and log y_i = (x_i - max x) - log s, with s = sum_j exp(x_j - max x):
// neither exp nor s overflows. A row with a NaN or +inf, or with nothing but -inf, gives NaN.
// Computed in fp32 (fp64 where x or the accumulator is fp64), sums in the order of
// kernels/reduce/sum_tree.h, one rounding to the output's type.
// Errors: an axis out of range, shapes that differ, types that are not floating.
#pragma once

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

struct SoftmaxParams {
  int axis = -1;  // in [0, rank), or negative and counted from the end
  Accumulator accumulator = Accumulator::fp32;
};

void softmax_forward(Ref, const SoftmaxParams& params, const ConstView& x, const Out& y,
                     Scratch& scratch);
// dx = y (dy - sum(dy y)), from the output y.
void softmax_backward(Ref, const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                      const Out& dx);

void log_softmax_forward(Ref, const SoftmaxParams& params, const ConstView& x, const Out& y);
// dx = dy - exp(y) sum(dy), from the output y.
void log_softmax_backward(Ref, const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                          const Out& dx);

// The same on devices (softmax.cu), within the same bounds: sums have a fixed order of their own,
// and 1 / s is formed once a row. Views hold device pointers.
template <DeviceTarget T>
void softmax_forward(T target, const SoftmaxParams& params, const ConstView& x, const Out& y,
                     Scratch& scratch);
template <DeviceTarget T>
void softmax_backward(T target, const SoftmaxParams& params, const ConstView& y,
                      const ConstView& dy, const Out& dx);
template <DeviceTarget T>
void log_softmax_forward(T target, const SoftmaxParams& params, const ConstView& x, const Out& y);
template <DeviceTarget T>
void log_softmax_backward(T target, const SoftmaxParams& params, const ConstView& y,
                          const ConstView& dy, const Out& dx);

}  // namespace roundoff
