#include "ops/arithmetic.h"

#include "kernels/elementwise/elementwise.h"
#include "ops/op.h"

namespace roundoff {

namespace {

struct BinaryOp {
  struct Params {
    Binary op;
    // Shapes and dtypes stand in for the operands where only those are needed (add and sub).
    DType a_dtype = DType::fp32;
    DType b_dtype = DType::fp32;
  };
  static void forward(ForwardFrame& f) {
    auto& params = f.mutable_params<Params>();
    const Tensor& a = f.in(0);
    const Tensor& b = f.in(1);
    params.a_dtype = a.dtype();
    params.b_dtype = b.dtype();
    const Shape shape = broadcast_shape(a.shape(), b.shape(), name(params.op));
    const Tensor& y = f.out(0, shape, widest(a.dtype(), b.dtype()));
    f.run([&](auto target) {
      binary_forward(target, {.op = params.op, .accumulator = f.context().accumulator}, a.view(),
                     b.view(), y.view());
    });
    if (params.op == Binary::mul || params.op == Binary::div) {
      // da needs b; db needs a, and b for a quotient.
      if (f.wants_grad(1)) f.save(0, a);
      if (f.wants_grad(0) || params.op == Binary::div) f.save(1, b);
    }
  }
  static void backward(BackwardFrame& f) {
    const auto& params = f.params<Params>();
    const Tensor& dy = f.grad_out(0);
    // An operand that was not saved is not read; one whose gradient is not wanted may have any
    // shape that broadcasts.
    const auto operand = [&](int i, DType dtype) {
      if (f.saved(i).defined()) return ConstView(f.saved(i).view());
      return ConstView{nullptr, dtype, f.wants(i) ? f.input_shape(i) : dy.shape()};
    };
    const ConstView a = operand(0, params.a_dtype);
    const ConstView b = operand(1, params.b_dtype);
    f.run([&](auto target) {
      // In turn: where a and b are the same value, the second adds to what the first has written.
      const BinaryParams kernel{.op = params.op, .accumulator = f.accumulator()};
      Scratch& scratch = f.context().scratch;
      if (f.wants(0))
        binary_backward(target, kernel, a, b, dy.view(), f.grad_in(0), Out(), scratch);
      if (f.wants(1))
        binary_backward(target, kernel, a, b, dy.view(), Out(), f.grad_in(1), scratch);
    });
  }
};

struct Add : BinaryOp {
  static constexpr std::string_view name = "add";
};
struct Sub : BinaryOp {
  static constexpr std::string_view name = "sub";
};
struct Mul : BinaryOp {
  static constexpr std::string_view name = "mul";
};
struct Div : BinaryOp {
  static constexpr std::string_view name = "div";
};

template <class Op>
Tensor apply_binary(Context& context, const Tensor& a, const Tensor& b, Binary op) {
  ROUNDOFF_CHECK(a.defined() && b.defined(), Op::name, "an operand is absent");
  ROUNDOFF_CHECK(is_floating(a.dtype()) && is_floating(b.dtype()), Op::name, "operands are ",
                 name(a.dtype()), " and ", name(b.dtype()), "; floating types expected");
  broadcast_shape(a.shape(), b.shape(), Op::name);
  return record<Op>(context, {a, b}, {.op = op});
}

}  // namespace

Tensor add(Context& context, const Tensor& a, const Tensor& b) {
  return apply_binary<Add>(context, a, b, Binary::add);
}
Tensor sub(Context& context, const Tensor& a, const Tensor& b) {
  return apply_binary<Sub>(context, a, b, Binary::sub);
}
Tensor mul(Context& context, const Tensor& a, const Tensor& b) {
  return apply_binary<Mul>(context, a, b, Binary::mul);
}
Tensor div(Context& context, const Tensor& a, const Tensor& b) {
  return apply_binary<Div>(context, a, b, Binary::div);
}

}  // namespace roundoff
