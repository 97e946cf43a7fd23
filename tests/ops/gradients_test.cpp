// Every operation of activation, arithmetic, reduce, shape, softmax, cross_entropy and loss on the
// tape: gradients of its fp64 instantiation against central differences, and what only the tape
// adds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/softmax.h"
#include "tests/verify/check_gradient.h"

using namespace roundoff;

namespace {

using Values = std::vector<double>;

Tensor tensor(Context& ctx, const Values& values, const Shape& shape, DType dtype = DType::fp64) {
  return Tensor::from(ctx.allocator, values, shape, dtype);
}
Tensor leaf(Context& ctx, const Values& values, const Shape& shape, DType dtype = DType::fp64) {
  return make_leaf(ctx.allocator, tensor(ctx, values, shape, dtype));
}
Values grad(const Tensor& t) { return t.leaf()->grad.to_vector(); }

using Function = std::function<Tensor(Context&, const Tensor&)>;

// The gradient of dot(weights, f(x)) for fixed, unequal weights.
void check(const char* what, const Function& f, const Values& x, const Shape& shape) {
  INFO(std::string(what));
  Context ctx;
  const Tensor in = leaf(ctx, x, shape);
  const Tensor y = f(ctx, in);
  REQUIRE(y.dtype() == DType::fp64);
  const Values weights = sample(y.numel(), 99);
  ctx.tape.backward(ctx, y, tensor(ctx, weights, y.shape()));
  const Values gradient = grad(in);
  // A function of the C library may be wrong by 2 ulp, and by nearly the same at neighbouring
  // points: differences would not show it as noise. Six times this floor covers it.
  double floor = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i)
    floor += std::abs(weights[oracle::at(i)] * y.at(i)) * 0x1p-53;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto along = [&](double value) {
      Context fresh;
      const NoGrad off(fresh);
      Values at = x;
      at[i] = value;
      return dot(weights, f(fresh, tensor(fresh, at, shape)).to_vector());
    };
    const double noise = std::max(floor, function_noise(along, x[i]));
    const Difference d = central_difference(along, x[i], noise);
    INFO("element ", i, ": gradient ", gradient[i], ", difference ", d.value, " +- ", d.tolerance);
    CHECK(d.ratio(gradient[i]) <= 1);
  }
}

// As `sample`, at least 1/4 away from 0.
Values away_from_zero(std::int64_t n, unsigned seed) {
  Values v = sample(n, seed);
  for (double& x : v) x += x < 0 ? -0.25 : 0.25;
  return v;
}
Values positive(std::int64_t n, unsigned seed) {
  Values v = away_from_zero(n, seed);
  for (double& x : v) x = std::abs(x);
  return v;
}

}  // namespace

TEST_CASE("gradients of functions of one element against differences") {
  const Shape shape{3, 4};
  const Values x = away_from_zero(12, 1);
  check(
      "relu", [](Context& c, const Tensor& t) { return relu(c, t); }, x, shape);
  check(
      "gelu", [](Context& c, const Tensor& t) { return gelu(c, t); }, x, shape);
  check(
      "gelu tanh", [](Context& c, const Tensor& t) { return gelu(c, t, GeluKind::tanh); }, x,
      shape);
  check(
      "tanh", [](Context& c, const Tensor& t) { return roundoff::tanh(c, t); }, x, shape);
  check(
      "sigmoid", [](Context& c, const Tensor& t) { return sigmoid(c, t); }, x, shape);
  check(
      "exp", [](Context& c, const Tensor& t) { return roundoff::exp(c, t); }, x, shape);
  check(
      "log", [](Context& c, const Tensor& t) { return roundoff::log(c, t); }, positive(12, 1),
      shape);
}

TEST_CASE("gradients of arithmetic against differences, each operand broadcast in turn") {
  using Operation = Tensor (*)(Context&, const Tensor&, const Tensor&);
  for (const Operation f : {&add, &sub, &mul, static_cast<Operation>(&roundoff::div)}) {
    for (const auto& shapes :
         {std::pair{Shape{2, 3}, Shape{2, 3}}, std::pair{Shape{3}, Shape{2, 3}},
          std::pair{Shape{2, 1}, Shape{4, 1, 3}}, std::pair{Shape{}, Shape{2, 2}}}) {
      const Shape& mine = shapes.first;
      const Shape& other = shapes.second;
      const Values constant = away_from_zero(other.numel(), 2);
      const auto with = [&](Context& c) { return tensor(c, constant, other); };
      const Values x = away_from_zero(mine.numel(), 3);
      check(
          "first", [&](Context& c, const Tensor& t) { return f(c, t, with(c)); }, x, mine);
      check(
          "second", [&](Context& c, const Tensor& t) { return f(c, with(c), t); }, x, mine);
    }
    check(
        "both", [&](Context& c, const Tensor& t) { return f(c, t, t); }, away_from_zero(4, 4),
        Shape{4});
  }
}

TEST_CASE("gradients of reductions against differences") {
  const Shape shape{2, 3, 4};
  const Values x = away_from_zero(24, 5);
  for (const Axes& axes : {Axes(), Axes(1), Axes(-1), Axes({0, 2}), Axes({1, 2})}) {
    for (const bool keepdim : {false, true}) {
      check(
          "sum", [&](Context& c, const Tensor& t) { return sum(c, t, axes, keepdim); }, x, shape);
      check(
          "mean", [&](Context& c, const Tensor& t) { return mean(c, t, axes, keepdim); }, x, shape);
      check(
          "max", [&](Context& c, const Tensor& t) { return max(c, t, axes, keepdim); }, x, shape);
      check(
          "norm", [&](Context& c, const Tensor& t) { return norm(c, t, axes, keepdim); }, x, shape);
    }
  }
}

TEST_CASE("gradients of shape operations and softmax against differences") {
  const Shape shape{2, 3, 4};
  const Values x = sample(24, 6);
  check(
      "reshape",
      [](Context& c, const Tensor& t) {
        return reshape(c, t, {4, -1});
      },
      x, shape);
  check(
      "flatten", [](Context& c, const Tensor& t) { return flatten(c, t, 1); }, x, shape);
  check(
      "transpose",
      [](Context& c, const Tensor& t) {
        return transpose(c, t, {2, 0, 1});
      },
      x, shape);
  for (const std::int64_t axis : {0, 1, -1}) {
    check(
        "softmax", [&](Context& c, const Tensor& t) { return softmax(c, t, axis); }, x, shape);
    check(
        "log_softmax", [&](Context& c, const Tensor& t) { return log_softmax(c, t, axis); }, x,
        shape);
  }
}

TEST_CASE("gradients of losses against differences, every option") {
  const Shape shape{4, 3};
  const Values x = sample(12, 7);
  for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const bool weighted : {false, true}) {
        for (const bool soft : {false, true}) {
          CAPTURE(name(reduction));
          CAPTURE(smoothing);
          CAPTURE(weighted);
          CAPTURE(soft);
          check(
              "cross_entropy",
              [&](Context& c, const Tensor& t) {
                const Tensor target = soft ? tensor(c, positive(12, 8), shape)
                                           : tensor(c, {2, -100, 0, 1}, {4}, DType::i64);
                const Tensor weight = weighted ? tensor(c, {1, 0.5, 3}, {3}) : Tensor();
                return cross_entropy(c, t, target,
                                     {.label_smoothing = smoothing, .reduction = reduction}, weight)
                    .loss;
              },
              x, shape);
        }
      }
    }
    const Values other = positive(12, 9);
    check(
        "mse",
        [&](Context& c, const Tensor& t) { return mse(c, t, tensor(c, other, shape), reduction); },
        x, shape);
    check(
        "mse, target",
        [&](Context& c, const Tensor& t) { return mse(c, tensor(c, other, shape), t, reduction); },
        x, shape);
    check(
        "bce",
        [&](Context& c, const Tensor& t) {
          return bce_with_logits(c, t, tensor(c, other, shape), reduction);
        },
        x, shape);
    check(
        "bce, target",
        [&](Context& c, const Tensor& t) {
          return bce_with_logits(c, tensor(c, other, shape), t, reduction);
        },
        x, shape);
  }
}

TEST_CASE("case 70 [AUTO] same tensor used several times: max(x) + x") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    Context ctx;
    const Tensor x = leaf(ctx, {2, 3}, {2}, dtype);
    const Tensor y = add(ctx, max(ctx, x), x);
    CHECK(y.to_vector() == Values{5, 6});
    ctx.tape.backward(ctx, y, tensor(ctx, {1, 1}, {2}, y.dtype()));
    CHECK(grad(x) == Values{1, 3});
  }
}

TEST_CASE("case 13 [RED] mean of |a - b| in fp16 from operations") {
  Context ctx;
  const Tensor a = tensor(ctx, Values(16384, 2), {16384}, DType::fp16);
  const Tensor b = tensor(ctx, Values(16384, -2), {16384}, DType::fp16);
  CHECK(mean(ctx, sub(ctx, a, b)).item() == 4);
  CHECK(sum(ctx, sub(ctx, a, b)).item() == std::numeric_limits<double>::infinity());
}

TEST_CASE("case 119 [CAST] what these operations compute in under autocast") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    Context ctx;
    const AutocastScope scope(ctx, low);
    const Tensor x = tensor(ctx, {0.5, 1.5, 2.5, 3.5}, {2, 2}, low);
    const Tensor wide = tensor(ctx, {1, 2, 3, 4}, {2, 2}, DType::fp32);
    const Tensor fp64 = tensor(ctx, {1, 2, 3, 4}, {2, 2}, DType::fp64);
    const Tensor labels = tensor(ctx, {0, 1}, {2}, DType::i64);
    // fp32 even from 16 bit
    CHECK(roundoff::exp(ctx, x).dtype() == DType::fp32);
    CHECK(roundoff::log(ctx, x).dtype() == DType::fp32);
    CHECK(sum(ctx, x).dtype() == DType::fp32);
    CHECK(mean(ctx, x).dtype() == DType::fp32);
    CHECK(max(ctx, x).dtype() == DType::fp32);
    CHECK(norm(ctx, x).dtype() == DType::fp32);
    CHECK(softmax(ctx, x).dtype() == DType::fp32);
    CHECK(log_softmax(ctx, x).dtype() == DType::fp32);
    CHECK(cross_entropy(ctx, x, labels).loss.dtype() == DType::fp32);
    CHECK(mse(ctx, x, wide).dtype() == DType::fp32);
    CHECK(bce_with_logits(ctx, x, wide).dtype() == DType::fp32);
    // the widest input
    CHECK(relu(ctx, x).dtype() == low);
    CHECK(gelu(ctx, x).dtype() == low);
    CHECK(roundoff::tanh(ctx, x).dtype() == low);
    CHECK(sigmoid(ctx, x).dtype() == low);
    CHECK(reshape(ctx, x, {4}).dtype() == low);
    CHECK(transpose(ctx, x).dtype() == low);
    CHECK(add(ctx, x, x).dtype() == low);
    CHECK(add(ctx, x, wide).dtype() == DType::fp32);
    CHECK(mul(ctx, wide, x).dtype() == DType::fp32);
    // fp64 is never cast
    CHECK(roundoff::exp(ctx, fp64).dtype() == DType::fp64);
    CHECK(cross_entropy(ctx, fp64, labels).loss.dtype() == DType::fp64);
    CHECK(add(ctx, fp64, x).dtype() == DType::fp64);
  }
}

TEST_CASE("case 121 [CAST] fp16 softmax over axis 1: fp32 inside, gradients come back") {
  Context ctx;
  const Tensor x = leaf(ctx, sample(12, 10), {2, 3, 2}, DType::fp16);
  Tensor y;
  {
    const AutocastScope scope(ctx, DType::fp16);
    CHECK_THROWS_AS(softmax(ctx, x, 3), Error);
    const AutocastScope off(ctx, DType::fp32);
    CHECK(softmax(ctx, x.detached(), 1).dtype() == DType::fp16);
  }
  CHECK(ctx.autocast.low == DType::fp32);
  {
    const AutocastScope scope(ctx, DType::fp16);
    y = softmax(ctx, x, 1);
  }
  CHECK(y.dtype() == DType::fp32);
  const Values dy = sample(12, 11);
  ctx.tape.backward(ctx, y, tensor(ctx, dy, {2, 3, 2}, DType::fp32));
  const Values g = grad(x);
  for (std::int64_t o = 0; o < 2; ++o) {
    for (std::int64_t j = 0; j < 2; ++j) {
      double t = 0;
      for (std::int64_t i = 0; i < 3; ++i)
        t += dy[oracle::at(o * 6 + i * 2 + j)] * y.at(o * 6 + i * 2 + j);
      for (std::int64_t i = 0; i < 3; ++i) {
        const std::int64_t k = o * 6 + i * 2 + j;
        const double want = y.at(k) * (dy[oracle::at(k)] - t);
        // y carries about 40 roundings of fp32 (numerics.md); the gradient is rounded to fp16 once
        CHECK(std::abs(g[oracle::at(k)] - want) <=
              0x1p-11 * std::abs(want) + 64 * 0x1p-24 + 0x1p-25);
      }
    }
  }
}

TEST_CASE("reshape and flatten share storage, transpose copies; shapes are checked") {
  Context ctx;
  const Tensor x = tensor(ctx, {1, 2, 3, 4, 5, 6}, {2, 3}, DType::fp32);
  CHECK(reshape(ctx, x, {3, 2}).raw() == x.raw());
  CHECK(reshape(ctx, x, {-1}).shape() == Shape{6});
  CHECK(reshape(ctx, x, {3, -1, 1}).shape() == Shape{3, 2, 1});
  CHECK(flatten(ctx, x).shape() == Shape{6});
  CHECK(flatten(ctx, tensor(ctx, sample(24, 1), {2, 3, 4}), 1).shape() == Shape{2, 12});
  CHECK(flatten(ctx, tensor(ctx, sample(24, 1), {2, 3, 4}), 0, 1).shape() == Shape{6, 4});
  CHECK(flatten(ctx, tensor(ctx, {1}, {})).shape() == Shape{1});
  CHECK(transpose(ctx, x).to_vector() == Values{1, 4, 2, 5, 3, 6});
  CHECK(transpose(ctx, x, {0, -1}).to_vector() == x.to_vector());
  CHECK_THROWS_WITH_AS(reshape(ctx, x, {4, -1}),
                       "[reshape] the 6 elements of shape [2, 3] do not fill rows of 4", Error);
  CHECK_THROWS_WITH_AS(reshape(ctx, x, {-1, -1}), "[reshape] more than one extent is -1", Error);
  CHECK_THROWS_WITH_AS(reshape(ctx, x, {5}), "[reshape] shape [2, 3] has 6 elements, [5] has 5",
                       Error);
  CHECK_THROWS_AS(reshape(ctx, x, {-2, 3}), Error);
  CHECK_THROWS_AS(reshape(ctx, tensor(ctx, {}, {0}), {0, -1}), Error);
  CHECK_THROWS_AS(transpose(ctx, x, {0}), Error);
  CHECK_THROWS_AS(transpose(ctx, x, {0, 0}), Error);
  CHECK_THROWS_AS(flatten(ctx, x, 1, 0), Error);
  CHECK_THROWS_WITH_AS(sum(ctx, x, {0, -2}), "[sum] axis -2 is given twice", Error);
  CHECK_THROWS_WITH_AS(sum(ctx, x, 2), "[sum] axis 2 is out of range for shape [2, 3]", Error);
  CHECK_THROWS_WITH_AS(mse(ctx, x, reshape(ctx, x, {3, 2})),
                       "[mse] x has shape [2, 3], target [3, 2]", Error);
}

TEST_CASE("the same value as both sides of a loss, and sums in the context's accumulator") {
  Context ctx;
  const Tensor x = leaf(ctx, {1, 2}, {2}, DType::fp32);
  const Tensor y = mse(ctx, relu(ctx, x), relu(ctx, x), Reduction::sum);
  CHECK(y.item() == 0);
  ctx.tape.backward(ctx, y);
  CHECK(grad(x) == Values{0, 0});
  ctx.accumulator = Accumulator::fp16;
  CHECK(sum(ctx, tensor(ctx, Values(4096, 1), {4096}, DType::fp16)).item() == 2048);
}
