#include "kernels/step/scaler_transition.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"

using namespace roundoff;

namespace {

struct Expected {
  double scale;
  std::int32_t tracker;
};

// Plays a pattern ('.': finite, 'X': a non-finite gradient) and compares every state.
void play(const ScalerConfig& config, std::string_view pattern,
          const std::vector<Expected>& expected) {
  REQUIRE(pattern.size() == expected.size());
  ScalerState state = initial_state(config);
  StepStatus status;
  set_scale(status, state.scale);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    CAPTURE(i);
    state = transition(config, state, pattern[i] == 'X');
    CHECK(static_cast<double>(state.scale) == expected[i].scale);
    CHECK(state.growth_tracker == expected[i].tracker);
    // The device-resident form says the same.
    status.found_inf = pattern[i] == 'X' ? 1 : 0;
    status.present = 1;
    update_scale(config, status);
    CHECK(status.scale == state.scale);
    CHECK(status.inv_scale == static_cast<float>(1.0 / static_cast<double>(state.scale)));
    CHECK(status.growth_tracker == state.growth_tracker);
    CHECK(status.consecutive_skips == state.consecutive_skips);
  }
}

}  // namespace

// Usable at compile time.
static_assert(transition(ScalerConfig{}, {65536.0F, 1999, 0}, false) ==
              ScalerState{131072.0F, 0, 0});

TEST_CASE("every transition of the loss scaler's state machine") {
  struct Row {
    const char* what;
    ScalerConfig config;
    ScalerState from;
    bool found_inf;
    ScalerState to;
  };
  const ScalerConfig c{.growth_interval = 3};
  ScalerConfig narrow = c;
  narrow.min_scale = 1.0;
  narrow.max_scale = 1024.0;
  ScalerConfig fixed = c;
  fixed.dynamic = false;
  ScalerConfig off = c;
  off.enabled = false;
  ScalerConfig every = c;
  every.growth_interval = 1;
  ScalerConfig odd = c;
  odd.growth_factor = 1.5;
  odd.backoff_factor = 0.3;
  const Row rows[] = {
      {"finite, counting", c, {256, 0, 0}, false, {256, 1, 0}},
      {"finite, last before growth", c, {256, 1, 0}, false, {256, 2, 0}},
      {"finite, grows", c, {256, 2, 0}, false, {512, 0, 0}},
      {"finite, grows with interval 1", every, {256, 0, 0}, false, {512, 0, 0}},
      {"finite, ends a run of skips", c, {256, 0, 4}, false, {256, 1, 0}},
      {"finite, tracker restored beyond the interval", c, {256, 7, 0}, false, {512, 0, 0}},
      {"overflow at tracker 0", c, {256, 0, 0}, true, {128, 0, 1}},
      {"overflow resets the tracker", c, {256, 2, 0}, true, {128, 0, 1}},
      {"overflow again", c, {128, 0, 1}, true, {64, 0, 2}},
      {"below 1", c, {1, 0, 0}, true, {0.5F, 0, 1}},
      {"growth clamps at the maximum", narrow, {1024, 2, 0}, false, {1024, 0, 0}},
      {"growth clamps on its way", narrow, {768, 2, 0}, false, {1024, 0, 0}},
      {"backoff clamps at the minimum", narrow, {1, 1, 0}, true, {1, 0, 1}},
      {"backoff clamps on its way", narrow, {1.5F, 1, 0}, true, {1, 0, 1}},
      {"factors that are no power of two round once", odd, {100, 2, 0}, false, {150, 0, 0}},
      {"the same, backoff", odd, {100, 2, 0}, true, {static_cast<float>(100 * 0.3), 0, 1}},
      {"static: an overflow is only counted", fixed, {256, 0, 1}, true, {256, 0, 2}},
      {"static: finite", fixed, {256, 0, 2}, false, {256, 0, 0}},
      {"disabled: overflow", off, {1, 0, 0}, true, {1, 0, 0}},
      {"disabled: finite", off, {1, 0, 0}, false, {1, 0, 0}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const ScalerState got = transition(row.config, row.from, row.found_inf);
    CHECK(got.scale == row.to.scale);
    CHECK(got.growth_tracker == row.to.growth_tracker);
    CHECK(got.consecutive_skips == row.to.consecutive_skips);
  }
}

TEST_CASE("case 76 [SCALER] base sequence") {
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

TEST_CASE("case 77 [SCALER] counter resets on overflow") {
  play(
      {.init_scale = 1024, .growth_interval = 3}, "..X..X...",
      {{1024, 1}, {1024, 2}, {512, 0}, {512, 1}, {512, 2}, {256, 0}, {256, 1}, {256, 2}, {512, 0}});
  play({.init_scale = 8, .growth_interval = 3}, "........",
       {{8, 1}, {8, 2}, {16, 0}, {16, 1}, {16, 2}, {32, 0}, {32, 1}, {32, 2}});
}

TEST_CASE("case 79 [SCALER] growth guard") {
  play({.init_scale = 0x1p126, .growth_interval = 1}, "...",
       {{0x1p126, 0}, {0x1p126, 0}, {0x1p126, 0}});
  play({.init_scale = 0x1p23, .growth_interval = 1, .max_scale = 0x1p24}, "...",
       {{0x1p24, 0}, {0x1p24, 0}, {0x1p24, 0}});
  // The other end: the scale and its reciprocal stay normal.
  play({.init_scale = 0x1p-125, .growth_interval = 1}, "XX", {{0x1p-126, 0}, {0x1p-126, 0}});
}

TEST_CASE("an initial scale of 1 with three infinite gradients goes 0.5, 0.25, 0.125") {
  play({.init_scale = 1}, "XXX", {{0.5, 0}, {0.25, 0}, {0.125, 0}});
}

TEST_CASE("a step without any gradient is neutral") {
  StepStatus status;
  set_scale(status, 256.0F);
  status.growth_tracker = 2;
  status.consecutive_skips = 1;
  status.present = 0;
  update_scale({.growth_interval = 3}, status);
  CHECK(status.scale == 256.0F);
  CHECK(status.growth_tracker == 2);
  CHECK(status.consecutive_skips == 1);
}

TEST_CASE("a disabled scaler starts at 1") {
  CHECK(initial_state({.enabled = false}).scale == 1.0F);
  CHECK(initial_state({}).scale == 65536.0F);
}

TEST_CASE("loss scaler settings are validated, one clear error a setting") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  struct Row {
    ScalerConfig config;
    const char* setting;
  };
  const Row rows[] = {
      {{.init_scale = 0}, "init_scale"},
      {{.init_scale = -1}, "init_scale"},
      {{.init_scale = nan}, "init_scale"},
      {{.init_scale = inf}, "init_scale"},
      {{.init_scale = 0x1p127}, "init_scale"},
      {{.init_scale = 2, .min_scale = 4}, "init_scale"},
      {{.growth_factor = 1}, "growth_factor"},
      {{.growth_factor = 0.5}, "growth_factor"},
      {{.growth_factor = nan}, "growth_factor"},
      {{.growth_factor = inf}, "growth_factor"},
      {{.backoff_factor = 1}, "backoff_factor"},
      {{.backoff_factor = 0}, "backoff_factor"},
      {{.backoff_factor = -0.5}, "backoff_factor"},
      {{.backoff_factor = nan}, "backoff_factor"},
      {{.growth_interval = 0}, "growth_interval"},
      {{.growth_interval = -2000}, "growth_interval"},
      {{.min_scale = 0}, "min_scale"},
      {{.min_scale = 0x1p-127}, "min_scale"},
      {{.min_scale = nan}, "min_scale"},
      {{.max_scale = 0x1p127}, "max_scale"},
      {{.max_scale = inf}, "max_scale"},
      {{.min_scale = 16, .max_scale = 8}, "min_scale"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.setting);
    std::string message;
    try {
      validate(row.config);
    } catch (const UsageError& error) {
      message = error.what();
    }
    CHECK(message.starts_with(concat("[loss_scaler] ", row.setting)));
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK_NOTHROW(validate(ScalerConfig{}));
  CHECK_NOTHROW(validate({.init_scale = 0x1p-126}));
  CHECK_NOTHROW(validate({.init_scale = 1, .min_scale = 1, .max_scale = 1}));
  // What is not used is not judged.
  CHECK_NOTHROW(validate({.init_scale = nan, .enabled = false}));
  CHECK_NOTHROW(validate({.growth_interval = 0, .dynamic = false}));
}
