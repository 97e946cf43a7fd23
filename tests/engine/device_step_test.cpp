// Steps whose end a device decides: the same bits as the host's optimizer and scaler, two launches,
// no wait, outcomes that arrive late, and what halts.
#include "engine/device_step.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/context.h"
#include "kernels/simt/runtime_sim.h"
#include "tests/engine/support.h"

namespace roundoff::testing {

namespace {

using simt::QueueOrder;
using simt::RuntimeCounters;
using Kind = OptimizerSettings::Kind;

std::shared_ptr<simt::Runtime> open_runtime(bool late) {
  return late ? simt::open_sim({.order = QueueOrder::deferred, .order_seed = 7})
              : simt::open(Device::sim);
}

struct Setup {
  OptimizerSettings optimizer{};
  ScalerConfig scaler{};
  std::int64_t max_skips = 0;
  double max_norm = std::numeric_limits<double>::infinity();
  LearningRate rate{.lr = 0.01};
  DType compute = DType::fp16;
  DType master = DType::fp32;
};

// An arena with three parameters and a buffer, and what updates it.
struct Run {
  Context context;
  ParameterArena arena;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;

  Run(std::shared_ptr<simt::Runtime> runtime, const Setup& s)
      : context(std::move(runtime)), scaler(s.scaler, s.max_skips) {
    arena.add("a", {70, 3}, Init::uniform_fan_in, 3);
    arena.add("b", {5}, Init::ones);
    arena.add("c", {4100}, Init::normal);
    arena.add_buffer("mean", {9}, 0.5);
    arena.allocate(context.allocator, {.master = s.master, .compute = s.compute, .seed = 3});
    optimizer = std::make_unique<Optimizer>(context, arena, s.optimizer);
  }
  // The gradient of window `step`, times `scale`; `bad` puts a NaN into b's. Every third window has
  // no gradient for a.
  void backward(int step, double scale, bool bad) {
    std::mt19937 random(static_cast<unsigned>(step));
    std::normal_distribution<double> normal;
    for (ParameterEntry& e : arena.entries()) {
      Values g(static_cast<std::size_t>(e.shape.numel()));
      for (double& v : g) v = static_cast<double>(static_cast<float>(normal(random))) * scale;
      if (bad && e.name == "b") g[2] = kNaN;
      if (step % 3 == 2 && e.name == "a") continue;
      e.tensor.leaf()->grad.copy_from(tensor(context, g, e.shape));
      e.tensor.leaf()->has_grad = true;
    }
    Buffer& buffer = arena.buffers().front();
    buffer.staged.copy_from(full(context, step + 1.0, buffer.shape));
  }
  std::vector<Values> state() {
    optimizer->read_counts();
    std::vector<Values> all{arena.flat_master().to_vector(),
                            arena.buffers().front().value.to_vector(),
                            arena.buffers().front().staged.to_vector()};
    for (const Tensor& t :
         {arena.flat_compute(), optimizer->first_moment(), optimizer->second_moment()})
      if (t.defined()) all.push_back(t.to_vector());
    Values steps;
    for (const ParameterEntry& e : arena.entries()) steps.push_back(static_cast<double>(e.steps));
    all.push_back(steps);
    return all;
  }
};

// The host's window with the same gradient.
bool step_on_host(Run& run, const Setup& s, int step, std::int64_t updates, bool bad) {
  const double scale = run.scaler.seed();
  run.backward(step, scale, bad);
  const bool stepped =
      run.scaler.step(*run.optimizer, learning_rate(s.rate, updates), {.max_norm = s.max_norm});
  if (stepped)
    run.arena.commit_buffers();
  else
    run.arena.discard_buffers();
  run.arena.zero_grad();
  run.scaler.update();
  return stepped;
}

struct Labels {
  Tensor tensor;
  std::vector<ConstView> views;
  explicit Labels(Context& c) : tensor(full(c, 0, {2}, DType::i64)), views{tensor.view()} {}
};

void queue(Run& run, DeviceStep& device, const Labels& labels, int step, double scale, bool bad) {
  device.open(labels.views, -100, {});
  run.backward(step, scale, bad);
  device.close();
}

}  // namespace

TEST_CASE("a device's steps have the bits of the host's, whatever is skipped or absent") {
  const std::vector<Setup> setups{
      {.optimizer = {.kind = Kind::adamw, .weight_decay = 0.01},
       .scaler = {.init_scale = 64, .growth_interval = 3},
       .rate = {.kind = ScheduleKind::cosine, .lr = 0.1, .warmup = 2, .total = 12}},
      {.optimizer = {.kind = Kind::adam, .weight_decay = 0.1},
       .scaler = {.enabled = false},
       .compute = DType::bf16},
      {.optimizer = {.kind = Kind::sgd, .momentum = 0.9, .nesterov = true},
       .scaler = {.init_scale = 3, .dynamic = false},
       .rate = {.kind = ScheduleKind::step, .lr = 0.1, .gamma = 0.5, .step_every = 2},
       .compute = DType::fp32},
      {.optimizer = {.kind = Kind::sgd}, .compute = DType::fp32, .master = DType::bf16},
      {.optimizer = {.kind = Kind::adamw, .stochastic_rounding = true, .rounding_seed = 7},
       .compute = DType::fp32,
       .master = DType::fp16}};
  for (const Setup& s : setups) {
    for (const bool late : {false, true}) {
      Run host(nullptr, s);
      Run run(open_runtime(late), s);
      DeviceStep device(run.context, *run.optimizer, run.scaler, {.max_norm = s.max_norm}, s.rate);
      const Labels labels(run.context);
      // Without a scaler a NaN would be taken over, and NaN compares with nothing.
      const auto bad = [&](int step) { return s.scaler.enabled && step % 5 == 1; };
      std::int64_t updates = 0;
      std::int64_t seen = 0;
      std::vector<StepStatus> expected;
      std::vector<double> scales;
      const auto check = [&](const StepRecord& r) {
        const auto i = static_cast<std::size_t>(seen++);
        CHECK(r.did_step == (bad(static_cast<int>(i)) ? 0 : 1));
        CHECK(r.status.scale == expected[i].scale);
        CHECK(r.status.found_inf == expected[i].found_inf);
        CHECK(r.status.first_offender == expected[i].first_offender);
        CHECK(r.status.present == expected[i].present);
        CHECK(r.status.clip == expected[i].clip);
        CHECK(r.valid == 2);
        CHECK(r.samples == 2);
        CHECK(r.void_ == 0);
      };
      for (int step = 0; step < 11; ++step) {
        const double scale = host.scaler.scale();
        updates += step_on_host(host, s, step, updates, bad(step));
        expected.push_back(host.scaler.status());
        scales.push_back(scale);
        queue(run, device, labels, step, scale, bad(step));
        while (const auto r = device.next()) check(*r);
        CHECK(seen >= step - 1);  // two windows late at most
      }
      while (const auto r = device.wait()) check(*r);
      CHECK(seen == 11);
      CHECK(run.scaler.scale() == host.scaler.scale());
      CHECK(run.scaler.growth_tracker() == host.scaler.growth_tracker());
      CHECK(run.optimizer->memory()->read().updates == updates);
      CHECK(run.state() == host.state());
    }
  }
}

TEST_CASE("a window's end is two launches and one copy, without a wait, an allocation or a fill") {
  Run run(simt::open(Device::sim), {});
  DeviceStep device(run.context, *run.optimizer, run.scaler, {}, {});
  const Labels labels(run.context);
  const auto counters = [&] { return run.context.queue()->runtime().counters(); };
  for (int step = 0; step < 6; ++step) {
    device.open(labels.views, -100, {});
    run.backward(0, 65536, step == 3);
    const RuntimeCounters before = counters();
    device.close();
    const RuntimeCounters used = counters() - before;
    CHECK(used.launches == 2);
    CHECK(used.copies == (step == 0 ? 2 : 1));  // which gradients are present is told once
    while (device.next()) {
    }
    const RuntimeCounters all = counters() - before;
    CHECK(all.synchronisations == 0);
    CHECK(all.allocations == (step == 0 ? all.allocations : 0));
    CHECK(all.fills == 0);
  }
}

TEST_CASE("a collapsed scale is told at most two windows later, with the state unchanged since") {
  for (const bool late : {false, true}) {
    const Setup s{.scaler = {.init_scale = 256}, .max_skips = 2};
    Run run(open_runtime(late), s);
    DeviceStep device(run.context, *run.optimizer, run.scaler, {}, s.rate);
    const Labels labels(run.context);
    queue(run, device, labels, 0, 256, false);
    while (device.wait()) {
    }
    const auto before = run.state();
    std::string what;
    int step = 1;
    int records = 0;
    try {
      for (; step < 9; ++step) {
        queue(run, device, labels, step, 256, /*bad=*/step <= 2);
        while (const auto r = device.next()) {
          ++records;
          if (r->halt != StepHalt::none) device.fail(*r);
        }
      }
    } catch (const ScaleCollapse& e) {
      what = e.what();
    }
    CHECK(records == 2);
    CHECK(step <= 4);
    CHECK(step >= (late ? 3 : 2));
    CHECK(what ==
          "[scaler] 2 updates in a row were skipped, the scale is down to 64; the first non-finite "
          "gradient is that of 'b'");
    CHECK(run.scaler.scale() == 64);
    CHECK(run.state() == before);
    // Everything is in place for the next window.
    queue(run, device, labels, 0, 64, false);
    const auto r = device.wait();
    REQUIRE(r.has_value());
    CHECK(r->did_step == 1);
    CHECK(r->updates == 2);
    CHECK(!device.wait().has_value());
  }
}

TEST_CASE("bad data is told at most two windows later, and the window that had it is void") {
  for (const bool late : {false, true}) {
    Run run(open_runtime(late), {});
    DeviceStep device(run.context, *run.optimizer, run.scaler, {}, {});
    const Labels labels(run.context);
    const auto before = run.state();
    std::string what;
    int step = 0;
    try {
      for (; step < 9; ++step) {
        device.open(labels.views, -100, {});
        if (step == 0) {
          const DeviceErrors report{static_cast<std::int32_t>(DeviceError::cross_entropy_label), 10,
                                    3, 12};
          run.context.queue()->write(run.context.errors(), &report, sizeof(report));
        }
        run.backward(step, 65536, false);
        device.close();
        while (const auto r = device.next())
          if (r->halt != StepHalt::none) device.fail(*r);
      }
    } catch (const DeviceDataError& e) {
      what = e.what();
    }
    CHECK(step <= 2);
    CHECK(what == "[cross_entropy] row 3 has label 12, expected 0 to 9 or ignore_index");
    CHECK(run.state() == before);
    CHECK(run.scaler.growth_tracker() == 0);
    queue(run, device, labels, 0, 65536, false);
    CHECK(device.wait()->did_step == 1);
  }
}

TEST_CASE("outcomes must be asked for") {
  Run run(simt::open(Device::sim), {});
  DeviceStep device(run.context, *run.optimizer, run.scaler, {}, {});
  const Labels labels(run.context);
  for (int step = 0; step < 4; ++step) queue(run, device, labels, step, 65536, false);
  CHECK_THROWS_WITH_AS(queue(run, device, labels, 4, 65536, false),
                       doctest::Contains("wait to be asked for"), Error);
}

TEST_CASE("the scaler's own order of calls works on a device, too, and waits") {
  const Setup s{.optimizer = {.kind = Kind::adamw}, .scaler = {.init_scale = 64}, .max_norm = 2};
  Run host(nullptr, s), run(simt::open(Device::sim), s);
  for (int step = 0; step < 5; ++step) {
    const bool stepped = step_on_host(host, s, step, step, step == 1);
    CHECK(step_on_host(run, s, step, step, step == 1) == stepped);
    CHECK(run.scaler.scale() == host.scaler.scale());
    // The norm is the one sum whose order differs: 4375 squares in fp64.
    const double norm = host.scaler.status().norm;
    if (stepped) CHECK(std::abs(run.scaler.status().norm - norm) <= 4375 * 0x1p-53 * norm);
  }
  // Unscaled in place, looked at, and then taken.
  for (Run* r : {&host, &run}) {
    r->backward(5, r->scaler.seed(), false);
    r->scaler.unscale(*r->optimizer);
  }
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(gradient(host.arena.entries()[i].tensor) == gradient(run.arena.entries()[i].tensor));
}

}  // namespace roundoff::testing
