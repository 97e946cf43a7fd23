#include "engine/autocast.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cast.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/list.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/softmax.h"
#include "tests/engine/support.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

// What the program's page and PyTorch's reference say of each operation.
constexpr std::string_view kLow[] = {"matmul", "linear", "conv2d"};
constexpr std::string_view kFp32[] = {"exp",
                                      "log",
                                      "softmax",
                                      "log_softmax",
                                      "cross_entropy",
                                      "mse",
                                      "sum",
                                      "bce_with_logits",
                                      "batch_norm",
                                      "layer_norm",
                                      "norm",
                                      "mean",
                                      "max"};
constexpr std::string_view kWidest[] = {
    "add",     "sub",     "mul",       "div",     "relu",       "gelu",       "tanh",     "sigmoid",
    "reshape", "flatten", "transpose", "dropout", "max_pool2d", "avg_pool2d", "embedding"};

template <std::size_t n>
consteval bool all_of_class(const std::string_view (&names)[n], CastClass cast_class) {
  for (const std::string_view name : names)
    if (cast_class_of(name) != cast_class) return false;
  return true;
}
static_assert(all_of_class(kLow, CastClass::low));
static_assert(all_of_class(kFp32, CastClass::fp32));
static_assert(all_of_class(kWidest, CastClass::widest));
static_assert(std::size(kOps) == std::size(kLow) + std::size(kFp32) + std::size(kWidest));
consteval bool sorted_without_repeats() {
  for (std::size_t i = 1; i < std::size(kOps); ++i)
    if (!(kOps[i - 1].name < kOps[i].name)) return false;
  return true;
}
static_assert(sorted_without_repeats());

// How to run each operation on a tensor of positive numbers of `shape`.
struct Runner {
  std::string_view name;
  Shape shape;
  std::function<Tensor(Context&, const Tensor&)> run;
};

const std::vector<Runner>& runners() {
  using T = Tensor;
  static const std::vector<Runner> list{
      {"add", {2, 4}, [](Context& c, const T& x) { return add(c, x, full(c, 2, {4}, x.dtype())); }},
      {"avg_pool2d", {1, 4, 4, 2}, [](Context& c, const T& x) { return avg_pool2d(c, x); }},
      {"batch_norm",
       {4, 2},
       [](Context& c, const T& x) {
         return batch_norm(c, x, full(c, 1, {2}), full(c, 0, {2}), full(c, 0, {2}), full(c, 1, {2}))
             .y;
       }},
      {"bce_with_logits",
       {2, 4},
       [](Context& c, const T& x) {
         return bce_with_logits(c, x, full(c, 1, {2, 4}));
       }},
      {"conv2d",
       {1, 4, 4, 2},
       [](Context& c, const T& x) {
         return conv2d(c, x, full(c, 0.5, {3, 2, 2, 2}, x.dtype()), full(c, 1, {3}));
       }},
      {"cross_entropy",
       {2, 4},
       [](Context& c, const T& x) {
         return cross_entropy(c, x, tensor(c, {1, 3}, {2}, DType::i64)).loss;
       }},
      {"div", {2, 4}, [](Context& c, const T& x) { return div(c, x, full(c, 2, {4}, x.dtype())); }},
      {"dropout", {2, 4}, [](Context& c, const T& x) { return dropout(c, x, 0.5, 0); }},
      {"embedding",
       {4, 3},
       [](Context& c, const T& x) {
         return embedding(c, x, tensor(c, {1, 3}, {2}, DType::i64));
       }},
      {"exp", {2, 4}, [](Context& c, const T& x) { return exp(c, x); }},
      {"flatten", {2, 4}, [](Context& c, const T& x) { return flatten(c, x); }},
      {"gelu", {2, 4}, [](Context& c, const T& x) { return gelu(c, x); }},
      {"layer_norm", {2, 4}, [](Context& c, const T& x) { return layer_norm(c, x); }},
      {"linear",
       {2, 4},
       [](Context& c, const T& x) {
         return linear(c, x, full(c, 0.5, {3, 4}, x.dtype()), full(c, 1, {3}));
       }},
      {"log", {2, 4}, [](Context& c, const T& x) { return log(c, x); }},
      {"log_softmax", {2, 4}, [](Context& c, const T& x) { return log_softmax(c, x); }},
      {"matmul",
       {2, 4},
       [](Context& c, const T& x) {
         return matmul(c, x, full(c, 0.5, {4, 3}, x.dtype()));
       }},
      {"max", {2, 4}, [](Context& c, const T& x) { return max(c, x, 1); }},
      {"max_pool2d", {1, 4, 4, 2}, [](Context& c, const T& x) { return max_pool2d(c, x); }},
      {"mean", {2, 4}, [](Context& c, const T& x) { return mean(c, x); }},
      {"mse",
       {2, 4},
       [](Context& c, const T& x) {
         return mse(c, x, full(c, 1, {2, 4}));
       }},
      {"mul", {2, 4}, [](Context& c, const T& x) { return mul(c, x, full(c, 2, {4}, x.dtype())); }},
      {"norm", {2, 4}, [](Context& c, const T& x) { return norm(c, x, 0); }},
      {"relu", {2, 4}, [](Context& c, const T& x) { return relu(c, x); }},
      {"reshape", {2, 4}, [](Context& c, const T& x) { return reshape(c, x, {8}); }},
      {"sigmoid", {2, 4}, [](Context& c, const T& x) { return sigmoid(c, x); }},
      {"softmax", {2, 4}, [](Context& c, const T& x) { return softmax(c, x, 0); }},
      {"sub", {2, 4}, [](Context& c, const T& x) { return sub(c, x, full(c, 2, {4}, x.dtype())); }},
      {"sum", {2, 4}, [](Context& c, const T& x) { return sum(c, x); }},
      {"tanh", {2, 4}, [](Context& c, const T& x) { return tanh(c, x); }},
      {"transpose", {2, 4}, [](Context& c, const T& x) { return transpose(c, x); }},
  };
  return list;
}

// The dtypes that operations ran in, by name, and the dtypes of gradients.
struct Watch : NodeObserver {
  struct Ran {
    std::string_view name;
    std::vector<DType> inputs;
    DType output;
  };
  std::vector<Ran> ran;
  std::vector<std::pair<std::string_view, DType>> gradients;
  void ran_forward(std::int64_t, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    ran.push_back({operation.name, {}, outputs[0].dtype()});
    for (const Tensor& in : inputs) ran.back().inputs.push_back(in.dtype());
  }
  void runs_backward(std::int64_t, const Node& node, const Tensor& gradient) override {
    gradients.emplace_back(node.operation->name, gradient.dtype());
  }
  int casts() const {
    return static_cast<int>(
        std::count_if(ran.begin(), ran.end(), [](const Ran& r) { return r.name == "cast"; }));
  }
  const Ran* find(std::string_view name) const {
    for (const Ran& r : ran)
      if (r.name == name) return &r;
    return nullptr;
  }
};

Values ramp(const Shape& shape) {
  Values values;
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(0.5 + 0.25 * static_cast<double>(i % 5));
  return values;
}

constexpr DType other_low(DType low) { return low == DType::fp16 ? DType::bf16 : DType::fp16; }

void backward(Context& ctx, const Tensor& y, double seed = 1) {
  ctx.tape.backward(
      ctx, y, full(ctx, seed, y.shape(), y.dtype() == DType::fp64 ? DType::fp64 : DType::fp32));
  ctx.tape.clear();
}

}  // namespace

TEST_CASE("every operation of the list is run below") {
  REQUIRE(runners().size() == std::size(kOps));
  for (std::size_t i = 0; i < std::size(kOps); ++i) CHECK(runners()[i].name == kOps[i].name);
}

TEST_CASE("case 119 [CAST] op lists and promotion: the dtype of every operation") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    for (const OpInfo& op : kOps) {
      for (const DType from : {DType::fp32, low, other_low(low), DType::fp64}) {
        const Runner& runner = runners()[static_cast<std::size_t>(&op - kOps)];
        CAPTURE(op.name);
        CAPTURE(name(low));
        CAPTURE(name(from));
        Context ctx;
        Watch watch;
        ctx.observer = &watch;
        ctx.autocast.low = low;
        const Tensor y = runner.run(ctx, tensor(ctx, ramp(runner.shape), runner.shape, from));
        DType want = from;
        if (from != DType::fp64 && op.cast_class == CastClass::low) want = low;
        if (from != DType::fp64 && op.cast_class == CastClass::fp32) want = DType::fp32;
        CHECK(y.dtype() == want);
        // And it computed in that type: its first operand had it.
        REQUIRE(watch.find(op.name) != nullptr);
        CHECK(watch.find(op.name)->inputs[0] == want);
        if (from == want) CHECK(watch.casts() == 0);
      }
    }
  }
}

TEST_CASE("case 119 [CAST] without autocast nothing is cast") {
  for (const Runner& runner : runners()) {
    CAPTURE(runner.name);
    for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
      Context ctx;
      Watch watch;
      ctx.observer = &watch;
      runner.run(ctx, leaf(ctx, ramp(runner.shape), runner.shape, dtype));
      CHECK(watch.casts() == 0);
      CHECK(watch.find(runner.name)->inputs[0] == dtype);
    }
  }
}

TEST_CASE("case 119 [CAST] two operands meet in the wider type; integers and biases stay") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    Context ctx;
    Watch watch;
    ctx.observer = &watch;
    ctx.autocast.low = low;
    const Tensor narrow = tensor(ctx, {1, 2}, {2}, low);
    const Tensor wide = tensor(ctx, {1, 2}, {2});
    for (const auto f : {add, sub, mul, div}) {
      CHECK(f(ctx, narrow, wide).dtype() == DType::fp32);
      CHECK(f(ctx, wide, narrow).dtype() == DType::fp32);
      CHECK(f(ctx, narrow, narrow).dtype() == low);
      CHECK(f(ctx, narrow, tensor(ctx, {1, 2}, {2}, other_low(low))).dtype() == DType::fp32);
      CHECK(f(ctx, narrow, tensor(ctx, {1, 2}, {2}, DType::fp64)).dtype() == DType::fp64);
    }
    CHECK(watch.casts() == 0);

    // The sum 2048 + 0.75 of a bias in fp32 is rounded once; the bias alone would lose its end.
    const Tensor x = tensor(ctx, {1}, {1, 1});
    const Tensor bias = leaf(ctx, {1 + 0x1p-20}, {1});
    const Tensor y = linear(ctx, x, full(ctx, -1, {1, 1}), bias);
    CHECK(y.dtype() == low);
    CHECK(y.item() == 0x1p-20);
    const std::vector<DType> linear_inputs{low, low, DType::fp32};
    CHECK(watch.find("linear")->inputs == linear_inputs);
    const Tensor image = full(ctx, 1, {1, 1, 1, 1});
    const Tensor z = conv2d(ctx, image, full(ctx, -1, {1, 1, 1, 1}), bias);
    CHECK(z.item() == 0x1p-20);
    CHECK(watch.find("conv2d")->inputs == linear_inputs);
    backward(ctx, add(ctx, reshape(ctx, y, {1}), reshape(ctx, z, {1})), 1 + 0x1p-20);
    CHECK(bias.leaf()->grad.dtype() == DType::fp32);

    cross_entropy(ctx, tensor(ctx, {1, 2}, {1, 2}), tensor(ctx, {1}, {1}, DType::i64));
    CHECK(watch.find("cross_entropy")->inputs[1] == DType::i64);
    embedding(ctx, tensor(ctx, {1, 2}, {2, 1}), tensor(ctx, {1}, {1}, DType::i32));
    CHECK(watch.find("embedding")->inputs[1] == DType::i32);
  }
}

TEST_CASE(
    "case 121 [CAST] backward of every operation gives gradients in the types of the values") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    for (const Runner& runner : runners()) {
      CAPTURE(runner.name);
      CAPTURE(name(low));
      // A value of 16 bit that is no leaf: what comes back to it is 16 bit.
      Context ctx;
      Watch watch;
      ctx.observer = &watch;
      ctx.autocast.low = low;
      const Tensor x = leaf(ctx, ramp(runner.shape), runner.shape, low);
      const Tensor h = tanh(ctx, x);
      CHECK(h.dtype() == low);
      backward(ctx, runner.run(ctx, h));
      CHECK(watch.gradients.back().first == "tanh");
      CHECK(watch.gradients.back().second == low);
      REQUIRE(x.leaf()->has_grad);
      CHECK(x.leaf()->grad.dtype() == DType::fp32);
      for (const double g : gradient(x)) CHECK(std::isfinite(g));

      // A leaf's gradient is formed in fp32 and never rounded: where the operands are exact in 16
      // bit, as here, and no gradient reads the rounded output, it is the one without autocast.
      const auto of_leaf = [&](DType mode) {
        Context c;
        c.autocast.low = mode;
        const Tensor w = leaf(c, ramp(runner.shape), runner.shape);
        backward(c, runner.run(c, w));
        return bytes(w.leaf()->grad);
      };
      CHECK(of_leaf(low) == of_leaf(DType::fp32));
    }
  }
}

TEST_CASE("case 121 [CAST] softmax over dim 1 of fp16 with fp32 output: backward is fp32 inside") {
  Context ctx;
  Watch watch;
  ctx.observer = &watch;
  ctx.autocast.low = DType::fp16;
  // Probabilities of 2^-30 and their gradients are zero in fp16 and must not be lost before the
  // last rounding: seeded with 2^30 they come out near 1.
  const Tensor x = leaf(ctx, {0, -20.794415416798357}, {1, 2}, DType::fp16);
  const Tensor h = relu(ctx, sub(ctx, x, full(ctx, -32, {1, 2}, DType::fp16)));
  const Tensor p = softmax(ctx, h, 1);
  CHECK(p.dtype() == DType::fp32);
  const double p1 = p.at(1);
  CHECK(p1 > 0);
  CHECK(p1 < 0x1p-25);
  ctx.tape.backward(ctx, p, tensor(ctx, {0, 0x1p29}, {1, 2}));
  const double want = 0x1p29 * p1 * (1 - p1);
  CHECK(std::abs(gradient(x)[1] - want) <= 2 * 0x1p-11 * want);
  CHECK(std::abs(gradient(x)[0] + want) <= 2 * 0x1p-11 * want);
  for (const auto& [name, dtype] : watch.gradients)
    CHECK(dtype == (name == "softmax" || name == "cast" ? DType::fp32 : DType::fp16));
}

TEST_CASE("case 121 [CAST] nesting, disabling, exceptions") {
  Context ctx;
  ctx.autocast.overrides = {{"exp", DType::fp16}};
  ctx.autocast.weight_grad_16bit = true;
  const Tensor x = tensor(ctx, {1, 2}, {1, 2});
  const auto dtype = [&] { return matmul(ctx, x, x, {.trans_b = true}).dtype(); };
  CHECK(dtype() == DType::fp32);
  {
    const AutocastScope fp16(ctx, DType::fp16);
    CHECK(dtype() == DType::fp16);
    CHECK(exp(ctx, x).dtype() == DType::fp16);  // choices reach into the scope
    CHECK(ctx.autocast.weight_grad_16bit);
    {
      const AutocastScope off(ctx, DType::fp32);
      CHECK(!ctx.autocast.enabled());
      CHECK(dtype() == DType::fp32);
      {
        const AutocastScope bf16(ctx, DType::bf16);
        CHECK(dtype() == DType::bf16);
      }
      CHECK(dtype() == DType::fp32);
    }
    CHECK(dtype() == DType::fp16);
    try {
      const AutocastScope bf16(ctx, DType::bf16);
      matmul(ctx, x, x);  // shapes do not fit
    } catch (const Error&) {
      CHECK(dtype() == DType::fp16);
    }
    CHECK(dtype() == DType::fp16);
    for (const DType bad : {DType::fp64, DType::i64, DType::u8}) {
      CHECK_THROWS_AS(AutocastScope(ctx, bad), Error);
      CHECK(dtype() == DType::fp16);
    }
  }
  CHECK(dtype() == DType::fp32);
  // An operation that throws between its casts and its result leaves the mode as well.
  const AutocastScope fp16(ctx, DType::fp16);
  CHECK_THROWS_AS(cross_entropy(ctx, x, tensor(ctx, {9}, {1}, DType::i64)), Error);
  CHECK(dtype() == DType::fp16);
}

TEST_CASE("a person's choices win over the table, in both directions, while autocast is on") {
  Context ctx;
  ctx.autocast.overrides = parse_overrides("matmul=fp32,exp=bf16,add=fp16,cross_entropy=fp16");
  const Tensor x = tensor(ctx, {1, 2}, {1, 2});
  CHECK(exp(ctx, x).dtype() == DType::fp32);  // off
  ctx.autocast.low = DType::fp16;
  CHECK(matmul(ctx, x, x, {.trans_b = true}).dtype() == DType::fp32);
  CHECK(linear(ctx, x, x).dtype() == DType::fp16);
  CHECK(exp(ctx, x).dtype() == DType::bf16);
  CHECK(add(ctx, x, x).dtype() == DType::fp16);
  CHECK(mul(ctx, x, x).dtype() == DType::fp32);
  const Tensor half = tensor(ctx, {1, 2}, {1, 2}, DType::fp16);
  CHECK(matmul(ctx, half, half, {.trans_b = true}).dtype() == DType::fp32);
  // fp64 stays whatever a person says.
  CHECK(exp(ctx, tensor(ctx, {1}, {1}, DType::fp64)).dtype() == DType::fp64);

  const Autocast& a = ctx.autocast;
  CHECK(a.target("exp", CastClass::fp32) == DType::bf16);
  CHECK(a.target("log", CastClass::fp32) == DType::fp32);
  CHECK(a.target("linear", CastClass::low) == DType::fp16);
  CHECK(!a.target("relu", CastClass::widest));
  CHECK(!a.target("cast", CastClass::none));
  CHECK(!Autocast{}.target("matmul", CastClass::low));
}

TEST_CASE("the text of a person's choices") {
  CHECK(parse_overrides("").empty());
  const auto one = parse_overrides("conv2d=fp32");
  REQUIRE(one.size() == 1);
  CHECK(one[0].first == "conv2d");
  CHECK(one[0].second == DType::fp32);
  CHECK(parse_overrides("a=fp16,b=bf16,c=fp32").size() == 3);
  for (const char* bad :
       {"conv2d", "conv2d=", "=fp16", "conv2d=fp64", "conv2d=int32", "conv2d=fp16,", ",conv2d=fp16",
        "a=fp16,,b=fp16", "a=fp16=fp32", "a = fp16", "a=FP16", "a=fp16,a=fp32"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_overrides(bad), UsageError);
  }
  CHECK_THROWS_WITH_AS(parse_overrides("exp=half"),
                       "[autocast] 'half' for exp; fp32, fp16 or bf16 expected", UsageError);
}

TEST_CASE("rule 13 [CAST] the weight cache: a copy made without gradients does not lose them") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    Context ctx;
    ctx.autocast.low = low;
    const Tensor x = tensor(ctx, {1, 2}, {1, 2});
    const Tensor w = leaf(ctx, {3, 4}, {1, 2});
    {
      const NoGrad no_grad(ctx);
      CHECK(linear(ctx, x, w).item() == 11);
      CHECK(ctx.tape.empty());
    }
    const void* const copy = w.leaf()->compute_copy.raw();
    const Tensor y = linear(ctx, x, w);
    CHECK(w.leaf()->compute_copy.raw() == copy);  // not rounded again
    backward(ctx, y);
    REQUIRE(w.leaf()->has_grad);
    CHECK(gradient(w) == Values{1, 2});
    // And the other way about.
    const NoGrad no_grad(ctx);
    CHECK(linear(ctx, x, w).item() == 11);
    CHECK(ctx.tape.empty());
  }
}

TEST_CASE("rule 13 [CAST] the weight cache: a changed version gives the new value") {
  Context ctx;
  ctx.autocast.low = DType::fp16;
  const Tensor x = tensor(ctx, {1}, {1, 1});
  const Tensor w = leaf(ctx, {3}, {1, 1});
  CHECK(linear(ctx, x, w).item() == 3);
  ctx.tape.clear();
  w.data<float>()[0] = 5;
  ++w.leaf()->version;
  CHECK(linear(ctx, x, w).item() == 5);
  const std::int64_t held = ctx.allocator.stats().system_allocations;
  ctx.tape.clear();
  for (int i = 0; i < 5; ++i) {
    w.data<float>()[0] = static_cast<float>(i);
    ++w.leaf()->version;
    const NoGrad no_grad(ctx);
    CHECK(linear(ctx, x, w).item() == i);
  }
  CHECK(ctx.allocator.stats().system_allocations == held);
  // Another 16-bit type in turn, as overrides can ask for.
  w.data<float>()[0] = 257;
  ++w.leaf()->version;
  for (int i = 0; i < 2; ++i) {
    ctx.autocast.low = DType::bf16;
    CHECK(autocast_input(ctx, w, DType::bf16).item() == 256);
    CHECK(autocast_input(ctx, w, DType::fp16).item() == 257);
  }
  // What is no leaf is cast each time, and what needs no cast is itself.
  CHECK(autocast_input(ctx, w, DType::fp32).raw() == w.raw());
  const Tensor labels = tensor(ctx, {1}, {1}, DType::i64);
  CHECK(autocast_input(ctx, labels, DType::fp16).raw() == labels.raw());
}

TEST_CASE("rule 13 [CAST] a stale copy under a recording is refused, not differentiated") {
  Context ctx;
  ctx.autocast.low = DType::fp16;
  const Tensor x = leaf(ctx, {1}, {1, 1});
  const Tensor w = leaf(ctx, {3}, {1, 1}, DType::fp32, "w");
  const Tensor y = linear(ctx, x, w);
  w.data<float>()[0] = 5;
  ++w.leaf()->version;
  linear(ctx, x, w);  // rounds the copy that the first node has saved anew
  CHECK_THROWS_AS(ctx.tape.backward(ctx, y), Error);
}

TEST_CASE("weight gradients: the fp32 sum, or rounded to 16 bit as a setting") {
  // dw = dy^T x = 256 + 1 in bf16 and 2048 + 1 in fp16: exact in fp32, a tie to even in 16 bit.
  for (const DType low : {DType::fp16, DType::bf16}) {
    const double large = low == DType::fp16 ? 2048 : 256;
    for (const bool rounded : {false, true}) {
      CAPTURE(name(low));
      CAPTURE(rounded);
      Context ctx;
      ctx.autocast.low = low;
      ctx.autocast.weight_grad_16bit = rounded;
      const Tensor x = tensor(ctx, {large, 1}, {2, 1});
      const Tensor w = leaf(ctx, {0.5}, {1, 1});
      const Tensor bias = leaf(ctx, {0.5}, {1});
      backward(ctx, linear(ctx, x, w, bias));
      CHECK(gradient(w) == Values{rounded ? large : large + 1});
      CHECK(gradient(bias) == Values{2});
      CHECK(w.leaf()->grad.dtype() == DType::fp32);
      // Across passes they add up in fp32 either way.
      backward(ctx, linear(ctx, x, w, bias));
      CHECK(gradient(w) == Values{2 * (rounded ? large : large + 1)});
      // Two uses in one pass: each is rounded, and their sum is not.
      w.leaf()->zero_grad();
      const Tensor one = tensor(ctx, {1}, {1, 1});
      const Tensor a = reshape(ctx, linear(ctx, one, w), {1});
      const Tensor b = reshape(ctx, linear(ctx, tensor(ctx, {large}, {1, 1}), w), {1});
      backward(ctx, add(ctx, a, b));
      CHECK(gradient(w) == Values{large + 1});
    }
  }
}

TEST_CASE("fp32 activations are cast with their gradients; the arena's copy serves its weights") {
  Context ctx;
  Watch watch;
  ctx.observer = &watch;
  ctx.autocast.low = DType::bf16;
  ParameterArena arena;
  declare(arena, ctx, {{1, 2}, {3, 4}}, {.compute = DType::bf16});
  const Tensor x = leaf(ctx, {1, 2}, {1, 2});
  const Tensor h = exp(ctx, x);  // fp32, and no leaf
  CHECK(h.dtype() == DType::fp32);
  const Tensor w = reshape(ctx, arena.entries()[0].tensor, {1, 2});
  const Tensor y = linear(ctx, h, w);
  backward(ctx, y);
  CHECK(x.leaf()->has_grad);
  CHECK(watch.casts() == 2);  // of h, and of the reshaped weight

  watch.ran.clear();
  const Tensor direct = mul(ctx, autocast_input(ctx, arena.entries()[1].tensor, DType::bf16),
                            tensor(ctx, {1, 1}, {2}, DType::bf16));
  CHECK(watch.casts() == 0);
  CHECK(arena.entries()[1].tensor.leaf()->compute_copy.raw() ==
        arena.flat_compute().slice(arena.entries()[1].offset, {2}).raw());
  backward(ctx, direct);
  CHECK(gradient(arena.entries()[1].tensor) == Values{1, 1});
}
