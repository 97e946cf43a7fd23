#include "engine/schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/base/check.h"

using namespace roundoff;

namespace {

using Kind = ScheduleSettings::Kind;

// A rate is a product of a handful of fp64 operations.
bool same(double got, double want) { return std::abs(got - want) <= 8 * 0x1p-53 * std::abs(want); }

}  // namespace

TEST_CASE("constant, after a linear warm-up") {
  const Schedule plain({.kind = Kind::constant, .lr = 0.5}, 100);
  for (const std::int64_t t : {0, 1, 99, 1000000}) CHECK(plain.lr(t) == 0.5);
  const Schedule warm({.kind = Kind::constant, .lr = 0.5, .warmup = 4}, 100);
  const double want[] = {0.125, 0.25, 0.375, 0.5, 0.5, 0.5};
  for (std::int64_t t = 0; t < 6; ++t) CHECK(warm.lr(t) == want[t]);
}

TEST_CASE("the functions that a device shares with the host are as good as a library's") {
  CHECK(cos_pi(0) == 1);
  CHECK(cos_pi(0.5) == 0);
  CHECK(cos_pi(1) == -1);
  constexpr int kPoints = 4096;
  for (int i = 0; i <= kPoints; ++i) {
    const double t = static_cast<double>(i) / kPoints;
    const auto exact = std::cos(std::numbers::pi_v<long double> * static_cast<long double>(t));
    // The argument's rounding and a handful of operations on values up to 1.
    CHECK(std::abs(static_cast<long double>(cos_pi(t)) - exact) <= 4 * 0x1p-53L);
  }
  for (const double base : {0.5, 0.9, 0.999, 0.9999999})
    for (const std::int64_t n : {0, 1, 2, 3, 31, 1000, 100000}) {
      const auto exact = std::pow(static_cast<long double>(base), static_cast<long double>(n));
      const auto error = std::abs(static_cast<long double>(integer_power(base, n)) - exact);
      CHECK(error <= static_cast<long double>(n) * 0x1p-52L * exact + 0x1p-1074L);
    }
}

TEST_CASE("cosine goes from lr to min_lr over what follows the warm-up, and stays there") {
  const Schedule s({.kind = Kind::cosine, .lr = 1.0, .warmup = 10, .min_lr = 0.1}, 110);
  CHECK(s.lr(0) == 0.1);  // the first of ten steps up
  CHECK(s.lr(9) == 1.0);
  CHECK(s.lr(10) == 1.0);
  CHECK(same(s.lr(60), 0.55));
  for (const std::int64_t t : {11, 35, 77, 109})
    CHECK(same(s.lr(t),
               0.1 + 0.45 * (1 + std::cos(std::numbers::pi * static_cast<double>(t - 10) / 100))));
  CHECK(same(s.lr(110), 0.1));
  CHECK(s.lr(1000) == s.lr(110));
  for (std::int64_t t = 10; t < 110; ++t) CHECK(s.lr(t + 1) < s.lr(t));
  // A run that ends inside its warm-up, and an empty one.
  CHECK(Schedule({.kind = Kind::cosine, .lr = 1.0, .warmup = 10}, 5).lr(4) == 0.5);
  CHECK(Schedule({.kind = Kind::cosine, .lr = 1.0}, 0).lr(0) == 1.0);
}

TEST_CASE("step multiplies by gamma after every so many updates") {
  const Schedule s({.kind = Kind::step, .lr = 1.0, .warmup = 2, .gamma = 0.5, .step_every = 3},
                   100);
  const double want[] = {0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25};
  for (std::int64_t t = 0; t < 9; ++t) CHECK(s.lr(t) == want[t]);
}

TEST_CASE("a schedule is a function of the number of updates alone") {
  const Schedule s({.kind = Kind::cosine, .lr = 0.3, .warmup = 3}, 50);
  const double at7 = s.lr(7);
  s.lr(49);
  s.lr(0);
  CHECK(s.lr(7) == at7);
  CHECK(Schedule({.kind = Kind::cosine, .lr = 0.3, .warmup = 3}, 50).lr(7) == at7);
}

TEST_CASE("schedule settings are validated, one clear error a setting") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  struct Row {
    ScheduleSettings settings;
    std::int64_t total;
    const char* setting;
  };
  const Row rows[] = {
      {{.lr = -1e-3}, 10, "lr"},
      {{.lr = nan}, 10, "lr"},
      {{.lr = inf}, 10, "lr"},
      {{.warmup = -1}, 10, "warmup"},
      {{.kind = Kind::cosine, .lr = 0.1, .min_lr = 0.2}, 10, "min_lr"},
      {{.kind = Kind::cosine, .min_lr = -0.2}, 10, "min_lr"},
      {{.kind = Kind::cosine, .min_lr = nan}, 10, "min_lr"},
      {{.kind = Kind::step, .gamma = 0}, 10, "gamma"},
      {{.kind = Kind::step, .gamma = nan}, 10, "gamma"},
      {{.kind = Kind::step, .step_every = 0}, 10, "step_every"},
      {{}, -1, "the run"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.setting);
    std::string message;
    try {
      const Schedule s(row.settings, row.total);
    } catch (const UsageError& error) {
      message = error.what();
    }
    CHECK(message.starts_with(concat("[schedule] ", row.setting)));
  }
  CHECK_NOTHROW(Schedule({.lr = 0.0}, 10));
}

TEST_CASE("schedule names are read and written") {
  for (const Kind kind : {Kind::constant, Kind::cosine, Kind::step})
    CHECK(parse_schedule(name(kind)) == kind);
  CHECK_THROWS_WITH_AS(parse_schedule("linear"),
                       "[schedule] unknown schedule 'linear'; constant, cosine or step expected",
                       UsageError);
}
