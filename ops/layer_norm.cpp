#include "ops/layer_norm.h"

#include "kernels/norm/layer_norm.h"
#include "ops/op.h"

namespace roundoff {

namespace {

// Inputs: x, gamma, beta.
struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static constexpr unsigned cast_inputs = 1U << 0;  // gamma and beta are read in their own type
  static constexpr unsigned in_order_inputs = 0b110;
  using Params = LayerNormParams;

  static void forward(ForwardFrame& f) {
    auto& params = f.mutable_params<Params>();
    params.accumulator = f.context().accumulator;
    params.in_order = f.context().reproducible;
    const Tensor &x = f.in(0), &gamma = f.in(1), &beta = f.in(2);
    const Tensor& y = f.out(0, x.shape(), x.dtype());
    Out mean_out, rstd_out;
    if (f.recording()) {
      const auto axes = static_cast<std::size_t>(x.shape().rank() - params.axes);
      const Shape rows(x.shape().extents().first(axes));
      const bool wide = params.accumulator == Accumulator::fp64 || x.dtype() == DType::fp64 ||
                        gamma.dtype() == DType::fp64 || beta.dtype() == DType::fp64;
      const DType dtype = wide ? DType::fp64 : DType::fp32;
      Allocator& allocator = f.context().allocator;
      const Tensor mean = Tensor::empty(allocator, rows, dtype, MemoryCategory::activations);
      const Tensor rstd = Tensor::empty(allocator, rows, dtype, MemoryCategory::activations);
      mean_out = mean.view();
      rstd_out = rstd.view();
      f.save(0, x);
      f.save(1, gamma);
      f.save(2, mean);
      f.save(3, rstd);
    }
    f.run([&](auto target) {
      layer_norm_forward(target, params, x.view(), gamma.const_view(), beta.const_view(), y.view(),
                         mean_out, rstd_out, f.context().scratch);
    });
  }

  static void backward(BackwardFrame& f) {
    const ConstView x = f.saved(0).view(), gamma = f.saved(1).const_view(),
                    mean = f.saved(2).view(), rstd = f.saved(3).view(), dy = f.grad_out(0).view();
    const Out dx = f.grad_in(0), dgamma = f.grad_in(1), dbeta = f.grad_in(2);
    f.run([&](auto target) {
      layer_norm_backward(target, f.params<Params>(), x, gamma, mean, rstd, dy, dx, dgamma, dbeta,
                          f.context().scratch);
    });
  }
};

}  // namespace

Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  const LayerNormOptions& options) {
  ROUNDOFF_CHECK(x.defined(), LayerNorm::name, "x is absent");
  ROUNDOFF_CHECK(options.axes >= 1 && options.axes <= x.shape().rank(), LayerNorm::name,
                 "normalises over ", options.axes, " trailing axes, shape is ", x.shape());
  const Shape width(x.shape().extents().last(static_cast<std::size_t>(options.axes)));
  for (const Tensor* t : {&gamma, &beta})
    ROUNDOFF_CHECK(!t->defined() || t->shape() == width, LayerNorm::name,
                   "gamma or beta has shape ", t->shape(), ", ", width, " expected for x ",
                   x.shape());
  return record<LayerNorm>(context, {x, gamma, beta},
                           {.axes = static_cast<int>(options.axes), .eps = options.eps});
}

}  // namespace roundoff
