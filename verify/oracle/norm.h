// Batch and layer normalisation: y = gamma (x - mean) / sqrt(variance + eps) + beta.
// The variance that normalises is biased (divided by n); running_var holds the unbiased one.
#pragma once

#include <optional>

#include "verify/oracle/base.h"

namespace roundoff::oracle {

// x is [n, c, l]: statistics over n and l, one gamma and beta a channel. NHWC is [n h w, c, 1].
struct BatchNormParams {
  std::int64_t n = 0, c = 0, l = 1;
  double eps = 1e-5;
  std::int64_t size() const { return n * c * l; }
  std::int64_t count() const { return n * l; }  // values a channel
};

struct BatchNorm {
  Values y;
  Values mean, biased_var, unbiased_var;  // [c], of the batch
};

// Training: normalises by the batch's statistics; needs two values a channel, else throws.
// gamma and beta may be empty (1 and 0).
BatchNorm batch_norm_train(const BatchNormParams& p, In x, In gamma, In beta);
// Evaluation: normalises by the running statistics.
Values batch_norm_eval(const BatchNormParams& p, In x, In gamma, In beta, In running_mean,
                       In running_var);

// running = (1 - momentum) running + momentum batch, with the unbiased variance. Without a momentum
// the cumulative average over `batches_seen` earlier batches (momentum 1 / (batches_seen + 1)).
void batch_norm_update(const BatchNorm& batch, std::optional<double> momentum,
                       std::int64_t batches_seen, Values& running_mean, Values& running_var);

struct NormGradients {
  Values x, gamma, beta;
};
NormGradients batch_norm_train_backward(const BatchNormParams& p, In x, In gamma, In dy);
NormGradients batch_norm_eval_backward(const BatchNormParams& p, In x, In gamma, In running_mean,
                                       In running_var, In dy);

// x is [rows, n]: statistics over n; gamma and beta [n], or empty.
struct LayerNormParams {
  std::int64_t rows = 0, n = 0;
  double eps = 1e-5;
};
Values layer_norm(const LayerNormParams& p, In x, In gamma, In beta);
NormGradients layer_norm_backward(const LayerNormParams& p, In x, In gamma, In dy);

}  // namespace roundoff::oracle
