#include "kernels/norm/arguments.h"

#include "kernels/norm/common.h"

namespace roundoff {

namespace {

using norm::check_operand;
using norm::check_out;

constexpr std::string_view kLayerNorm = "layer_norm";
constexpr std::string_view kLayerNormBackward = "layer_norm_backward";
constexpr std::string_view kBatchNorm = "batch_norm";
constexpr std::string_view kBatchNormBackward = "batch_norm_backward";

NormMatrix rows_of(const LayerNormParams& params, const Shape& shape, std::string_view operation) {
  ROUNDOFF_CHECK(params.axes >= 1 && params.axes <= shape.rank(), operation, "normalises over ",
                 params.axes, " trailing axes, shape is ", shape);
  norm::check_eps(params.eps, operation);
  NormMatrix m;
  for (int a = 0; a < shape.rank(); ++a)
    (a < shape.rank() - params.axes ? m.outer : m.channels) *= shape[a];
  return m;
}

NormMatrix channels_of(const BatchNormParams& params, const Shape& shape,
                       std::string_view operation) {
  const int axis = shape.normalize_axis(params.axis, operation);
  norm::check_eps(params.eps, operation);
  ROUNDOFF_CHECK(params.momentum >= 0.0 && params.momentum <= 1.0, operation, "momentum ",
                 params.momentum, ", expected in [0, 1]");
  NormMatrix m;
  for (int a = 0; a < shape.rank(); ++a)
    (a < axis ? m.outer : a == axis ? m.channels : m.inner) *= shape[a];
  return m;
}

NormMatrix check_batch_norm(const BatchNormParams& params, const ConstView& x,
                            const ConstView& gamma, const ConstView& beta,
                            const ConstView& running_mean, const ConstView& running_var,
                            const Out& y) {
  const NormMatrix m = channels_of(params, x.shape, kBatchNorm);
  check_operand(x, x.numel(), kBatchNorm, "x");
  check_operand(gamma, m.channels, kBatchNorm, "gamma");
  check_operand(beta, m.channels, kBatchNorm, "beta");
  check_operand(running_mean, m.channels, kBatchNorm, "running_mean");
  check_operand(running_var, m.channels, kBatchNorm, "running_var");
  check_out(y, x.numel(), kBatchNorm, "y");
  return m;
}

}  // namespace

NormMatrix check_layer_norm(const LayerNormParams& params, const ConstView& x,
                            const ConstView& gamma, const ConstView& beta, const Out& y,
                            const Out& mean, const Out& rstd) {
  const NormMatrix m = rows_of(params, x.shape, kLayerNorm);
  check_operand(x, x.numel(), kLayerNorm, "x");
  check_operand(gamma, m.channels, kLayerNorm, "gamma");
  check_operand(beta, m.channels, kLayerNorm, "beta");
  check_out(y, x.numel(), kLayerNorm, "y");
  check_out(mean, m.outer, kLayerNorm, "mean");
  check_out(rstd, m.outer, kLayerNorm, "rstd");
  return m;
}

NormMatrix check_layer_norm_backward(const LayerNormParams& params, const ConstView& x,
                                     const ConstView& gamma, const ConstView& mean,
                                     const ConstView& rstd, const ConstView& dy, const Out& dx,
                                     const Out& dgamma, const Out& dbeta) {
  const NormMatrix m = rows_of(params, x.shape, kLayerNormBackward);
  check_operand(x, x.numel(), kLayerNormBackward, "x");
  check_operand(gamma, m.channels, kLayerNormBackward, "gamma");
  check_operand(mean, m.outer, kLayerNormBackward, "mean");
  check_operand(rstd, m.outer, kLayerNormBackward, "rstd");
  check_operand(dy, x.numel(), kLayerNormBackward, "dy");
  check_out(dx, x.numel(), kLayerNormBackward, "dx");
  check_out(dgamma, m.channels, kLayerNormBackward, "dgamma");
  check_out(dbeta, m.channels, kLayerNormBackward, "dbeta");
  return m;
}

NormMatrix check_batch_norm_training(const BatchNormParams& params, const ConstView& x,
                                     const ConstView& gamma, const ConstView& beta,
                                     const ConstView& running_mean, const ConstView& running_var,
                                     const Out& y, const Out& mean, const Out& rstd,
                                     const Out& running_mean_next, const Out& running_var_next) {
  const NormMatrix m = check_batch_norm(params, x, gamma, beta, running_mean, running_var, y);
  check_out(mean, m.channels, kBatchNorm, "mean");
  check_out(rstd, m.channels, kBatchNorm, "rstd");
  check_out(running_mean_next, m.channels, kBatchNorm, "running_mean");
  check_out(running_var_next, m.channels, kBatchNorm, "running_var");
  ROUNDOFF_CHECK((running_mean.present || !running_mean_next.wanted) &&
                     (running_var.present || !running_var_next.wanted),
                 kBatchNorm, "there is no running buffer to update");
  ROUNDOFF_CHECK(m.count() >= 2, kBatchNorm, "training needs at least 2 values a channel, shape ",
                 x.shape, " has ", m.count());
  return m;
}

NormMatrix check_batch_norm_eval(const BatchNormParams& params, const ConstView& x,
                                 const ConstView& gamma, const ConstView& beta,
                                 const ConstView& running_mean, const ConstView& running_var,
                                 const Out& y) {
  const NormMatrix m = check_batch_norm(params, x, gamma, beta, running_mean, running_var, y);
  ROUNDOFF_CHECK(running_mean.present && running_var.present, kBatchNorm,
                 "eval needs the running mean and variance");
  return m;
}

NormMatrix check_batch_norm_backward(const BatchNormParams& params, const ConstView& x,
                                     const ConstView& gamma, const ConstView& mean,
                                     const ConstView& deviation, const ConstView& dy, const Out& dx,
                                     const Out& dgamma, const Out& dbeta) {
  const NormMatrix m = channels_of(params, x.shape, kBatchNormBackward);
  check_operand(x, x.numel(), kBatchNormBackward, "x");
  check_operand(gamma, m.channels, kBatchNormBackward, "gamma");
  check_operand(mean, m.channels, kBatchNormBackward, "mean");
  check_operand(deviation, m.channels, kBatchNormBackward, "rstd or variance");
  check_operand(dy, x.numel(), kBatchNormBackward, "dy");
  check_out(dx, x.numel(), kBatchNormBackward, "dx");
  check_out(dgamma, m.channels, kBatchNormBackward, "dgamma");
  check_out(dbeta, m.channels, kBatchNormBackward, "dbeta");
  return m;
}

}  // namespace roundoff
