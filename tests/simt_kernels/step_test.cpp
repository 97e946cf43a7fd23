// The end of a training step on the emulator: the two launches against the reference path bit for
// bit, the norm within its bound, and what a window knows of itself.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/simt_kernels/step_model.h"
#include "verify/bound.h"
#include "verify/bound/step.h"
#include "verify/compare.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kGradients[] = {DType::fp32, DType::fp16, DType::bf16};
const std::vector<std::int64_t> kRagged{0,   1,   2,   3,    31,   32,   33,
                                        255, 256, 257, 4095, 4096, 4097, 9001};

StepState with_scale(float scale) {
  StepState s;
  s.scale = scale;
  s.valid = 1;
  return s;
}

// The reference's two passes with the same gradients.
StepStatus reference_status(StepModel& model, float scale, double max_norm) {
  StepStatus status;
  set_scale(status, scale);
  inspect_gradients(Ref{}, {.max_norm = max_norm}, model.gradients(), status);
  return status;
}

}  // namespace

TEST_CASE("launch A: the norm of whole numbers is exact, that of others within its bound") {
  std::mt19937 random(1);
  for (const DType dtype : kGradients) {
    for (const std::int64_t offset : {0, 1}) {
      SimDevice device;
      StepModel model(device, kRagged, {.gradient = dtype}, random, offset);
      for (std::size_t i = 0; i < model.rows().size(); i += 3) model.rows()[i].present = i == 3;
      std::vector<oracle::Values> grads;
      double squares = 0;
      std::vector<Array> whole;
      for (auto& r : model.rows())
        if (r.present) grads.push_back(r.gradient.values());
      model.upload();
      WindowParams params;
      params.scaler.enabled = false;
      params.clip.max_norm = 5;
      model.set_state(with_scale(1));
      inspect_window(device.target(), params, model.table());
      const StepStatus got = model.state().record.status;
      const auto bound =
          bound::unscale_clip({.scale = 1, .max_norm = 5}, grads, Arithmetic{}, kFp64);
      const Array norm(DType::fp64, {1}, {got.norm});
      const Comparison c = compare(norm.view(), bound.norm);
      INFO(describe(c));
      CHECK(c.holds);
      CHECK(got.clip == clip_coefficient(got.norm, 5));
      CHECK(got.found_inf == 0);
      CHECK(got.first_offender == -1);
      CHECK(got.present == static_cast<std::int32_t>(grads.size()));

      for (auto& r : model.rows()) {
        std::vector<double> v(static_cast<std::size_t>(r.gradient.size()));
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i % 17) - 8;
        if (r.present)
          for (const double x : v) squares += x * x;
        r.gradient = Array(dtype, r.gradient.shape(), v, offset);
      }
      model.upload_gradients();
      // A scale that is a power of two is exact, too.
      model.set_state(with_scale(1024));
      inspect_window(device.target(), params, model.table());
      CHECK(model.state().record.status.norm == std::sqrt(squares / (1024.0 * 1024.0)));
    }
  }
}

TEST_CASE(
    "launch A: the same bits under every schedule and number of workers, launch after launch") {
  std::vector<double> norms;
  for (std::uint64_t k = 0; k < 2 * kSchedules; ++k) {
    std::mt19937 random(2);
    SimDevice device(k);
    device.emulator().config.workers = k % 2 == 0 ? 1 : 3;
    StepModel model(device, {5000, 7, 40000}, {.gradient = DType::bf16}, random);
    model.upload();
    for (int i = 0; i < 2; ++i) {
      model.set_state(with_scale(3));
      inspect_window(device.target(), {}, model.table());
      norms.push_back(model.state().record.status.norm);
    }
  }
  for (const double n : norms)
    CHECK(std::bit_cast<std::uint64_t>(n) == std::bit_cast<std::uint64_t>(norms[0]));
}

TEST_CASE("launch A: every element's infinity or NaN is found, and the first parameter is named") {
  std::mt19937 random(3);
  for (const DType dtype : kGradients) {
    for (const double bad : {kInfinity, -kInfinity, kNaN}) {
      SimDevice device;
      StepModel model(device, {3, 0, 4099, 5000}, {.gradient = dtype}, random);
      // Chunks' ends, packs' ends, and two offenders at once.
      struct Place {
        std::size_t row;
        std::int64_t element;
      };
      model.upload();
      for (const Place place : {Place{0, 2}, {2, 0}, {2, 4095}, {2, 4096}, {2, 4098}, {3, 4999}}) {
        StepModel::Row& r = model.rows()[place.row];
        const Array before = r.gradient;
        std::vector<double> v = before.values();
        v[static_cast<std::size_t>(place.element)] = bad;
        r.gradient = Array(dtype, before.shape(), v);
        model.upload_gradients();
        model.set_state(with_scale(65536));
        inspect_window(device.target(), {.clip = {.max_norm = 1}}, model.table());
        const StepStatus got = model.state().record.status;
        CHECK(got.found_inf == 1);
        CHECK(got.first_offender == static_cast<std::int32_t>(place.row));
        CHECK(!std::isfinite(got.norm));
        CHECK(got.clip == 1.0F);
        CHECK(model.state().record.did_step == 0);
        if (place.row == 0) {
          // The second of two offenders is not named.
          model.rows()[3].gradient = Array(dtype, {5000}, std::vector<double>(5000, bad));
          model.upload_gradients();
          inspect_window(device.target(), {}, model.table());
          CHECK(model.state().record.status.first_offender == 0);
          model.rows()[3].gradient = Array(dtype, {5000}, std::vector<double>(5000, 1.0));
        }
        r.gradient = before;
      }
    }
  }
  // Finite, and infinite once it is divided by a small scale.
  SimDevice device;
  StepModel model(device, {4}, {}, random);
  model.rows()[0].gradient = Array(DType::fp32, {4}, {1, 0x1p100, 2, 3});
  model.upload();
  model.set_state(with_scale(0x1p-100F));
  inspect_window(device.target(), {}, model.table());
  CHECK(model.state().record.status.found_inf == 1);
}

TEST_CASE("launch B: the bits of the reference path, for every optimizer, type and alignment") {
  std::mt19937 random(4);
  const std::vector<StepTypes> all{
      {DType::fp32, DType::fp32, DType::fp32}, {DType::fp32, DType::fp32, DType::fp16},
      {DType::fp32, DType::fp32, DType::bf16}, {DType::fp32, DType::fp16, DType::fp16},
      {DType::fp32, DType::bf16, DType::fp32}, {DType::fp16, DType::fp32, DType::fp32},
      {DType::bf16, DType::fp32, DType::fp32}, {DType::bf16, DType::bf16, DType::fp32},
      {DType::fp16, DType::fp16, DType::fp32}};
  const SgdParams sgd[] = {{.weight_decay = 0},
                           {.weight_decay = 0.01, .rounding = {true, 1}},
                           {.momentum = 0.9, .rounding = {true, 5}},
                           {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
  const AdamParams adam[] = {{.rounding = {true, 0x123456789ABCU}},
                             {.weight_decay = 0.02},
                             {.weight_decay = 0.02, .decoupled = true},
                             {.beta1 = 0, .beta2 = 0.5, .eps = 1e-3}};
  const auto check = [&](const StepTypes& types, std::int64_t offset, const auto& settings,
                         std::uint64_t schedule) {
    constexpr bool kAdam = std::is_same_v<std::decay_t<decltype(settings)>, AdamParams>;
    SimDevice device(schedule);
    std::mt19937 same = random;
    StepModel model(device, {1, 3, 300, 0, 4098}, types, random, offset);
    StepModel expected(device, {1, 3, 300, 0, 4098}, types, same, offset);
    model.upload();
    WindowParams params;
    params.clip.max_norm = 30;
    params.rate = {.kind = ScheduleKind::cosine, .lr = 0.05, .warmup = 2, .total = 9};
    params.adam = kAdam;
    if constexpr (kAdam) params.optimizer = settings;
    model.set_state(with_scale(3.0F));
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < model.rows().size(); ++i) {
        const std::int64_t n = model.rows()[i].gradient.size();
        const Array g(types.gradient, {n}, normal(n, types.gradient, random), offset);
        model.rows()[i].gradient = expected.rows()[i].gradient = g;
        // The pattern of gradients changes, and with it which parameters count the update.
        model.rows()[i].present = expected.rows()[i].present = step != 2 || i % 2 == 0;
      }
      model.upload_gradients();
      inspect_window(device.target(), params, model.table());
      update_window(device.target(), settings, model.table());
      const StepRecord r = model.state().record;
      REQUIRE(r.did_step == 1);
      REQUIRE(r.lr == learning_rate(params.rate, step));
      auto reference = settings;
      reference.lr = r.lr;
      if constexpr (kAdam)
        adam_step(Ref{}, reference, r.status, expected.chunks());
      else
        sgd_step(Ref{}, reference, r.status, expected.chunks());
    }
    CHECK(device.emulator().counters().launches == 8);
    model.fetch();
    for (std::size_t i = 0; i < model.rows().size(); ++i) {
      const auto& got = model.rows()[i];
      const auto& want = expected.rows()[i];
      CHECK(got.steps == want.steps);
      CHECK(same_bits(got.parameter, want.parameter));
      CHECK(same_bits(got.first, want.first));
      CHECK(same_bits(got.second, want.second));
      CHECK(same_bits(got.copy, want.copy));
      CHECK(same_bits(got.gradient, want.gradient));
    }
  };
  std::uint64_t schedule = 0;
  for (const StepTypes& types : all) {
    for (const std::int64_t offset : {0, 1}) {
      CAPTURE(name(types.parameter));
      CAPTURE(name(types.gradient));
      CAPTURE(name(types.copy));
      CAPTURE(offset);
      for (const SgdParams& s : sgd) check(types, offset, s, schedule++ % kSchedules);
      for (const AdamParams& a : adam) check(types, offset, a, schedule++ % kSchedules);
    }
  }
}

TEST_CASE("a skipped step leaves everything unchanged, and puts staged buffers back") {
  std::mt19937 random(5);
  for (const bool adam : {false, true}) {
    SimDevice device;
    StepModel model(device, {5, 4100}, {.copy = DType::fp16}, random);
    // Longer than a block's part, and of a size that is no multiple of an access.
    model.add_buffer(Array(DType::fp32, {5001}, normal(5001, DType::fp32, random)),
                     Array(DType::fp32, {5001}, normal(5001, DType::fp32, random)));
    model.add_buffer(Array(DType::u8, {3}, {1, 2, 3}), Array(DType::u8, {3}, {4, 5, 6}));
    model.upload();
    model.fetch();
    const std::vector<std::byte> before = model.bytes();
    const Array gradient = model.rows()[1].gradient;
    std::vector<double> bad = gradient.values();
    bad[4099] = kInfinity;
    model.rows()[1].gradient = Array(DType::fp32, {4100}, bad);
    model.upload_gradients();
    model.set_state(with_scale(1024));
    WindowParams params;
    params.adam = adam;
    const auto step = [&] {
      inspect_window(device.target(), params, model.table());
      if (adam)
        update_window(device.target(), AdamParams{}, model.table());
      else
        update_window(device.target(), SgdParams{.momentum = 0.9}, model.table());
    };
    step();
    CHECK(model.state().record.did_step == 0);
    CHECK(model.state().scale == 512.0F);
    CHECK(model.state().updates == 0);
    model.fetch();
    CHECK(model.bytes() == before);
    for (auto& [value, staged] : model.buffers()) CHECK(same_bits(value, staged));
  }
  // Where it steps, the staged values become the buffer's.
  SimDevice device;
  StepModel model(device, {5}, {}, random);
  model.add_buffer(Array(DType::u8, {3}, {1, 2, 3}), Array(DType::u8, {3}, {4, 5, 6}));
  model.upload();
  model.set_state(with_scale(1));
  inspect_window(device.target(), {}, model.table());
  update_window(device.target(), SgdParams{}, model.table());
  model.fetch();
  CHECK(model.buffers()[0].first.values() == std::vector<double>{4, 5, 6});
}

TEST_CASE("the loss scaler moves on as on the host; without scaling a step is always taken") {
  std::mt19937 random(6);
  ScalerConfig dynamic{.init_scale = 256, .growth_interval = 2, .max_scale = 1024};
  ScalerConfig fixed{.init_scale = 256, .dynamic = false};
  ScalerConfig off{.enabled = false};
  for (const ScalerConfig& config : {dynamic, fixed, off}) {
    SimDevice device;
    StepModel model(device, {3}, {}, random);
    model.upload();
    ScalerState expected = initial_state(config);
    model.set_state(with_scale(expected.scale));
    std::int64_t updates = 0;
    for (const int bad : {0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0}) {
      model.rows()[0].gradient = Array(DType::fp32, {3}, {1, bad != 0 ? kNaN : 2, 3});
      model.upload_gradients();
      inspect_window(device.target(), {.scaler = config}, model.table());
      const StepState state = model.state();
      CHECK(state.record.status.scale == expected.scale);
      expected = transition(config, expected, bad != 0);
      updates += bad == 0 || !config.enabled;
      CHECK(state.scale == expected.scale);
      CHECK(state.record.next_scale == expected.scale);
      CHECK(state.growth_tracker == expected.growth_tracker);
      CHECK(state.consecutive_skips == expected.consecutive_skips);
      CHECK(state.updates == updates);
      CHECK(state.record.did_step == (bad == 0 || !config.enabled ? 1 : 0));
      CHECK(state.record.status.found_inf == bad);
    }
  }
}

TEST_CASE("windows without a gradient or a target are neutral") {
  std::mt19937 random(7);
  SimDevice device;
  StepModel model(device, {3, 4}, {}, random);
  model.upload();
  model.fetch();
  const std::vector<std::byte> before = model.bytes();
  const auto neutral = [&](const StepState& state) {
    model.set_state(state);
    inspect_window(device.target(), {.max_skips = 1}, model.table());
    update_window(device.target(), SgdParams{}, model.table());
    const StepState after = model.state();
    CHECK(after.record.did_step == 0);
    CHECK(after.record.void_ == 0);
    CHECK(after.record.status.found_inf == 0);
    CHECK(after.halt == StepHalt::none);
    CHECK(after.scale == state.scale);
    CHECK(after.growth_tracker == state.growth_tracker);
    CHECK(after.updates == 0);
    model.fetch();
    CHECK(model.bytes() == before);
  };
  StepState no_target = with_scale(8);
  no_target.valid = 0;
  no_target.growth_tracker = 5;
  model.rows()[0].gradient = Array(DType::fp32, {3}, {0, kNaN, 0});
  model.upload_gradients();
  neutral(no_target);
  for (auto& r : model.rows()) r.present = false;
  model.upload_gradients();
  StepState no_gradient = with_scale(8);
  no_gradient.growth_tracker = 5;
  neutral(no_gradient);

  // A table without any parameter decides as well.
  StepModel empty(device, {}, {}, random);
  empty.upload();
  empty.set_state(with_scale(8));
  inspect_window(device.target(), {}, empty.table());
  update_window(device.target(), SgdParams{}, empty.table());
  CHECK(empty.state().record.did_step == 0);
  CHECK(empty.state().record.status.norm == 0.0);
}

TEST_CASE("after a collapse of the scale, and after bad data, nothing changes any more") {
  std::mt19937 random(8);
  SimDevice device;
  StepModel model(device, {300}, {}, random);
  model.upload();
  const WindowParams params{.max_skips = 2, .rate = {.lr = 0.1}};
  const auto window = [&](bool bad) {
    std::vector<double> g(300, 1.0);
    if (bad) g[17] = kNaN;
    model.rows()[0].gradient = Array(DType::fp32, {300}, g);
    model.upload_gradients();
    inspect_window(device.target(), params, model.table());
    update_window(device.target(), SgdParams{}, model.table());
    model.fetch();
    return model.state().record;
  };
  model.set_state(with_scale(8));
  CHECK(window(false).did_step == 1);
  CHECK(window(true).halt == StepHalt::none);
  const StepRecord collapse = window(true);
  CHECK(collapse.halt == StepHalt::collapse);
  CHECK(collapse.void_ == 0);
  CHECK(collapse.next_scale == 2.0F);
  const std::vector<std::byte> after = model.bytes();
  for (int i = 0; i < 2; ++i) {
    const StepRecord late = window(false);
    CHECK(late.void_ == 1);
    CHECK(late.halt == StepHalt::none);
    CHECK(late.did_step == 0);
    CHECK(model.state().scale == 2.0F);
    CHECK(model.bytes() == after);
  }
  // The host clears it, and the run goes on.
  StepState state = model.state();
  state.halt = StepHalt::none;
  model.set_state(state);
  CHECK(window(false).did_step == 1);

  // Bad data: the window that saw it is void, whatever its gradients.
  const std::vector<std::byte> before = model.bytes();
  DeviceErrors report{1, 10, 3, 12};
  device.emulator().copy_in(device.target().errors, &report, sizeof(report));
  const StepRecord bad = window(false);
  CHECK(bad.halt == StepHalt::bad_data);
  CHECK(bad.void_ == 1);
  CHECK(bad.errors.where == 3);
  CHECK(bad.errors.value == 12);
  CHECK(model.bytes() == before);
  device.take_errors();
  CHECK(window(false).void_ == 1);
  CHECK(model.bytes() == before);
}

TEST_CASE("a window's targets are counted, and the seed is the scale over them") {
  SimDevice device;
  std::mt19937 random(9);
  StepModel model(device, {}, {}, random);
  model.upload();
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    for (const std::int64_t n : {0, 1, 31, 33, 255, 256, 257, 1000}) {
      std::vector<double> a(static_cast<std::size_t>(n));
      std::int64_t counted = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<double>(i % 5);
        counted += a[i] != 3;
      }
      const Array labels(dtype, {n}, a);
      const Array more(dtype, {4}, {0, 3, 1, 2});
      const Resident first(device, labels), second(device, more);
      StepState state = with_scale(65536);
      state.loss = 7;
      state.correct = 9;
      model.set_state(state);
      const ConstView both[] = {first, second};
      open_window(device.target(), {.ignore_index = 3}, both, ConstView::absent(),
                  model.table().state);
      state = model.state();
      CHECK(state.valid == static_cast<double>(counted + 3));
      CHECK(state.samples == n + 4);
      CHECK(state.seed == static_cast<float>(65536.0 / static_cast<double>(counted + 3)));
      CHECK(state.loss == 0);
      CHECK(state.correct == 0);
    }
  }
  const Array weights(DType::fp16, {3}, {0.5, 2, 0.25});
  const Array labels(DType::i64, {6}, {0, 1, 2, 0, -100, 7});  // 7 is reported by the loss
  const Resident w(device, weights), l(device, labels);
  const ConstView one[] = {l};
  open_window(device.target(), {}, one, w, model.table().state);
  CHECK(model.state().valid == 0.5 + 2 + 0.25 + 0.5 + 1);
  const Array none(DType::i64, {2}, {-100, -100});
  const Resident m(device, none);
  const ConstView nothing[] = {m};
  open_window(device.target(), {}, nothing, ConstView::absent(), model.table().state);
  CHECK(model.state().valid == 0);
  CHECK(model.state().seed == 0.0F);
}

TEST_CASE("loss and correct predictions add up over the micro-batches of a window") {
  SimDevice device;
  std::mt19937 random(10);
  StepModel model(device, {}, {}, random);
  model.upload();
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    for (const std::int64_t classes : {1, 3, 31, 32, 33, 100}) {
      StepState state = with_scale(1);
      state.valid = 10;
      model.set_state(state);
      double loss = 0;
      unsigned long long correct = 0;
      for (const std::int64_t rows : {0, 1, 7, 8, 9, 40}) {
        std::vector<double> x = normal(rows * classes, dtype, random);
        // Ties and NaN.
        if (rows >= 8 && classes >= 3) {
          x[1] = x[2] = 100;
          x[static_cast<std::size_t>(classes) * 3 + 2] = kNaN;
          for (std::int64_t c = 0; c < classes; ++c)
            x[static_cast<std::size_t>(classes * 4 + c)] = -kInfinity;
        }
        std::vector<double> y(static_cast<std::size_t>(rows));
        for (std::int64_t r = 0; r < rows; ++r) {
          std::int64_t best = 0;
          bool nan = false;
          for (std::int64_t c = 0; c < classes; ++c) {
            const double v = x[static_cast<std::size_t>(r * classes + c)];
            nan = nan || std::isnan(v);
            if (v > x[static_cast<std::size_t>(r * classes + best)]) best = c;
          }
          y[static_cast<std::size_t>(r)] =
              static_cast<double>(r % 3 != 1 || classes == 1 ? best : (best + 1) % classes);
          correct += !nan && y[static_cast<std::size_t>(r)] == static_cast<double>(best);
        }
        const Array logits(dtype, {rows, classes}, x), labels(DType::i64, {rows}, y);
        const Array sum(DType::fp32, {}, {1.7});
        const Resident lx(device, logits), ly(device, labels), ls(device, sum);
        score(device.target(), lx, ly, ls, model.table().state);
        loss += static_cast<double>(1.7F) / 10;
      }
      CAPTURE(name(dtype));
      CAPTURE(classes);
      CHECK(model.state().correct == correct);
      CHECK(model.state().loss == loss);
    }
  }
}

TEST_CASE("the pieces of a step one at a time, bit for bit") {
  std::mt19937 random(11);
  SimDevice device;
  for (const DType dtype : kGradients) {
    for (const std::int64_t n : kRagged) {
      for (const std::int64_t offset : {0, 1}) {
        const Array from(dtype, {n}, normal(n, dtype, random), offset);
        Array to(DType::fp32, {n}, offset), want(DType::fp32, {n}, offset);
        const Resident f(device, from);
        Resident t(device, to);
        unscale(device.target(), 1.0F / 3, f, t.view());
        t.fetch();
        unscale(Ref{}, 1.0F / 3, from, want.view());
        CHECK(same_bits(to, want));
        scale_gradient(device.target(), 0.7F, t.view());
        t.fetch();
        scale_gradient(Ref{}, 0.7F, want.view());
        CHECK(same_bits(to, want));
        // In place.
        unscale(device.target(), 3.0F, t, t.view());
        t.fetch();
        unscale(Ref{}, 3.0F, want.view(), want.view());
        CHECK(same_bits(to, want));

        Array flag(DType::i32, {1}, {7});
        Resident finite(device, flag);
        all_finite(device.target(), f, finite.view().as<std::int32_t>());
        finite.fetch();
        CHECK(flag.values()[0] == 1);
        if (n == 0) continue;
        for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
          std::vector<double> v = from.values();
          v[static_cast<std::size_t>(at)] = at % 2 == 0 ? kNaN : -kInfinity;
          const Array bad(dtype, {n}, v, offset);
          const Resident b(device, bad);
          all_finite(device.target(), b, finite.view().as<std::int32_t>());
          finite.fetch();
          CHECK(flag.values()[0] == 0);
        }
      }
    }
  }
  const Array wide(DType::fp64, {2}, {1, 2});
  const Resident w(device, wide);
  CHECK_THROWS_WITH_AS(unscale(device.target(), 1, w, w.view()), doctest::Contains("fp64"), Error);
  CHECK_THROWS_WITH_AS(scale_gradient(device.target(), 2, w.view()), doctest::Contains("fp64"),
                       Error);
}

TEST_CASE("a status of the host's drives the second launch") {
  std::mt19937 random(12);
  std::mt19937 same = random;
  SimDevice device;
  StepModel model(device, {700}, {}, random), expected(device, {700}, {}, same);
  model.upload();
  StepState state = with_scale(1);
  set_scale(state.record.status, 64);
  model.set_state(state);
  inspect_gradients(device.target(), ClipParams{.max_norm = 0.1}, model.table());
  const StepStatus status = model.state().record.status;
  const StepStatus want = reference_status(expected, 64, 0.1);
  CHECK(status.clip == want.clip);
  CHECK(status.present == 1);
  WindowParams params;
  params.adam = true;
  prepare_update(device.target(), params, status, 0.25, model.table());
  update_window(device.target(), AdamParams{}, model.table());
  adam_step(Ref{}, {.lr = 0.25}, status, expected.chunks());
  model.fetch();
  CHECK(same_bits(model.rows()[0].parameter, expected.rows()[0].parameter));
  CHECK(model.rows()[0].steps == 1);

  StepStatus scaled;
  scaled.present = 1;
  scaled.found_inf = 1;
  set_scale(scaled, 16);
  const Array host(DType::u8, {static_cast<std::int64_t>(sizeof(StepStatus))});
  const Resident memory(device, host);
  auto* on_device = memory.view().as<StepStatus>();
  device.emulator().copy_in(on_device, &scaled, sizeof(scaled));
  update_scale(device.target(), ScalerConfig{}, on_device);
  device.emulator().copy_out(&scaled, on_device, sizeof(scaled));
  CHECK(scaled.scale == 8.0F);
  CHECK(scaled.inv_scale == 0.125F);
  CHECK(scaled.consecutive_skips == 1);
}

#if ROUNDOFF_HAS_CHECKED
namespace {

Checked checked(SimDevice& device) {
  const Sim sim = device.target();
  return {sim.stream, sim.errors};
}

// Everything that a step launches, on a model with ragged sizes, absent gradients and buffers.
void whole_step(SimDevice& device, StepModel& model, bool adam) {
  const Array labels(DType::i64, {70}, std::vector<double>(70, 2));
  const Array logits(DType::fp32, {70, 33}, std::vector<double>(70 * 33, 0.5));
  const Array loss(DType::fp32, {}, {2.0});
  const Resident l(device, labels), x(device, logits), s(device, loss);
  const ConstView one[] = {l};
  open_window(checked(device), {}, one, ConstView::absent(), model.table().state);
  score(checked(device), x, l, s, model.table().state);
  WindowParams params;
  params.adam = adam;
  params.clip.max_norm = 1;
  inspect_window(checked(device), params, model.table());
  if (adam)
    update_window(checked(device), AdamParams{}, model.table());
  else
    update_window(checked(device), SgdParams{.momentum = 0.9}, model.table());
}

}  // namespace

TEST_CASE("the sanitizer has nothing to say of a step, under 16 schedules") {
  for (std::uint64_t k = 0; k < 16; ++k) {
    CAPTURE(k);
    SimDevice device(k);
    device.emulator().config.sanitize = true;
    std::mt19937 random(13);
    StepModel model(device, {5, 0, 300, 4099}, {.copy = DType::bf16}, random,
                    static_cast<std::int64_t>(k % 2));
    model.add_buffer(Array(DType::fp32, {70}, std::vector<double>(70, 1.0)),
                     Array(DType::fp32, {70}, std::vector<double>(70, 2.0)));
    model.rows()[2].present = k % 3 != 0;
    model.upload();
    model.set_state(with_scale(16));
    CHECK_NOTHROW(whole_step(device, model, k % 4 < 2));
    CHECK(model.state().record.did_step == 1);
    CHECK_NOTHROW(unscale(checked(device), 0.5F, *model.rows()[3].on_device[1],
                          model.rows()[3].on_device[2]->view()));
    CHECK_NOTHROW(scale_gradient(checked(device), 0.5F, model.rows()[3].on_device[2]->view()));
    CHECK_NOTHROW(
        all_finite(checked(device), *model.rows()[3].on_device[1],
                   reinterpret_cast<std::int32_t*>(model.rows()[2].on_device[2]->view().data)));
  }
}

TEST_CASE("a step moves 4 bytes a parameter, then 30, in whole sectors, and next to nothing else") {
  struct Traffic {
    StepTypes types;
    bool adam;
    std::uint64_t inspect, update;  // bytes a parameter
  };
  const Traffic all[] = {
      {{DType::fp32, DType::fp32, DType::fp16}, true, 4, 4 + 3 * 8 + 2},  // 30; 34 with launch A
      {{DType::fp32, DType::fp32, DType::fp32}, true, 4, 28},
      {{DType::fp32, DType::fp16, DType::bf16}, true, 2, 28},
      {{DType::fp32, DType::fp32, DType::bf16}, false, 4, 4 + 2 * 8 + 2},
      {{DType::bf16, DType::fp32, DType::fp32}, false, 4, 4 + 8 + 4}};
  for (const Traffic& t : all) {
    CAPTURE(name(t.types.gradient));
    CAPTURE(name(t.types.copy));
    SimDevice device;
    device.emulator().config.profile = true;
    std::mt19937 random(14);
    // Enough that what the last block does beside them does not count.
    const std::int64_t size = (t.inspect == 2 ? 128 : 20) * kStepChunk;
    StepModel model(device, {size}, t.types, random);
    model.upload();
    model.set_state(with_scale(16));
    device.emulator().reset_profile();
    whole_step(device, model, t.adam);
    const auto check = [&](const char* kernel, std::uint64_t bytes) {
      CAPTURE(kernel);
      simt::RequestCounts sum =
          device.emulator().profile().sum(kernel, simt::RequestKind::global_load);
      sum += device.emulator().profile().sum(kernel, simt::RequestKind::global_store);
      const double ratio = 32.0 * static_cast<double>(sum.sectors) /
                           static_cast<double>(bytes * static_cast<std::uint64_t>(size));
      CAPTURE(ratio);
      CHECK(ratio >= 1);
      CHECK(ratio <= 1.02);
      CHECK(sum.sectors == sum.least_sectors);
      simt::RequestCounts shared =
          device.emulator().profile().sum(kernel, simt::RequestKind::shared_load);
      shared += device.emulator().profile().sum(kernel, simt::RequestKind::shared_store);
      CHECK(shared.excess_wavefronts == 0);
    };
    check("inspect_window", t.inspect);
    check(t.adam ? "update_adam" : "update_momentum", t.update);
  }
}
#endif
