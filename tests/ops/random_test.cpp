#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/dropout.h"
#include "ops/embedding.h"

using namespace roundoff;

namespace {

using Values = std::vector<double>;

Tensor leaf(Context& ctx, const Values& values, const Shape& shape, DType dtype = DType::fp32) {
  return make_leaf(ctx.allocator, Tensor::from(ctx.allocator, values, shape, dtype));
}
Values grad(const Tensor& t) { return t.leaf()->grad.to_vector(); }
void backward(Context& ctx, const Tensor& y, const Values& seed) {
  ctx.tape.backward(ctx, y, Tensor::from(ctx.allocator, seed, y.shape(), y.dtype()));
}

}  // namespace

TEST_CASE("case 65 [DROP] p = 1, as an operation") {
  Context ctx;
  const Tensor x = leaf(ctx, {1, -2, 3}, {3});
  const Tensor y = dropout(ctx, x, 1.0, 1);
  CHECK(y.to_vector() == Values{0, 0, 0});
  backward(ctx, y, {1, std::numeric_limits<double>::infinity(), 3});
  CHECK(grad(x) == Values{0, 0, 0});
}

TEST_CASE("case 66 [DROP] p = 0, eval, and invalid p, as an operation") {
  Context ctx;
  const Tensor x = leaf(ctx, {1.5, -0.0, std::numeric_limits<double>::quiet_NaN()}, {3});
  for (const double p : {0.0, 0.7}) {
    ctx.training = p == 0.0;
    const Tensor y = dropout(ctx, x, p, 1);
    CHECK(y.raw() == x.raw());
    CHECK(ctx.tape.empty());
  }
  for (const bool training : {true, false}) {
    ctx.training = training;
    for (const double p : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
      CHECK_THROWS_AS(dropout(ctx, x, p, 1), UsageError);
  }
  CHECK_THROWS_AS(dropout(ctx, x, 0.5, 0x80000000U), Error);
  CHECK_THROWS_AS(dropout(ctx, Tensor(), 0.5, 1), Error);
}

TEST_CASE(
    "case 69 [DROP] new mask each step, same mask in backward and on replay, as an operation") {
  const std::int64_t n = 1000;
  const Values ones(static_cast<std::size_t>(n), 1.0);
  Context ctx;
  const auto run = [&](std::uint64_t step, std::uint32_t tensor) {
    ctx.rng = {.seed = 123, .step = step, .sample0 = 0};
    ctx.tape.clear();
    const Tensor x = leaf(ctx, ones, {10, n / 10});
    const Tensor y = dropout(ctx, x, 0.3, tensor);
    ctx.rng.step = 77;  // backward does not depend on where the context stands by then
    backward(ctx, y, ones);
    CHECK(grad(x) == y.to_vector());
    return y.to_vector();
  };
  const Values first = run(1, 1);
  CHECK(run(2, 1) != first);
  CHECK(run(1, 2) != first);
  CHECK(run(1, 1) == first);
}

TEST_CASE("masks do not depend on how a batch is cut into micro-batches") {
  Context ctx;
  ctx.rng = {.seed = 5, .step = 9, .sample0 = 40};
  const Tensor whole = dropout(ctx, leaf(ctx, Values(60, 1.0), {6, 10}), 0.5, 3);
  Values parts;
  for (const std::int64_t m : {1, 3, 2}) {
    const Tensor part =
        dropout(ctx, leaf(ctx, Values(static_cast<std::size_t>(10 * m), 1.0), {m, 10}), 0.5, 3);
    const Values v = part.to_vector();
    parts.insert(parts.end(), v.begin(), v.end());
    ctx.rng.sample0 += static_cast<std::uint64_t>(m);
  }
  CHECK(parts == whole.to_vector());
}

TEST_CASE("dropout keeps its input's type, with 16-bit gradients in fp32 for leaves") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    Context ctx;
    const Tensor x = leaf(ctx, Values(40, 3.0), {4, 10}, dtype);
    const Tensor y = dropout(ctx, x, 0.5, 1);
    CHECK(y.dtype() == dtype);
    backward(ctx, y, Values(40, 1.0));
    const Values ys = y.to_vector(), g = grad(x);
    for (std::size_t i = 0; i < 40; ++i) {
      CHECK((ys[i] == 0.0 || ys[i] == 6.0));
      CHECK(g[i] == ys[i] / 3.0);
    }
  }
}

TEST_CASE("embedding gathers, and its gradient goes back to the rows") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    Context ctx;
    const Tensor table = leaf(ctx, {1, 2, 3, 4, 5, 6}, {3, 2}, dtype);
    const Tensor index = Tensor::from(ctx.allocator, Values{2, 0, 2, 2}, {2, 2}, DType::i64);
    const Tensor y = embedding(ctx, table, index);
    CHECK(y.shape() == Shape{2, 2, 2});
    CHECK(y.dtype() == dtype);
    CHECK(y.to_vector() == Values{5, 6, 1, 2, 5, 6, 5, 6});
    backward(ctx, y, {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(grad(table) == Values{3, 4, 0, 0, 13, 16});
    ctx.tape.clear();
    table.leaf()->zero_grad();
    backward(ctx, embedding(ctx, table, index, -1), {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(grad(table) == Values{3, 4, 0, 0, 0, 0});
  }
}

TEST_CASE("embedding refuses what does not fit") {
  Context ctx;
  const Tensor table = leaf(ctx, {1, 2, 3, 4, 5, 6}, {3, 2});
  const auto index = [&](const Values& v) {
    return Tensor::from(ctx.allocator, v, {static_cast<std::int64_t>(v.size())}, DType::i64);
  };
  CHECK_THROWS_WITH_AS(embedding(ctx, table, index({0, 3})),
                       "[embedding] index 3 at position 1, expected in [0, 3)", Error);
  CHECK_THROWS_AS(embedding(ctx, table, index({-1})), Error);
  CHECK_THROWS_AS(embedding(ctx, table, index({0}), 3), Error);
  CHECK_THROWS_AS(embedding(ctx, table, table), Error);
  CHECK_THROWS_AS(embedding(ctx, Tensor(), index({0})), Error);
  CHECK(embedding(ctx, table, index({})).shape() == Shape{0, 2});
}
