// The bounds bite: wrong kernels are caught, right ones never are. The kernels run on the emulator.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/verify/planted.h"
#include "verify/cases.h"
#include "verify/own_kernel.h"

namespace roundoff {
const char* name(Fault fault) {
  constexpr const char* kNames[] = {"none",       "a dropped product", "a 16-bit partial sum",
                                    "truncation", "one wrong lane",    "a mask off by one"};
  return kNames[static_cast<int>(fault)];
}
}  // namespace roundoff

using namespace roundoff;

namespace {

constexpr DType kDTypes[] = {DType::fp32, DType::fp16, DType::bf16};

Case matmul_case(std::int64_t m, std::int64_t n, std::int64_t k) {
  Case c{"matmul", {}, {{"a", {m, k}}, {"b", {k, n}}}, {m, n}};
  c.terms = std::max({m, n, k}) + 1;
  return c;
}
Case softmax_case(std::int64_t rows, std::int64_t n) {
  return {"softmax", {}, {{"x", {rows, n}}}, {rows, n}};
}

OwnKernel matmul_with(Fault fault) {
  OwnKernel k;
  k.name = "planted_matmul";
  k.oracle = "matmul";
  k.forward = launcher([fault](auto target, const KernelCall& call) {
    planted_matmul(target, fault, call.in("a"), call.in("b"), call.out("y"));
  });
  return k;
}
OwnKernel softmax_with(Fault fault) {
  OwnKernel k;
  k.name = "planted_softmax";
  k.oracle = "softmax";
  k.forward = launcher([fault](auto target, const KernelCall& call) {
    planted_softmax(target, fault, call.in("x"), call.out("y"));
  });
  k.backward = launcher([fault](auto target, const KernelCall& call) {
    planted_softmax_backward(target, fault, call.in("y"), call.in("dy"), call.out("dx"));
  });
  return k;
}

struct Outcome {
  int caught = 0;
  int by_integers = 0;         // whole numbers gave other bits
  std::vector<double> ratios;  // of error over bound, where a bound was broken

  std::string text(const char* kernel, DType dtype, Fault fault, int seeds) {
    std::sort(ratios.begin(), ratios.end());
    return concat(kernel, ", ", name(dtype), ", ", name(fault), ": caught ", caught, " of ", seeds,
                  "; by whole numbers ", by_integers, ", by bounds ", ratios.size(),
                  ", error / bound ", ratios.empty() ? 0 : ratios[ratios.size() / 2], " (median)");
  }
};

Outcome hunt(const OwnKernel& kernel, DType dtype, const std::function<Case(int)>& case_of,
             int seeds) {
  const CallRunner runner = own_runner(kernel, Device::sim);
  Outcome outcome;
  for (int seed = 0; seed < seeds; ++seed) {
    CheckOptions options = check_options(kernel);
    options.seed = static_cast<std::uint64_t>(seed);
    options.schedules = {static_cast<std::uint64_t>(seed)};
    options.fills = {Fill::integers, Fill::normal, Fill::positive};
    const CheckReport r = check_case(case_of(seed), dtype, runner, options);
    if (r.holds()) continue;
    ++outcome.caught;
    double worst = 0;
    bool integers = false;
    for (const CheckFailure& f : r.failures) {
      if (f.rung == Rung::integers)
        integers = true;
      else
        worst = std::max(worst, f.ratio);
    }
    outcome.by_integers += integers ? 1 : 0;
    if (worst > 0) outcome.ratios.push_back(worst);
  }
  return outcome;
}

// Other shapes for other seeds, the ragged ones among them.
Case matmul_of(int seed) {
  constexpr std::int64_t kDepths[] = {127, 255, 257, 130};
  return matmul_case(5 + seed % 3, 7 + seed % 5, kDepths[seed % 4]);
}
Case softmax_of(int seed) {
  constexpr std::int64_t kRows[] = {33, 65, 100, 257};
  return softmax_case(3 + seed % 2, kRows[seed % 4]);
}

}  // namespace

TEST_CASE("planted faults are caught on at least 99% of 200 seeds") {
  constexpr int kSeeds = 200;
  const auto judge = [](Outcome outcome, const char* kernel, DType dtype, Fault fault) {
    const std::string text = outcome.text(kernel, dtype, fault, kSeeds);
    INFO(text);
    CHECK(outcome.caught * 100 >= kSeeds * 99);
    MESSAGE(text);
  };
  for (const DType dtype : kDTypes)
    for (const Fault fault : kFaults) {
      const bool of_lanes = fault == Fault::wrong_lane || fault == Fault::mask_off_by_one;
      if (!of_lanes)
        judge(hunt(matmul_with(fault), dtype, matmul_of, kSeeds), "matmul", dtype, fault);
      // In softmax one product of a row's gradient, and sums of numbers below 1, weigh less than
      // the rounding of a 16-bit result: nothing could see them there.
      if (of_lanes || (dtype == DType::fp32 && fault != Fault::truncation))
        judge(hunt(softmax_with(fault), dtype, softmax_of, kSeeds), "softmax", dtype, fault);
    }
}

TEST_CASE("the same kernels without a fault pass every one of those seeds") {
  for (const DType dtype : kDTypes) {
    CHECK(hunt(matmul_with(Fault::none), dtype, matmul_of, 200).caught == 0);
    CHECK(hunt(softmax_with(Fault::none), dtype, softmax_of, 200).caught == 0);
  }
}

TEST_CASE("the right kernels pass every kind of operand under several schedules") {
  for (const OwnKernel& kernel : {matmul_with(Fault::none), softmax_with(Fault::none)}) {
    const CallRunner runner = own_runner(kernel, Device::sim);
    for (const DType dtype : kDTypes) {
      CheckOptions options = check_options(kernel);
      options.schedules = {0, 1, 2, 3};
      const Case c = kernel.oracle == "matmul" ? matmul_of(1) : softmax_of(1);
      const CheckReport r = check_case(c, dtype, runner, options);
      INFO(kernel.name, ", ", name(dtype), ": ", r.holds() ? "" : r.failures[0].text);
      CHECK(r.holds());
      CHECK(r.schedules == 4);
    }
  }
}

namespace {

void run_seeds(Device device, std::uint64_t first, std::uint64_t seeds) {
  const CallRunner runner = device_runner(device);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const DrawnCase drawn = draw_check(seed, {}, kDTypes, Accumulator::fp32);
    CheckOptions options;
    options.seed = seed;
    options.schedules = {seed};
    options.libm_ulps = device == Device::cpu ? 1 : 2;
    const CheckReport r = check_case(drawn.c, drawn.dtype, runner, options);
    INFO("seed ", seed, ", ", drawn.c.operation, ", ", std::string(name(drawn.dtype)), ", ",
         drawn.c.text(), ": ", r.holds() ? "" : r.failures[0].text);
    CHECK(r.holds());
  }
}

}  // namespace

TEST_CASE("no right operation fails on random seeds, each an operation, a dtype and a shape") {
  run_seeds(Device::cpu, 100'000, 100);
  run_seeds(Device::sim, 150'000, 50);
}
TEST_CASE("full: no right operation fails on 1,000 random seeds" * doctest::test_suite("full")) {
  run_seeds(Device::cpu, 200'000, 1000);
  run_seeds(Device::sim, 300'000, 1000);
}
