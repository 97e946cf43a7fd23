// The probe: counts against planted values, the place of a planted overflow, the scale that fits
// against trying them all, and a step that computes the same bits with it and without.
#include "engine/probe.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/activation.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "support.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

const ProbedTensor* find(const Probe& probe, ProbedTensor::Kind kind, int index) {
  for (const ProbedTensor* t : probe.tensors())
    if (t->kind == kind && t->index == index) return t;
  return nullptr;
}

// y = sum(relu(x a^T) b^T) in fp16 mixed precision: nodes cast, linear, relu, linear, sum or so.
struct SmallNet {
  Context ctx;
  ParameterArena arena;
  Parameter a, b;
  Tensor x;

  SmallNet(double a_value, double b_value) {
    a = arena.add("a", {3, 4}, Init::zeros);
    b = arena.add("b", {2, 3}, Init::zeros);
    arena.allocate(ctx.allocator, {.master = DType::fp32, .compute = DType::fp16});
    arena.entries()[0].tensor.write(full(ctx, a_value, {3, 4}).raw());
    arena.entries()[1].tensor.write(full(ctx, b_value, {2, 3}).raw());
    arena.changed(false);
    x = full(ctx, 1.0, {5, 4});
    ctx.autocast.low = DType::fp16;
  }
  void pass(double seed) {
    const Tensor h = relu(ctx, linear(ctx, x, a));
    const Tensor y = sum(ctx, linear(ctx, h, b));
    ctx.tape.backward(ctx, y, seed);
    ctx.tape.clear();
  }
};

}  // namespace

TEST_CASE("tensor_stats counts planted values exactly, format by format") {
  Context ctx;
  SUBCASE("fp16") {
    const Values v{0,       -0.0, 0x1p-24, -0x1p-24, 0x3p-24, 0x1p-15, 0x1.8p-15,
                   0x1p-14, 1.0,  -1.5,    65504,    kInf,    -kInf,   kNaN};
    const TensorStats s = tensor_stats(tensor(ctx, v, {14}, DType::fp16));
    CHECK(s.dtype == DType::fp16);
    CHECK(s.elements == 14);
    CHECK(s.zeros == 2);
    CHECK(s.subnormals == 5);  // below 2^-14
    CHECK(s.infinities == 2);
    CHECK(s.nans == 1);
    CHECK(s.below_fp16 == 0);
    CHECK(s.flushed_fp16 == 0);
    CHECK(s.amax == 65504);
    CHECK(s.nonzero() == 9);
    CHECK(s.at_exponent(-24) == 2);
    CHECK(s.at_exponent(-23) == 1);
    CHECK(s.at_exponent(-15) == 2);
    CHECK(s.at_exponent(-14) == 1);
    CHECK(s.at_exponent(0) == 2);
    CHECK(s.at_exponent(15) == 1);
    CHECK(s.below_exponent(-14) == 5);
    CHECK(s.doublings_left() == 0);
    CHECK_FALSE(s.finite());
  }
  SUBCASE("fp32: what fp16 would lose") {
    const Values v{0x1p-149,       0x1.8p-127, 0x1p-126, 0x1p-26, 0x1p-25,
                   0x1.000002p-25, 0x1p-24,    0.75,     -1e30};
    const TensorStats s = tensor_stats(tensor(ctx, v, {9}));
    CHECK(s.subnormals == 2);
    CHECK(s.below_fp16 == 6);
    CHECK(s.flushed_fp16 == 5);  // 2^-25 is a tie and goes to 0
    CHECK(s.at_exponent(-149) == 1);
    CHECK(s.at_exponent(-127) == 1);
    CHECK(s.at_exponent(-126) == 1);
    CHECK(s.at_exponent(-25) == 2);
    CHECK(s.below_exponent(TensorStats::kHighest + 1) == 9);
    CHECK(s.doublings_left() == 127 - 99);
    const TensorStats scaled = tensor_stats(tensor(ctx, v, {9}), 0x1p2F);
    CHECK(scaled.at_exponent(-23) == 2);
    CHECK(scaled.subnormals == 1);
    CHECK(scaled.amax == doctest::Approx(4e30).epsilon(1e-6));
  }
  SUBCASE("bf16 has fp32's exponents") {
    const TensorStats s = tensor_stats(tensor(ctx, {0x1p-130, 0x1p-126, 2, 0}, {4}, DType::bf16));
    CHECK(s.subnormals == 1);
    CHECK(s.at_exponent(-130) == 1);
    CHECK(s.zeros == 1);
    CHECK(s.doublings_left() == 126);
  }
  SUBCASE("fp64: exponents beyond the table count at its ends") {
    const TensorStats s =
        tensor_stats(tensor(ctx, {0x1p-1074, 0x1p-1022, 0x1p300, 1}, {4}, DType::fp64));
    CHECK(s.subnormals == 1);
    CHECK(s.at_exponent(TensorStats::kLowest) == 2);
    CHECK(s.at_exponent(TensorStats::kHighest) == 1);
    CHECK(s.doublings_left() == 1023 - 300);
  }
  SUBCASE("more elements than one piece") {
    Values v(5000, 0.5);
    v[4999] = 0;
    const TensorStats s = tensor_stats(tensor(ctx, v, {5000}, DType::bf16));
    CHECK(s.at_exponent(-1) == 4999);
    CHECK(s.zeros == 1);
  }
  CHECK_THROWS_AS(tensor_stats(tensor(ctx, {1}, {1}, DType::i64)), Error);
}

TEST_CASE("overflow margin: doublings until the rounded value is infinite") {
  Context ctx;
  for (const double v : {1.0, 1.5, 3.0, 2047.0, 40000.0, 0x1p-20, 65504.0}) {
    CAPTURE(v);
    int doublings = 0;
    while (std::isfinite(tensor(ctx, {std::ldexp(v, doublings + 1)}, {1}, DType::fp16).at(0)))
      ++doublings;
    CHECK(tensor_stats(tensor(ctx, {v}, {1}, DType::fp16)).doublings_left() == doublings);
  }
  CHECK(fits(65519.9, kFp16));
  CHECK_FALSE(fits(65520, kFp16));
  CHECK(all_finite(tensor(ctx, {1, 0x1p-24}, {2}, DType::fp16)));
  CHECK_FALSE(all_finite(tensor(ctx, {1, kNaN}, {2}, DType::fp16)));
}

TEST_CASE("a window of two micro-batches: what is where") {
  SmallNet net(0.5, 0.25);
  Probe probe(net.ctx);
  net.ctx.observer = &probe;
  probe.begin(8);
  net.pass(8);
  net.pass(8);
  probe.has_gradients(net.arena);
  // Forward: the cast of x, linear, relu, linear, and the sum behind a cast.
  const ProbedTensor* first = find(probe, ProbedTensor::Kind::output, 1);
  REQUIRE(first != nullptr);
  CHECK(first->operation == "linear");
  CHECK(first->name == "a");
  CHECK(first->stats.elements == 2 * 15);
  CHECK(first->stats.at_exponent(1) == 30);  // 4 * 0.5 = 2
  const ProbedTensor* gradient = find(probe, ProbedTensor::Kind::gradient, 1);
  REQUIRE(gradient != nullptr);
  CHECK(gradient->stats.dtype == DType::fp16);
  CHECK(gradient->stats.elements == 30);
  CHECK(gradient->stats.at_exponent(2) == 30);  // 8 * (0.25 + 0.25) = 4
  const ProbedTensor* a = find(probe, ProbedTensor::Kind::parameter, 0);
  REQUIRE(a != nullptr);
  CHECK(a->name == "a");
  CHECK(a->stats.amax == 2 * 5 * 4.0);
  CHECK(a->unscaled.amax == 2 * 5 * 0.5);
  CHECK_FALSE(probe.first_nonfinite());
  CHECK(probe.first_nonfinite().text().empty());
}

TEST_CASE("a planted overflow is laid at the right node's door") {
  SUBCASE("forward, in the product") {
    SmallNet net(20000, 1);  // 4 * 20000 > 65504
    Probe probe(net.ctx);
    net.ctx.observer = &probe;
    probe.begin(1);
    net.pass(1);
    const NonFinite& f = probe.first_nonfinite();
    CHECK(f.pass == NonFinite::Pass::forward);
    CHECK(f.operation == "linear");
    CHECK(f.node_name == "a");
    CHECK(f.tensor == "output");
    CHECK(f.dtype == DType::fp16);
  }
  SUBCASE("forward, in a weight's 16-bit copy") {
    SmallNet net(1, 70000);
    Probe probe(net.ctx);
    net.ctx.observer = &probe;
    probe.begin(1);
    net.pass(1);
    CHECK(probe.first_nonfinite().tensor == "b");
    CHECK(probe.first_nonfinite().node_name == "b");
  }
  SUBCASE("backward, in the second product's input gradient, of the second micro-batch") {
    SmallNet net(0.01, 300);
    Probe probe(net.ctx);
    net.ctx.observer = &probe;
    probe.begin(1);
    net.pass(1);
    net.pass(256);  // 256 * 600 > 65504
    const NonFinite& f = probe.first_nonfinite();
    CHECK(f.pass == NonFinite::Pass::backward);
    CHECK(f.operation == "linear");
    CHECK(f.node_name == "b");
    CHECK(f.tensor == "the gradient of input 0");
    CHECK(f.micro_batch == 1);
    CHECK(probe.fitted_scale().largest == 0);
  }
  SUBCASE("unscaling: a scale below 1 takes a finite gradient beyond fp32") {
    SmallNet net(1, 1);
    Probe probe(net.ctx);
    net.ctx.observer = &probe;
    probe.begin(0x1p-126);
    net.pass(1024);
    probe.has_gradients(net.arena);
    CHECK(probe.first_nonfinite().pass == NonFinite::Pass::unscale);
    CHECK(probe.first_nonfinite().tensor == "the gradient of a");
  }
}

TEST_CASE("the scale that would have fitted is the one that trying them all finds") {
  for (const double b : {0.001, 0.25, 1.7, 300.0}) {
    CAPTURE(b);
    SmallNet net(0.3, b);
    Probe probe(net.ctx);
    net.ctx.observer = &probe;
    const auto finite_at = [&](double scale) {
      probe.begin(scale);
      net.pass(scale);
      probe.has_gradients(net.arena);
      net.arena.zero_grad();
      return !probe.first_nonfinite();
    };
    double largest = 0;
    for (int k = -20; k < 60; ++k)
      if (finite_at(std::ldexp(1.0, k))) largest = std::ldexp(1.0, k);
    for (const double scale : {1.0, 4.0, 3.0}) {
      REQUIRE(finite_at(scale));
      CHECK(probe.fitted_scale().largest == largest);
    }
    // The smallest that loses no element, against the histograms of every scale: the gradients
    // are 1 (of the product) and 2 b (of relu and of the first product) times the scale.
    const double least = std::min(1.0, 2 * tensor(net.ctx, {b}, {1}, DType::fp16).at(0));
    const double smallest = std::ldexp(1.0, -24 - std::ilogb(least));
    REQUIRE(finite_at(1.0));
    CHECK(probe.fitted_scale(1.0).smallest == smallest);
  }
}

TEST_CASE("the scale that fits a run in fp64 is a number, whatever its gradients") {
  for (const double w : {1e-200, 1.0, 1e200}) {
    Context ctx;
    Probe probe(ctx);
    ctx.observer = &probe;
    probe.begin(1);
    const Tensor x = leaf(ctx, {w}, {1}, DType::fp64);
    ctx.tape.backward(ctx, relu(ctx, relu(ctx, x)), w);
    const FittedScale fitted = probe.fitted_scale();
    CHECK(std::isfinite(fitted.largest));
    CHECK(fitted.largest > 1);
    CHECK(std::isfinite(fitted.largest * w));
  }
}

TEST_CASE("probing changes no bit, and asks the context's allocator for nothing") {
  SmallNet plain(0.3, 0.7), probed(0.3, 0.7);
  Probe probe(probed.ctx);
  for (int window = 0; window < 3; ++window) {
    const std::int64_t before = probed.ctx.allocator.stats().system_allocations;
    probed.ctx.observer = window == 2 ? nullptr : &probe;  // and off again
    probe.begin(16);
    plain.pass(16);
    probed.pass(16);
    CHECK(bytes(plain.arena.flat_gradient()) == bytes(probed.arena.flat_gradient()));
    if (window > 0) CHECK(probed.ctx.allocator.stats().system_allocations == before);
    CHECK(plain.ctx.allocator.stats().system_allocations ==
          probed.ctx.allocator.stats().system_allocations);
  }
}
