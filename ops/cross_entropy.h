// Cross-entropy of logits [..., C] against labels [...] (int64, int32 or uint8) or probabilities
// [..., C]. Formulas, options, what counts as valid and errors: kernels/loss/cross_entropy.h.
#pragma once

#include "engine/context.h"
#include "kernels/loss/reduction.h"

namespace roundoff {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
};

struct CrossEntropyResult {
  // fp32 (fp64 for fp64 logits), whatever the logits' type: a scalar, [...] for Reduction::none.
  Tensor loss;
  // A scalar of the loss's type: what the mean divides by. To divide a window of several
  // micro-batches by its own total instead, take Reduction::sum, add up `valid`, and let the seed
  // of the backward pass carry the quotient.
  Tensor valid;
};

// weight: class weights [C], or undefined. Gradients flow to the logits only.
CrossEntropyResult cross_entropy(Context& context, const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options = {},
                                 const Tensor& weight = {});

}  // namespace roundoff
