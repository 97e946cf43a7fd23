#include "ops/dropout.h"

#include "kernels/dropout/dropout.h"
#include "ops/op.h"

namespace roundoff {

namespace {

struct Dropout {
  static constexpr std::string_view name = "dropout";
  using Params = DropoutParams;

  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, x.shape(), x.dtype());
    f.run([&](auto target) { dropout_forward(target, f.params<Params>(), x.view(), y.view()); });
  }
  // The mask is made again: nothing is saved.
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) {
      dropout_backward(target, f.params<Params>(), f.grad_out(0).view(), f.grad_in(0));
    });
  }
};

}  // namespace

Tensor dropout(Context& context, const Tensor& x, double p, std::uint32_t tensor) {
  ROUNDOFF_CHECK(x.defined(), Dropout::name, "x is absent");
  ROUNDOFF_CHECK(tensor < kReservedTensors, Dropout::name, "tensor number ", tensor,
                 ", below 2^31 expected");
  const RngKey& rng = context.rng;
  const DropoutParams params{.p = p,
                             .stream = philox_stream(rng.seed, rng.step, tensor),
                             .sample0 = rng.sample0,
                             .key = rng.device};
  validate(params);
  if (!context.training || p == 0.0) return x;
  return record<Dropout>(context, {x}, params);
}

}  // namespace roundoff
