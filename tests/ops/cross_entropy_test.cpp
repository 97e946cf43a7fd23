#include "ops/cross_entropy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "ops/activation.h"

using namespace roundoff;

namespace {

Tensor tensor(Context& ctx, const std::vector<double>& values, const Shape& shape, DType dtype) {
  return Tensor::from(ctx.allocator, values, shape, dtype);
}

}  // namespace

TEST_CASE("cross_entropy on the tape: loss in fp32, the scale as the seed, gradient to the leaf") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    Context ctx;
    if (is_16bit(dtype)) ctx.autocast.low = dtype;
    const Tensor x = make_leaf(ctx.allocator, tensor(ctx, {1, 1, 1, 1, 1, 1}, {2, 3}, dtype));
    const Tensor y = tensor(ctx, {1, 2}, {2}, DType::i64);
    const CrossEntropyResult r = cross_entropy(ctx, x, y);
    CHECK(r.loss.dtype() == (dtype == DType::fp64 ? DType::fp64 : DType::fp32));
    CHECK(r.valid.item() == 2);
    CHECK(std::abs(r.loss.item() - std::log(3.0)) <= 8 * 0x1p-24);
    ctx.tape.backward(ctx, r.loss, 65536);
    const std::vector<double> g = x.leaf()->grad.to_vector();
    const double want[] = {1. / 6, -1. / 3, 1. / 6, 1. / 6, 1. / 6, -1. / 3};
    // Under autocast the logits are cast to fp32, and their gradient goes back through that cast.
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(std::abs(g[i] / 65536 - want[i]) <= (is_16bit(dtype) ? 0x1p-8 : 8 * 0x1p-24) * 0.34);
  }
}

TEST_CASE("case 90 [SCALER] the loss is fp32 and so is its seed") {
  Context ctx;
  // log(1 + e^a) = 2 for this a, up to fp16's rounding of it
  const Tensor x = make_leaf(ctx.allocator, tensor(ctx, {0, 1.8545865}, {1, 2}, DType::fp16));
  const CrossEntropyResult r = cross_entropy(ctx, x, tensor(ctx, {0}, {1}, DType::i64));
  CHECK(r.loss.dtype() == DType::fp32);
  CHECK(std::abs(r.loss.item() * 65536 - 131072) < 131072 * 0x1p-10);
  ctx.tape.backward(ctx, r.loss, 65536);
  CHECK(std::isfinite(x.leaf()->grad.at(0)));
}

TEST_CASE("case 40 [LOSS] all targets ignored: gradients on the tape are 0, and present") {
  Context ctx;
  const Tensor x = make_leaf(ctx.allocator, tensor(ctx, {1, 2, 3, 4, 5, 6}, {2, 3}, DType::fp32));
  const CrossEntropyResult r = cross_entropy(ctx, x, tensor(ctx, {-100, -100}, {2}, DType::i64));
  CHECK(r.loss.item() == 0);
  CHECK(r.valid.item() == 0);
  ctx.tape.backward(ctx, r.loss, 65536);
  CHECK(x.leaf()->has_grad);
  CHECK(x.leaf()->grad.to_vector() == std::vector<double>(6, 0.0));
}

TEST_CASE("class weights, probabilities and shapes with several leading axes on the tape") {
  Context ctx;
  const Tensor x =
      make_leaf(ctx.allocator, tensor(ctx, {2, 1, 0, 0, 3, 1}, {1, 2, 3}, DType::fp64));
  const Tensor w = tensor(ctx, {1, 2, 5}, {3}, DType::fp64);
  const Tensor q = tensor(ctx, {.7, .2, .1, .1, .1, .8}, {1, 2, 3}, DType::fp64);
  const CrossEntropyResult soft = cross_entropy(ctx, x, q, {}, w);
  CHECK(std::abs(soft.loss.item() - 5.5412537136) <= 1e-10);
  CHECK(soft.valid.item() == 2);
  const CrossEntropyResult none = cross_entropy(ctx, x, tensor(ctx, {0, 2}, {1, 2}, DType::u8),
                                                {.reduction = Reduction::none}, w);
  CHECK(none.loss.shape() == Shape{1, 2});
  CHECK(none.valid.item() == 6);
  ctx.tape.backward(ctx, none.loss, tensor(ctx, {1, 0}, {1, 2}, DType::fp64));
  CHECK(x.leaf()->grad.at(3) == 0);
  CHECK(x.leaf()->grad.at(0) < 0);
}
