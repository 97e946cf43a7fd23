// Training on sim: every node within its bound, no wait and no allocation in a step, outcomes that
// arrive late, skips, accumulation, checkpoints, graphs.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "kernels/simt/runtime_sim.h"
#include "models.h"
#include "models/checkpoint.h"
#include "models/run.h"
#include "node_bounds.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

using simt::QueueOrder;
using simt::RuntimeCounters;

std::shared_ptr<simt::Runtime> deferred() {
  return simt::open_sim({.order = QueueOrder::deferred, .order_seed = 5});
}

TrainConfig config(const std::string& model, Precision precision) {
  TrainConfig c;
  c.data = "small";
  c.model = {.model = model, .hidden = {16}};
  c.precision = precision;
  c.device = Device::sim;
  c.micro_batch = 6;
  c.epochs = 100;
  c.optimizer = {.kind = OptimizerSettings::Kind::adamw, .weight_decay = 0.01};
  c.schedule = {.kind = ScheduleSettings::Kind::cosine, .lr = 1e-2, .warmup = 3};
  c.clip = 1;
  c.scaler.init_scale = 1024;
  c.scaler.growth_interval = 4;
  return c;
}

constexpr Precision kMixed[] = {Precision::fp32, Precision::bf16, Precision::fp16};

std::vector<std::byte> state(Trainer& trainer) {
  trainer.settle();
  trainer.optimizer().read_counts();
  std::vector<std::byte> bytes;
  const auto add = [&](const Tensor& t) {
    if (!t.defined()) return;
    const std::size_t at = bytes.size();
    bytes.resize(at + t.bytes());
    t.read(bytes.data() + at);
  };
  ParameterArena& parameters = trainer.model().parameters();
  add(parameters.flat_master());
  add(parameters.flat_compute());
  add(trainer.optimizer().first_moment());
  add(trainer.optimizer().second_moment());
  for (const Buffer& b : parameters.buffers()) add(b.value);
  for (const ParameterEntry& e : parameters.entries()) {
    const auto* steps = reinterpret_cast<const std::byte*>(&e.steps);
    bytes.insert(bytes.end(), steps, steps + sizeof(e.steps));
  }
  return bytes;
}

RuntimeCounters counters(Trainer& trainer) {
  return trainer.context().queue()->runtime().counters();
}

}  // namespace

TEST_CASE("twenty steps on sim: every node, fed sim's own inputs, within its bound") {
  const Dataset data = small_dataset();
  for (const char* model : {"mlp", "convnet", "convnet with BatchNorm"}) {
    for (const Precision precision : kMixed) {
      CAPTURE(model);
      CAPTURE(name(precision));
      const bool batch_norm = std::string_view(model) == "convnet with BatchNorm";
      TrainConfig c = config(batch_norm ? "convnet" : model, precision);
      c.model.batch_norm = batch_norm;
      Trainer trainer(c, data);
      NodeBounds bounds({{"conv2d", {{"padding", "1"}}},
                         {"cross_entropy", {{"reduction", "sum"}}},
                         {"flatten", {{"first", "1"}}}});
      trainer.context().observer = &bounds;
      double first = 0;
      double last = 0;
      for (int step = 0; step < 20; ++step) {
        CAPTURE(step);
        trainer.step();
        trainer.settle();
        bounds.check();
        CHECK(trainer.last().did_step);
        if (step < 5) first += trainer.last().loss;
        if (step >= 15) last += trainer.last().loss;
      }
      CHECK(bounds.judged() >= 20 * 8);
      CHECK(last < first);  // it learns
    }
  }
}

TEST_CASE(
    "a step waits for nothing and allocates nothing once it has run, and ends in two launches") {
  const Dataset data = small_dataset(120);
  for (const char* model : {"mlp", "convnet"}) {
    for (const Precision precision : kMixed) {
      CAPTURE(model);
      CAPTURE(name(precision));
      TrainConfig c = config(model, precision);
      c.accumulate = 2;
      Trainer trainer(c, data);
      for (int i = 0; i < 2; ++i) trainer.step();
      const std::int64_t blocks = trainer.context().allocator.stats().system_allocations;
      RuntimeCounters before = counters(trainer);
      std::int64_t launches = 0;
      for (int i = 0; i < 5; ++i) {
        trainer.step();
        const RuntimeCounters used = counters(trainer) - before;
        before = counters(trainer);
        CHECK(used.synchronisations == 0);
        CHECK(used.allocations == 0);
        CHECK(used.releases == 0);
        CHECK(used.fills == 0);  // gradients are written, not added to zeros
        if (i > 0) CHECK(used.launches == launches);
        launches = used.launches;
      }
      CHECK(trainer.context().allocator.stats().system_allocations == blocks);

      // What the micro-batches launch, without the end: the rest is the optimizer and the scaler.
      std::vector<MicroBatch> window = trainer.cut(trainer.sampler().next(), c.micro_batch);
      trainer.context().rng.step = 99;
      DeviceStep step(trainer.context(), trainer.optimizer(), trainer.scaler(), {}, {});
      queue_window(trainer.context(), trainer.model(), step, window, {});
      while (step.wait()) {
      }
      before = counters(trainer);
      step.close_on_device();
      CHECK((counters(trainer) - before).launches == 2);
    }
  }
}

TEST_CASE("outcomes are at most two windows late, in order, and the same as at once") {
  const Dataset data = small_dataset();
  Trainer now(config("mlp", Precision::fp16), data);
  Trainer late(config("mlp", Precision::fp16), data, deferred());
  std::vector<Trainer::Finished> expected, got;
  const auto add = [](Trainer& t, std::vector<Trainer::Finished>& to) {
    to.insert(to.end(), t.finished().begin(), t.finished().end());
  };
  for (int step = 1; step <= 12; ++step) {
    now.step();
    add(now, expected);
    late.step();
    add(late, got);
    CHECK(static_cast<int>(got.size()) >= step - 2);
  }
  now.settle();
  add(now, expected);
  late.settle();
  add(late, got);
  REQUIRE(expected.size() == 12);
  REQUIRE(got.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(got[i].step == static_cast<std::int64_t>(i + 1));
    CHECK(got[i].result.loss == expected[i].result.loss);
    CHECK(got[i].result.grad_norm == expected[i].result.grad_norm);
    CHECK(got[i].result.correct == expected[i].result.correct);
    CHECK(got[i].result.samples == 6);
    CHECK(got[i].result.scale == expected[i].result.scale);
    CHECK(got[i].lr == expected[i].lr);
    CHECK(got[i].growth_tracker == expected[i].growth_tracker);
  }
  CHECK(state(late) == state(now));
  CHECK(late.updates() == 12);
}

TEST_CASE("skipped steps leave everything as it was, and do not move the schedule on") {
  const Dataset data = small_dataset();
  for (const bool is_late : {false, true}) {
    TrainConfig c = config("convnet", Precision::fp16);
    c.model.batch_norm = true;
    // Gradients of 16 bit overflow until the scale has come down.
    c.scaler.init_scale = 0x1p40;
    Trainer trainer(c, data, is_late ? deferred() : nullptr);
    const std::vector<std::byte> before = state(trainer);
    double scale = 0x1p40;
    std::int64_t skipped = 0;
    for (int step = 0; step < 40 && trainer.updates() == 0; ++step) {
      trainer.step();
      trainer.settle();
      const StepResult& r = trainer.last();
      CHECK(r.scale == scale);
      if (r.did_step) break;
      ++skipped;
      scale /= 2;
      CHECK(r.found_inf);
      CHECK(state(trainer) == before);
      CHECK(trainer.lr() == 1e-2 / 3);
    }
    CHECK(skipped >= 5);
    CHECK(trainer.updates() == 1);
    CHECK(trainer.skipped() == skipped);
    CHECK(state(trainer) != before);
    CHECK(trainer.lr() == 2e-2 / 3);
  }
}

TEST_CASE("a window that is queued has the bits of one that the host waits for") {
  // Micro-batches of 6, 6 and 2: 14 samples a window, and a last one of 4.
  const Dataset data = small_dataset(60);
  for (const Precision precision : kMixed) {
    TrainConfig c = config("mlp", precision);
    c.accumulate = 3;
    c.clip = std::numeric_limits<double>::infinity();  // the norm's order differs
    Trainer queued(c, data);
    Trainer waited(c, data);
    LossScaler scaler(waited.scaler().config());
    std::int64_t updates = 0;
    const Schedule schedule(c.schedule, waited.schedule_length());
    for (int step = 0; step < 6; ++step) {
      queued.step();
      std::vector<MicroBatch> window = waited.cut(waited.sampler().next(), c.micro_batch);
      waited.context().rng.step = static_cast<std::uint64_t>(step);
      const StepResult r = train_step(waited.context(), waited.model(), waited.optimizer(), scaler,
                                      window, {.lr = schedule.lr(updates)});
      updates += r.did_step;
      queued.settle();
      CHECK(queued.last().loss == r.loss);
      CHECK(queued.last().valid == r.valid);
      CHECK(queued.last().samples == r.samples);
      CHECK(queued.last().correct == r.correct);
      CHECK(queued.last().scale == r.scale);
    }
    CHECK(state(queued) == state(waited));
  }
}

TEST_CASE(
    "case 126 [CKPT] a run that goes on from a checkpoint has the bits of one that never stopped "
    "(sim)") {
  const TestFolder folder("device-checkpoint");
  const Dataset data = small_dataset();
  for (const Precision precision : kMixed) {
    TrainConfig c = config("convnet", precision);
    c.model.batch_norm = true;
    c.model.dropout = 0.25;
    c.scaler.init_scale = 0x1p26;  // windows are skipped before the save
    Trainer whole(c, data), first(c, data, deferred()), second(c, data);
    for (int i = 0; i < 8; ++i) whole.step();
    for (int i = 0; i < 4; ++i) first.step();
    save_checkpoint(folder / "a.safetensors", first, {});  // two windows were still queued
    second.step();
    load_checkpoint(folder / "a.safetensors", second);
    CHECK(second.steps_done() == 4);
    if (precision == Precision::fp16) CHECK(second.skipped() > 0);
    CHECK(second.updates() == first.updates());
    for (int i = 0; i < 4; ++i) second.step();
    CHECK(state(second) == state(whole));
    CHECK(second.last().loss == whole.last().loss);
    CHECK(second.scaler().state() == whole.scaler().state());
  }
}

TEST_CASE("case 118 [OPT] a loss scale that is a power of two is invisible (sim)") {
  const Dataset data = small_dataset();
  std::vector<std::vector<std::byte>> states;
  for (const double scale : {1.0, 0x1p8, 0x1p12}) {
    TrainConfig c = config("mlp", Precision::fp32);
    c.scale = ScaleMode::fixed;
    c.scaler.init_scale = scale;
    Trainer trainer(c, data);
    for (int i = 0; i < 20; ++i) trainer.step();
    states.push_back(state(trainer));
    CHECK(trainer.updates() == 20);
  }
  CHECK(states[1] == states[0]);
  CHECK(states[2] == states[0]);
}

TEST_CASE("a collapsed scale: the trainer stands as after the window that it speaks of") {
  const Dataset data = small_dataset();
  for (const bool is_late : {false, true}) {
    TrainConfig c = config("mlp", Precision::fp16);
    c.scaler.init_scale = 0x1p100;
    c.max_skips = 3;
    Trainer trainer(c, data, is_late ? deferred() : nullptr);
    const std::vector<std::byte> before = state(trainer);
    std::vector<std::int64_t> steps;
    int calls = 0;
    const auto run = [&] {
      for (; calls < 10;) {
        ++calls;
        trainer.step();
        for (const auto& f : trainer.finished()) steps.push_back(f.step);
      }
    };
    CHECK_THROWS_AS(run(), ScaleCollapse);
    for (const auto& f : trainer.finished()) steps.push_back(f.step);
    CHECK(calls <= 5);
    CHECK(steps == std::vector<std::int64_t>{1, 2, 3});
    CHECK(trainer.steps_done() == 3);
    CHECK(trainer.samples_done() == 18);
    CHECK(trainer.sampler().state().position == 18);
    CHECK(trainer.last().found_inf);
    CHECK(trainer.scaler().scale() == 0x1p97F);
    CHECK(state(trainer) == before);
    // Everything is in place for the next window, which is one skip too many again, as on cpu.
    CHECK_THROWS_AS((trainer.step(), trainer.settle()), ScaleCollapse);
    CHECK(trainer.steps_done() == 4);
    CHECK(trainer.last().scale == 0x1p97);
    CHECK(state(trainer) == before);
  }
}

TEST_CASE(
    "case 42 [LOSS] a label out of range is told at most two windows later, with the state "
    "unchanged since") {
  for (const bool is_late : {false, true}) {
    Context context(is_late ? deferred() : simt::open(Device::sim));
    const std::unique_ptr<Model> model =
        make_model({.model = "mlp", .input = {8, 8, 1}, .classes = 3, .hidden = {8}});
    model->parameters().allocate(context.allocator, arena_settings(Precision::fp32, 1));
    Optimizer optimizer(context, model->parameters(), {});
    LossScaler scaler({.enabled = false});
    DeviceStep step(context, optimizer, scaler, {}, {});
    const std::vector<double> x = normal_values(4 * 64, 3);
    const auto window = [&](const std::vector<double>& labels) {
      return std::vector<MicroBatch>{{Tensor::from(context.allocator, x, {4, 8, 8, 1}, DType::fp32),
                                      Tensor::from(context.allocator, labels, {4}, DType::i64)}};
    };
    queue_window(context, *model, step, window({0, 1, 2, 0}), {});
    CHECK(step.wait()->did_step == 1);
    const std::vector<double> before = model->parameters().flat_master().to_vector();
    int queued = 0;
    std::string what;
    try {
      for (; queued < 6; ++queued) {
        queue_window(context, *model, step, window({0, 1, queued == 0 ? 7.0 : 2.0, 0}), {});
        while (const auto r = step.next())
          if (r->halt != StepHalt::none) step.fail(*r);
      }
    } catch (const DeviceDataError& e) {
      what = e.what();
    }
    CHECK(queued <= 2);
    CHECK(what.find("[cross_entropy] row 2 has label 7") == 0);
    CHECK(model->parameters().flat_master().to_vector() == before);
    queue_window(context, *model, step, window({0, 1, 2, 0}), {});
    CHECK(step.wait()->did_step == 1);
    // A window without a valid target is neutral.
    const std::vector<double> after = model->parameters().flat_master().to_vector();
    queue_window(context, *model, step, window({-100, -100, -100, -100}), {});
    const auto neutral = step.wait();
    CHECK(neutral->did_step == 0);
    CHECK(neutral->valid == 0);
    CHECK(model->parameters().flat_master().to_vector() == after);
  }
}

TEST_CASE("a step as a graph has the bits of its kernels one by one") {
  // 64 samples in windows of 12: the sixth of an epoch has 4, and runs without the graph.
  const Dataset data = small_dataset(64);
  for (const Precision precision : kMixed) {
    for (const bool is_late : {false, true}) {
      TrainConfig c = config("convnet", precision);
      c.model.batch_norm = true;
      c.accumulate = 2;
      c.scaler.init_scale = 0x1p22;  // some windows are skipped
      Trainer plain(c, data);
      c.graph = TrainConfig::Graph::on;
      Trainer graph(c, data, is_late ? deferred() : nullptr);
      const auto windows = graph.windows_per_epoch();
      const std::int64_t training = data.train.size();
      for (int step = 0; step < 14; ++step) {
        plain.step();
        const RuntimeCounters before = counters(graph);
        graph.step();
        const RuntimeCounters used = counters(graph) - before;
        const bool ragged = training % 12 != 0 && step % windows == windows - 1;
        CHECK(graph.graph()->launched() == (step > 0 && !ragged));
        CHECK(used.graph_launches == (step > 0 && !ragged ? 1 : 0));
        if (step > 7) {
          CHECK(used.synchronisations == (is_late ? used.synchronisations : 0));
          CHECK(used.allocations == 0);
        }
        // Whatever else the host does in between.
        if (step == 6) CHECK(graph.evaluate(data.validation).samples == data.validation.size());
      }
      CHECK(state(graph) == state(plain));
      CHECK(graph.last().loss == plain.last().loss);
      CHECK(graph.updates() == plain.updates());
      REQUIRE(graph.graph()->graph() != nullptr);
      CHECK(graph.graph()->graph()->kernels() > 20);
    }
  }
}

TEST_CASE("a graph draws dropout's masks anew in every window, and those of its kernels") {
  const Dataset data = small_dataset(64);
  for (const bool is_late : {false, true}) {
    TrainConfig c = config("convnet", Precision::fp32);
    c.model.dropout = 0.5;
    c.accumulate = 2;
    Trainer plain(c, data);
    c.graph = TrainConfig::Graph::on;
    Trainer graph(c, data, is_late ? deferred() : nullptr);
    for (int step = 0; step < 9; ++step) {
      plain.step();
      graph.step();
    }
    plain.settle();
    graph.settle();
    CHECK(graph.graph()->launched());
    CHECK(state(graph) == state(plain));
    CHECK(graph.last().loss == plain.last().loss);
  }
}

#if ROUNDOFF_HAS_CHECKED
TEST_CASE("the sanitizer watches a whole step, has nothing to say, and sees the same bits") {
  for (const char* name : {"mlp", "convnet"}) {
    std::vector<std::vector<double>> weights;
    for (std::uint64_t k = 0; k < 4; ++k) {
      const bool checked = k > 0;
      simt::Config emulator = simt::with_schedule({}, k);
      emulator.sanitize = checked;
      Context context(simt::open_sim({.emulator = emulator}), checked);
      const std::unique_ptr<Model> model =
          make_model({.model = name, .input = {8, 8, 1}, .classes = 3, .hidden = {8}});
      apply_precision(context, Precision::bf16);
      model->parameters().allocate(context.allocator, arena_settings(Precision::bf16, 1));
      Optimizer optimizer(context, model->parameters(), {});
      LossScaler scaler({.enabled = false});
      DeviceStep step(context, optimizer, scaler, {.max_norm = 1}, {});
      const std::vector<double> x = normal_values(3 * 64, 3);
      for (int i = 0; i < 2; ++i) {
        const MicroBatch window[] = {
            {Tensor::from(context.allocator, x, {3, 8, 8, 1}, DType::fp32),
             Tensor::from(context.allocator, std::vector<double>{0, 1, 2}, {3}, DType::i64)}};
        CHECK_NOTHROW(queue_window(context, *model, step, window, {}));
        CHECK(step.wait()->did_step == 1);
      }
      weights.push_back(model->parameters().flat_master().to_vector());
    }
    for (const auto& w : weights) CHECK(w == weights[0]);
  }
}
#endif

TEST_CASE("a whole run on sim: one line a window, a checkpoint, and the same run in two parts") {
  const TestFolder folder("device-run");
  const Dataset data = small_dataset();
  TrainConfig c = config("mlp", Precision::fp16);
  c.steps = 13;
  for (const char* part : {"whole", "parts"}) std::filesystem::create_directories(folder / part);
  const auto lines = [](const std::filesystem::path& path) {
    std::ifstream in(path / "metrics.jsonl");
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  };
  const RunSummary whole = run_training(c, data, {.out = folder / "whole"});
  CHECK(whole.device == Device::sim);
  CHECK(whole.steps == 13);
  const auto expected = lines(folder / "whole");
  CHECK(expected.size() == 13);
  c.steps = 5;
  run_training(c, data, {.out = folder / "parts"});
  c.steps = 13;
  const RunSummary parts = run_training(c, data, {.out = folder / "parts", .resume = true});
  CHECK(lines(folder / "parts") == expected);
  CHECK(parts.test.loss == whole.test.loss);
  CHECK(parts.test.correct == whole.test.correct);
}
