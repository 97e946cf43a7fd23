#include "ops/activation.h"

#include "kernels/elementwise/elementwise.h"
#include "ops/op.h"

namespace roundoff {

namespace {

// What forward and backward of all of them are; a struct below gives the name.
struct UnaryOp {
  struct Params {
    Unary op;
  };
  static void forward(ForwardFrame& f) {
    const Unary op = f.params<Params>().op;
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, x.shape(), x.dtype());
    f.run([&](auto target) {
      unary_forward(target, {.op = op, .accumulator = f.context().accumulator}, x.view(), y.view());
    });
    f.save(0, saves_input(op) ? x : y);
  }
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) {
      unary_backward(target, {.op = f.params<Params>().op, .accumulator = f.accumulator()},
                     f.saved(0).view(), f.grad_out(0).view(), f.grad_in(0));
    });
  }
};

struct Relu : UnaryOp {
  static constexpr std::string_view name = "relu";
};
struct Gelu : UnaryOp {
  static constexpr std::string_view name = "gelu";
};
struct Tanh : UnaryOp {
  static constexpr std::string_view name = "tanh";
};
struct Sigmoid : UnaryOp {
  static constexpr std::string_view name = "sigmoid";
};
struct Exp : UnaryOp {
  static constexpr std::string_view name = "exp";
};
struct Log : UnaryOp {
  static constexpr std::string_view name = "log";
};

template <class Op>
Tensor apply_unary(Context& context, const Tensor& x, Unary op) {
  ROUNDOFF_CHECK(x.defined() && is_floating(x.dtype()), Op::name, "x is ",
                 x.defined() ? name(x.dtype()) : "absent", "; a floating type expected");
  return record<Op>(context, {x}, {.op = op});
}

}  // namespace

Tensor relu(Context& context, const Tensor& x) {
  return apply_unary<Relu>(context, x, Unary::relu);
}
Tensor gelu(Context& context, const Tensor& x, GeluKind kind) {
  return apply_unary<Gelu>(context, x, kind == GeluKind::erf ? Unary::gelu : Unary::gelu_tanh);
}
Tensor tanh(Context& context, const Tensor& x) {
  return apply_unary<Tanh>(context, x, Unary::tanh);
}
Tensor sigmoid(Context& context, const Tensor& x) {
  return apply_unary<Sigmoid>(context, x, Unary::sigmoid);
}
Tensor exp(Context& context, const Tensor& x) { return apply_unary<Exp>(context, x, Unary::exp); }
Tensor log(Context& context, const Tensor& x) { return apply_unary<Log>(context, x, Unary::log); }

}  // namespace roundoff
