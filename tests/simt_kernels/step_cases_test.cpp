// Reports from the public record that speak of a step's end, on the emulator.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/simt_kernels/step_model.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A step of SGD with rate 1 from weights 0: the weights become minus the gradient that was applied.
struct Step {
  SimDevice device;
  std::mt19937 random{1};
  StepModel model;

  Step(const std::vector<std::int64_t>& sizes, DType gradient)
      : model(device, sizes, {.gradient = gradient}, random) {
    for (auto& r : model.rows())
      r.parameter = Array(DType::fp32, {r.parameter.size()},
                          std::vector<double>(static_cast<std::size_t>(r.parameter.size())));
  }
  void set(std::size_t row, const std::vector<double>& g) {
    Array& gradient = model.rows()[row].gradient;
    gradient = Array(gradient.dtype(), gradient.shape(), g);
  }
  StepRecord run(float scale, double max_norm = kInfinity) {
    if (model.table().state == nullptr)
      model.upload();
    else
      model.upload_gradients();
    StepState s;
    s.scale = scale;
    s.valid = 1;
    model.set_state(s);
    inspect_window(device.target(), {.clip = {.max_norm = max_norm}, .rate = {.lr = 1}},
                   model.table());
    update_window(device.target(), SgdParams{.momentum = 0}, model.table());
    model.fetch();
    return model.state().record;
  }
  std::vector<double> applied(std::size_t row = 0) {
    std::vector<double> w = model.rows()[row].parameter.values();
    for (double& v : w) v = -v;
    return w;
  }
};

StepRecord one_step(std::vector<double> g, float scale, double max_norm,
                    std::vector<double>* applied, DType dtype = DType::fp32) {
  Step step({static_cast<std::int64_t>(g.size())}, dtype);
  step.set(0, g);
  const StepRecord r = step.run(scale, max_norm);
  if (applied != nullptr) *applied = step.applied();
  return r;
}

double fp32(double v) { return static_cast<double>(static_cast<float>(v)); }

}  // namespace

TEST_CASE("case 92 [CLIP] the check sees every element of every tensor (sim)") {
  Step step({1, 0, 70, 1000003, 257}, DType::fp32);
  step.model.rows()[2].present = false;
  for (const std::size_t row : std::initializer_list<std::size_t>{0, 3, 4})
    step.set(row, std::vector<double>(
                      static_cast<std::size_t>(step.model.rows()[row].gradient.size()), 1.0));
  step.model.upload();
  step.model.fetch();
  const std::vector<std::byte> before = step.model.bytes();
  for (const double bad : {kInfinity, -kInfinity, kNaN}) {
    std::vector<double> last(257, 1.0);
    last[256] = bad;
    step.set(4, last);
    StepRecord r = step.run(65536);
    CHECK(r.status.found_inf == 1);
    CHECK(r.status.first_offender == 4);
    CHECK(step.model.bytes() == before);
    step.set(4, std::vector<double>(257, 1.0));
    step.set(0, {bad});
    r = step.run(65536);
    CHECK(r.status.found_inf == 1);
    CHECK(r.status.first_offender == 0);
    CHECK(r.status.present == 4);
    CHECK(step.model.bytes() == before);
    step.set(0, {1.0});
  }
}

TEST_CASE("case 95 [CLIP] a flag does not outlive its step (sim)") {
  Step step({300}, DType::fp32);
  step.set(0, std::vector<double>(300, kNaN));
  CHECK(step.run(4).did_step == 0);
  step.set(0, std::vector<double>(300, 4.0));
  const StepRecord r = step.run(4);
  CHECK(r.status.found_inf == 0);
  CHECK(r.status.first_offender == -1);
  CHECK(r.did_step == 1);
  CHECK(step.applied() == std::vector<double>(300, 1.0));
}

TEST_CASE("case 96 [CLIP] unscaling goes to fp32, not to 16 bit (sim)") {
  std::vector<double> applied;
  one_step({0x1p-14}, 65536, kInfinity, &applied, DType::fp16);
  CHECK(applied == std::vector<double>{0x1p-30});
}

TEST_CASE("case 98 [CLIP] no epsilon in the coefficient (sim)") {
  std::vector<double> applied;
  one_step({3, 4}, 1, 1, &applied);
  CHECK(applied == std::vector<double>{fp32(3 * fp32(1.0 / 5)), fp32(4 * fp32(1.0 / 5))});
  one_step({1, 0}, 1, 1, &applied);
  CHECK(applied == std::vector<double>{1, 0});
  // The norm of fp32(0.6), fp32(0.8) is just above 1, by rounding alone.
  const StepRecord r = one_step({fp32(0.6), fp32(0.8)}, 1, 1, &applied);
  CHECK(std::abs(r.status.norm - 1) < 0x1p-23);
  CHECK(r.status.clip >= 1 - 0x1p-24F);
  one_step({fp32(3e-7), fp32(4e-7)}, 1, 1e-7, &applied);
  CHECK(std::abs(applied[0] / 0.6e-7 - 1) < 4 * 0x1p-24);
  CHECK(std::abs(applied[1] / 0.8e-7 - 1) < 4 * 0x1p-24);
}

TEST_CASE("case 99 [CLIP] squares do not overflow (sim)") {
  std::vector<double> applied;
  StepRecord r = one_step(std::vector<double>(100, fp32(1e20)), 1, 1, &applied);
  CHECK(r.status.found_inf == 0);
  CHECK(std::abs(r.status.norm / 1e21 - 1) < 0x1p-22);
  for (const double g : applied) CHECK(std::abs(g / 0.1 - 1) < 4 * 0x1p-24);
  r = one_step({300}, 1, 1, &applied, DType::fp16);
  CHECK(r.status.norm == 300);
  CHECK(std::abs(applied[0] - 1) <= 0x1p-23);
  r = one_step({fp32(3e15 * 65536), fp32(4e15 * 65536)}, 65536, kInfinity, &applied);
  CHECK(r.status.found_inf == 0);
  CHECK(std::abs(r.status.norm / 5e15 - 1) < 0x1p-23);
}

TEST_CASE("case 101 [CLIP] non-finite gradients meet clipping (sim)") {
  Step step({3}, DType::fp32);
  step.set(0, {1, kInfinity, 2});
  const StepRecord r = step.run(1, 1);
  CHECK(r.status.norm == kInfinity);
  CHECK(r.status.found_inf == 1);
  CHECK(r.did_step == 0);
  CHECK(step.model.rows()[0].gradient.values() == std::vector<double>{1, kInfinity, 2});
  CHECK(step.applied() == std::vector<double>{0, 0, 0});
}

TEST_CASE("case 102 [CLIP] max_norm: what is refused, and its ends (sim)") {
  CHECK_THROWS_AS(one_step({1}, 1, -1, nullptr), UsageError);
  CHECK_THROWS_AS(one_step({1}, 1, kNaN, nullptr), UsageError);
  std::vector<double> applied;
  one_step({3, 4}, 1, 0, &applied);
  CHECK(applied == std::vector<double>{0, 0});
  one_step({3, 4}, 1, kInfinity, &applied);
  CHECK(applied == std::vector<double>{3, 4});
  const StepRecord r = one_step({0, 0}, 1, 0, &applied);
  CHECK(r.status.norm == 0);
  CHECK(applied == std::vector<double>{0, 0});
}

TEST_CASE("case 103 [CLIP] clipping comes after unscaling (sim)") {
  std::vector<double> applied;
  one_step({3 * 1024, 4 * 1024}, 1024, 1, &applied);
  CHECK(applied == std::vector<double>{fp32(3 * fp32(1.0 / 5)), fp32(4 * fp32(1.0 / 5))});
}

TEST_CASE("case 113 [OPT] Adam's eps does not vanish with 16-bit parameters (sim)") {
  SimDevice device;
  std::mt19937 random(2);
  StepModel model(device, {40}, {.parameter = DType::fp16, .gradient = DType::fp16}, random);
  const std::vector<double> before = model.rows()[0].parameter.values();
  model.rows()[0].gradient = Array(DType::fp16, {40}, std::vector<double>(40));
  model.upload();
  StepState s;
  s.valid = 1;
  model.set_state(s);
  inspect_window(device.target(), {.adam = true}, model.table());
  update_window(device.target(), AdamParams{}, model.table());
  model.fetch();
  CHECK(model.rows()[0].parameter.values() == before);
}

TEST_CASE("case 114 [OPT] 16-bit weights need fp32 masters (sim)") {
  struct Case {
    StepTypes types;
    double weight, copy;
  };
  const Case cases[] = {{{DType::fp32, DType::fp32, DType::bf16}, 0x1.e14804p-1, 0.94140625},
                        {{DType::fp32, DType::fp32, DType::fp16}, 0x1.e14804p-1, 0.93994140625},
                        {{DType::bf16, DType::fp32, DType::fp32}, 1.0, 0},
                        {{DType::fp16, DType::fp32, DType::fp32}, 0.951171875, 0}};
  for (const Case& c : cases) {
    SimDevice device;
    std::mt19937 random(3);
    StepModel model(device, {1}, c.types, random);
    model.rows()[0].parameter = Array(c.types.parameter, {1}, {1.0});
    model.rows()[0].gradient = Array(DType::fp32, {1}, {1.0});
    model.upload();
    StepState s;
    s.valid = 1;
    model.set_state(s);
    for (int i = 0; i < 100; ++i) {
      inspect_window(device.target(), {.rate = {.lr = 6e-4}}, model.table());
      update_window(device.target(), SgdParams{}, model.table());
    }
    model.fetch();
    if (c.types.parameter == DType::fp32)
      CHECK(std::abs(model.rows()[0].parameter[0] - 0.9400019646) < 5e-11 + 0x1p-25);
    else
      CHECK(model.rows()[0].parameter[0] == c.weight);
    if (c.copy != 0) CHECK(model.rows()[0].copy[0] == c.copy);
  }
}

TEST_CASE("case 116 [OPT] a skipped step leaves m, v and the step count alone (sim)") {
  SimDevice device;
  std::mt19937 random(4);
  StepModel model(device, {1}, {}, random);
  model.rows()[0].parameter = Array(DType::fp32, {1}, {1.0});
  model.upload();
  StepState s;
  s.valid = 1;
  model.set_state(s);
  WindowParams params{.rate = {.lr = 0.01}, .adam = true};
  for (const double g : {kNaN, 0.5}) {
    model.rows()[0].gradient = Array(DType::fp32, {1}, {g});
    model.upload_gradients();
    inspect_window(device.target(), params, model.table());
    update_window(device.target(), AdamParams{}, model.table());
  }
  model.fetch();
  CHECK(model.rows()[0].steps == 1);
  // One step of Adam from nothing moves by the rate, whatever the gradient.
  CHECK(std::abs(model.rows()[0].parameter[0] - 0.9900000002) < 0x1p-24);
}
