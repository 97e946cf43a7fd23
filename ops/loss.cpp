#include "ops/loss.h"

#include "kernels/loss/pointwise.h"
#include "ops/op.h"

namespace roundoff {

namespace {

struct LossOp {
  using Params = PointwiseLossParams;
  static void forward(ForwardFrame& f) {
    auto& params = f.mutable_params<Params>();
    params.accumulator = f.context().accumulator;
    const Tensor& x = f.in(0);
    const Tensor& target = f.in(1);
    const bool wide = x.dtype() == DType::fp64 || target.dtype() == DType::fp64;
    const Tensor& loss = f.out(0, params.reduction == Reduction::none ? x.shape() : Shape{},
                               wide ? DType::fp64 : DType::fp32);
    f.run([&](auto device) {
      pointwise_loss_forward(device, params, x.view(), target.view(), loss.view(),
                             f.context().scratch);
    });
    f.save(0, x);
    f.save(1, target);
  }
  static void backward(BackwardFrame& f) {
    const auto& params = f.params<Params>();
    const Tensor& dloss = f.grad_out(0);
    f.run([&](auto device) {
      // In turn: where x is its own target, the second adds to what the first has written.
      const ConstView x = f.saved(0).view();
      const ConstView target = f.saved(1).view();
      if (f.wants(0))
        pointwise_loss_backward(device, params, x, target, dloss.view(), f.grad_in(0), Out());
      if (f.wants(1))
        pointwise_loss_backward(device, params, x, target, dloss.view(), Out(), f.grad_in(1));
    });
  }
};

struct MeanSquaredError : LossOp {
  static constexpr std::string_view name = "mse";
};
struct BceWithLogits : LossOp {
  static constexpr std::string_view name = "bce_with_logits";
};

template <class Op>
Tensor apply_loss(Context& context, const Tensor& x, const Tensor& target, PointwiseLoss loss,
                  Reduction reduction) {
  ROUNDOFF_CHECK(x.defined() && target.defined(), Op::name, "x or target are absent");
  ROUNDOFF_CHECK(is_floating(x.dtype()) && is_floating(target.dtype()), Op::name, "x is ",
                 name(x.dtype()), ", target ", name(target.dtype()), "; floating types expected");
  ROUNDOFF_CHECK(x.shape() == target.shape(), Op::name, "x has shape ", x.shape(), ", target ",
                 target.shape());
  return record<Op>(context, {x, target}, {.loss = loss, .reduction = reduction});
}

}  // namespace

Tensor mse(Context& context, const Tensor& x, const Tensor& target, Reduction reduction) {
  return apply_loss<MeanSquaredError>(context, x, target, PointwiseLoss::mse, reduction);
}
Tensor bce_with_logits(Context& context, const Tensor& x, const Tensor& target,
                       Reduction reduction) {
  return apply_loss<BceWithLogits>(context, x, target, PointwiseLoss::bce_with_logits, reduction);
}

}  // namespace roundoff
