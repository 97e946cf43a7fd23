#include "ops/softmax.h"

#include "kernels/softmax/softmax.h"
#include "ops/op.h"

namespace roundoff {

namespace {

struct Softmax {
  static constexpr std::string_view name = "softmax";
  struct Params {
    int axis;
  };
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, x.shape(), x.dtype());
    const SoftmaxParams params{.axis = f.params<Params>().axis,
                               .accumulator = f.context().accumulator};
    f.run([&](auto target) {
      softmax_forward(target, params, x.view(), y.view(), f.context().scratch);
    });
    f.save(0, y);
  }
  static void backward(BackwardFrame& f) {
    const SoftmaxParams params{.axis = f.params<Params>().axis, .accumulator = f.accumulator()};
    f.run([&](auto target) {
      softmax_backward(target, params, f.saved(0).view(), f.grad_out(0).view(), f.grad_in(0));
    });
  }
};

struct LogSoftmax {
  static constexpr std::string_view name = "log_softmax";
  using Params = Softmax::Params;
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, x.shape(), x.dtype());
    const SoftmaxParams params{.axis = f.params<Params>().axis,
                               .accumulator = f.context().accumulator};
    f.run([&](auto target) { log_softmax_forward(target, params, x.view(), y.view()); });
    f.save(0, y);
  }
  static void backward(BackwardFrame& f) {
    const SoftmaxParams params{.axis = f.params<Params>().axis, .accumulator = f.accumulator()};
    f.run([&](auto target) {
      log_softmax_backward(target, params, f.saved(0).view(), f.grad_out(0).view(), f.grad_in(0));
    });
  }
};

template <class Op>
Tensor apply_softmax(Context& context, const Tensor& x, std::int64_t axis) {
  ROUNDOFF_CHECK(x.defined() && is_floating(x.dtype()), Op::name, "x is ",
                 x.defined() ? name(x.dtype()) : "absent", "; a floating type expected");
  return record<Op>(context, {x}, {.axis = x.shape().normalize_axis(axis, Op::name)});
}

}  // namespace

Tensor softmax(Context& context, const Tensor& x, std::int64_t axis) {
  return apply_softmax<Softmax>(context, x, axis);
}
Tensor log_softmax(Context& context, const Tensor& x, std::int64_t axis) {
  return apply_softmax<LogSoftmax>(context, x, axis);
}

}  // namespace roundoff
