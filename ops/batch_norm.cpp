#include "ops/batch_norm.h"

#include "kernels/base/convert.h"
#include "kernels/norm/batch_norm.h"
#include "ops/op.h"

namespace roundoff {

namespace {

// Inputs: x, gamma, beta, running mean, running variance. Outputs: y, and in training the running
// statistics after the batch.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  static constexpr unsigned cast_inputs = 1U << 0;  // the rest is read in its own type
  struct Params {
    BatchNormParams kernel;
    bool training;
  };

  static void forward(ForwardFrame& f) {
    auto& params = f.mutable_params<Params>();
    BatchNormParams& p = params.kernel;
    p.accumulator = f.context().accumulator;
    const Tensor &x = f.in(0), &gamma = f.in(1), &beta = f.in(2), &mean = f.in(3), &var = f.in(4);
    Scratch& scratch = f.context().scratch;
    const Tensor& y = f.out(0, x.shape(), x.dtype());
    f.save(0, x);
    f.save(1, gamma);
    if (!params.training) {
      f.run([&](auto target) {
        batch_norm_forward_eval(target, p, x.view(), gamma.const_view(), beta.const_view(),
                                mean.const_view(), var.const_view(), y.view(), scratch);
      });
      f.save(2, mean);
      f.save(3, var);
      return;
    }
    const bool wide = p.accumulator == Accumulator::fp64 || x.dtype() == DType::fp64 ||
                      gamma.dtype() == DType::fp64 || beta.dtype() == DType::fp64;
    const Shape channels{x.shape()[p.axis]};
    const DType dtype = wide ? DType::fp64 : DType::fp32;
    Allocator& allocator = f.context().allocator;
    Out mean_out, rstd_out, next_mean, next_var;
    if (f.recording()) {
      const Tensor m = Tensor::empty(allocator, channels, dtype, MemoryCategory::activations);
      const Tensor r = Tensor::empty(allocator, channels, dtype, MemoryCategory::activations);
      mean_out = m.view();
      rstd_out = r.view();
      f.save(2, m);
      f.save(3, r);
    }
    if (mean.defined()) next_mean = f.out(1, channels, mean.dtype()).view();
    if (var.defined()) next_var = f.out(2, channels, var.dtype()).view();
    f.run([&](auto target) {
      batch_norm_forward_training(target, p, x.view(), gamma.const_view(), beta.const_view(),
                                  mean.const_view(), var.const_view(), y.view(), mean_out, rstd_out,
                                  next_mean, next_var, scratch);
    });
  }

  static void backward(BackwardFrame& f) {
    // Running statistics are buffers: a gradient that reaches them goes no further.
    if (!f.has_grad_out(0)) return;
    const auto& params = f.params<Params>();
    const ConstView x = f.saved(0).view(), gamma = f.saved(1).const_view(),
                    mean = f.saved(2).view(), deviation = f.saved(3).view(),
                    dy = f.grad_out(0).view();
    const Out dx = f.grad_in(0), dgamma = f.grad_in(1), dbeta = f.grad_in(2);
    Scratch& scratch = f.context().scratch;
    f.run([&](auto target) {
      if (params.training)
        batch_norm_backward_training(target, params.kernel, x, gamma, mean, deviation, dy, dx,
                                     dgamma, dbeta, scratch);
      else
        batch_norm_backward_eval(target, params.kernel, x, gamma, mean, deviation, dy, dx, dgamma,
                                 dbeta, scratch);
    });
  }
};

}  // namespace

BatchNormResult batch_norm(Context& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, const Tensor& running_mean,
                           const Tensor& running_var, const BatchNormOptions& options) {
  ROUNDOFF_CHECK(x.defined(), BatchNorm::name, "x is absent");
  ROUNDOFF_CHECK(options.batches == nullptr, BatchNorm::name,
                 "a count of batches goes with buffers, not with tensors");
  ROUNDOFF_CHECK(!(context.reproducible && context.training), BatchNorm::name,
                 "reproducible: in training it normalises by the micro-batch's own mean and "
                 "variance, so that no order of summation makes cuts agree");
  const int axis = x.shape().normalize_axis(options.axis, BatchNorm::name);
  auto outputs = record_all<BatchNorm>(
      context, {x, gamma, beta, running_mean.detached(), running_var.detached()},
      {.kernel = {.axis = axis, .eps = options.eps, .momentum = options.momentum},
       .training = context.training});
  if (!context.training) return {std::move(outputs[0]), running_mean, running_var};
  return {std::move(outputs[0]), outputs[1].detached(), outputs[2].detached()};
}

Tensor batch_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  Buffer& running_mean, Buffer& running_var, const BatchNormOptions& options) {
  BatchNormOptions o = options;
  o.batches = nullptr;
  if (!context.training)
    return batch_norm(context, x, gamma, beta, running_mean.value, running_var.value, o).y;
  double batches = 0;
  if (options.batches != nullptr) {
    batches = options.batches->staged.item() + 1.0;
    o.momentum = 1.0 / batches;
  }
  const BatchNormResult r =
      batch_norm(context, x, gamma, beta, running_mean.staged, running_var.staged, o);
  visit_target(context, [&](auto target) {
    convert(target, r.running_mean.view(), running_mean.staged.view());
    convert(target, r.running_var.view(), running_var.staged.view());
  });
  if (options.batches != nullptr) {
    Tensor& staged = options.batches->staged;
    staged.copy_from(
        Tensor::from(context.allocator, {&batches, 1}, staged.shape(), staged.dtype()));
  }
  return r.y;
}

}  // namespace roundoff
