#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/layer_norm.h"
#include "tests/kernels/norm_bound.h"
#include "verify/difference.h"

using namespace roundoff;
using namespace roundoff::norm_bound;

namespace {

Tensor constant(Context& ctx, const Values& values, const Shape& shape, DType dtype) {
  return Tensor::from(ctx.allocator, values, shape, dtype);
}
Tensor leaf(Context& ctx, const Values& values, const Shape& shape, DType dtype = DType::fp32) {
  return make_leaf(ctx.allocator, constant(ctx, values, shape, dtype));
}
Values grad(const Tensor& t) { return t.leaf()->grad.to_vector(); }
void backward(Context& ctx, const Tensor& y, const Values& seed) {
  ctx.tape.backward(ctx, y, constant(ctx, seed, y.shape(), y.dtype()));
}

// A BatchNorm layer as a model holds it.
struct Layer {
  ParameterArena arena;
  Parameter gamma, beta;
  Buffer *mean, *var, *batches;
  explicit Layer(Context& ctx, std::int64_t channels)
      : gamma(arena.add("gamma", {channels}, Init::ones)),
        beta(arena.add("beta", {channels}, Init::zeros)),
        mean(&arena.add_buffer("mean", {channels}, 0)),
        var(&arena.add_buffer("var", {channels}, 1)),
        batches(&arena.add_buffer("batches", {1}, 0)) {
    arena.allocate(ctx.allocator, {});
  }
  Tensor operator()(Context& ctx, const Tensor& x, const BatchNormOptions& options = {}) {
    return batch_norm(ctx, x, gamma, beta, *mean, *var, options);
  }
};

// Gradients of sum(seed * f(inputs)) against differences of the fp64 instantiation itself, for
// every element of every input.
template <class F>
void check_differences(const std::vector<Values>& inputs, const std::vector<Shape>& shapes,
                       const F& f) {
  Context ctx;
  ctx.accumulator = Accumulator::fp64;
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    leaves.push_back(leaf(ctx, inputs[i], shapes[i], DType::fp64));
  const Tensor y = f(ctx, leaves);
  const Values seed = random_values(y.numel(), 99);
  backward(ctx, y, seed);
  ctx.tape.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Values got = grad(leaves[i]);
    for (std::size_t j = 0; j < inputs[i].size(); ++j) {
      const auto value = [&](double x) {
        const NoGrad no_grad(ctx);
        std::vector<Tensor> moved = leaves;
        Values v = inputs[i];
        v[j] = x;
        moved[i] = constant(ctx, v, shapes[i], DType::fp64);
        const Values out = f(ctx, moved).to_vector();
        double sum = 0;
        for (std::size_t k = 0; k < out.size(); ++k) sum += seed[k] * out[k];
        return sum;
      };
      const double x = inputs[i][j];
      const Difference d = central_difference(value, x, function_noise(value, x));
      CAPTURE(i);
      CAPTURE(j);
      REQUIRE(d.ratio(got[j]) <= 1);
    }
  }
}

bool close(const Values& got, const Values& want, double rel, double abs) {
  if (got.size() != want.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= rel * std::abs(want[i]) + abs)) return false;
  return true;
}

}  // namespace

TEST_CASE("norm gradients against differences of the fp64 instantiation") {
  const Values x = random_values(12, 1, 2.0), gamma = random_values(4, 2),
               beta = random_values(4, 3);
  check_differences({x, gamma, beta}, {{3, 4}, {4}, {4}}, [](Context& ctx, const auto& in) {
    return layer_norm(ctx, in[0], in[1], in[2]);
  });
  check_differences(
      {x, random_values(6, 4)}, {{2, 2, 3}, {2, 3}},
      [](Context& ctx, const auto& in) { return layer_norm(ctx, in[0], in[1], {}, {.axes = 2}); });
  check_differences({x, gamma, beta}, {{3, 4}, {4}, {4}}, [](Context& ctx, const auto& in) {
    return batch_norm(ctx, in[0], in[1], in[2], Tensor(), Tensor()).y;
  });
  check_differences({x, random_values(3, 4)}, {{2, 3, 2}, {3}}, [](Context& ctx, const auto& in) {
    return batch_norm(ctx, in[0], in[1], Tensor(), Tensor(), Tensor(), {.axis = 1}).y;
  });
  check_differences({x, gamma, beta}, {{3, 4}, {4}, {4}}, [](Context& ctx, const auto& in) {
    const Scoped<bool> eval(ctx.training, false);
    const Tensor mean = constant(ctx, {1, 2, 3, 4}, {4}, DType::fp64);
    const Tensor var = constant(ctx, {0.5, 1, 2, 4}, {4}, DType::fp64);
    return batch_norm(ctx, in[0], in[1], in[2], mean, var).y;
  });
}

TEST_CASE("case 56 [NORM] biased for output, unbiased for running_var, as an operation") {
  Context ctx;
  Layer layer(ctx, 3);
  Values v;
  for (int n = 0; n < 4; ++n)
    for (int c = 0; c < 3; ++c)
      for (int l = 0; l < 4; ++l) v.push_back(1 + n + 4 * c + l);
  layer(ctx, constant(ctx, v, {4, 3, 4}, DType::fp32), {.axis = 1});
  layer.arena.commit_buffers();
  CHECK(close(layer.mean->value.to_vector(), {0.4, 0.8, 1.2}, 1e-6, 0));
  CHECK(close(layer.var->value.to_vector(), {1.1666667, 1.1666667, 1.1666667}, 1e-6, 0));
}

TEST_CASE("case 57 [NORM] one value per channel in training leaves the buffers alone") {
  Context ctx;
  Layer layer(ctx, 2);
  CHECK_THROWS_AS(layer(ctx, constant(ctx, {1, 2}, {1, 2}, DType::fp32)), Error);
  CHECK(layer.mean->staged.to_vector() == Values{0, 0});
  CHECK(layer.var->staged.to_vector() == Values{1, 1});
  CHECK(ctx.tape.empty());
  // Fine in evaluation.
  ctx.training = false;
  CHECK(layer(ctx, constant(ctx, {1, 2}, {1, 2}, DType::fp32)).numel() == 2);
}

TEST_CASE("case 58 [NORM] momentum convention and cumulative mode, buffers staged") {
  Context ctx;
  const Tensor x = constant(ctx, {9, 11}, {2, 1}, DType::fp32);
  const Tensor x20 = constant(ctx, {19, 21}, {2, 1}, DType::fp32);
  Layer layer(ctx, 1);
  layer(ctx, x);
  // Not before the step commits; a skipped step drops it.
  CHECK(layer.mean->value.item() == 0.0);
  layer.arena.discard_buffers();
  CHECK(layer.mean->staged.item() == 0.0);
  layer(ctx, x);
  layer(ctx, x);  // the second micro-batch of a window goes on from the first
  layer.arena.commit_buffers();
  CHECK(close(layer.mean->value.to_vector(), {1.9}, 1e-6, 0));
  CHECK(close(layer.var->value.to_vector(), {1.19}, 1e-6, 0));

  Layer cumulative(ctx, 1);
  const BatchNormOptions options{.batches = cumulative.batches};
  cumulative(ctx, x, options);
  CHECK(cumulative.mean->staged.item() == 10.0);
  cumulative(ctx, x20, options);
  cumulative.arena.commit_buffers();
  CHECK(cumulative.mean->value.item() == 15.0);
  CHECK(cumulative.var->value.item() == 2.0);
  CHECK(cumulative.batches->value.item() == 2.0);
}

TEST_CASE("case 60 [NORM] eval mode forward and backward, as an operation") {
  Context ctx;
  ctx.training = false;
  const Tensor x = leaf(ctx, {6, 0}, {2, 1}), gamma = leaf(ctx, {3}, {1}),
               beta = leaf(ctx, {1}, {1});
  const Tensor mean = constant(ctx, {2}, {1}, DType::fp32),
               var = constant(ctx, {4}, {1}, DType::fp32);
  const BatchNormResult r = batch_norm(ctx, x, gamma, beta, mean, var, {.eps = 0});
  CHECK(r.y.to_vector() == Values{7, -2});
  backward(ctx, r.y, {1, 1});
  CHECK(grad(x) == Values{1.5, 1.5});
  CHECK(grad(gamma) == Values{1});
  CHECK(grad(beta) == Values{2});
  CHECK(r.running_mean.to_vector() == Values{2});
  CHECK(r.running_var.to_vector() == Values{4});
}

TEST_CASE("case 61 [NORM] training backward, as an operation") {
  Context ctx;
  const Tensor x = leaf(ctx, {1, 2, 4}, {3, 1});
  const BatchNormResult r = batch_norm(ctx, x, Tensor(), Tensor(), Tensor(), Tensor(), {.eps = 0});
  CHECK(close(r.y.to_vector(), {-1.0690450, -0.2672612, 1.3363062}, 0, 1e-6));
  backward(ctx, r.y, {1, 0, 0});
  CHECK(close(grad(x), {0.2290811, -0.3436216, 0.1145405}, 0, 1e-6));
  CHECK_FALSE(r.running_mean.defined());
}

TEST_CASE("under autocast norms compute in fp32, and 16-bit leaves get fp32 gradients") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    Context ctx;
    const AutocastScope scope(ctx, low);
    const Values v = random_values(24, 1);
    const Tensor x = leaf(ctx, v, {6, 4}, low), gamma = leaf(ctx, Values(4, 1.0), {4});
    const Tensor y = layer_norm(ctx, x, gamma);
    CHECK(y.dtype() == DType::fp32);
    backward(ctx, y, random_values(24, 2));
    CHECK(x.leaf()->grad.dtype() == DType::fp32);
    CHECK(gamma.leaf()->grad.dtype() == DType::fp32);
    ctx.tape.clear();
    CHECK(batch_norm(ctx, x, gamma, Tensor(), Tensor(), Tensor()).y.dtype() == DType::fp32);
  }
  // Without autocast a 16-bit value stays one.
  Context ctx;
  const Tensor x = leaf(ctx, random_values(24, 1), {6, 4}, DType::bf16);
  CHECK(layer_norm(ctx, x).dtype() == DType::bf16);
  CHECK(batch_norm(ctx, x, Tensor(), Tensor(), Tensor(), Tensor()).y.dtype() == DType::bf16);
}

TEST_CASE("a norm's gradient adds to what its input already has") {
  Context ctx;
  const Values v = random_values(8, 1), seed = random_values(8, 2);
  const Tensor x = leaf(ctx, v, {2, 4});
  backward(ctx, layer_norm(ctx, x), seed);
  const Values once = grad(x);
  ctx.tape.clear();
  backward(ctx, layer_norm(ctx, x), seed);
  for (std::size_t i = 0; i < 8; ++i) CHECK(grad(x)[i] == 2 * once[i]);
}

TEST_CASE("norms refuse what does not fit") {
  Context ctx;
  const Tensor x = leaf(ctx, Values(8, 1.0), {2, 4}), three = leaf(ctx, {1, 2, 3}, {3});
  CHECK_THROWS_WITH_AS(layer_norm(ctx, x, three),
                       "[layer_norm] gamma or beta has shape [3], [4] expected for x [2, 4]",
                       Error);
  CHECK_THROWS_AS(layer_norm(ctx, x, {}, {}, {.axes = 3}), Error);
  CHECK_THROWS_AS(layer_norm(ctx, Tensor()), Error);
  CHECK_THROWS_AS(batch_norm(ctx, x, three, Tensor(), Tensor(), Tensor()), Error);
  CHECK_THROWS_AS(batch_norm(ctx, x, Tensor(), Tensor(), Tensor(), Tensor(), {.axis = 2}), Error);
  ctx.training = false;
  CHECK_THROWS_AS(batch_norm(ctx, x, Tensor(), Tensor(), Tensor(), Tensor()), Error);
  CHECK(ctx.tape.empty());
}
