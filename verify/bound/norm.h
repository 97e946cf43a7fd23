// Batch and layer normalisation, two passes: the mean, then the squared deviations from it.
//
// With dm = gamma_{h+1} mean|x| the mean's error, sigma^2 = var + eps, r = (dm / sigma)^2 (what a
// shifted mean adds to the variance) and R = r / 2 + gamma_{h+4} / 2 + 4 u (h + 4 roundings of the
// variance halved by the root; then root, quotient, and the two operations of the product):
//   |error of xhat| <= |xhat| R + dm / sigma (1 + R)
// r is of second order, but not small where |mean| >> sigma. y = gamma xhat + beta follows in
// Tracked numbers (verify/bound/tracked.h), and so does the backward pass
//   dx_i = (g_i - sum(g) / n - xhat_i sum(g xhat) / n) / sigma,  g = dy gamma
// with these errors of xhat and 1 / sigma. One pass (mean of squares minus square of the mean)
// multiplies the variance's error by 1 + 2 mean^2 / sigma^2 and breaks these bounds.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/norm.h"

namespace roundoff::bound {

struct BatchNorm {
  Bound y;
  Bound running_mean, running_var;
};
// momentum and batches_seen as oracle::batch_norm_update takes them; the running buffers are as
// they were before.
BatchNorm batch_norm_train(const oracle::BatchNormParams& p, oracle::In x, oracle::In gamma,
                           oracle::In beta, std::optional<double> momentum,
                           std::int64_t batches_seen, oracle::In running_mean,
                           oracle::In running_var, const Arithmetic& a);
Bound batch_norm_eval(const oracle::BatchNormParams& p, oracle::In x, oracle::In gamma,
                      oracle::In beta, oracle::In running_mean, oracle::In running_var,
                      const Arithmetic& a);

struct NormGradients {
  Bound x, gamma, beta;
};
NormGradients batch_norm_train_backward(const oracle::BatchNormParams& p, oracle::In x,
                                        oracle::In gamma, oracle::In dy, const Arithmetic& a);
NormGradients batch_norm_eval_backward(const oracle::BatchNormParams& p, oracle::In x,
                                       oracle::In gamma, oracle::In running_mean,
                                       oracle::In running_var, oracle::In dy, const Arithmetic& a);

Bound layer_norm(const oracle::LayerNormParams& p, oracle::In x, oracle::In gamma, oracle::In beta,
                 const Arithmetic& a);
NormGradients layer_norm_backward(const oracle::LayerNormParams& p, oracle::In x, oracle::In gamma,
                                  oracle::In dy, const Arithmetic& a);

}  // namespace roundoff::bound
