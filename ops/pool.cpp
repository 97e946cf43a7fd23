#include "ops/pool.h"

#include "ops/op.h"

namespace roundoff {

namespace {

struct MaxPool2d {
  static constexpr std::string_view name = "max_pool2d";
  using Params = Pool2dParams;
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, pool2d_shape(x.shape(), f.params<Params>()), x.dtype());
    Tensor argmax;
    if (f.recording())
      argmax =
          Tensor::empty(f.context().allocator, y.shape(), DType::i32, MemoryCategory::activations);
    f.run([&](auto target) {
      max_pool2d_forward(target, f.params<Params>(), x.view(), y.view(),
                         argmax.defined() ? Out(argmax.view()) : Out(), f.context().scratch);
    });
    if (f.recording()) f.save(0, argmax);
  }
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) {
      max_pool2d_backward(target, f.params<Params>(), f.saved(0).view(), f.grad_out(0).view(),
                          f.grad_in(0), f.context().scratch);
    });
  }
};

struct AvgPool2d {
  static constexpr std::string_view name = "avg_pool2d";
  using Params = Pool2dParams;
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, pool2d_shape(x.shape(), f.params<Params>()), x.dtype());
    f.run([&](auto target) {
      avg_pool2d_forward(target, f.params<Params>(), f.context().accumulator, x.view(), y.view(),
                         f.context().scratch);
    });
  }
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) {
      avg_pool2d_backward(target, f.params<Params>(), f.grad_out(0).view(), f.grad_in(0),
                          f.context().scratch);
    });
  }
};

template <class Op>
Tensor pool(Context& context, const Tensor& x, const Pool2dParams& params) {
  ROUNDOFF_CHECK(x.defined() && is_floating(x.dtype()), Op::name, "x is ",
                 x.defined() ? name(x.dtype()) : "absent", ", a floating type expected");
  (void)pool2d_shape(x.shape(), params);
  return record<Op>(context, {x}, params);
}

}  // namespace

Tensor max_pool2d(Context& context, const Tensor& x, const Pool2dParams& params) {
  return pool<MaxPool2d>(context, x, params);
}
Tensor avg_pool2d(Context& context, const Tensor& x, const Pool2dParams& params) {
  return pool<AvgPool2d>(context, x, params);
}

}  // namespace roundoff
