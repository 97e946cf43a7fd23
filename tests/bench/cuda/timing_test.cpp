// The rules of measuring: turns, medians, rotation, ceilings, and what is refused.
#include "bench/cuda/timing.h"

#include <doctest/doctest.h>

#include "bench/cuda/ceilings.h"
#include "bench/cuda/nvml.h"
#include "bench/cuda/shared_library.h"
#include "bench/result.h"
#include "kernels/base/check.h"
#include "kernels/simt/runtime_sim.h"
#include "tests/bench/cuda/stopwatches.h"

namespace roundoff::bench {
namespace {

// Says times from a list, whatever is run.
class Scripted final : public Stopwatch {
 public:
  explicit Scripted(std::vector<double> times) : times_(std::move(times)) {}
  double time(simt::Stream*, const std::function<void()>& queue,
              const std::function<void()>& meanwhile) override {
    queue();
    if (meanwhile) meanwhile();
    return times_[next_++ % times_.size()];
  }

 private:
  std::vector<double> times_;
  std::size_t next_ = 0;
};

TEST_CASE("contenders take turns, and each round another one begins") {
  std::string turns;
  const auto contender = [&](char name) {
    Replay r;
    r.prepare = [&turns] { turns += '.'; };
    r.queue = [&turns, name] { turns += name; };
    r.passes = 4;
    return r;
  };
  const std::vector<Replay> replays{contender('a'), contender('b'), contender('c')};
  Scripted clock({1.0, 2.0, 3.0});
  std::vector<std::size_t> watched;
  const std::vector<Timing> t =
      take_turns(replays, clock, {.least_rounds = 3, .most_rounds = 3, .seconds = 1, .warm_ups = 1},
                 [&](std::size_t i) { watched.push_back(i); });
  // What is prepared comes before, and is no part of the turn.
  CHECK(turns ==
        ".a.b.c"
        ".a.b.c"
        ".b.c.a"
        ".c.a.b");
  CHECK(watched == std::vector<std::size_t>{1, 2, 0});  // in the middle round
  // The times by turn: 1 2 3 | 1 2 3 | 1 2 3, for abc, bca, cab; a pass is a quarter of a replay.
  REQUIRE(t.size() == 3);
  CHECK(t[0].rounds == std::vector<double>{0.25, 0.75, 0.5});
  CHECK(t[1].rounds == std::vector<double>{0.5, 0.25, 0.75});
  CHECK(t[2].rounds == std::vector<double>{0.75, 0.5, 0.25});
  CHECK(t[0].seconds().median == 0.5);
  CHECK(ratio(t[1], t[0]).median == doctest::Approx(1.5));
}

TEST_CASE("as many rounds as fit the time, within limits") {
  Replay r;
  r.queue = [] {};
  const auto rounds = [&](double replay, const TimingSettings& s) {
    Scripted clock({replay});
    return take_turns({&r, 1}, clock, s)[0].rounds.size();
  };
  CHECK(rounds(0.01, {.least_rounds = 5, .most_rounds = 50, .seconds = 0.2}) == 20);
  CHECK(rounds(1, {.least_rounds = 5, .most_rounds = 50, .seconds = 0.2}) == 5);
  CHECK(rounds(1e-6, {.least_rounds = 5, .most_rounds = 50, .seconds = 0.2}) == 50);
  Scripted clock({1});
  CHECK_THROWS_AS(take_turns({&r, 1}, clock, {.least_rounds = 0}), Error);
  CHECK(take_turns({}, clock, {}).empty());
}

TEST_CASE("arrays rotate through three times the cache, or it is overwritten") {
  constexpr double kL2 = 50e6, kMuch = 1e12;
  CHECK(rotation(10e6, kL2, kMuch).sets == 15);
  CHECK_FALSE(rotation(10e6, kL2, kMuch).flushes);
  // Large problems have two sets at least.
  CHECK(rotation(400e6, kL2, kMuch).sets == 2);
  // Small ones would have thousands.
  CHECK(rotation(1e3, kL2, kMuch, 64).sets == 64);
  CHECK(rotation(1e3, kL2, kMuch, 64).flushes);
  CHECK(rotation(0, kL2, kMuch, 64).sets == 64);
  // What does not fit memory: one set, and an overwritten cache where that is short of three.
  CHECK(rotation(100e6, kL2, 150e6).sets == 1);
  CHECK(rotation(100e6, kL2, 150e6).flushes);
  CHECK(rotation(400e6, kL2, 500e6).sets == 1);
  CHECK_FALSE(rotation(400e6, kL2, 500e6).flushes);
}

TEST_CASE("the emulator's time is never measured") {
  CHECK_THROWS_WITH_AS(EventStopwatch(simt::open_sim({})), doctest::Contains("emulator"), Error);
}

TEST_CASE("peaks follow the clock, the multiprocessors and the architecture") {
  const simt::GpuLimits h200{.capability = 90, .multiprocessors = 132, .clock = 1.98e9};
  CHECK(peak_flops(h200, DType::bf16, false) == doctest::Approx(1070.5e12).epsilon(1e-3));
  CHECK(peak_flops(h200, DType::fp16, false) == peak_flops(h200, DType::bf16, false));
  CHECK(peak_flops(h200, DType::fp32, true) == doctest::Approx(535.3e12).epsilon(1e-3));
  CHECK(peak_flops(h200, DType::fp32, false) == doctest::Approx(66.9e12).epsilon(1e-3));
  const simt::GpuLimits a100{.capability = 80, .multiprocessors = 108, .clock = 1.41e9};
  CHECK(peak_flops(a100, DType::fp16, false) == doctest::Approx(311.9e12).epsilon(1e-3));
  // A rate that nobody stated is not guessed.
  CHECK(peak_flops({.capability = 120, .multiprocessors = 100, .clock = 2e9}, DType::fp16, false) ==
        0);

  const Ceilings c{.peak_flops = 1e15, .peak_bytes = 5e12, .copy_bandwidth = 4e12};
  CHECK(floor_seconds(c, 1e12, 1e9) == doctest::Approx(1e-3));  // by arithmetic
  CHECK(floor_seconds(c, 1e9, 4e9) == doctest::Approx(1e-3));   // by traffic
  CHECK(floor_seconds({}, 1e12, 1e9) == 0);
}

TEST_CASE("a figure above the device's peak is refused") {
  Row row;
  row.operation = "matmul";
  row.problem = "64x64x64 nn";
  row.kernel = "sm90";
  refuse_above_peak(row, 0.99e15, 1e15, 4e12, 5e12);
  CHECK_THROWS_WITH_AS(refuse_above_peak(row, 1.01e15, 1e15, 4e12, 5e12), doctest::Contains("sm90"),
                       Error);
  CHECK_THROWS_AS(refuse_above_peak(row, 0.5e15, 1e15, 5.1e12, 5e12), Error);
  refuse_above_peak(row, 1e18, 0, 1e15, 0);  // no peak is known
}

TEST_CASE("a copy's bandwidth counts what is read and what is written") {
  const auto runtime = simt::open_sim({});
  MadeUpClock clock(4e-3);  // of four copies
  CHECK(copy_bandwidth(runtime, clock, 1 << 20) == doctest::Approx(2.0 * (1 << 20) / 1e-3));
  CHECK(runtime->counters().copies >= 4 * 7);
}

TEST_CASE("a library that is absent says which names were tried") {
  const std::vector<std::string> names{"libroundoff_absent.so.2", "libroundoff_absent.so"};
  const SharedLibrary absent = SharedLibrary::open(names, {});
  CHECK_FALSE(absent.found());
  CHECK(absent.why_not() == "not found: libroundoff_absent.so.2, libroundoff_absent.so");
  void (*function)() = nullptr;
  CHECK_THROWS_WITH_AS(absent.get(function, "f"), doctest::Contains("not found"), Error);

  const std::vector<std::filesystem::path> folders{FAKE_FOLDER};
  const SharedLibrary fake = SharedLibrary::open({{"libfake_nvml.so"}}, folders);
  REQUIRE(fake.found());
  fake.get(function, "nvmlInit_v2");
  CHECK((function != nullptr));
  CHECK_THROWS_WITH_AS(fake.get(function, "nvmlNoSuchThing"), doctest::Contains("nvmlNoSuchThing"),
                       Error);
  fake.get_if_present(function, "nvmlNoSuchThing");
  CHECK((function == nullptr));
}

TEST_CASE("clocks, power and what holds the clock back") {
  CHECK(throttle_text(0).empty());
  CHECK(throttle_text(0x1).empty());  // nothing runs
  CHECK(throttle_text(0x4 | 0x40) == "software power cap, hardware thermal limit");

  const std::vector<std::filesystem::path> folders{FAKE_FOLDER};
  const Nvml nvml(folders, "0000:01:00.0", {"libfake_nvml.so"});
  REQUIRE(nvml.usable());
  const GpuReading r = nvml.read();
  CHECK(r.sm_mhz == 1755);
  CHECK(r.memory_mhz == 3201);
  CHECK(*r.watts == doctest::Approx(698.5));
  CHECK_FALSE(r.celsius);  // the driver does not tell
  CHECK(throttle_text(r.throttled) == "software power cap");
  CHECK(nvml.max_sm_mhz() == 1980);
  CHECK(nvml.max_memory_mhz() == 3201);
  CHECK(*nvml.power_limit() == doctest::Approx(700));
  CHECK(nvml.driver() == "580.0");

  const Nvml other(folders, "0000:02:00.0", {"libfake_nvml.so"});
  CHECK_FALSE(other.usable());
  CHECK(other.why_not().find("FAKE_NOT_FOUND") != std::string::npos);
  CHECK_FALSE(other.read().sm_mhz);
  const Nvml absent(folders, "0000:01:00.0", {"libroundoff_absent.so"});
  CHECK(absent.why_not() == "not found: libroundoff_absent.so");
  CHECK(absent.driver().empty());
}

}  // namespace
}  // namespace roundoff::bench
