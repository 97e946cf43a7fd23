// Losses of single elements: mean squared error and binary cross-entropy on logits.
//   mse:              l = (x - t)^2                                   dx = 2 (x - t)
//   bce_with_logits:  l = -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))   dx = sigmoid(x) - t
// The second is formed as (1 - t) x + log1p(exp(-x)) for x >= 0 and -t x + log1p(exp(x)) for x < 0:
// exp cannot overflow, and for targets in [0, 1] no two terms cancel. 0 times infinity counts as 0.
// x and t of any floating type are widened to fp32 (fp64 where one of them or the accumulator is
// fp64) before anything is computed, so that squares of fp16 values cannot overflow; elements are
// added in fp64, in the order of kernels/reduce/sum_tree.h. The mean divides by the number of
// elements; of no elements sum and mean are 0.
// Errors: shapes that differ, types that are not floating.
#pragma once

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"
#include "kernels/loss/reduction.h"

namespace roundoff {

enum class PointwiseLoss : unsigned char { mse, bce_with_logits };

std::string_view name(PointwiseLoss loss);

struct PointwiseLossParams {
  PointwiseLoss loss = PointwiseLoss::mse;
  Reduction reduction = Reduction::mean;
  Accumulator accumulator = Accumulator::fp32;
};

// loss: the shape of x for Reduction::none, else a scalar.
void pointwise_loss_forward(Ref, const PointwiseLossParams& params, const ConstView& x,
                            const ConstView& target, const Out& loss);

// dloss has the shape of the loss. dtarget: -dx for mse, -x for bce_with_logits, times dloss (over
// n for the mean).
void pointwise_loss_backward(Ref, const PointwiseLossParams& params, const ConstView& x,
                             const ConstView& target, const ConstView& dloss, const Out& dx,
                             const Out& dtarget);

// The same on devices (pointwise.cu). Workspace: 16 bytes for every 8192 elements.
template <DeviceTarget T>
void pointwise_loss_forward(T device, const PointwiseLossParams& params, const ConstView& x,
                            const ConstView& target, const Out& loss, Scratch& scratch);
template <DeviceTarget T>
void pointwise_loss_backward(T device, const PointwiseLossParams& params, const ConstView& x,
                             const ConstView& target, const ConstView& dloss, const Out& dx,
                             const Out& dtarget);

// As devices are called; the reference needs no workspace.
inline void pointwise_loss_forward(Ref ref, const PointwiseLossParams& params, const ConstView& x,
                                   const ConstView& target, const Out& loss, Scratch&) {
  pointwise_loss_forward(ref, params, x, target, loss);
}

}  // namespace roundoff
