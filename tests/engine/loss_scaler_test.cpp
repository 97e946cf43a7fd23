#include "engine/loss_scaler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/support.h"

using namespace roundoff;
using namespace roundoff::testing;
using Kind = OptimizerSettings::Kind;

namespace {

// Two models that share a scaler.
struct Rig {
  Context ctx;
  ParameterArena arena, other_arena;
  Optimizer optimizer, other;
  LossScaler scaler;

  explicit Rig(const ScalerConfig& config, std::int64_t max_skips = 0)
      : optimizer(ctx, declared(arena), {.kind = Kind::adam}),
        other(ctx, declared(other_arena), {.kind = Kind::sgd}),
        scaler(config, max_skips) {}

  void backward(double gradient, std::size_t i = 0) {
    add_gradient(ctx, arena.entries()[i].tensor, {gradient}, scaler.seed());
  }
  void backward_other(double gradient) {
    add_gradient(ctx, other_arena.entries()[0].tensor, {gradient}, scaler.seed());
  }
  bool step() { return scaler.step(optimizer, 0.01); }
  bool step_other() { return scaler.step(other, 1); }
  // A whole window of one micro-batch.
  bool window(double gradient) {
    backward(gradient);
    const bool stepped = step();
    scaler.update();
    arena.zero_grad();
    return stepped;
  }

 private:
  ParameterArena& declared(ParameterArena& a) {
    declare(a, ctx, {{1}, {1}});
    return a;
  }
};

struct Expected {
  double scale;
  std::int32_t tracker;
};

void play(const ScalerConfig& config, std::string_view pattern,
          const std::vector<Expected>& expected) {
  Rig rig(config);
  REQUIRE(pattern.size() == expected.size());
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    CAPTURE(i);
    const auto before = snapshot(rig.arena, rig.optimizer);
    const bool finite = pattern[i] == '.';
    CHECK(rig.window(finite ? 0x1p-120 : kNaN) == finite);
    CHECK(rig.scaler.scale() == expected[i].scale);
    CHECK(rig.scaler.growth_tracker() == expected[i].tracker);
    CHECK((snapshot(rig.arena, rig.optimizer) == before) == !finite);
  }
}

}  // namespace

TEST_CASE("case 76 [SCALER] base sequence, with backward passes and an optimizer") {
  play({.init_scale = 65536, .growth_interval = 3}, "...X......X.X..",
       {{65536, 1},
        {65536, 2},
        {131072, 0},
        {65536, 0},
        {65536, 1},
        {65536, 2},
        {131072, 0},
        {131072, 1},
        {131072, 2},
        {262144, 0},
        {131072, 0},
        {131072, 1},
        {65536, 0},
        {65536, 1},
        {65536, 2}});
}

TEST_CASE("case 77 [SCALER] counter resets on overflow, with backward passes and an optimizer") {
  play(
      {.init_scale = 1024, .growth_interval = 3}, "..X..X...",
      {{1024, 1}, {1024, 2}, {512, 0}, {512, 1}, {512, 2}, {256, 0}, {256, 1}, {256, 2}, {512, 0}});
  play({.init_scale = 8, .growth_interval = 3}, "........",
       {{8, 1}, {8, 2}, {16, 0}, {16, 1}, {16, 2}, {32, 0}, {32, 1}, {32, 2}});
}

TEST_CASE("case 79 [SCALER] growth guard, with backward passes and an optimizer") {
  play({.init_scale = 0x1p126, .growth_interval = 1}, "...",
       {{0x1p126, 0}, {0x1p126, 0}, {0x1p126, 0}});
  play({.init_scale = 0x1p23, .growth_interval = 1, .max_scale = 0x1p24}, "...",
       {{0x1p24, 0}, {0x1p24, 0}, {0x1p24, 0}});
  play({.init_scale = 1}, "XXX", {{0.5, 0}, {0.25, 0}, {0.125, 0}});
  play({.init_scale = 0x1p-125}, "XX.", {{0x1p-126, 0}, {0x1p-126, 0}, {0x1p-126, 1}});
}

TEST_CASE("case 82 [SCALER] call-order state machine") {
  struct Row {
    const char* what;
    std::function<void(Rig&)> calls;
    const char* error;  // of the last call, null where it is allowed
  };
  const Row rows[] = {
      {"unscale twice",
       [](Rig& r) {
         r.backward(1);
         r.scaler.unscale(r.optimizer);
         r.scaler.unscale(r.optimizer);
       },
       "[scaler] unscale was called already for this optimizer in this window"},
      {"unscale after step",
       [](Rig& r) {
         r.backward(1);
         r.step();
         r.scaler.unscale(r.optimizer);
       },
       "[scaler] unscale after step"},
      {"unscale after a skipped step",
       [](Rig& r) {
         r.backward(kInf);
         r.step();
         r.scaler.unscale(r.optimizer);
       },
       "[scaler] unscale after step"},
      {"step twice without update",
       [](Rig& r) {
         r.backward(1);
         r.step();
         r.step();
       },
       "[scaler] step was called already for this optimizer; call update first"},
      {"step twice, unscaled",
       [](Rig& r) {
         r.backward(1);
         r.scaler.unscale(r.optimizer);
         r.step();
         r.step();
       },
       "[scaler] step was called already for this optimizer; call update first"},
      {"update with nothing recorded, at the very start", [](Rig& r) { r.scaler.update(); },
       "[scaler] update without unscale or step: the scale stays the same inside a window, and "
       "moves once after it"},
      {"update in the middle of a window",
       [](Rig& r) {
         r.backward(1);
         r.scaler.update();
       },
       "[scaler] update without unscale or step: the scale stays the same inside a window, and "
       "moves once after it"},
      {"update twice",
       [](Rig& r) {
         r.window(1);
         r.scaler.update();
       },
       "[scaler] update without unscale or step: the scale stays the same inside a window, and "
       "moves once after it"},
      {"unscale where nothing was ever scaled", [](Rig& r) { r.scaler.unscale(r.optimizer); },
       "[scaler] unscale without a scaled backward pass in this window"},
      {"step where nothing was ever scaled", [](Rig& r) { r.step(); },
       "[scaler] step without a scaled backward pass in this window"},
      {"unscale in a later window without a scaled pass",
       [](Rig& r) {
         r.window(1);
         r.scaler.unscale(r.optimizer);
       },
       "[scaler] unscale without a scaled backward pass in this window"},
      {"step in a later window without a scaled pass",
       [](Rig& r) {
         r.window(1);
         r.step();
       },
       "[scaler] step without a scaled backward pass in this window"},
      {"step after the window was abandoned",
       [](Rig& r) {
         r.backward(1);
         r.scaler.abandon();
         r.step();
       },
       "[scaler] step without a scaled backward pass in this window"},
      {"a scaled pass after unscale",
       [](Rig& r) {
         r.backward(1);
         r.scaler.unscale(r.optimizer);
         r.backward(1);
       },
       "[scaler] a backward pass is scaled after unscale or step; call update first"},
      {"a scaled pass after step",
       [](Rig& r) {
         r.backward(1);
         r.step();
         r.backward(1);
       },
       "[scaler] a backward pass is scaled after unscale or step; call update first"},
      {"unscale, no step, update",
       [](Rig& r) {
         r.backward(1);
         r.scaler.unscale(r.optimizer);
         r.scaler.update();
         r.window(1);
       },
       nullptr},
      {"unscale both, step one",
       [](Rig& r) {
         r.backward(1);
         r.backward_other(1);
         r.scaler.unscale(r.optimizer);
         r.scaler.unscale(r.other);
         r.step_other();
         r.scaler.update();
       },
       nullptr},
      {"unscale right after a state was loaded",
       [](Rig& r) {
         r.backward(1);
         r.scaler.load(r.scaler.state());
         r.scaler.unscale(r.optimizer);
         r.step();
         r.scaler.update();
       },
       nullptr},
      {"update right after a state was loaded",
       [](Rig& r) {
         r.backward(1);
         r.step();
         r.scaler.load(r.scaler.state());
         r.scaler.update();
       },
       "[scaler] update without unscale or step: the scale stays the same inside a window, and "
       "moves once after it"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Rig rig({.init_scale = 1024});
    std::string message;
    try {
      row.calls(rig);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message == (row.error == nullptr ? "" : row.error));
    // Whatever was refused, ending the window brings everything back.
    rig.scaler.abandon();
    rig.arena.zero_grad();
    rig.other_arena.zero_grad();
    const double scale = rig.scaler.scale();
    CHECK(rig.window(1));
    CHECK(rig.scaler.scale() == scale);
  }
}

TEST_CASE("case 84 [SCALER] two optimizers, one overflows") {
  for (const bool unscale_first : {false, true}) {
    for (const bool bad_first : {false, true}) {
      CAPTURE(unscale_first);
      CAPTURE(bad_first);
      Rig rig({.init_scale = 1024, .growth_interval = 2});
      rig.window(1);
      REQUIRE(rig.scaler.growth_tracker() == 1);

      const auto bad_before = snapshot(rig.arena, rig.optimizer);
      const double good_before = rig.other_arena.entries()[0].tensor.item();
      rig.backward(kNaN);
      rig.backward_other(0.25);
      if (unscale_first) {
        rig.scaler.unscale(rig.optimizer);
        rig.scaler.unscale(rig.other);
      }
      if (bad_first) CHECK(!rig.step());
      CHECK(rig.step_other());
      if (!bad_first) CHECK(!rig.step());
      CHECK(snapshot(rig.arena, rig.optimizer) == bad_before);
      CHECK(rig.other_arena.entries()[0].tensor.item() == good_before - 0.25);

      rig.scaler.update();
      CHECK(rig.scaler.scale() == 512);  // one halving, not two
      CHECK(rig.scaler.growth_tracker() == 0);
      CHECK_THROWS_AS(rig.scaler.update(), Error);
      CHECK(rig.scaler.scale() == 512);
    }
  }
}

TEST_CASE("case 86 [SCALER] window policy for NaN or empty micro-batches") {
  Rig rig({.init_scale = 1024, .growth_interval = 10});
  rig.window(0.5);
  const auto before = snapshot(rig.arena, rig.optimizer);
  rig.backward(1);
  rig.backward(kInf);
  rig.backward(1);
  CHECK(!rig.step());
  CHECK(!rig.arena.entries()[0].tensor.leaf()->has_grad);
  rig.scaler.update();
  CHECK(rig.scaler.scale() == 512);
  CHECK(snapshot(rig.arena, rig.optimizer) == before);

  // An infinity in each of two micro-batches makes a NaN of their sum: still one backoff.
  rig.backward(kInf);
  rig.backward(-kInf);
  CHECK(!rig.step());
  rig.scaler.update();
  CHECK(rig.scaler.scale() == 256);

  // A window without a valid target is not counted at all.
  rig.window(1);
  CHECK(rig.scaler.growth_tracker() == 1);
  const LossScalerState state = rig.scaler.state();
  rig.scaler.seed();
  rig.scaler.abandon();
  CHECK(rig.scaler.state() == state);
}

TEST_CASE("a window without any gradient is neutral, with step or unscale") {
  for (const bool unscale_first : {false, true}) {
    Rig rig({.init_scale = 1024, .growth_interval = 2}, 2);
    rig.window(kInf);
    const auto before = snapshot(rig.arena, rig.optimizer);
    const LossScalerState state = rig.scaler.state();
    for (int i = 0; i < 5; ++i) {
      rig.scaler.seed();
      if (unscale_first) rig.scaler.unscale(rig.optimizer);
      CHECK(!rig.step());
      CHECK(rig.scaler.status().present == 0);
      rig.scaler.update();
    }
    CHECK(snapshot(rig.arena, rig.optimizer) == before);
    CHECK(rig.scaler.state() == state);
    // One optimizer without gradients beside one with: the window counts.
    rig.backward_other(1);
    CHECK(!rig.step());
    CHECK(rig.step_other());
    rig.scaler.update();
    CHECK(rig.scaler.growth_tracker() == 1);
  }
}

TEST_CASE("case 87 [SCALER] scale is frozen inside an accumulation window") {
  Rig rig({.init_scale = 1024, .growth_interval = 1});
  rig.backward_other(1);
  CHECK_THROWS_AS(rig.scaler.update(), Error);
  CHECK(rig.scaler.scale() == 1024);
  rig.backward_other(1);
  CHECK(gradient(rig.other_arena.entries()[0].tensor) == Values{2048});
  CHECK(rig.step_other());
  CHECK(rig.other_arena.entries()[0].tensor.item() == 1 - 2);
  rig.scaler.update();
  CHECK(rig.scaler.scale() == 2048);
}

TEST_CASE("case 88 [SCALER] end-to-end skip count with fp16 grads") {
  struct Row {
    double gradient;
    int skips;
    double scale;
    double applied;
  };
  for (const Row& row :
       {Row{1.0, 1, 32768, 1.0}, {0.999, 0, 65536, 0.9990234375}, {4.0, 3, 8192, 4.0}}) {
    CAPTURE(row.gradient);
    Rig rig({.init_scale = 65536});
    rig.ctx.autocast.low = DType::fp16;
    rig.ctx.autocast.overrides = {{"mul", DType::fp16}};
    rig.ctx.autocast.weight_grad_16bit = true;
    int skips = 0;
    for (;; ++skips) {
      REQUIRE(skips < 10);
      const double scale = rig.scaler.scale();
      rig.backward_other(row.gradient);
      const bool stepped = rig.step_other();
      rig.scaler.update();
      rig.other_arena.zero_grad();
      if (!stepped) continue;
      CHECK(scale == row.scale);
      break;
    }
    CHECK(skips == row.skips);
    CHECK(rig.other_arena.entries()[0].tensor.item() ==
          static_cast<double>(static_cast<float>(1 - row.applied)));
  }
}

TEST_CASE("case 91 [SCALER] disabled scaler") {
  Rig rig({.enabled = false}, 1);
  CHECK(rig.scaler.seed() == 1);
  CHECK(rig.scaler.scale() == 1);
  rig.backward(kNaN);
  rig.scaler.unscale(rig.optimizer);
  rig.scaler.unscale(rig.optimizer);
  CHECK(rig.step());
  CHECK(rig.scaler.status().found_inf == 1);  // said, not acted on
  CHECK(std::isnan(rig.arena.entries()[0].tensor.item()));
  CHECK(rig.arena.entries()[0].steps == 1);
  rig.scaler.update();
  rig.scaler.update();
  CHECK(rig.scaler.scale() == 1);
  CHECK(rig.scaler.growth_tracker() == 0);

  const LossScalerState state = rig.scaler.state();
  CHECK(state == LossScalerState{});
  CHECK(!state.enabled);
  rig.scaler.load(state);
  CHECK(rig.scaler.seed() == 1);
  CHECK_THROWS_AS(rig.scaler.load({true, {}, {}}), Error);
  // No gradient at all: nothing to execute.
  rig.arena.zero_grad();
  CHECK(!rig.step());
  CHECK(rig.arena.entries()[0].steps == 1);
}

TEST_CASE("case 123 [CKPT] scaler state is complete") {
  const ScalerConfig config{.init_scale = 32768,
                            .growth_factor = 2.5,
                            .backoff_factor = 0.25,
                            .growth_interval = 2000,
                            .min_scale = 4,
                            .max_scale = 0x1p20};
  LossScalerState saved;
  {
    Rig rig(config);
    LossScalerState nearly = rig.scaler.state();
    nearly.state.growth_tracker = 1998;
    nearly.state.consecutive_skips = 0;
    rig.scaler.load(nearly);
    rig.window(1);
    saved = rig.scaler.state();
    CHECK(saved.state.growth_tracker == 1999);
  }
  Rig rig({});  // made with defaults; what was saved wins
  rig.scaler.load(saved);
  CHECK(rig.scaler.state() == saved);
  CHECK(rig.scaler.scale() == 32768);
  CHECK(rig.scaler.config().growth_factor == 2.5);
  CHECK(rig.scaler.config().backoff_factor == 0.25);
  CHECK(rig.scaler.config().growth_interval == 2000);
  CHECK(rig.scaler.config().min_scale == 4);
  CHECK(rig.scaler.config().max_scale == 0x1p20);
  CHECK(rig.window(1));
  CHECK(rig.scaler.scale() == 81920);
  CHECK(rig.scaler.growth_tracker() == 0);
  CHECK(!rig.window(kInf));
  CHECK(rig.scaler.scale() == 20480);
  for (int i = 0; i < 20; ++i) rig.window(kInf);
  CHECK(rig.scaler.scale() == 4);

  // The case's own numbers.
  Rig plain({.init_scale = 32768});
  LossScalerState state = plain.scaler.state();
  state.state.growth_tracker = 1999;
  plain.scaler.load(state);
  CHECK(plain.window(1));
  CHECK(plain.scaler.scale() == 65536);
  CHECK(plain.scaler.growth_tracker() == 0);
}

TEST_CASE("every state that a scaler saves can be loaded, odd bounds and all") {
  // Bounds that fp32 rounds, one up and one down.
  for (const double bound : {0.1, 0.7, 1e-3, 3.3, 1e30}) {
    CAPTURE(bound);
    for (const ScalerConfig& config : {ScalerConfig{.init_scale = bound, .max_scale = bound},
                                       ScalerConfig{.init_scale = bound, .min_scale = bound}}) {
      Rig rig(config);
      const LossScalerState state = rig.scaler.state();
      rig.scaler.load(state);
      CHECK(rig.scaler.state() == state);
      rig.window(1e-30);
      rig.window(kInf);
      rig.scaler.load(rig.scaler.state());
    }
  }
  Rig fixed({.init_scale = 128, .growth_factor = 0, .dynamic = false});
  fixed.window(kInf);
  CHECK(fixed.scaler.scale() == 128);
  fixed.scaler.load(fixed.scaler.state());
  CHECK(fixed.scaler.state().state.consecutive_skips == 1);
}

TEST_CASE("a saved state that contradicts itself, or the scaler, is refused and changes nothing") {
  Rig rig({.init_scale = 1024});
  const LossScalerState good = rig.scaler.state();
  const auto refused = [&](const std::function<void(LossScalerState&)>& spoil) {
    LossScalerState bad = good;
    spoil(bad);
    CHECK_THROWS_AS(rig.scaler.load(bad), Error);
    CHECK(rig.scaler.state() == good);
  };
  refused([](auto& s) { s.enabled = false; });
  refused([](auto& s) { s.config.enabled = false; });
  refused([](auto& s) { s.state.scale = 0; });
  refused([](auto& s) { s.state.scale = std::numeric_limits<float>::quiet_NaN(); });
  refused([](auto& s) { s.state.scale = std::numeric_limits<float>::infinity(); });
  refused([](auto& s) {
    s.config.max_scale = 2048;
    s.state.scale = 4096;
  });
  refused([](auto& s) { s.state.growth_tracker = -1; });
  refused([](auto& s) { s.state.consecutive_skips = -1; });
  refused([](auto& s) { s.config.growth_interval = 0; });
  refused([](auto& s) { s.config.growth_factor = 1; });
  refused([](auto& s) { s.config.backoff_factor = kNaN; });
  CHECK(rig.window(1));
}

TEST_CASE("settings are validated at construction") {
  CHECK_THROWS_AS(LossScaler({.init_scale = 0}), UsageError);
  CHECK_THROWS_AS(LossScaler({.init_scale = kNaN}), UsageError);
  CHECK_THROWS_AS(LossScaler({.growth_factor = 1}), UsageError);
  CHECK_THROWS_AS(LossScaler({.backoff_factor = 1}), UsageError);
  CHECK_THROWS_AS(LossScaler({.growth_interval = 0}), UsageError);
  CHECK_THROWS_AS(LossScaler({}, -1), UsageError);
}

TEST_CASE("too many skips in a row end in an error that names the first offending parameter") {
  Rig rig({.init_scale = 1024}, 3);
  rig.window(kInf);
  rig.window(kInf);
  rig.window(1);  // ends the run of skips
  rig.window(kInf);
  rig.window(kInf);
  const auto before = snapshot(rig.arena, rig.optimizer);
  // The third in a row: its first offender is w1 of the first optimizer that found one.
  rig.backward(1, 0);
  rig.backward(kNaN, 1);
  rig.backward_other(kInf);
  CHECK(!rig.step());
  CHECK(!rig.step_other());
  CHECK_THROWS_WITH_AS(rig.scaler.update(),
                       "[scaler] 3 updates in a row were skipped, the scale is down to 32; the "
                       "first non-finite gradient is that of 'w1'",
                       ScaleCollapse);
  CHECK(snapshot(rig.arena, rig.optimizer) == before);
  // The new state is in place, and a run may go on with it.
  CHECK(rig.scaler.scale() == 32);
  CHECK(rig.scaler.state().state.consecutive_skips == 3);
  CHECK(rig.window(1));
  CHECK(rig.scaler.state().state.consecutive_skips == 0);

  Rig patient({.init_scale = 1024});
  for (int i = 0; i < 50; ++i) CHECK(!patient.window(kInf));
}

TEST_CASE("what unscale found stays found, whatever a person does to the gradients then") {
  Rig rig({.init_scale = 1024}, 1);
  const auto before = snapshot(rig.arena, rig.optimizer);
  rig.backward(kInf);
  rig.scaler.unscale(rig.optimizer);
  // Clipping by value makes a number of an infinity.
  rig.arena.entries()[0].tensor.leaf()->grad.data<float>()[0] = 1;
  CHECK(!rig.step());
  CHECK(rig.scaler.status().found_inf == 1);
  CHECK(rig.optimizer.offender(rig.scaler.status()) == "w0");
  CHECK(snapshot(rig.arena, rig.optimizer) == before);
  CHECK_THROWS_AS(rig.scaler.update(), ScaleCollapse);
  CHECK(rig.scaler.scale() == 512);
}

TEST_CASE("what a person does to unscaled gradients is checked as well, and applied") {
  Rig rig({.init_scale = 1024});
  rig.backward_other(2);
  rig.scaler.unscale(rig.other);
  const Tensor& w = rig.other_arena.entries()[0].tensor;
  CHECK(gradient(w) == Values{2});
  w.leaf()->grad.data<float>()[0] = 0.5;
  CHECK(rig.step_other());
  CHECK(w.item() == 0.5);
  rig.scaler.update();
  rig.other_arena.zero_grad();

  rig.backward_other(2);
  rig.scaler.unscale(rig.other);
  w.leaf()->grad.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK(!rig.step_other());
  CHECK(w.item() == 0.5);
  rig.scaler.update();
  CHECK(rig.scaler.scale() == 512);
}

TEST_CASE("a scale below 1 finds what only unscaling makes infinite") {
  Rig rig({.init_scale = 0.5});
  rig.scaler.seed();
  add_gradient(rig.ctx, rig.other_arena.entries()[0].tensor, {3e38}, 1);  // finite as it stands
  CHECK(!rig.step_other());
  CHECK(rig.other_arena.entries()[0].tensor.item() == 1);
  rig.scaler.update();
  CHECK(rig.scaler.scale() == 0.25);
  rig.other_arena.zero_grad();
  rig.scaler.seed();
  add_gradient(rig.ctx, rig.other_arena.entries()[0].tensor, {3e38}, 1);
  rig.scaler.unscale(rig.other);
  CHECK(!rig.step_other());
}

TEST_CASE("the status says what the last step found, in true units") {
  Rig rig({.init_scale = 1024, .growth_interval = 5});
  rig.backward(3, 0);
  rig.backward(4, 1);
  CHECK(rig.scaler.step(rig.optimizer, 0.01, {.max_norm = 1}));
  const StepStatus& status = rig.scaler.status();
  CHECK(status.scale == 1024);
  CHECK(status.norm == 5);
  CHECK(status.clip == 0.2F);
  CHECK(status.present == 2);
  CHECK(status.found_inf == 0);
  CHECK(status.first_offender == -1);
  CHECK(rig.optimizer.offender(status).empty());
  rig.scaler.update();
  CHECK(rig.scaler.status().norm == 5);
}
