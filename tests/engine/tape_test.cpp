#include "engine/tape.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/cast.h"
#include "kernels/base/convert.h"
#include "ops/activation.h"
#include "ops/cross_entropy.h"
#include "ops/matmul.h"
#include "tests/engine/support.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

std::int64_t activations(const Context& ctx) {
  return ctx.allocator.stats().current[static_cast<std::size_t>(MemoryCategory::activations)];
}

// Runs an operation that is in no list, fp32 only.
std::array<Tensor, kMaxOutputs> run(Context& ctx, const Operation& operation,
                                    std::initializer_list<const Tensor*> inputs) {
  return apply(ctx, operation, {inputs.begin(), inputs.size()}, nullptr, 0);
}

// y0 = x and y1 = 2 x.
struct Two {
  static void forward(ForwardFrame& f) {
    const Tensor& x = f.in(0);
    for (int k = 0; k < 2; ++k) {
      const Tensor& y = f.out(k, x.shape(), DType::fp32);
      for (std::int64_t i = 0; i < x.numel(); ++i)
        y.data<float>()[i] = static_cast<float>(k + 1) * x.data<float>()[i];
    }
  }
  static void backward(BackwardFrame& f) {
    const Out dx = f.grad_in(0);
    for (std::int64_t i = 0; i < dx.view.numel(); ++i) {
      float sum = 0;
      for (int k = 0; k < 2; ++k)
        if (f.has_grad_out(k)) sum += static_cast<float>(k + 1) * f.grad_out(k).data<float>()[i];
      auto* to = dx.view.as<float>() + i;
      *to = dx.write == Write::accumulate ? *to + sum : sum;
    }
  }
};
constexpr Operation kTwo{"two", Two::forward, Two::backward};

// y = x; its backward function throws while `armed`.
struct Fuse {
  static inline bool armed = true;
  static void forward(ForwardFrame& f) { f.out_alias(0, f.in(0)); }
  static void backward(BackwardFrame& f) {
    if (armed) fail("fuse", "blown");
    f.run([&](auto target) { convert(target, f.grad_out(0).view(), f.grad_in(0)); });
  }
};
constexpr Operation kFuse{"fuse", Fuse::forward, Fuse::backward};

// y = x0 (+ x1 where there is one); says in `wanted` which inputs its backward was asked for.
struct Optional {
  static inline std::vector<bool> wanted;
  static inline bool has_second_output = false;
  static void forward(ForwardFrame& f) { f.out_alias(0, f.in(0)); }
  static void backward(BackwardFrame& f) {
    wanted.clear();
    for (int i = 0; i < kMaxInputs; ++i) wanted.push_back(f.wants(i));
    has_second_output = f.has_grad_out(1);
    for (int i = 0; i < 2; ++i)
      if (f.wants(i))
        f.run([&](auto target) { convert(target, f.grad_out(0).view(), f.grad_in(i)); });
  }
};
constexpr Operation kOptional{"optional", Optional::forward, Optional::backward};

struct Log : NodeObserver {
  std::vector<std::string> lines;
  std::vector<DType> gradient_dtypes;
  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    lines.push_back(concat("f", index, ' ', operation.name, ' ', inputs.size(), "->",
                           outputs.size(), ' ', outputs[0].at(0)));
  }
  void runs_backward(std::int64_t index, const Node& node, const Tensor& gradient) override {
    lines.push_back(concat("b", index, ' ', node.operation->name, ' ', gradient.at(0)));
    gradient_dtypes.push_back(gradient.dtype());
  }
};

}  // namespace

TEST_CASE("case 70 [AUTO] same tensor used several times: leaves, copies and values") {
  for (const DType dtype : kFloating) {
    CAPTURE(name(dtype));
    Context ctx;
    const Tensor x = leaf(ctx, {3}, {1}, dtype);
    const Tensor copy = x;  // the same leaf
    ctx.tape.backward(ctx, add(ctx, mul(ctx, x, copy), x));
    CHECK(gradient(x) == Values{7});
    ctx.tape.clear();

    x.leaf()->zero_grad();
    ctx.tape.backward(ctx, add(ctx, add(ctx, x, x), x));
    CHECK(gradient(x) == Values{3});
    ctx.tape.clear();

    // The same of a value that is no leaf: with h = 2 x, d(h h + h)/dx = 2 (2 h + 1).
    x.leaf()->zero_grad();
    const Tensor h = add(ctx, x, x);
    ctx.tape.backward(ctx, add(ctx, mul(ctx, h, h), h));
    CHECK(gradient(x) == Values{26});
  }
}

TEST_CASE("case 71 [AUTO] broadcast gradient must be reduced: column by row, bias over a batch") {
  for (const DType dtype : kFloating) {
    CAPTURE(name(dtype));
    Context ctx;
    const Tensor a = leaf(ctx, {1, 2, 3}, {3, 1}, dtype);
    const Tensor b = leaf(ctx, {10, 20}, {1, 2}, dtype);
    const Tensor y = mul(ctx, a, b);
    ctx.tape.backward(ctx, y, full(ctx, 1, y.shape()));
    CHECK(gradient(a) == Values{30, 30, 30});
    CHECK(gradient(b) == Values{6, 6});
    CHECK(a.leaf()->grad.shape() == Shape{3, 1});
    ctx.tape.clear();

    const Tensor x = tensor(ctx, Values(21, 0.5), {7, 3}, dtype);
    const Tensor bias = leaf(ctx, {1, 2, 3}, {3}, dtype);
    const Tensor z = add(ctx, x, bias);
    ctx.tape.backward(ctx, z, full(ctx, 1, z.shape()));
    CHECK(gradient(bias) == Values{7, 7, 7});
  }
}

TEST_CASE("case 74 [AUTO] second backward and zeroing") {
  Context ctx;
  const Tensor x = leaf(ctx, {2}, {1});
  const Tensor never = leaf(ctx, {5}, {1});
  const Tensor three = tensor(ctx, {3}, {1});
  const auto pass = [&] {
    const Tensor side = mul(ctx, never, three);  // recorded, but the root does not depend on it
    ctx.tape.backward(ctx, mul(ctx, x, three));
    ctx.tape.clear();
  };
  CHECK(!x.leaf()->has_grad);
  pass();
  CHECK(x.leaf()->has_grad);
  CHECK(gradient(x) == Values{3});
  pass();
  CHECK(gradient(x) == Values{6});
  x.leaf()->zero_grad();
  CHECK(!x.leaf()->has_grad);
  pass();
  CHECK(gradient(x) == Values{3});
  CHECK(!never.leaf()->has_grad);  // absent, which is not zero

  // A gradient that is zero is present.
  const Tensor zero = leaf(ctx, {1}, {1});
  ctx.tape.backward(ctx, mul(ctx, zero, tensor(ctx, {0}, {1})));
  CHECK(zero.leaf()->has_grad);
  CHECK(gradient(zero) == Values{0});
}

TEST_CASE("case 74 [AUTO] backward twice on one recording needs retain") {
  Context ctx;
  const Tensor x = leaf(ctx, {2}, {1});
  const Tensor y = mul(ctx, x, x);
  ctx.tape.backward(ctx, y, 1.0, /*retain=*/true);
  ctx.tape.backward(ctx, y, 10.0, /*retain=*/true);
  CHECK(gradient(x) == Values{44});
  ctx.tape.backward(ctx, y);
  CHECK(gradient(x) == Values{48});
  CHECK_THROWS_WITH_AS(
      ctx.tape.backward(ctx, y),
      "[backward] what the forward pass saved was freed by an earlier pass; pass retain to keep it",
      Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, y, full(ctx, 1, {1}), true), Error);
  CHECK(gradient(x) == Values{48});
}

TEST_CASE("case 75 [AUTO] gradient accumulator is fp32") {
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    CAPTURE(name(dtype));
    Context ctx;
    const Tensor x = leaf(ctx, {1}, {1}, dtype);
    const Tensor one = tensor(ctx, {1}, {1}, dtype);
    for (int i = 0; i <= 4096; ++i) {
      ctx.tape.backward(ctx, mul(ctx, x, one), i == 0 ? 1.0 : 0x1p-12);
      ctx.tape.clear();
    }
    CHECK(gradient(x) == Values{2});
  }
}

TEST_CASE("case 75 [AUTO] a 16-bit value's gradients are added in fp32 and rounded once") {
  // 2048 + 1 + 1 in fp16 and 256 + 1 + 1 in bf16 stall at the first number when added in 16 bit.
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    const double large = dtype == DType::fp16 ? 2048 : 256;
    for (const bool large_first : {false, true}) {
      CAPTURE(name(dtype));
      Context ctx;
      Log log;
      ctx.observer = &log;
      const Tensor x = leaf(ctx, {1}, {1}, dtype);
      const Tensor h = relu(ctx, x);
      const auto times = [&](double factor) {
        return mul(ctx, h, tensor(ctx, {factor}, {1}, dtype));
      };
      const Tensor first = times(large_first ? large : 1);
      const Tensor sum = add(ctx, add(ctx, first, times(1)), times(large_first ? 1 : large));
      ctx.tape.backward(ctx, sum);
      CHECK(gradient(x) == Values{large + 2});
      // What relu was given is rounded to its output's type; a leaf gets fp32.
      CHECK(log.gradient_dtypes.back() == dtype);
    }
  }
  // The sum is rounded to the value's type before it goes on: 2048 + 1 is 2048 there.
  Context ctx;
  const Tensor x = leaf(ctx, {1}, {1}, DType::fp16);
  const Tensor h = relu(ctx, x);
  const Tensor sum = add(ctx, mul(ctx, h, tensor(ctx, {2048}, {1}, DType::fp16)), h);
  ctx.tape.backward(ctx, sum);
  CHECK(gradient(x) == Values{2048});
}

TEST_CASE("case 90 [SCALER] loss*scale must be fp32: the seed of a 16-bit root keeps its type") {
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    Context ctx;
    const Tensor x = leaf(ctx, {2}, {}, dtype);
    const Tensor loss = mul(ctx, x, tensor(ctx, {1}, {}, dtype));
    CHECK(loss.dtype() == dtype);
    CHECK(loss.item() * 65536 == 131072);
    ctx.tape.backward(ctx, loss, 65536);
    CHECK(gradient(x) == Values{65536});
  }
  // A seed that bf16 would round, and one for each element.
  Context ctx;
  const Tensor x = leaf(ctx, {1, 1}, {2}, DType::bf16);
  const Tensor y = mul(ctx, x, tensor(ctx, {1, 2}, {2}, DType::bf16));
  ctx.tape.backward(ctx, y, tensor(ctx, {257, 65537}, {2}));
  CHECK(gradient(x) == Values{257, 131074});
  // fp64 values take an fp64 seed.
  ctx.tape.clear();
  const Tensor wide = leaf(ctx, {1}, {}, DType::fp64);
  ctx.tape.backward(ctx, add(ctx, wide, wide), 1 + 0x1p-50);
  CHECK(gradient(wide) == Values{2 + 0x1p-49});
}

TEST_CASE("small graphs by hand") {
  Context ctx;
  // f = tanh(a b) / (a + 2), a = 0.5, b = -1.5.
  const double a0 = 0.5, b0 = -1.5;
  const Tensor a = leaf(ctx, {a0}, {}, DType::fp64);
  const Tensor b = leaf(ctx, {b0}, {}, DType::fp64);
  const Tensor f =
      div(ctx, tanh(ctx, mul(ctx, a, b)), add(ctx, a, tensor(ctx, {2}, {}, DType::fp64)));
  ctx.tape.backward(ctx, f);
  const double t = std::tanh(a0 * b0);
  const double da = (1 - t * t) * b0 / (a0 + 2) - t / ((a0 + 2) * (a0 + 2));
  const double db = (1 - t * t) * a0 / (a0 + 2);
  // A dozen roundings of 2^-53, none of them cancelling by more than a factor of two.
  CHECK(std::abs(gradient(a)[0] - da) <= 32 * 0x1p-53 * std::abs(da));
  CHECK(std::abs(gradient(b)[0] - db) <= 32 * 0x1p-53 * std::abs(db));
  ctx.tape.clear();

  // Integers through a product: y = x w^T, dw = dy^T x, dx = dy w, exact in every type.
  for (const DType dtype : kFloating) {
    const Tensor x = leaf(ctx, {1, 2, 3, 4, 5, 6}, {2, 3}, dtype);
    const Tensor w = leaf(ctx, {1, 0, -1, 2, 1, 0}, {2, 3}, dtype);
    const Tensor bias = leaf(ctx, {1, -1}, {2}, dtype);
    const Tensor y = linear(ctx, x, w, bias);
    CHECK(y.to_vector() == Values{-1, 3, -1, 12});
    ctx.tape.backward(ctx, y, tensor(ctx, {1, -1, 2, 0}, {2, 2}));
    CHECK(gradient(w) == Values{9, 12, 15, -1, -2, -3});
    CHECK(gradient(bias) == Values{3, -1});
    CHECK(gradient(x) == Values{-1, -1, -1, 2, 0, -2});
    ctx.tape.clear();
  }
}

TEST_CASE("a root must be reachable, defined, and have a seed of its shape") {
  Context ctx;
  const Tensor x = leaf(ctx, {1, 2, 3}, {3});
  const Tensor y = add(ctx, x, x);
  CHECK_THROWS_WITH_AS(ctx.tape.backward(ctx, y),
                       "[backward] a number as seed needs a root of one element, shape is [3]",
                       Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, y, full(ctx, 1, {2})), Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, y, full(ctx, 1, {3, 1})), Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, y, Tensor()), Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, y, tensor(ctx, {1, 1, 1}, {3}, DType::i64)), Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, Tensor()), Error);
  CHECK_THROWS_WITH_AS(ctx.tape.backward(ctx, tensor(ctx, {1}, {1})),
                       "[backward] the root depends on nothing that wants a gradient", Error);
  CHECK(!x.leaf()->has_grad);
  // None of it has used the recording up.
  ctx.tape.backward(ctx, y, tensor(ctx, {1, 10, 100}, {3}));
  CHECK(gradient(x) == Values{2, 20, 200});
}

TEST_CASE("a root that is a leaf gets its seed, and adds it up") {
  for (const DType dtype : kFloating) {
    Context ctx;
    const Tensor x = leaf(ctx, {5}, {}, dtype);
    ctx.tape.backward(ctx, x, 65536);
    CHECK(gradient(x) == Values{65536});
    ctx.tape.backward(ctx, x, 0.25);
    CHECK(gradient(x) == Values{65536.25});
    // No node was used up by it.
    ctx.tape.backward(ctx, add(ctx, x, x));
    CHECK(gradient(x) == Values{65538.25});
  }
}

TEST_CASE("a tensor of a cleared recording is refused; detached, or without gradients, it is not") {
  Context ctx;
  const Tensor x = leaf(ctx, {2}, {1});
  const Tensor old = mul(ctx, x, x);
  ctx.tape.clear();
  CHECK_THROWS_WITH_AS(add(ctx, old, x),
                       "[add] an input of shape [1] belongs to a recording that was cleared; "
                       "detach it to use it as a constant",
                       Error);
  CHECK_THROWS_AS(ctx.tape.backward(ctx, old), Error);
  CHECK_THROWS_AS(cast(ctx, old, DType::fp16), Error);
  CHECK(ctx.tape.empty());
  const Tensor y = add(ctx, old.detached(), x);
  CHECK(y.item() == 6);
  ctx.tape.backward(ctx, y);
  CHECK(gradient(x) == Values{1});
  ctx.tape.clear();
  {
    const NoGrad no_grad(ctx);
    CHECK(add(ctx, old, x).item() == 6);
  }
  // One of another context is as foreign.
  Context other;
  const Tensor z = mul(other, x, x);
  CHECK_THROWS_AS(add(ctx, z, x), Error);
}

TEST_CASE("a recording that a pass has used is closed until it is cleared") {
  Context ctx;
  const Tensor x = leaf(ctx, {3}, {1});
  const Tensor y = mul(ctx, x, x);
  ctx.tape.backward(ctx, y);
  CHECK_THROWS_WITH_AS(
      mul(ctx, x, x),
      "[mul] the tape has been used by a backward pass; clear it before recording again", Error);
  CHECK_THROWS_AS(add(ctx, y, y), Error);
  {
    const NoGrad no_grad(ctx);
    CHECK(mul(ctx, y, y).item() == 81);
  }
  // What wants no gradient is not recorded, so it may run.
  CHECK(add(ctx, tensor(ctx, {1}, {1}), tensor(ctx, {2}, {1})).item() == 3);
  ctx.tape.clear();
  ctx.tape.backward(ctx, mul(ctx, x, x));
  CHECK(gradient(x) == Values{12});
}

TEST_CASE("nothing is recorded without gradients, and the setting comes back") {
  Context ctx;
  const Tensor x = leaf(ctx, {3}, {1});
  try {
    const NoGrad outer(ctx);
    {
      const NoGrad inner(ctx);
      CHECK(!ctx.grad_enabled);
    }
    CHECK(!ctx.grad_enabled);
    const Tensor y = mul(ctx, x, x);
    CHECK(y.item() == 9);
    CHECK(y.value().index == -1);
    CHECK(ctx.tape.empty());
    CHECK_THROWS_AS(ctx.tape.backward(ctx, y), Error);
    throw std::runtime_error("out of the scope");
  } catch (const std::runtime_error&) {
  }
  CHECK(ctx.grad_enabled);
  CHECK(!mul(ctx, x, x).detached().leaf());
  CHECK(ctx.tape.nodes().size() == 1);
}

TEST_CASE("a value is a constant where it was made without gradients, inside a graph as well") {
  Context ctx;
  const Tensor x = leaf(ctx, {3}, {1});
  Tensor frozen;
  {
    const NoGrad no_grad(ctx);
    frozen = mul(ctx, x, x);
  }
  ctx.tape.backward(ctx, mul(ctx, frozen, x));
  CHECK(gradient(x) == Values{9});
}

TEST_CASE("gradients reach what a second output depends on") {
  Context ctx;
  const Tensor x = leaf(ctx, {1, 2}, {2});
  const auto y = run(ctx, kTwo, {&x});
  ctx.tape.backward(ctx, y[1], tensor(ctx, {1, 10}, {2}));
  CHECK(gradient(x) == Values{2, 20});
  ctx.tape.clear();
  x.leaf()->zero_grad();
  const auto z = run(ctx, kTwo, {&x});
  ctx.tape.backward(ctx, add(ctx, z[0], z[1]), tensor(ctx, {1, 10}, {2}));
  CHECK(gradient(x) == Values{3, 30});
}

TEST_CASE("absent inputs and inputs that an operation was not given want no gradient") {
  Context ctx;
  const Tensor x = leaf(ctx, {2}, {1});
  const Tensor absent;
  ctx.tape.backward(ctx, run(ctx, kOptional, {&x, &absent})[0]);
  CHECK(Optional::wanted == std::vector<bool>{true, false, false, false, false, false});
  CHECK(!Optional::has_second_output);
  ctx.tape.clear();
  ctx.tape.backward(ctx, run(ctx, kOptional, {&x})[0]);
  CHECK(Optional::wanted == std::vector<bool>{true, false, false, false, false, false});
  CHECK(gradient(x) == Values{2});
  // A node whose place a larger one had before.
  ctx.tape.clear();
  ctx.tape.backward(ctx, add(ctx, x, x));
  ctx.tape.clear();
  const Tensor constant = tensor(ctx, {1}, {1});
  ctx.tape.backward(ctx, run(ctx, kOptional, {&constant, &x})[0]);
  CHECK(Optional::wanted == std::vector<bool>{false, true, false, false, false, false});
  CHECK(gradient(x) == Values{5});
}

TEST_CASE("a pass that fails leaves nothing behind that a later one would add") {
  Context ctx;
  const Tensor x = leaf(ctx, {3}, {1});
  for (const bool retain : {false, true}) {
    CAPTURE(retain);
    ctx.tape.clear();
    x.leaf()->zero_grad();
    const Tensor h = mul(ctx, x, x);
    const Tensor mid = run(ctx, kFuse, {&h})[0];
    const Tensor y = add(ctx, mul(ctx, mid, mid), h);
    Fuse::armed = true;
    CHECK_THROWS_WITH_AS(ctx.tape.backward(ctx, y, 1.0, retain), "[fuse] blown", Error);
    CHECK(ctx.grad_enabled);
    CHECK(!x.leaf()->has_grad);
    Fuse::armed = false;
    if (retain) {
      // y = x^4 + x^2: 4 x^3 + 2 x.
      ctx.tape.backward(ctx, y, 1.0, retain);
      CHECK(gradient(x) == Values{114});
    } else {
      CHECK_THROWS_AS(ctx.tape.backward(ctx, y), Error);
      CHECK_THROWS_AS(add(ctx, x, x), Error);
    }
  }
}

TEST_CASE("an operation that fails is not recorded") {
  Context ctx;
  const Tensor x = leaf(ctx, {1, 2}, {2});
  CHECK_THROWS_AS(add(ctx, x, leaf(ctx, {1, 2, 3}, {3})), Error);
  CHECK(ctx.tape.empty());
  const Tensor logits = leaf(ctx, {1, 2}, {1, 2});
  CHECK_THROWS_AS(cross_entropy(ctx, logits, tensor(ctx, {7}, {1}, DType::i64)), Error);
  CHECK(ctx.tape.empty());
  ctx.tape.backward(ctx, add(ctx, x, x), full(ctx, 1, {2}));
  CHECK(gradient(x) == Values{2, 2});
}

TEST_CASE("a leaf that changed since the forward pass is refused, not differentiated wrongly") {
  Context ctx;
  const Tensor x = leaf(ctx, {3}, {1}, DType::fp32, "weight");
  const Tensor y = mul(ctx, x, x);
  x.data<float>()[0] = 100;
  ++x.leaf()->version;
  CHECK_THROWS_WITH_AS(
      ctx.tape.backward(ctx, y),
      "[backward] 'weight' was changed after mul had used it; run the forward pass again", Error);
  CHECK(!x.leaf()->has_grad);
  // What is recorded from now on uses the new value and may go on.
  ctx.tape.backward(ctx, mul(ctx, x, x));
  CHECK(gradient(x) == Values{200});
}

TEST_CASE("one leaf on two tapes") {
  Context a, b;
  const Tensor x = leaf(a, {3}, {1});
  const Tensor ya = mul(a, x, x);
  const Tensor yb = mul(b, x, mul(b, x, x));
  const Tensor za = add(a, ya, x);  // x is back on the first tape, in the same recording
  a.tape.backward(a, za);
  CHECK(gradient(x) == Values{7});
  b.tape.backward(b, yb);
  CHECK(gradient(x) == Values{34});
}

TEST_CASE("the observer sees every node, forward and backward") {
  Context ctx;
  Log log;
  const Tensor x = leaf(ctx, {3}, {1});
  {
    const Scoped<NodeObserver*> observed(ctx.observer, &log);
    const Tensor unused = relu(ctx, x);
    const Tensor y = add(ctx, mul(ctx, x, x), x);
    {
      const NoGrad no_grad(ctx);
      mul(ctx, y, y);
    }
    ctx.tape.backward(ctx, y, 2.0);
  }
  const std::vector<std::string> want{"f0 relu 1->1 3",   "f1 mul 2->1 9", "f2 add 2->1 12",
                                      "f-1 mul 2->1 144", "b2 add 2",      "b1 mul 2"};
  CHECK(log.lines == want);
  ctx.tape.clear();
  mul(ctx, x, x);
  CHECK(log.lines.size() == want.size());
}

TEST_CASE("nodes say what ran, in which dtype, in order") {
  Context ctx;
  ctx.autocast.low = DType::bf16;
  const Tensor x = tensor(ctx, {1, 2}, {1, 2});
  const Tensor w = leaf(ctx, {1, 2, 3, 4}, {2, 2});
  ctx.accumulator = Accumulator::fp64;
  const Tensor y = relu(ctx, linear(ctx, x, w));
  REQUIRE(ctx.tape.nodes().size() == 2);
  const Node& node = ctx.tape.nodes()[0];
  CHECK(node.operation->name == "linear");
  CHECK(node.input_dtype == DType::bf16);
  CHECK(node.output_dtype == DType::bf16);
  CHECK(node.accumulator == Accumulator::fp64);
  CHECK(ctx.tape.value(node.output[0]).shape == Shape{1, 2});
  CHECK(ctx.tape.nodes()[1].input[0] == node.output[0]);
  CHECK(y.value().index == ctx.tape.nodes()[1].output[0]);
}

TEST_CASE("what backward kept goes with the pass, the rest with the recording") {
  Context ctx;
  const Tensor x = leaf(ctx, Values(1000, 1), {1000});
  {
    const Tensor y = mul(ctx, exp(ctx, x), tanh(ctx, x));
    const std::int64_t before = activations(ctx);
    CHECK(before == 3 * 4000);
    ctx.tape.backward(ctx, y, full(ctx, 1, {1000}));
    CHECK(activations(ctx) == 4000);  // y itself
  }
  CHECK(activations(ctx) == 0);
  ctx.tape.clear();
  {
    const Tensor y = exp(ctx, x);
    ctx.tape.backward(ctx, y, full(ctx, 1, {1000}), /*retain=*/true);
  }
  CHECK(activations(ctx) == 4000);
  ctx.tape.clear();
  CHECK(activations(ctx) == 0);
  CHECK(ctx.allocator.stats().activation_peak_node != "");
}

TEST_CASE("a second round of the same step asks the system for no memory") {
  Context ctx;
  const Tensor w = leaf(ctx, Values(12, 0.5), {3, 4});
  const Tensor x = tensor(ctx, Values(20, 0.25), {5, 4});
  const Tensor labels = tensor(ctx, {0, 1, 2, 1, 0}, {5}, DType::i64);
  ctx.autocast.low = DType::fp16;
  std::int64_t after_first = 0;
  for (int i = 0; i < 4; ++i) {
    const Tensor loss = cross_entropy(ctx, relu(ctx, linear(ctx, x, w)), labels).loss;
    ctx.tape.backward(ctx, loss, 1024);
    ctx.tape.clear();
    ++w.leaf()->version;
    if (i == 0) after_first = ctx.allocator.stats().system_allocations;
  }
  CHECK(ctx.allocator.stats().system_allocations == after_first);
}

TEST_CASE("a chain of ten thousand nodes") {
  Context ctx;
  const Tensor x = leaf(ctx, {1}, {1});
  const Tensor zero = tensor(ctx, {0}, {1});
  Tensor y = x;
  for (int i = 0; i < 10'000; ++i) y = add(ctx, y, zero);
  ctx.tape.backward(ctx, y, 3);
  CHECK(gradient(x) == Values{3});
}

TEST_CASE("a cast rounds once, its gradient is rounded to the input's type, and refusals") {
  Context ctx;
  const Tensor x = leaf(ctx, {2049, 0.1}, {2});
  const Tensor y = cast(ctx, x, DType::fp16);
  CHECK(y.dtype() == DType::fp16);
  CHECK(y.at(0) == 2048);
  CHECK(cast(ctx, x, DType::fp32).raw() == x.raw());
  // Back up: the gradient of an fp16 value is fp16, that of the leaf is what came through.
  const Tensor z = cast(ctx, y, DType::fp32);
  ctx.tape.backward(ctx, z, tensor(ctx, {2049, 1}, {2}));
  CHECK(gradient(x) == Values{2048, 1});
  CHECK_THROWS_AS(cast(ctx, tensor(ctx, {1}, {1}, DType::i64), DType::fp32), Error);
  CHECK_THROWS_AS(cast(ctx, x, DType::i32), Error);
  CHECK_THROWS_AS(cast(ctx, Tensor(), DType::fp16), Error);
}
