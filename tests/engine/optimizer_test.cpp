#include "engine/optimizer.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/cross_entropy.h"
#include "ops/matmul.h"
#include "tests/engine/support.h"

using namespace roundoff;
using namespace roundoff::testing;
using Kind = OptimizerSettings::Kind;

namespace {

const ScalerConfig kOff{.enabled = false};

// One parameter or several, an optimizer over them, and a scaler.
struct Trainer {
  Context ctx;
  ParameterArena arena;
  Optimizer optimizer;
  LossScaler scaler;

  Trainer(const std::vector<Values>& weights, const OptimizerSettings& settings,
          const ScalerConfig& scaler_config = kOff, const ArenaSettings& arena_settings = {})
      : optimizer(ctx, declared(weights, arena_settings), settings), scaler(scaler_config) {}

  const Tensor& w(std::size_t i = 0) { return arena.entries()[i].tensor; }
  // One micro-batch with this true gradient.
  void add(const Values& gradient, std::size_t i = 0) {
    add_gradient(ctx, w(i), gradient, scaler.seed());
  }
  // The window's end.
  bool finish(double lr, double max_norm = kInf) {
    const bool stepped = scaler.step(optimizer, lr, {.max_norm = max_norm});
    scaler.update();
    arena.zero_grad();
    return stepped;
  }
  std::vector<std::vector<std::byte>> state() { return snapshot(arena, optimizer); }

 private:
  ParameterArena& declared(const std::vector<Values>& weights, const ArenaSettings& settings) {
    declare(arena, ctx, weights, settings);
    return arena;
  }
};

// What SGD with rate 1 applies to weights of 0: the unscaled and clipped gradient.
Values applied(const Values& gradient, double max_norm, const ScalerConfig& config = kOff) {
  Trainer t({Values(gradient.size(), 0)}, {.kind = Kind::sgd}, config);
  t.add(gradient);
  CHECK(t.finish(1.0, max_norm));
  Values moved = t.w().to_vector();
  for (double& x : moved) x = 0 - x;
  return moved;
}

bool near(const Values& got, const Values& want, double relative) {
  if (got.size() != want.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= relative * std::abs(want[i]))) return false;
  return true;
}

Values fp32(Values values) {
  for (double& x : values) x = static_cast<double>(static_cast<float>(x));
  return values;
}

// Clipping: the norm and the quotient round in fp64, the coefficient and the products in fp32.
constexpr double kClip = 4 * 0x1p-24;

}  // namespace

TEST_CASE("optimizers move weights as their formulas say: SGD, momentum, Nesterov, decay") {
  Trainer plain({{1, 2}}, {.kind = Kind::sgd});
  plain.add({0.5, -1});
  CHECK(plain.finish(0.25));
  CHECK(plain.w().to_vector() == Values{0.875, 2.25});
  CHECK(!plain.optimizer.first_moment().defined());
  CHECK(!plain.optimizer.second_moment().defined());

  Trainer decay({{4}}, {.kind = Kind::sgd, .weight_decay = 0.5});
  decay.add({1});
  decay.finish(0.25);
  CHECK(decay.w().item() == 4 - 0.25 * (1 + 0.5 * 4));

  // b: 1, then 0.5 + 2; Nesterov goes g + m b.
  Trainer momentum({{0}}, {.kind = Kind::sgd, .momentum = 0.5});
  Trainer nesterov({{0}}, {.kind = Kind::sgd, .momentum = 0.5, .nesterov = true});
  for (Trainer* t : {&momentum, &nesterov}) {
    t->add({1});
    t->finish(1);
    t->add({2});
    t->finish(1);
    CHECK(t->optimizer.first_moment().at(0) == 2.5);
    CHECK(!t->optimizer.second_moment().defined());
  }
  CHECK(momentum.w().item() == -(1 + 2.5));
  CHECK(nesterov.w().item() == -(1.5 + 3.25));
}

TEST_CASE("Adam adds decay to the gradient, AdamW takes it from the weight") {
  Trainer adam({{2}}, {.kind = Kind::adam, .weight_decay = 0.5});
  Trainer adamw({{2}}, {.kind = Kind::adamw, .weight_decay = 0.5});
  for (Trainer* t : {&adam, &adamw}) {
    t->add({0});
    CHECK(t->finish(0.125));
  }
  // The first step of Adam is lr g / |g|; eps of 1e-8 is beyond the digits of g = 1.
  CHECK(std::abs(adam.w().item() - (2 - 0.125)) <= 4 * 0x1p-24);
  CHECK(adamw.w().item() == 2 * (1 - 0.125 * 0.5));
  CHECK(adam.optimizer.first_moment().numel() == adam.arena.flat_size());
  CHECK(adamw.optimizer.first_moment().at(0) == 0);
}

TEST_CASE(
    "moments and step counts belong to each parameter; an absent gradient leaves them alone") {
  Trainer t({{1}, {1}, {1}}, {.kind = Kind::adamw, .weight_decay = 0.1});
  t.add({1}, 0);
  t.add({1}, 2);
  CHECK(t.finish(0.1));
  t.add({1}, 2);
  CHECK(t.finish(0.1));
  CHECK(t.arena.entries()[0].steps == 1);
  CHECK(t.arena.entries()[1].steps == 0);
  CHECK(t.arena.entries()[2].steps == 2);
  CHECK(t.w(1).item() == 1);  // not even decayed
  CHECK(t.w(0).item() < 1);
  CHECK(t.w(2).item() < t.w(0).item());
  const auto second = static_cast<std::int64_t>(t.arena.entries()[1].offset);
  CHECK(t.optimizer.first_moment().at(second) == 0);
  CHECK(t.optimizer.second_moment().at(second) == 0);
}

TEST_CASE("optimizer settings: names, errors, and arenas that cannot be updated") {
  for (const Kind kind : {Kind::sgd, Kind::adam, Kind::adamw})
    CHECK(parse_optimizer(name(kind)) == kind);
  CHECK_THROWS_WITH_AS(parse_optimizer("lion"),
                       "[optimizer] unknown optimizer 'lion'; sgd, adam or adamw expected",
                       UsageError);
  Context ctx;
  ParameterArena arena, wide, bare;
  declare(arena, ctx, {{1}});
  declare(wide, ctx, {{1}}, {.master = DType::fp64});
  struct Row {
    const char* setting;
    OptimizerSettings settings;
  };
  const Row rows[] = {
      {"momentum", {.kind = Kind::sgd, .momentum = -0.1}},
      {"momentum", {.kind = Kind::sgd, .momentum = kNaN}},
      {"nesterov", {.kind = Kind::sgd, .nesterov = true}},
      {"weight_decay", {.kind = Kind::sgd, .weight_decay = kInf}},
      {"beta1", {.kind = Kind::adam, .beta1 = 1}},
      {"beta2", {.kind = Kind::adamw, .beta2 = -0.5}},
      {"eps", {.kind = Kind::adamw, .eps = 0}},
      {"eps", {.kind = Kind::adamw, .eps = 1e-60}},
      {"weight_decay", {.kind = Kind::adamw, .weight_decay = -1}},
  };
  const std::int64_t before = ctx.allocator.stats().total;
  for (const Row& row : rows) {
    CAPTURE(row.setting);
    std::string message;
    try {
      const Optimizer optimizer(ctx, arena, row.settings);
    } catch (const UsageError& error) {
      message = error.what();
    }
    CHECK(message.find(row.setting) != std::string::npos);
  }
  CHECK_THROWS_AS(Optimizer(ctx, wide, {}), Error);
  CHECK_THROWS_AS(Optimizer(ctx, bare, {}), Error);
  CHECK(ctx.allocator.stats().total == before);
}

TEST_CASE("a bad rate or clip limit is one error, and the window can still be finished") {
  for (const Kind kind : {Kind::sgd, Kind::adamw}) {
    for (const bool unscale_first : {false, true}) {
      Trainer t({{1, 2}}, {.kind = kind}, {.init_scale = 1024});
      t.add({3, 4});
      if (unscale_first) t.scaler.unscale(t.optimizer);
      const auto before = t.state();
      for (const double lr : {-1.0, kNaN, kInf})
        CHECK_THROWS_AS(t.scaler.step(t.optimizer, lr), UsageError);
      for (const double max_norm : {-1.0, kNaN})
        CHECK_THROWS_AS(t.scaler.step(t.optimizer, 0.1, {.max_norm = max_norm}), UsageError);
      CHECK(t.state() == before);
      CHECK(gradient(t.w()) == (unscale_first ? Values{3, 4} : Values{3072, 4096}));
      CHECK(t.scaler.step(t.optimizer, 0.1));
      t.scaler.update();
      CHECK(t.scaler.growth_tracker() == 1);
    }
  }
}

TEST_CASE("case 92 [CLIP] inf check sees every element of every tensor") {
  const std::vector<std::size_t> sizes{1, 0, 5, 1'000'003, 257};  // the third stays absent
  std::vector<Values> weights;
  for (const std::size_t n : sizes) weights.emplace_back(n, 1.0);
  Trainer t(weights, {.kind = Kind::adamw}, {.init_scale = 1024}, {.compute = DType::fp16});
  const auto before = t.state();
  double scale = 1024;
  for (const bool at_end : {true, false}) {
    for (const double bad : {kInf, -kInf, kNaN}) {
      CAPTURE(at_end);
      CAPTURE(bad);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (i == 2) continue;
        Values g(sizes[i], 0.5);
        if (at_end && i == 4) g.back() = bad;
        if (!at_end && i == 0) g.front() = bad;
        t.add(g, i);
      }
      CHECK(!t.scaler.step(t.optimizer, 0.1, {.max_norm = 1}));
      CHECK(t.scaler.status().found_inf == 1);
      CHECK(t.scaler.status().present == 4);
      CHECK(t.optimizer.offender(t.scaler.status()) == (at_end ? "w4" : "w0"));
      for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(!t.w(i).leaf()->has_grad);  // cleared
      CHECK(t.state() == before);
      t.scaler.update();
      scale /= 2;
      CHECK(t.scaler.scale() == scale);
    }
  }
}

TEST_CASE("case 95 [CLIP] stale flag: what one window found is not the next one's") {
  Trainer t({{1}}, {.kind = Kind::sgd}, {.init_scale = 4});
  t.add({kInf});
  CHECK(!t.finish(1));
  t.add({0.25});
  CHECK(t.finish(1));
  CHECK(t.scaler.status().found_inf == 0);
  CHECK(t.w().item() == 0.75);
  // Neither does one optimizer's flag reach another's in the same window.
  ParameterArena other;
  declare(other, t.ctx, {{1}});
  Optimizer second(t.ctx, other, {.kind = Kind::sgd});
  t.add({kNaN});
  add_gradient(t.ctx, other.entries()[0].tensor, {0.25}, t.scaler.seed());
  CHECK(!t.scaler.step(t.optimizer, 1));
  CHECK(t.scaler.step(second, 1));
  CHECK(other.entries()[0].tensor.item() == 0.75);
}

TEST_CASE("case 96 [CLIP] unscale goes to fp32, not in fp16") {
  Trainer t({{1}}, {.kind = Kind::sgd}, {.init_scale = 65536});
  t.ctx.autocast.low = DType::fp16;
  t.ctx.autocast.weight_grad_16bit = true;
  t.ctx.autocast.overrides = {{"mul", DType::fp16}};
  // The scaled gradient of the fp16 weight is 2^-14 there.
  const Tensor y = mul(t.ctx, t.w(), tensor(t.ctx, {0x1p-20}, {1}, DType::fp16));
  t.ctx.tape.backward(t.ctx, y, t.scaler.seed() * 0x1p-10);
  t.ctx.tape.clear();
  CHECK(gradient(t.w()) == Values{0x1p-14});
  t.scaler.unscale(t.optimizer);
  CHECK(gradient(t.w()) == Values{0x1p-30});
  CHECK(t.scaler.step(t.optimizer, 1024));
  CHECK(t.w().item() == 1 - 0x1p-20);
}

TEST_CASE("case 98 [CLIP] eps in the coefficient: there is none") {
  CHECK(near(applied({3, 4}, 1), {0.6, 0.8}, kClip));
  CHECK(applied({0.6, 0.8}, 1) == fp32({0.6, 0.8}));  // bits stay
  CHECK(applied({1, 0}, 1) == Values{1, 0});
  CHECK(near(applied({3e-7, 4e-7}, 1e-7), {0.6e-7, 0.8e-7}, kClip));
}

TEST_CASE("case 99 [CLIP] norm overflow when squaring") {
  CHECK(near(applied(Values(100, 1e20), 1), Values(100, 0.1), kClip));
  CHECK(near(applied({300}, 1), {1}, kClip));
  Trainer t({{0, 0}}, {.kind = Kind::sgd}, {.init_scale = 65536});
  t.add({3e15, 4e15});
  CHECK(t.finish(1, 1));
  CHECK(t.scaler.status().found_inf == 0);
  CHECK(std::abs(t.scaler.status().norm - 5e15) <= 5e15 * 0x1p-23);
  CHECK(near(t.w().to_vector(), {-0.6, -0.8}, kClip));
}

TEST_CASE("case 101 [CLIP] non-finite gradients meet clipping") {
  Trainer t({{1, 1, 1}}, {.kind = Kind::adam}, {.init_scale = 4});
  const auto before = t.state();
  t.add({1, kInf, 2});
  // Unscaled, but not rewritten by the clip: a person who looks sees what there was.
  t.scaler.unscale(t.optimizer);
  CHECK(gradient(t.w()) == Values{1, kInf, 2});
  CHECK(!t.scaler.step(t.optimizer, 1, {.max_norm = 1}));
  CHECK(t.scaler.status().norm == kInf);
  CHECK(t.scaler.status().clip == 1);
  CHECK(t.scaler.status().found_inf == 1);
  CHECK(gradient(t.w()) == Values{1, kInf, 2});  // absent now, and still as it was
  CHECK(!t.w().leaf()->has_grad);
  CHECK(t.state() == before);
}

TEST_CASE("case 102 [CLIP] max_norm validation") {
  for (const double bad : {-1.0, kNaN}) {
    Trainer t({{0, 0}}, {.kind = Kind::sgd});
    t.add({3, 4});
    CHECK_THROWS_AS(t.scaler.step(t.optimizer, 1, {.max_norm = bad}), UsageError);
    CHECK(t.w().to_vector() == Values{0, 0});
  }
  CHECK(applied({3, 4}, 0) == Values{0, 0});
  CHECK(applied({3, 4}, kInf) == Values{3, 4});
  CHECK(applied({0, 0}, 1) == Values{0, 0});
  CHECK(applied({0, 0}, 0) == Values{0, 0});
  CHECK(applied({}, 1).empty());
}

TEST_CASE("case 103 [CLIP] clip after unscale, and fused equals unfused bit for bit") {
  const ScalerConfig scaled{.init_scale = 1024};
  CHECK(near(applied({3, 4}, 1, scaled), {0.6, 0.8}, kClip));
  CHECK(applied({3, 4}, 1, scaled) == applied({3, 4}, 1));

  const Values g{0.1, -0.3, 7.7, 1e-9, -2.25, 1e4};
  for (const double scale : {1.0, 1024.0, 0.25, 1000.0}) {
    for (const double max_norm : {1e-3, 1e9}) {
      std::vector<std::vector<std::byte>> results[2];
      for (const bool unfused : {false, true}) {
        Trainer t({Values(6, 1)}, {.kind = Kind::adamw, .weight_decay = 0.1}, {.init_scale = scale},
                  {.compute = DType::bf16});
        for (int i = 0; i < 3; ++i) {
          t.add(g);
          if (unfused) t.scaler.unscale(t.optimizer);
          CHECK(t.finish(0.01, max_norm));
        }
        results[unfused ? 1 : 0] = t.state();
      }
      CHECK(results[0] == results[1]);
    }
  }
}

TEST_CASE("case 113 [OPT] Adam eps vanishes in fp16: all of the optimizer's arithmetic is fp32") {
  for (const DType master : {DType::fp16, DType::bf16, DType::fp32}) {
    for (const Kind kind : {Kind::adam, Kind::adamw}) {
      Trainer t({{1.5, -0.0}}, {.kind = kind, .eps = 1e-8}, kOff, {.master = master});
      const auto before = bytes(t.arena.flat_master());
      for (int i = 0; i < 3; ++i) {
        t.add({0, 0});
        CHECK(t.finish(0.1));
      }
      CHECK(bytes(t.arena.flat_master()) == before);
      CHECK(t.optimizer.second_moment().dtype() == DType::fp32);
    }
  }
}

TEST_CASE("case 114 [OPT] bf16/fp16 weights need fp32 masters") {
  const auto train = [](const ArenaSettings& settings) {
    Trainer t({{1}}, {.kind = Kind::sgd}, kOff, settings);
    for (int i = 0; i < 100; ++i) {
      t.add({1});
      t.finish(6e-4);
    }
    return std::pair{t.w().item(),
                     t.arena.flat_compute().defined() ? t.arena.flat_compute().at(0) : 0.0};
  };
  const auto [bf16_master, bf16_copy] = train({.compute = DType::bf16});
  CHECK(std::abs(bf16_master - 0.9400019646) <= 1e-10);
  CHECK(bf16_copy == 0.94140625);
  const auto [fp16_master, fp16_copy] = train({.compute = DType::fp16});
  CHECK(fp16_master == bf16_master);
  CHECK(fp16_copy == 0.93994140625);
  CHECK(train({.master = DType::bf16}).first == 1.0);
  CHECK(train({.master = DType::fp16}).first == 0.951171875);
}

TEST_CASE("case 116 [OPT] skipped step leaves m, v and step alone") {
  Trainer t({{1}}, {.kind = Kind::adam}, {.init_scale = 65536}, {.compute = DType::fp16});
  const auto before = t.state();
  t.add({kInf});
  CHECK(!t.finish(0.01));
  CHECK(t.state() == before);
  CHECK(t.arena.entries()[0].steps == 0);
  t.add({0.5});
  CHECK(t.finish(0.01));
  CHECK(std::abs(t.w().item() - 0.9900000002) <= 0x1p-24);
  CHECK(t.arena.entries()[0].steps == 1);
  CHECK(t.arena.flat_compute().at(0) == static_cast<double>(Half(0.99)));
}

TEST_CASE("case 118 [OPT] power-of-two loss scale is invisible") {
  // Two layers, fixed data, 20 steps with momentum and a clip; bf16 has fp32's exponents.
  const auto train = [](double scale, DType low) {
    Context ctx;
    ctx.autocast.low = low;
    ParameterArena arena;
    const Parameter w1 = arena.add("w1", {5, 4}, Init::uniform_fan_in, 4);
    const Parameter b1 = arena.add("b1", {5}, Init::uniform_fan_in, 4);
    const Parameter w2 = arena.add("w2", {3, 5}, Init::uniform_fan_in, 5);
    arena.allocate(ctx.allocator, {.compute = low, .seed = 7});
    Optimizer optimizer(ctx, arena, {.kind = Kind::sgd, .momentum = 0.9});
    LossScaler scaler({.init_scale = scale, .dynamic = false});
    Values pixels;
    for (int i = 0; i < 32; ++i) pixels.push_back(std::sin(1.7 * i));
    const Tensor x = tensor(ctx, pixels, {8, 4});
    const Tensor labels = tensor(ctx, {0, 1, 2, 0, 1, 2, 0, 1}, {8}, DType::i64);
    for (int i = 0; i < 20; ++i) {
      const Tensor logits = linear(ctx, relu(ctx, linear(ctx, x, w1, b1)), w2);
      ctx.tape.backward(ctx, cross_entropy(ctx, logits, labels).loss, scaler.seed());
      ctx.tape.clear();
      CHECK(scaler.step(optimizer, 0.1, {.max_norm = 0.5}));
      scaler.update();
      arena.zero_grad();
    }
    CHECK(scaler.scale() == scale);
    return bytes(arena.flat_master());
  };
  for (const DType low : {DType::fp32, DType::bf16}) {
    const auto plain = train(1, low);
    CHECK(train(0x1p8, low) == plain);
    CHECK(train(0x1p12, low) == plain);
    CHECK(train(0x1p-3, low) == plain);
  }
}

TEST_CASE("the compute copy is written with the update, and is the master rounded") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    Trainer t({{1, 0.1, 3e-8, 1e5}}, {.kind = Kind::sgd}, kOff, {.compute = low});
    t.add({0.3, 0.3, 0, -70000});
    t.finish(1);
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto w = static_cast<float>(t.w().at(i));
      CHECK(t.arena.flat_compute().at(i) ==
            (low == DType::fp16 ? static_cast<double>(Half(w)) : static_cast<double>(BFloat16(w))));
    }
  }
}
