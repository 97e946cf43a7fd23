#include "ops/matmul.h"

#include "kernels/base/convert.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "ops/op.h"
#include "ops/product_library.h"

namespace roundoff {

namespace {

void check_floating(std::string_view operation, const char* which, const Tensor& t) {
  ROUNDOFF_CHECK(t.defined(), operation, which, " is absent");
  ROUNDOFF_CHECK(is_floating(t.dtype()), operation, which, " is ", name(t.dtype()),
                 ", a floating type expected");
}

// A sum over samples, one chain; a kernel that was named for tensor cores leaves it to one that
// adds in order.
void sum_in_order(GemmParams& p) {
  p.order = SumOrder::in_order;
  if (p.kernel != ProductKernel::naive) p.kernel = ProductKernel::automatic;
}

// ---- linear

struct Linear {
  static constexpr std::string_view name = "linear";
  static constexpr unsigned cast_inputs = 0b011;
  static constexpr unsigned in_order_inputs = 0b110;
  struct Params {
    ProductKernel kernel = ProductKernel::automatic;
  };

  static std::int64_t rows(const Tensor& t) {
    std::int64_t n = 1;
    for (int i = 0; i + 1 < t.shape().rank(); ++i) n *= t.shape()[i];
    return n;
  }
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    const Tensor& w = f.in(1);
    Shape shape = x.shape();
    shape.set(-1, w.shape()[0]);
    const Tensor& y = f.out(0, shape, widest(x.dtype(), w.dtype()));
    const ConstView bias = f.has(2) ? f.in(2).const_view() : ConstView::absent();
    f.run([&](auto target) {
      product(f.context(), target,
              {.m = rows(x),
               .n = w.shape()[0],
               .k = w.shape()[1],
               .trans_b = true,
               .beta = f.has(2) ? 1.0 : 0.0,
               .accumulator = f.context().accumulator,
               .tf32 = f.context().tf32,
               .kernel = f.params<Params>().kernel,
               .order = f.context().reproducible ? SumOrder::by_row : SumOrder::fastest},
              x.view(), w.view(), bias, y.view());
    });
    if (f.wants_grad(1)) f.save(0, x);
    if (f.wants_grad(0)) f.save(1, w);
  }
  static void backward(BackwardFrame& f) {
    const Tensor& dy = f.grad_out(0);
    const std::int64_t n = dy.shape()[-1];
    const std::int64_t m = rows(dy);
    Scratch& scratch = f.context().scratch;
    const ConstView none = ConstView::absent();
    GemmParams p{
        .accumulator = f.accumulator(), .tf32 = f.tf32(), .kernel = f.params<Params>().kernel};
    f.run([&](auto target) {
      if (f.wants(0)) {
        p.m = m, p.n = f.saved(1).shape()[1], p.k = n;
        if (f.reproducible()) p.order = SumOrder::by_row;
        product(f.context(), target, p, dy.view(), f.saved(1).view(), none, f.grad_in(0));
      }
      if (f.wants(1)) {
        p.m = n, p.n = f.saved(0).shape()[-1], p.k = m, p.trans_a = true;
        if (f.reproducible()) sum_in_order(p);
        product(f.context(), target, p, dy.view(), f.saved(0).view(), none, f.grad_in(1));
      }
      if (f.wants(2))
        column_sums(
            target,
            {.rows = m, .columns = n, .accumulator = f.accumulator(), .in_order = f.reproducible()},
            dy.view(), f.grad_in(2), scratch);
    });
  }
};

// ---- matmul

// The result's leading axes, and which matrix of an operand each of their positions uses. The last
// `inner` positions run through an operand evenly (or not at all): one batched product.
struct Broadcast {
  Shape lead;
  std::int64_t inner = 1;
  std::int64_t outer = 1;
  // Matrices from one axis of `lead` to the next: 0 where the operand has 1 or none.
  std::array<std::array<std::int64_t, kMaxRank>, 2> step{};
  std::array<bool, 2> inner_shared{};  // one matrix serves the inner batch
  std::array<bool, 2> outer_shared{};  // several outer positions use the same matrices

  // The operand's first matrix for an outer position.
  std::int64_t first(std::size_t which, std::int64_t position) const {
    std::int64_t index = 0;
    std::int64_t rest = position * inner;
    for (int axis = lead.rank() - 1; axis >= 0; --axis) {
      index += rest % lead[axis] * step[which][static_cast<std::size_t>(axis)];
      rest /= lead[axis];
    }
    return index;
  }
};

Broadcast broadcast(const Shape& a, const Shape& b) {
  Broadcast result;
  const std::array<const Shape*, 2> shapes{&a, &b};
  const int rank = std::max(a.rank(), b.rank()) - 2;
  std::array<std::int64_t, kMaxRank> extents{};
  // Extent of operand `which` at axis `axis` of the result's leading axes.
  const auto extent = [&](std::size_t which, int axis) {
    const Shape& s = *shapes[which];
    const int own = axis - (rank - (s.rank() - 2));
    return own < 0 ? std::int64_t{1} : s[own];
  };
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t x = extent(0, axis), y = extent(1, axis);
    ROUNDOFF_CHECK(x == y || x == 1 || y == 1, "matmul", "leading axes of ", a, " and ", b,
                   " do not broadcast");
    extents[static_cast<std::size_t>(axis)] = x == 1 ? y : x;
  }
  result.lead = Shape(std::span(extents.data(), static_cast<std::size_t>(rank)));
  for (std::size_t which = 0; which < 2; ++which) {
    std::int64_t matrices = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      if (extent(which, axis) != 1) result.step[which][static_cast<std::size_t>(axis)] = matrices;
      matrices *= extent(which, axis);
    }
  }
  // Axes of extent 1 belong to any run.
  int axis = rank - 1;
  std::array<bool, 2> known{};
  for (; axis >= 0; --axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (extents[i] == 1) continue;
    bool same = true;
    for (std::size_t which = 0; which < 2; ++which) {
      const bool shared = result.step[which][i] == 0;
      if (!known[which]) result.inner_shared[which] = shared;
      same = same && result.inner_shared[which] == shared;
      known[which] = true;
    }
    if (!same) break;
    result.inner *= extents[i];
  }
  for (; axis >= 0; --axis) {
    const auto i = static_cast<std::size_t>(axis);
    result.outer *= extents[i];
    for (std::size_t which = 0; which < 2; ++which)
      result.outer_shared[which] =
          result.outer_shared[which] || (extents[i] != 1 && result.step[which][i] == 0);
  }
  return result;
}

// Matrices [first, first + count) of a view that holds a stack of them.
template <class AnyView>
AnyView stack(const AnyView& v, std::int64_t first, std::int64_t count, std::int64_t rows,
              std::int64_t columns) {
  AnyView part = v;
  using Byte = std::conditional_t<std::is_same_v<AnyView, View>, std::byte, const std::byte>;
  part.data = static_cast<Byte*>(v.data) +
              first * rows * columns * static_cast<std::int64_t>(size_of(v.dtype));
  part.shape = {count, rows, columns};
  return part;
}

struct Matmul {
  static constexpr std::string_view name = "matmul";
  static constexpr unsigned cast_inputs = 0b011;
  static constexpr unsigned in_order_inputs = 0b111;
  struct Params {
    MatmulOptions options;
    std::int64_t m, n, k;
    std::int64_t matrices = 1;  // in the result
  };

  static void forward(ForwardFrame& f) {
    auto& p = f.mutable_params<Params>();
    const Tensor& a = f.in(0);
    const Tensor& b = f.in(1);
    const Broadcast cast = broadcast(a.shape(), b.shape());
    p.matrices = cast.lead.numel();
    const Tensor& y = f.out(0, result_shape(cast.lead, p.m, p.n), widest(a.dtype(), b.dtype()));
    const ConstView c = f.has(2) ? f.in(2).const_view() : ConstView::absent();
    const bool whole_c = c.present && c.shape == y.shape() && p.matrices != 1;
    GemmParams g{.batch = cast.inner,
                 .m = p.m,
                 .n = p.n,
                 .k = p.k,
                 .trans_a = p.options.trans_a,
                 .trans_b = p.options.trans_b,
                 .alpha = p.options.alpha,
                 .beta = c.present ? p.options.beta : 0.0,
                 .accumulator = f.context().accumulator,
                 .tf32 = f.context().tf32,
                 .stride_a = cast.inner_shared[0] ? 0 : p.m * p.k,
                 .stride_b = cast.inner_shared[1] ? 0 : p.k * p.n,
                 .stride_c = whole_c ? p.m * p.n : 0,
                 .kernel = p.options.kernel,
                 .order = f.context().reproducible ? SumOrder::by_row : SumOrder::fastest};
    f.run([&](auto target) {
      for (std::int64_t i = 0; i < (p.matrices == 0 ? 0 : cast.outer); ++i)
        product(f.context(), target, g, operand(cast, 0, i, a.view(), p.m, p.k),
                operand(cast, 1, i, b.view(), p.k, p.n),
                whole_c ? stack(c, i * cast.inner, cast.inner, p.m, p.n) : c,
                stack(y.view(), i * cast.inner, cast.inner, p.m, p.n));
    });
    if (f.wants_grad(1)) f.save(0, a);
    if (f.wants_grad(0)) f.save(1, b);
  }

  static void backward(BackwardFrame& f) {
    const auto& p = f.params<Params>();
    const Tensor& dy = f.grad_out(0);
    if (f.wants(0) || f.wants(1)) {
      // An operand that was not saved is one whose gradient is wanted, and the other way round.
      const Shape& a = f.wants(0) ? f.input_shape(0) : f.saved(0).shape();
      const Shape& b = f.wants(1) ? f.input_shape(1) : f.saved(1).shape();
      const Broadcast cast = broadcast(a, b);
      if (f.wants(0)) operand_gradient(f, cast, 0, dy.view());
      if (f.wants(1)) operand_gradient(f, cast, 1, dy.view());
    }
    if (!f.wants(2)) return;
    const std::int64_t columns = f.input_shape(2).numel();
    const bool reads = p.options.beta != 0 && columns != 0;
    f.run([&](auto target) {
      const ConstView all = dy.view();
      const ConstView none{all.data, all.dtype, {0}};
      column_sums(target,
                  {.rows = reads ? dy.numel() / columns : 0,
                   .columns = columns,
                   .scale = p.options.beta,
                   .accumulator = f.accumulator(),
                   .in_order = f.reproducible()},
                  reads ? all : none, f.grad_in(2), f.context().scratch);
    });
  }

 private:
  static Shape result_shape(const Shape& lead, std::int64_t m, std::int64_t n) {
    std::array<std::int64_t, kMaxRank> extents{};
    std::copy(lead.extents().begin(), lead.extents().end(), extents.begin());
    extents[static_cast<std::size_t>(lead.rank())] = m;
    extents[static_cast<std::size_t>(lead.rank()) + 1] = n;
    return Shape(std::span(extents.data(), static_cast<std::size_t>(lead.rank()) + 2));
  }

  // What operand `which` gives to outer position `position`: one matrix, or one for each of the
  // inner batch.
  template <class AnyView>
  static AnyView operand(const Broadcast& cast, std::size_t which, std::int64_t position,
                         const AnyView& v, std::int64_t rows, std::int64_t columns) {
    return stack(v, cast.first(which, position), cast.inner_shared[which] ? 1 : cast.inner, rows,
                 columns);
  }

  // With Y = alpha op(A) op(B): d op(A) = alpha dY op(B)^T and d op(B) = alpha op(A)^T dY, each
  // transposed where the operand is held so, and summed over the positions that share it.
  static void operand_gradient(BackwardFrame& f, const Broadcast& cast, std::size_t which,
                               const ConstView& dy) {
    const auto& p = f.params<Params>();
    const bool of_a = which == 0;
    const std::size_t other = of_a ? 1 : 0;
    const bool transposed = of_a ? p.options.trans_a : p.options.trans_b;
    const bool other_transposed = of_a ? p.options.trans_b : p.options.trans_a;
    // dY comes first in the products for A and for B^T, second in those for A^T and B.
    const bool dy_first = of_a != transposed;
    const std::int64_t rows = of_a ? p.m : p.k, columns = of_a ? p.k : p.n;
    GemmParams g{.batch = cast.inner,
                 .m = transposed ? columns : rows,
                 .n = transposed ? rows : columns,
                 .k = of_a ? p.n : p.m,
                 .alpha = p.options.alpha,
                 .accumulator = f.accumulator(),
                 .tf32 = f.tf32(),
                 .sum_batch = cast.inner_shared[which],
                 .kernel = p.options.kernel};
    const std::int64_t other_stride = cast.inner_shared[other] ? 0 : (of_a ? p.k * p.n : p.m * p.k);
    // A: dY B^T, A^T: B dY^T; B: A^T dY, B^T: dY^T A; the other operand may be held transposed.
    g.trans_a = dy_first ? !of_a : (of_a ? other_transposed : !other_transposed);
    g.trans_b = dy_first ? (of_a ? !other_transposed : other_transposed) : of_a;
    g.stride_a = dy_first ? p.m * p.n : other_stride;
    g.stride_b = dy_first ? other_stride : p.m * p.n;
    // A parameter's gradient is a sum over samples, any other one belongs to a sample.
    if (f.reproducible()) {
      g.order = SumOrder::by_row;
      if (f.is_leaf(static_cast<int>(which))) {
        ROUNDOFF_CHECK(p.options.alpha == 1 || p.options.alpha == 0, name,
                       "reproducible: alpha is ", p.options.alpha,
                       ", 1 expected where a gradient is summed over samples");
        sum_in_order(g);
      }
    }

    const Tensor& right = f.saved(static_cast<int>(other));
    const Out out = f.grad_in(static_cast<int>(which));
    Scratch& scratch = f.context().scratch;
    Scratch::Frame frame(scratch);
    // Positions that share a matrix add up in fp32, or wider.
    const bool adds = cast.outer_shared[which] || p.matrices == 0;
    Out sum = out;
    if (adds && g.order == SumOrder::in_order && !is_16bit(out.view.dtype)) {
      if (out.write == Write::overwrite) f.context().zero(out.view);
      sum.write = Write::accumulate;
    } else if (adds) {
      const bool wide = dy.dtype == DType::fp64 || g.accumulator == Accumulator::fp64;
      const std::int64_t n = out.view.numel();
      sum = Out({nullptr, wide ? DType::fp64 : DType::fp32, out.view.shape}, Write::accumulate);
      sum.view.data = wide ? static_cast<void*>(scratch.get<double>(n)) : scratch.get<float>(n);
      f.context().zero(sum.view);
    }
    f.run([&](auto target) {
      for (std::int64_t i = 0; i < (p.matrices == 0 ? 0 : cast.outer); ++i) {
        const ConstView grad = stack(dy, i * cast.inner, cast.inner, p.m, p.n);
        const ConstView factor =
            operand(cast, other, i, right.const_view(), of_a ? p.k : p.m, of_a ? p.n : p.k);
        const Out part(operand(cast, which, i, sum.view, rows, columns), sum.write);
        product(f.context(), target, g, dy_first ? grad : factor, dy_first ? factor : grad,
                ConstView::absent(), part);
      }
      if (sum.view.data != out.view.data) convert(target, sum.view, out);
    });
  }
};

}  // namespace

Tensor matmul(Context& context, const Tensor& a, const Tensor& b, const MatmulOptions& options,
              const Tensor& c) {
  check_floating(Matmul::name, "a", a);
  check_floating(Matmul::name, "b", b);
  ROUNDOFF_CHECK(a.shape().rank() >= 2 && b.shape().rank() >= 2, Matmul::name, "a of shape ",
                 a.shape(), " and b of shape ", b.shape(), ", at least two axes each expected");
  const std::int64_t m = a.shape()[options.trans_a ? -1 : -2];
  const std::int64_t k = a.shape()[options.trans_a ? -2 : -1];
  const std::int64_t n = b.shape()[options.trans_b ? -2 : -1];
  ROUNDOFF_CHECK(b.shape()[options.trans_b ? -1 : -2] == k, Matmul::name, "a of shape ", a.shape(),
                 options.trans_a ? " (transposed)" : "", " and b of shape ", b.shape(),
                 options.trans_b ? " (transposed)" : "", ": inner extents differ");
  const Broadcast cast = broadcast(a.shape(), b.shape());
  if (c.defined()) {
    check_floating(Matmul::name, "c", c);
    const Shape matrix{m, n};
    const bool leads = c.shape().rank() == cast.lead.rank() + 2;
    bool whole = leads && c.shape()[-2] == m && c.shape()[-1] == n;
    for (int i = 0; whole && i < cast.lead.rank(); ++i) whole = c.shape()[i] == cast.lead[i];
    ROUNDOFF_CHECK(whole || c.shape() == matrix || c.shape() == Shape{n}, Matmul::name,
                   "c of shape ", c.shape(), ", [", n, "], [", m, ", ", n,
                   "] or the result's shape expected");
  }
  return record<Matmul>(context, {a, b, c}, {.options = options, .m = m, .n = n, .k = k});
}

Tensor linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& bias,
              ProductKernel kernel) {
  check_floating(Linear::name, "x", x);
  check_floating(Linear::name, "weight", w);
  ROUNDOFF_CHECK(x.shape().rank() >= 1 && w.shape().rank() == 2 && x.shape()[-1] == w.shape()[1],
                 Linear::name, "x of shape ", x.shape(), ", weight of shape ", w.shape(),
                 ", [..., in] and [out, in] expected");
  if (bias.defined()) {
    check_floating(Linear::name, "bias", bias);
    ROUNDOFF_CHECK(bias.shape() == Shape{w.shape()[0]}, Linear::name, "bias of shape ",
                   bias.shape(), ", [", w.shape()[0], "] expected");
  }
  return record<Linear>(context, {x, w, bias}, {.kernel = kernel});
}

}  // namespace roundoff
