// Batch normalisation (Ioffe and Szegedy 2015), with the conventions that PyTorch documents.
//
//   mean_c = sum x / n      var_c = sum (x - mean_c)^2 / n  (biased)      rstd = 1/sqrt(var + eps)
//   xhat = (x - mean) rstd      y = xhat gamma + beta
//   running_mean' = (1 - momentum) running_mean + momentum mean
//   running_var'  = (1 - momentum) running_var  + momentum var n / (n - 1)  (unbiased)
//   training:  dx = gamma rstd (dy - mean(dy) - xhat mean(dy xhat))
//   eval:      the running statistics in place of the batch's;  dx = gamma rstd dy
//   dgamma = sum dy xhat      dbeta = sum dy
//
// Sums run over the n elements of a channel: every axis but `axis`. Two passes with a corrected
// mean, and fp64 where fp32 is too narrow, as in layer_norm.h. A cumulative average is
// momentum = 1 / (batches so far, this one included).
//
// x, dy, y, dx have one shape; everything else has one element a channel. gamma and beta may be
// absent (1 and 0). Channels last ([N, C], NHWC) is the fast layout; any axis is taken. Computed in
// fp32 (fp64 under an fp64 accumulator or with fp64 operands), rounded once to the output's dtype.
// Training needs n >= 2. The new running buffers are written beside the old ones, so that whoever
// steps can commit or drop them.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

struct BatchNormParams {
  int axis = -1;          // of the channels; negative: from the end
  double eps = 1e-5;      // >= 0
  double momentum = 0.1;  // weight of this batch in the running buffers, in [0, 1]
  Accumulator accumulator = Accumulator::fp32;  // fp64, or fp32 for all others
};

// All throw, before anything is written, where shapes, dtypes or settings do not fit.

// running_* may be absent, and running_*_next not wanted. mean and rstd are what backward needs.
void batch_norm_forward_training(Ref, const BatchNormParams& params, const ConstView& x,
                                 const ConstView& gamma, const ConstView& beta,
                                 const ConstView& running_mean, const ConstView& running_var,
                                 const Out& y, const Out& mean, const Out& rstd,
                                 const Out& running_mean_next, const Out& running_var_next,
                                 Scratch& scratch);
void batch_norm_forward_eval(Ref, const BatchNormParams& params, const ConstView& x,
                             const ConstView& gamma, const ConstView& beta,
                             const ConstView& running_mean, const ConstView& running_var,
                             const Out& y, Scratch& scratch);

// mean and rstd as the training forward gave them.
void batch_norm_backward_training(Ref, const BatchNormParams& params, const ConstView& x,
                                  const ConstView& gamma, const ConstView& mean,
                                  const ConstView& rstd, const ConstView& dy, const Out& dx,
                                  const Out& dgamma, const Out& dbeta, Scratch& scratch);
void batch_norm_backward_eval(Ref, const BatchNormParams& params, const ConstView& x,
                              const ConstView& gamma, const ConstView& running_mean,
                              const ConstView& running_var, const ConstView& dy, const Out& dx,
                              const Out& dgamma, const Out& dbeta, Scratch& scratch);

// The same on devices (batch_norm.cu).
template <DeviceTarget T>
void batch_norm_forward_training(T device, const BatchNormParams& params, const ConstView& x,
                                 const ConstView& gamma, const ConstView& beta,
                                 const ConstView& running_mean, const ConstView& running_var,
                                 const Out& y, const Out& mean, const Out& rstd,
                                 const Out& running_mean_next, const Out& running_var_next,
                                 Scratch& scratch);
template <DeviceTarget T>
void batch_norm_forward_eval(T device, const BatchNormParams& params, const ConstView& x,
                             const ConstView& gamma, const ConstView& beta,
                             const ConstView& running_mean, const ConstView& running_var,
                             const Out& y, Scratch& scratch);
template <DeviceTarget T>
void batch_norm_backward_training(T device, const BatchNormParams& params, const ConstView& x,
                                  const ConstView& gamma, const ConstView& mean,
                                  const ConstView& rstd, const ConstView& dy, const Out& dx,
                                  const Out& dgamma, const Out& dbeta, Scratch& scratch);
template <DeviceTarget T>
void batch_norm_backward_eval(T device, const BatchNormParams& params, const ConstView& x,
                              const ConstView& gamma, const ConstView& running_mean,
                              const ConstView& running_var, const ConstView& dy, const Out& dx,
                              const Out& dgamma, const Out& dbeta, Scratch& scratch);

}  // namespace roundoff
