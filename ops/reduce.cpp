#include "ops/reduce.h"

#include "kernels/reduce/reduce.h"
#include "ops/op.h"

namespace roundoff {

Axes::Axes(std::span<const std::int64_t> axes) {
  ROUNDOFF_CHECK(axes.size() <= axes_.size(), "reduce", axes.size(), " axes, at most ", kMaxRank,
                 " are taken");
  for (const std::int64_t axis : axes) axes_[static_cast<std::size_t>(count_++)] = axis;
}

std::uint32_t Axes::mask(const Shape& shape, std::string_view operation) const {
  if (count_ == 0) return all_axes(shape.rank());
  std::uint32_t bits = 0;
  for (int i = 0; i < count_; ++i) {
    const std::int64_t given = axes_[static_cast<std::size_t>(i)];
    const int axis = shape.normalize_axis(given, operation);
    ROUNDOFF_CHECK(((bits >> axis) & 1U) == 0, operation, "axis ", given, " is given twice");
    bits |= 1U << axis;
  }
  return bits;
}

namespace {

struct ReduceOp {
  struct Params {
    Reduce op;
    std::uint32_t axes;
    bool keepdim;
    // Forward's, for backward: the input may not have been saved.
    Shape shape = {};
    DType dtype = DType::fp32;
  };
  static void forward(ForwardFrame& f) {
    auto& params = f.mutable_params<Params>();
    const Tensor& x = f.in(0);
    params.shape = x.shape();
    params.dtype = x.dtype();
    const Shape shape = reduced_shape(x.shape(), params.axes, params.keepdim);
    const Tensor& y = f.out(0, shape, x.dtype());
    const ReduceParams kernel{.axes = params.axes, .accumulator = f.context().accumulator};
    if (params.op == Reduce::max) {
      Tensor index;
      Out where;
      if (f.recording()) {
        index =
            Tensor::empty(f.context().allocator, shape, DType::i64, MemoryCategory::activations);
        where = index.view();
      }
      f.run([&](auto target) {
        max_forward(target, kernel, x.view(), y.view(), where, f.context().scratch);
      });
      f.save(0, index);
      return;
    }
    f.run([&](auto target) {
      reduce_forward(target, params.op, kernel, x.view(), y.view(), f.context().scratch);
    });
    if (params.op == Reduce::norm) f.save(0, x);
  }
  static void backward(BackwardFrame& f) {
    const auto& params = f.params<Params>();
    const ReduceParams kernel{.axes = params.axes, .accumulator = f.accumulator()};
    const Tensor& dy = f.grad_out(0);
    f.run([&](auto target) {
      if (params.op == Reduce::max) {
        max_backward(target, kernel, f.saved(0).view(), dy.view(), f.grad_in(0));
        return;
      }
      const ConstView x = params.op == Reduce::norm
                              ? ConstView(f.saved(0).view())
                              : ConstView{nullptr, params.dtype, params.shape};
      reduce_backward(target, params.op, kernel, x, dy.view(), f.grad_in(0), f.context().scratch);
    });
  }
};

struct Sum : ReduceOp {
  static constexpr std::string_view name = "sum";
};
struct Mean : ReduceOp {
  static constexpr std::string_view name = "mean";
};
struct Max : ReduceOp {
  static constexpr std::string_view name = "max";
};
struct Norm : ReduceOp {
  static constexpr std::string_view name = "norm";
};

template <class Op>
Tensor reduce(Context& context, const Tensor& x, Reduce op, const Axes& axes, bool keepdim) {
  ROUNDOFF_CHECK(x.defined() && is_floating(x.dtype()), Op::name, "x is ",
                 x.defined() ? name(x.dtype()) : "absent", "; a floating type expected");
  return record<Op>(context, {x},
                    {.op = op, .axes = axes.mask(x.shape(), Op::name), .keepdim = keepdim});
}

}  // namespace

Tensor sum(Context& context, const Tensor& x, const Axes& axes, bool keepdim) {
  return reduce<Sum>(context, x, Reduce::sum, axes, keepdim);
}
Tensor mean(Context& context, const Tensor& x, const Axes& axes, bool keepdim) {
  return reduce<Mean>(context, x, Reduce::mean, axes, keepdim);
}
Tensor max(Context& context, const Tensor& x, const Axes& axes, bool keepdim) {
  return reduce<Max>(context, x, Reduce::max, axes, keepdim);
}
Tensor norm(Context& context, const Tensor& x, const Axes& axes, bool keepdim) {
  return reduce<Norm>(context, x, Reduce::norm, axes, keepdim);
}

}  // namespace roundoff
