#include "ops/arithmetic.h"

#include <doctest/doctest.h>

#include <vector>

#include "ops/activation.h"

using namespace roundoff;

namespace {

Tensor leaf(Context& ctx, const std::vector<double>& values, const Shape& shape,
            DType dtype = DType::fp32) {
  return make_leaf(ctx.allocator, Tensor::from(ctx.allocator, values, shape, dtype));
}
std::vector<double> grad(const Tensor& t) { return t.leaf()->grad.to_vector(); }

}  // namespace

TEST_CASE("case 70 [AUTO] same tensor used several times") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    Context ctx;
    const Tensor x = leaf(ctx, {3}, {1}, dtype);
    ctx.tape.backward(ctx, add(ctx, mul(ctx, x, x), x));
    CHECK(grad(x) == std::vector<double>{7});

    ctx.tape.clear();
    const Tensor z = leaf(ctx, {3}, {1}, dtype);
    ctx.tape.backward(ctx, add(ctx, add(ctx, z, z), z));
    CHECK(grad(z) == std::vector<double>{3});
  }
}

TEST_CASE("case 71 [AUTO] broadcast gradients reach leaves in their own shapes") {
  Context ctx;
  const Tensor a = leaf(ctx, {2}, {1});
  const Tensor b = leaf(ctx, {0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor y = mul(ctx, a, b);
  ctx.tape.backward(ctx, y,
                    Tensor::from(ctx.allocator, std::vector<double>(6, 1), {3, 2}, y.dtype()));
  CHECK(grad(a) == std::vector<double>{15});
  CHECK(a.leaf()->grad.shape() == Shape{1});
  CHECK(grad(b) == std::vector<double>(6, 2));
}

TEST_CASE("gradients where only one operand wants one") {
  Context ctx;
  const Tensor constant = Tensor::from(ctx.allocator, std::vector<double>{2, 4}, {2}, DType::fp32);
  const auto run = [&](Tensor (*f)(Context&, const Tensor&, const Tensor&), bool leaf_first) {
    ctx.tape.clear();
    const Tensor x = leaf(ctx, {8}, {1});
    const Tensor y = leaf_first ? f(ctx, x, constant) : f(ctx, constant, x);
    ctx.tape.backward(ctx, y,
                      Tensor::from(ctx.allocator, std::vector<double>{1, 1}, {2}, y.dtype()));
    return grad(x)[0];
  };
  CHECK(run(add, true) == 2);
  CHECK(run(sub, true) == 2);
  CHECK(run(sub, false) == -2);
  CHECK(run(mul, true) == 6);
  CHECK(run(mul, false) == 6);
  CHECK(run(div, true) == 0.75);
  CHECK(run(div, false) == -6.0 / 64);
}

TEST_CASE("the output has the wider dtype, gradients of 16-bit values included") {
  Context ctx;
  const Tensor a = leaf(ctx, {1.5}, {1}, DType::fp16);
  const Tensor b = leaf(ctx, {2}, {1}, DType::bf16);
  CHECK(add(ctx, a, a).dtype() == DType::fp16);
  CHECK(add(ctx, a, b).dtype() == DType::fp32);
  const Tensor y = relu(ctx, mul(ctx, a, b));
  CHECK(y.item() == 3);
  ctx.tape.backward(ctx, y);
  CHECK(grad(a) == std::vector<double>{2});
  CHECK(grad(b) == std::vector<double>{1.5});
}

TEST_CASE("arithmetic refuses what does not fit") {
  Context ctx;
  const Tensor a = leaf(ctx, {1, 2, 3}, {3});
  const Tensor b = leaf(ctx, {1, 2}, {2});
  CHECK_THROWS_WITH_AS(add(ctx, a, b),
                       "[add] shapes [3] and [2] do not broadcast: axis -1 has extents 3 and 2",
                       Error);
  CHECK_THROWS_AS(relu(ctx, Tensor()), Error);
  CHECK(ctx.tape.empty());
}
