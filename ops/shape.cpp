#include "ops/shape.h"

#include "kernels/base/convert.h"
#include "kernels/elementwise/permute.h"
#include "ops/op.h"

namespace roundoff {

namespace {

struct Reshape {
  static constexpr std::string_view name = "reshape";
  struct Params {
    Shape shape;
  };
  static void forward(ForwardFrame& f) {
    f.out_alias(0, f.in(0).with_shape(f.params<Params>().shape));
  }
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) { convert(target, f.grad_out(0).view(), f.grad_in(0)); });
  }
};

struct Flatten : Reshape {
  static constexpr std::string_view name = "flatten";
};

struct Transpose {
  static constexpr std::string_view name = "transpose";
  using Params = PermuteParams;
  static void forward(ForwardFrame& f) {
    const auto& params = f.params<Params>();
    const Tensor& x = f.in(0);
    const Tensor& y = f.out(0, permuted_shape(x.shape(), params), x.dtype());
    f.run([&](auto target) { permute(target, params, x.view(), y.view()); });
  }
  static void backward(BackwardFrame& f) {
    const Tensor& dy = f.grad_out(0);
    const PermuteParams back = inverse(f.params<Params>(), dy.shape().rank());
    f.run([&](auto target) { permute(target, back, dy.view(), f.grad_in(0)); });
  }
};

}  // namespace

Tensor reshape(Context& context, const Tensor& x, std::span<const std::int64_t> extents) {
  ROUNDOFF_CHECK(x.defined(), Reshape::name, "x is absent");
  std::array<std::int64_t, kMaxRank> out{};
  ROUNDOFF_CHECK(extents.size() <= out.size(), Reshape::name, extents.size(), " axes, at most ",
                 kMaxRank, " are taken");
  int unknown = -1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    out[i] = extents[i];
    if (extents[i] != -1) continue;
    ROUNDOFF_CHECK(unknown < 0, Reshape::name, "more than one extent is -1");
    unknown = static_cast<int>(i);
    out[i] = 1;
  }
  Shape shape(std::span<const std::int64_t>(out.data(), extents.size()));
  if (unknown >= 0) {
    const std::int64_t rest = shape.numel();
    ROUNDOFF_CHECK(rest != 0 && x.numel() % rest == 0, Reshape::name, "the ", x.numel(),
                   " elements of shape ", x.shape(), " do not fill rows of ", rest);
    shape.set(unknown, x.numel() / rest);
  }
  ROUNDOFF_CHECK(shape.numel() == x.numel(), Reshape::name, "shape ", x.shape(), " has ", x.numel(),
                 " elements, ", shape, " has ", shape.numel());
  return record<Reshape>(context, {x}, {.shape = shape});
}
Tensor reshape(Context& context, const Tensor& x, std::initializer_list<std::int64_t> extents) {
  return reshape(context, x, std::span<const std::int64_t>(extents.begin(), extents.size()));
}

Tensor flatten(Context& context, const Tensor& x, std::int64_t first, std::int64_t last) {
  ROUNDOFF_CHECK(x.defined(), Flatten::name, "x is absent");
  const Shape& from = x.shape();
  if (from.rank() == 0) return record<Flatten>(context, {x}, {.shape = Shape{1}});
  const int begin = from.normalize_axis(first, Flatten::name);
  const int end = from.normalize_axis(last, Flatten::name);
  ROUNDOFF_CHECK(begin <= end, Flatten::name, "axis ", first, " comes after axis ", last,
                 " of shape ", from);
  std::array<std::int64_t, kMaxRank> extents{};
  std::size_t rank = 0;
  for (int i = 0; i < from.rank(); ++i) {
    if (i > begin && i <= end)
      extents[rank - 1] *= from[i];
    else
      extents[rank++] = from[i];
  }
  const Shape shape(std::span<const std::int64_t>(extents.data(), rank));
  return record<Flatten>(context, {x}, {.shape = shape});
}

Tensor transpose(Context& context, const Tensor& x, std::span<const std::int64_t> axes) {
  ROUNDOFF_CHECK(x.defined(), Transpose::name, "x is absent");
  const int rank = x.shape().rank();
  ROUNDOFF_CHECK(axes.empty() || axes.size() == static_cast<std::size_t>(rank), Transpose::name,
                 axes.size(), " axes for shape ", x.shape());
  PermuteParams params;
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    params.axes[at] = static_cast<signed char>(
        axes.empty() ? rank - 1 - i : x.shape().normalize_axis(axes[at], Transpose::name));
  }
  permuted_shape(x.shape(), params);
  return record<Transpose>(context, {x}, params);
}
Tensor transpose(Context& context, const Tensor& x, std::initializer_list<std::int64_t> axes) {
  return transpose(context, x, std::span<const std::int64_t>(axes.begin(), axes.size()));
}

}  // namespace roundoff
