#include "engine/cast.h"

#include "engine/context.h"
#include "kernels/base/convert.h"

namespace roundoff {

namespace {

struct Cast {
  struct Params {
    DType dtype;
  };
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    Tensor& y = f.out(0, x.shape(), f.params<Params>().dtype);
    f.run([&](auto target) { convert(target, x.view(), y.view()); });
  }
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) { convert(target, f.grad_out(0).view(), f.grad_in(0)); });
  }
};

constexpr Operation kCast{"cast", Cast::forward, Cast::backward, CastClass::none, 0};

}  // namespace

Tensor cast(Context& context, const Tensor& x, DType dtype) {
  ROUNDOFF_CHECK(x.defined(), "cast", "x is absent");
  ROUNDOFF_CHECK(is_floating(x.dtype()) && is_floating(dtype), "cast", "from ", name(x.dtype()),
                 " to ", name(dtype), "; floating types expected");
  if (x.dtype() == dtype) return x;
  const Cast::Params params{dtype};
  const Tensor* input = &x;
  return std::move(apply(context, kCast, {&input, 1}, &params, sizeof(params))[0]);
}

Tensor autocast_input(Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype || x.dtype() == DType::fp64 || !is_floating(x.dtype())) return x;
  const auto& leaf = x.leaf();
  if (leaf == nullptr || !is_16bit(dtype) || context.autocast.weight_grad_16bit)
    return cast(context, x, dtype);
  if (!leaf->compute_copy.defined() || leaf->compute_copy.dtype() != dtype) {
    leaf->compute_copy =
        Tensor::empty(context.allocator, x.shape(), dtype, MemoryCategory::parameters);
    leaf->compute_version = leaf->version - 1;
  }
  if (leaf->compute_version != leaf->version) {
    visit_target(context,
                 [&](auto target) { convert(target, x.view(), leaf->compute_copy.view()); });
    leaf->compute_version = leaf->version;
  }
  Tensor copy = leaf->compute_copy.detached();
  copy.set_leaf(leaf);
  return copy;
}

}  // namespace roundoff
