// Cross-entropy of logits against class labels or class probabilities.
//
// For a row x of C logits: log p_c = (x_c - max x) - log s with s = sum_c exp(x_c - max x), which
// neither overflows nor loses log p of an improbable class. With class weights w (1 where absent)
// and label smoothing e:
//   label t:          loss = (1 - e) w_t (-log p_t) + e / C  sum_c w_c (-log p_c)
//   probabilities q:  loss = sum_c w_c q'_c (-log p_c),  q' = (1 - e) q + e / C,  0 log 0 = 0
// The mean divides by the sum of w_t over the rows that count, and by the number of rows N for
// probabilities: PyTorch's formulas (torch.nn.CrossEntropyLoss). A row whose label is ignore_index
// has loss 0 and gradient 0 whatever its logits. Where no row counts, loss, valid weight and
// gradients are 0 (and not NaN).
// Numerics: rows are computed in fp32 (fp64 where the logits or the accumulator are fp64), sums
// within a row in the order of kernels/reduce/sum_tree.h; losses of rows are added in fp64, in
// order.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"
#include "kernels/loss/reduction.h"

namespace roundoff {

struct CrossEntropyParams {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;  // in [0, 1]
  Reduction reduction = Reduction::mean;
  Accumulator accumulator = Accumulator::fp32;
};

constexpr DType row_stats_dtype(Accumulator accumulator, DType logits) {
  return accumulator == Accumulator::fp64 || logits == DType::fp64 ? DType::fp64 : DType::fp32;
}

// logits [..., C], any floating type; N is the product of the leading extents.
// target: labels [...] (int64, int32 or uint8), or probabilities [..., C] of any floating type.
// weight: [C], or absent.
// loss: [...] for Reduction::none, else a scalar; valid: a scalar, the mean's divisor.
// row_stats: [N, 2], of row_stats_dtype: a row's maximum and its s, for the gradient. (Their sum
// max + log s alone would lose the digits of log s in those of a large maximum.)
// Errors: shapes and types that do not fit; a label outside [0, C) that is not ignore_index (names
// row and label); a class weight that is negative or not finite. Nothing is written then.
void cross_entropy_forward(Ref, const CrossEntropyParams& params, const ConstView& logits,
                           const ConstView& target, const ConstView& weight, const Out& loss,
                           const Out& valid, const Out& row_stats);

// dlogits = dloss dloss/dlogits, [..., C], rounded once. `valid` and `row_stats` as forward wrote
// them (valid is read for Reduction::mean only); dloss has the shape of the loss.
//   label t:          dx_j = g ((1 - e) w_t (p_j - [j = t]) + e / C (p_j sum_c w_c - w_j))
//   probabilities q:  dx_j = g (p_j sum_c w_c q'_c - w_j q'_j)
// with g = dloss, over the valid weight for the mean. Probabilities get no gradient.
void cross_entropy_backward(Ref, const CrossEntropyParams& params, const ConstView& logits,
                            const ConstView& target, const ConstView& weight,
                            const ConstView& valid, const ConstView& row_stats,
                            const ConstView& dloss, const Out& dlogits);

// Both at once: the loss and valid of forward, and the gradient of backward for this dloss. dlogits
// may be the logits' own memory.
void cross_entropy_with_gradient(Ref, const CrossEntropyParams& params, const ConstView& logits,
                                 const ConstView& target, const ConstView& weight,
                                 const ConstView& dloss, const Out& loss, const Out& valid,
                                 const Out& dlogits, Scratch& scratch);

// The same on devices (cross_entropy.cu, cross_entropy_backward.cu, cross_entropy_gradient.cu: one
// read and one write of logits whose rows stay in registers; dloss is read in device memory). Bad
// data is reported and does not stop the kernel (kernels/base/device_error.h): a row whose label is
// out of range counts as an ignored one; class weights are looked at by the forward. dlogits may be
// the logits' own memory. Rows' losses are added in fp64 in the order of kernels/loss/terms.cuh.
// Workspace: 16 bytes a row.
template <DeviceTarget T>
void cross_entropy_forward(T device, const CrossEntropyParams& params, const ConstView& logits,
                           const ConstView& target, const ConstView& weight, const Out& loss,
                           const Out& valid, const Out& row_stats, Scratch& scratch);
template <DeviceTarget T>
void cross_entropy_backward(T device, const CrossEntropyParams& params, const ConstView& logits,
                            const ConstView& target, const ConstView& weight,
                            const ConstView& valid, const ConstView& row_stats,
                            const ConstView& dloss, const Out& dlogits);
template <DeviceTarget T>
void cross_entropy_with_gradient(T device, const CrossEntropyParams& params,
                                 const ConstView& logits, const ConstView& target,
                                 const ConstView& weight, const ConstView& dloss, const Out& loss,
                                 const Out& valid, const Out& dlogits, Scratch& scratch);

// As devices are called; the reference needs no workspace.
inline void cross_entropy_forward(Ref ref, const CrossEntropyParams& params,
                                  const ConstView& logits, const ConstView& target,
                                  const ConstView& weight, const Out& loss, const Out& valid,
                                  const Out& row_stats, Scratch&) {
  cross_entropy_forward(ref, params, logits, target, weight, loss, valid, row_stats);
}

}  // namespace roundoff
