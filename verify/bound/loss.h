// Losses. With the quantities of verify/bound/softmax.h, a cross-entropy row's loss
// log s - (x_t - m) is within rho + u_l log s + d u D_t + u |loss|, and its gradient
// seed (p - onehot) within seed (p rel + u |g|); class weights, smoothing, soft targets and the
// reduction are run in Tracked numbers (verify/bound/tracked.h) on top of that.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/loss.h"

namespace roundoff::bound {

Bound cross_entropy(const oracle::CrossEntropyParams& p, oracle::In logits,
                    std::span<const std::int64_t> target, oracle::In weight, const Arithmetic& a);
Bound cross_entropy_soft(const oracle::CrossEntropyParams& p, oracle::In logits, oracle::In target,
                         oracle::In weight, const Arithmetic& a);
// The mean's divisor: a sum of class weights.
Bound cross_entropy_valid_weight(const oracle::CrossEntropyParams& p,
                                 std::span<const std::int64_t> target, oracle::In weight,
                                 const Arithmetic& a);

Bound cross_entropy_backward(const oracle::CrossEntropyParams& p, oracle::In logits,
                             std::span<const std::int64_t> target, oracle::In weight,
                             oracle::In dloss, const Arithmetic& a);
Bound cross_entropy_soft_backward(const oracle::CrossEntropyParams& p, oracle::In logits,
                                  oracle::In target, oracle::In weight, oracle::In dloss,
                                  const Arithmetic& a);

// d = x - t, d^2, summed, divided: gamma_{h+4} of the (positive) result; gradient (seed 2 / n) d.
Bound mse(oracle::Reduction r, oracle::In x, oracle::In target, const Arithmetic& a);
Bound mse_backward(oracle::Reduction r, oracle::In x, oracle::In target, oracle::In dloss,
                   const Arithmetic& a);

// (max(x, 0) - x t) + log1p(exp(-|x|)); gradient (seed / n) (sigmoid(x) - t).
Bound bce_with_logits(oracle::Reduction r, oracle::In x, oracle::In target, const Arithmetic& a);
Bound bce_with_logits_backward(oracle::Reduction r, oracle::In x, oracle::In target,
                               oracle::In dloss, const Arithmetic& a);
// With respect to the target: (seed / n) (-x).
Bound bce_with_logits_backward_target(oracle::Reduction r, oracle::In x, oracle::In dloss,
                                      const Arithmetic& a);

}  // namespace roundoff::bound
