// Batch normalisation. Formulas, conventions and errors: kernels/norm/batch_norm.h.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/parameters.h"

namespace roundoff {

struct BatchNormOptions {
  std::int64_t axis = -1;  // of the channels
  double eps = 1e-5;
  double momentum = 0.1;  // weight of this batch in the running statistics
  // With a buffer of one element, the running statistics are cumulative averages over as many
  // batches as it counts; momentum is not used.
  Buffer* batches = nullptr;
};

// x of any shape with at least one axis; gamma and beta [C], or undefined (1 and 0).
// In training (context.training) x is normalised by its own statistics, which need two values a
// channel, and the running ones move on in Buffer::staged: they become values when the step
// commits, micro-batch after micro-batch. In evaluation by Buffer::value; nothing is written.
Tensor batch_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  Buffer& running_mean, Buffer& running_var, const BatchNormOptions& options = {});

struct BatchNormResult {
  Tensor y;
  Tensor running_mean, running_var;  // after this batch; in evaluation the ones that came in
};
// The same on plain tensors [C]. They may be undefined in training; nothing is averaged then.
BatchNormResult batch_norm(Context& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, const Tensor& running_mean,
                           const Tensor& running_var, const BatchNormOptions& options = {});

}  // namespace roundoff
