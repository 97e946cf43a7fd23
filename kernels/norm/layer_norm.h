// Layer normalisation (Ba, Kiros and Hinton 2016) over the last axis or axes.
//
//   mean = sum x / n      var = sum (x - mean)^2 / n      rstd = 1 / sqrt(var + eps)
//   xhat = (x - mean) rstd                y = xhat gamma + beta
//   d = dy gamma          dx = rstd (d - mean(d) - xhat mean(d xhat))
//   dgamma = sum over rows of dy xhat     dbeta = sum over rows of dy
//
// Two passes, the second of which also corrects the mean by the mean of what is left of it (Chan,
// Golub and LeVeque 1983): the mean of a constant row is its value, so xhat, and dx for a constant
// d, are exactly 0. One-pass variances are never formed. Where the squares of finite values leave
// fp32 the row's statistics are formed in fp64.
//
// x, dy are [rows..., width...]; gamma and beta have the shape of the normalised axes and may be
// absent (1 and 0); mean and rstd have one element a row, fp32 (fp64 under an fp64 accumulator or
// with fp64 operands). Everything is computed in fp32, or in fp64 as said, and rounded once to the
// output's dtype. A row that holds a NaN or an infinity becomes NaN.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

struct LayerNormParams {
  int axes = 1;                                 // how many trailing axes are normalised over
  double eps = 1e-5;                            // >= 0
  Accumulator accumulator = Accumulator::fp32;  // fp64, or fp32 for all others
  // dgamma and dbeta: add one row after the other straight onto what the output holds, so that a
  // sum has the same bits however its rows are cut into calls. False: a tree, which is closer.
  bool in_order = false;
};

// Throw, before anything is written, where shapes or dtypes do not fit.
void layer_norm_forward(Ref, const LayerNormParams& params, const ConstView& x,
                        const ConstView& gamma, const ConstView& beta, const Out& y,
                        const Out& mean, const Out& rstd, Scratch& scratch);
// mean and rstd as forward gave them. Outputs that are not wanted are not computed.
void layer_norm_backward(Ref, const LayerNormParams& params, const ConstView& x,
                         const ConstView& gamma, const ConstView& mean, const ConstView& rstd,
                         const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
                         Scratch& scratch);

// The same on devices (layer_norm.cu); in_order gives the reference's bits.
template <DeviceTarget T>
void layer_norm_forward(T device, const LayerNormParams& params, const ConstView& x,
                        const ConstView& gamma, const ConstView& beta, const Out& y,
                        const Out& mean, const Out& rstd, Scratch& scratch);
template <DeviceTarget T>
void layer_norm_backward(T device, const LayerNormParams& params, const ConstView& x,
                         const ConstView& gamma, const ConstView& mean, const ConstView& rstd,
                         const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
                         Scratch& scratch);

}  // namespace roundoff
