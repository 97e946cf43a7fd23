#include "ops/conv2d.h"

#include "kernels/conv2d/conv2d.h"
#include "ops/op.h"
#include "ops/product_library.h"

namespace roundoff {

namespace {

Conv2dParams kernel_params(const Conv2dOptions& o, Accumulator accumulator, bool tf32,
                           bool in_order) {
  return {.stride = o.stride,
          .padding = o.padding,
          .dilation = o.dilation,
          .groups = o.groups,
          .accumulator = accumulator,
          .tf32 = tf32,
          .kernel = o.kernel,
          .in_order = in_order};
}

struct Conv2d {
  static constexpr std::string_view name = "conv2d";
  static constexpr unsigned cast_inputs = 0b011;
  static constexpr unsigned in_order_inputs = 0b110;
  using Params = Conv2dOptions;

  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& w = f.in(1);
    const Conv2dParams p = kernel_params(f.params<Params>(), f.context().accumulator,
                                         f.context().tf32, f.context().reproducible);
    const Tensor& y =
        f.out(0, conv2d_shape(x.shape(), w.shape(), p).y(), widest(x.dtype(), w.dtype()));
    const ConstView bias = f.has(2) ? f.in(2).const_view() : ConstView::absent();
    f.run([&](auto target) {
      if (by_library(f.context(), [&](ProductLibrary& l, StreamRef stream) {
            return l.conv2d_forward(stream, p, x.view(), w.view(), bias, y.view());
          }))
        return;
      conv2d_forward(target, p, x.view(), w.view(), bias, y.view(), f.context().scratch);
    });
    if (f.wants_grad(1)) f.save(0, x);
    if (f.wants_grad(0)) f.save(1, w);
  }

  static void backward(BackwardFrame& f) {
    const Conv2dParams p =
        kernel_params(f.params<Params>(), f.accumulator(), f.tf32(), f.reproducible());
    Conv2dParams over_samples = p;
    // A kernel that was named for tensor cores leaves these to one that adds in order.
    if (p.in_order && p.kernel != ProductKernel::naive)
      over_samples.kernel = ProductKernel::automatic;
    const ConstView dy = f.grad_out(0).const_view();
    Scratch& scratch = f.context().scratch;
    f.run([&](auto target) {
      if (f.wants(0) && !by_library(f.context(), [&](ProductLibrary& l, StreamRef stream) {
            return l.conv2d_grad_input(stream, p, dy, f.saved(1).view(), f.grad_in(0));
          }))
        conv2d_grad_input(target, p, dy, f.saved(1).view(), f.grad_in(0), scratch);
      if (f.wants(1) && !by_library(f.context(), [&](ProductLibrary& l, StreamRef stream) {
            return l.conv2d_grad_weight(stream, p, f.saved(0).view(), dy, f.grad_in(1));
          }))
        conv2d_grad_weight(target, over_samples, f.saved(0).view(), dy, f.grad_in(1), scratch);
      if (f.wants(2)) conv2d_grad_bias(target, over_samples, dy, f.grad_in(2), scratch);
    });
  }
};

}  // namespace

Tensor conv2d(Context& context, const Tensor& x, const Tensor& w, const Tensor& bias,
              const Conv2dOptions& options) {
  for (const auto& [which, t] : {std::pair{"x", &x}, {"weight", &w}})
    ROUNDOFF_CHECK(t->defined() && is_floating(t->dtype()), Conv2d::name, which, " is ",
                   t->defined() ? name(t->dtype()) : "absent", ", a floating type expected");
  (void)conv2d_shape(x.shape(), w.shape(), kernel_params(options, Accumulator::fp32, false, false));
  if (bias.defined())
    ROUNDOFF_CHECK(is_floating(bias.dtype()) && bias.shape() == Shape{w.shape()[0]}, Conv2d::name,
                   "bias is ", name(bias.dtype()), " of shape ", bias.shape(),
                   ", a floating type of shape [", w.shape()[0], "] expected");
  return record<Conv2d>(context, {x, w, bias}, options);
}

}  // namespace roundoff
