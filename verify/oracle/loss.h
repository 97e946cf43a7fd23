// Losses: cross-entropy, mean squared error, binary cross-entropy with logits.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

enum class Reduction : unsigned char { none, sum, mean };

struct CrossEntropyParams {
  std::int64_t rows = 0, classes = 0;
  std::int64_t ignore_index = -100;  // index targets only
  double label_smoothing = 0;        // eps in [0, 1]
  Reduction reduction = Reduction::mean;
};

struct CrossEntropy {
  Values loss;  // [rows] for Reduction::none, else one value
  // What `mean` divides by: the sum of the targets' class weights over the rows that are not
  // ignored (index targets), or the number of rows (soft targets). 0: the mean is 0.
  double valid_weight = 0;
  std::int64_t valid_count = 0;  // rows that are not ignored
};

// With log p = log_softmax(logits[row]) and class weights w (all 1 where `weight` is empty), a
// row's loss is -sum_c w_c q_c log p_c, where
//   index targets: q = (1 - eps) onehot(t) + eps / classes; an ignored row's loss is exactly 0;
//   soft targets:  q = (1 - eps) target + eps / classes.
// A class with w_c q_c = 0 contributes 0, whatever its logit. Throws for a label that is neither in
// [0, classes) nor ignore_index.
CrossEntropy cross_entropy(const CrossEntropyParams& p, In logits,
                           std::span<const std::int64_t> target, In weight = {});
CrossEntropy cross_entropy_soft(const CrossEntropyParams& p, In logits, In target, In weight = {});

// dlogits for a seed dloss: [rows] for Reduction::none, else one value. Ignored rows get exactly 0.
Values cross_entropy_backward(const CrossEntropyParams& p, In logits,
                              std::span<const std::int64_t> target, In weight, In dloss);
Values cross_entropy_soft_backward(const CrossEntropyParams& p, In logits, In target, In weight,
                                   In dloss);

// (x - target)^2, reduced. Of no elements: sum and mean are 0.
Values mse(Reduction reduction, In x, In target);
Values mse_backward(Reduction reduction, In x, In target, In dloss);  // with respect to x

// -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) = max(x, 0) - x t + log(1 + exp(-|x|)), reduced.
Values bce_with_logits(Reduction reduction, In x, In target);
Values bce_with_logits_backward(Reduction reduction, In x, In target, In dloss);
// With respect to the target: -x, times the seed.
Values bce_with_logits_backward_target(Reduction reduction, In x, In dloss);

}  // namespace roundoff::oracle
