#include "kernels/step/optimizer.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/convert.h"
#include "verify/bound.h"

using namespace roundoff;

namespace {

template <class T>
View view(std::vector<T>& v) {
  return {v.data(), dtype_of<T>, Shape{static_cast<std::int64_t>(v.size())}};
}

// A parameter with everything that belongs to it.
template <class P, class G>
struct Slot {
  std::vector<P> w;
  std::vector<G> g;
  std::vector<float> m, v;
  std::int64_t steps = 0;
  std::vector<BFloat16> copy;

  explicit Slot(std::size_t n, float value = 0.0F, float gradient = 0.0F)
      : w(n, P(value)), g(n, G(gradient)), m(n), v(n), copy(n) {}
  OptimizerChunk chunk() {
    OptimizerChunk c;
    c.parameter = view(w);
    c.gradient = view(g);
    c.first_moment = m.data();
    c.second_moment = v.data();
    c.compute_copy = view(copy);
    c.steps = &steps;
    return c;
  }
  void sgd(const SgdParams& p, const StepStatus& status = {}) {
    const OptimizerChunk c = chunk();
    sgd_step(Ref{}, p, status, {&c, 1});
  }
  void adam(const AdamParams& p, const StepStatus& status = {}) {
    const OptimizerChunk c = chunk();
    adam_step(Ref{}, p, status, {&c, 1});
  }
};

std::vector<float> random_values(std::size_t n, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

std::vector<double> widened(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// fp32 results of one step from what was held before it.
void check_step(const char* what, std::vector<float>& got, const Bound& bound) {
  const Comparison c = compare(ConstView(view(got)), bound);
  INFO(what, ", ", bound.kind_name(), ": ", describe(c));
  CHECK(c.holds);
}

}  // namespace

TEST_CASE("case 113 [OPT] Adam eps vanishes in fp16") {
  Slot<Half, Half> slot(5, 1.5F, 0.0F);
  for (int i = 0; i < 3; ++i) slot.adam({.eps = 1e-8});
  for (const Half w : slot.w) CHECK(w.bits == Half(1.5F).bits);
}

TEST_CASE("case 114 [OPT] bf16 and fp16 weights need fp32 masters") {
  Slot<float, float> master(1, 1.0F, 1.0F);
  Slot<BFloat16, float> pure_bf16(1, 1.0F, 1.0F);
  Slot<Half, float> pure_fp16(1, 1.0F, 1.0F);
  for (int i = 0; i < 100; ++i) {
    master.sgd({.lr = 6e-4});
    pure_bf16.sgd({.lr = 6e-4});
    pure_fp16.sgd({.lr = 6e-4});
  }
  CHECK(std::abs(static_cast<double>(master.w[0]) - 0.9400019646) <= 1e-10);
  CHECK(static_cast<float>(master.copy[0]) == 0.94140625F);
  CHECK(static_cast<float>(Half(master.w[0])) == 0.93994140625F);
  CHECK(static_cast<float>(pure_bf16.w[0]) == 1.0F);
  CHECK(static_cast<float>(pure_fp16.w[0]) == 0.951171875F);
  CHECK(master.steps == 100);
}

TEST_CASE("case 116 [OPT] skipped step leaves m, v and step alone") {
  Slot<float, float> slot(1, 1.0F, std::numeric_limits<float>::infinity());
  StepStatus skip;
  skip.found_inf = 1;
  slot.adam({.lr = 0.01}, skip);
  CHECK(slot.w[0] == 1.0F);
  CHECK(slot.m[0] == 0.0F);
  CHECK(slot.v[0] == 0.0F);
  CHECK(slot.copy[0].bits == 0);
  CHECK(slot.steps == 0);
  slot.g[0] = 0.5F;
  slot.adam({.lr = 0.01});
  // eps of 1e-8 against 0.5 moves the step by 2e-8 of 0.01; 1 - 0.01 is rounded to fp32 once.
  CHECK(std::abs(static_cast<double>(slot.w[0]) - 0.9900000002) <= 0x1p-24);
  CHECK(slot.steps == 1);
}

TEST_CASE("SGD skips on found_inf too, momentum and decay included") {
  Slot<float, float> slot(3, 1.0F, 2.0F);
  StepStatus skip;
  skip.found_inf = 1;
  slot.sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, skip);
  CHECK(slot.w == std::vector<float>(3, 1.0F));
  CHECK(slot.m == std::vector<float>(3, 0.0F));
  CHECK(slot.steps == 0);
}

TEST_CASE("an absent gradient leaves its parameter and its count alone, decay included") {
  Slot<float, float> a(2, 1.0F, 1.0F), b(2, 1.0F, 1.0F);
  OptimizerChunk chunks[] = {a.chunk(), b.chunk()};
  chunks[0].gradient = ConstView::absent();
  adam_step(Ref{}, {.lr = 0.1, .weight_decay = 0.5, .decoupled = true}, {}, chunks);
  CHECK(a.w == std::vector<float>(2, 1.0F));
  CHECK(a.steps == 0);
  CHECK(b.w[0] < 1.0F);
  CHECK(b.steps == 1);
  // Its first step later is corrected as a first step: it equals what b got before.
  const float first_step = b.w[0];
  chunks[0] = a.chunk();
  adam_step(Ref{}, {.lr = 0.1, .weight_decay = 0.5, .decoupled = true}, {}, chunks);
  CHECK(a.w[0] == first_step);
  CHECK(a.steps == 1);
  CHECK(b.steps == 2);
}

TEST_CASE("SGD in all its forms against the oracle, step by step") {
  const std::size_t n = 1031;
  for (const SgdParams& p :
       {SgdParams{.lr = 0.05}, SgdParams{.lr = 0.05, .weight_decay = 0.01},
        SgdParams{.lr = 0.05, .momentum = 0.9},
        SgdParams{.lr = 0.05, .momentum = 0.9, .nesterov = true},
        SgdParams{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}) {
    const oracle::SgdParams op{
        .lr = p.lr, .momentum = p.momentum, .weight_decay = p.weight_decay, .nesterov = p.nesterov};
    Slot<float, float> slot(n);
    slot.w = random_values(n, 1);
    for (std::uint32_t step = 0; step < 5; ++step) {
      slot.g = random_values(n, 10 + step);
      const bound::Sgd bound =
          bound::sgd_step(op, widened(slot.g), widened(slot.w), widened(slot.m), {});
      slot.sgd(p);
      check_step("w", slot.w, bound.w);
      if (p.momentum != 0) check_step("buffer", slot.m, bound.buffer);
      for (std::size_t i = 0; i < n; ++i) REQUIRE(slot.copy[i].bits == BFloat16(slot.w[i]).bits);
    }
    CHECK(slot.steps == 5);
  }
}

TEST_CASE("Adam and AdamW against the oracle, step by step") {
  const std::size_t n = 1031;
  for (const AdamParams& p : {AdamParams{.lr = 0.01}, AdamParams{.lr = 0.01, .weight_decay = 0.1},
                              AdamParams{.lr = 0.01, .weight_decay = 0.1, .decoupled = true},
                              AdamParams{.lr = 0.01, .beta1 = 0.0, .beta2 = 0.5, .eps = 1e-3}}) {
    const oracle::AdamParams op{.lr = p.lr,
                                .beta1 = p.beta1,
                                .beta2 = p.beta2,
                                .eps = p.eps,
                                .weight_decay = p.weight_decay,
                                .decoupled_decay = p.decoupled};
    Slot<float, float> slot(n);
    slot.w = random_values(n, 2);
    for (std::int64_t step = 1; step <= 6; ++step) {
      slot.g = random_values(n, static_cast<std::uint32_t>(20 + step));
      const bound::Adam bound = bound::adam_step(op, step, widened(slot.g), widened(slot.w),
                                                 widened(slot.m), widened(slot.v), {});
      slot.adam(p);
      check_step("w", slot.w, bound.w);
      check_step("m", slot.m, bound.m);
      check_step("v", slot.v, bound.v);
    }
    CHECK(slot.steps == 6);
  }
}

TEST_CASE_TEMPLATE("the fused pass reads scaled gradients of any dtype", G, float, Half, BFloat16) {
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1024}, std::size_t{1025}}) {
    Slot<float, G> fused(n);
    Slot<float, float> plain(n);
    fused.w = plain.w = random_values(n, 3);
    const std::vector<float> g = random_values(n, 4);
    for (std::size_t i = 0; i < n; ++i) fused.g[i] = G(g[i]);
    StepStatus status;
    set_scale(status, 3.0F);
    status.clip = 0.7F;
    for (std::size_t i = 0; i < n; ++i)
      plain.g[i] = static_cast<float>(fused.g[i]) * status.inv_scale * 0.7F;
    const AdamParams p{.lr = 0.01, .weight_decay = 0.1, .decoupled = true};
    for (int step = 0; step < 3; ++step) {
      fused.adam(p, status);
      plain.adam(p);
    }
    CHECK(fused.w == plain.w);
    CHECK(fused.m == plain.m);
    CHECK(fused.v == plain.v);
    for (std::size_t i = 0; i < n; ++i) REQUIRE(fused.copy[i].bits == plain.copy[i].bits);
    CHECK(fused.steps == 3);
  }
}

TEST_CASE("a pure 16-bit parameter is rounded once a step") {
  Slot<BFloat16, BFloat16> slot(1, 1.0F, 1.0F);
  slot.sgd({.lr = 0.3});
  CHECK(slot.w[0].bits == BFloat16(1.0F - 0.3F).bits);
}

TEST_CASE("case 118 [OPT] power-of-two loss scale is invisible, optimizer part") {
  std::vector<float> expected;
  for (const float scale : {1.0F, 0x1p8F, 0x1p12F}) {
    Slot<float, float> slot(100);
    slot.w = random_values(100, 5);
    StepStatus status;
    set_scale(status, scale);
    for (int step = 0; step < 20; ++step) {
      slot.g = random_values(100, static_cast<std::uint32_t>(step));
      for (float& g : slot.g) g *= scale;
      slot.adam({.lr = 0.01}, status);
    }
    if (expected.empty()) expected = slot.w;
    CHECK(slot.w == expected);
  }
}

TEST_CASE("hyperparameters are validated, one clear error each") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(validate(SgdParams{.lr = -1}), UsageError);
  CHECK_THROWS_AS(validate(SgdParams{.lr = nan}), UsageError);
  CHECK_THROWS_AS(validate(SgdParams{.momentum = -0.1}), UsageError);
  CHECK_THROWS_AS(validate(SgdParams{.weight_decay = -1}), UsageError);
  CHECK_THROWS_AS(validate(SgdParams{.nesterov = true}), UsageError);
  CHECK_THROWS_AS(validate(AdamParams{.lr = nan}), UsageError);
  CHECK_THROWS_AS(validate(AdamParams{.beta1 = 1.0}), UsageError);
  CHECK_THROWS_AS(validate(AdamParams{.beta2 = -0.1}), UsageError);
  CHECK_THROWS_AS(validate(AdamParams{.eps = 0.0}), UsageError);
  CHECK_THROWS_AS(validate(AdamParams{.eps = 1e-50}), UsageError);
  CHECK_THROWS_WITH(validate(AdamParams{.weight_decay = -1.0, .decoupled = true}),
                    "[adamw] weight_decay -1, expected finite and at least 0");
  CHECK_NOTHROW(validate(SgdParams{.lr = 0.0}));
  CHECK_NOTHROW(validate(AdamParams{}));
}

TEST_CASE("chunks that do not fit are refused before anything changes") {
  Slot<float, float> good(2, 1.0F, 1.0F), bad(2, 1.0F, 1.0F);
  const auto refused = [&](auto&& change) {
    OptimizerChunk chunks[] = {good.chunk(), bad.chunk()};
    change(chunks[1]);
    CHECK_THROWS_AS(adam_step(Ref{}, {}, {}, chunks), Error);
    CHECK(good.w == std::vector<float>(2, 1.0F));
    CHECK(good.steps == 0);
  };
  std::vector<float> short_one(1);
  std::vector<double> wide(2);
  refused([&](OptimizerChunk& c) { c.gradient = view(short_one); });
  refused([&](OptimizerChunk& c) { c.gradient = view(wide); });
  refused([&](OptimizerChunk& c) { c.parameter = view(wide); });
  refused([&](OptimizerChunk& c) { c.first_moment = nullptr; });
  refused([&](OptimizerChunk& c) { c.second_moment = nullptr; });
  refused([&](OptimizerChunk& c) { c.compute_copy = view(short_one); });
  refused([&](OptimizerChunk& c) { c.steps = nullptr; });
}
