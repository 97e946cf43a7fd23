// Whole runs: files, self tests, early stopping, interruption.
#include "models/run.h"

#include <unistd.h>

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/file.h"
#include "models.h"
#include "models/self_test.h"

using namespace roundoff;
using namespace roundoff::test;
namespace fs = std::filesystem;

namespace {

TrainConfig config(Precision precision) {
  TrainConfig c;
  c.model = {.model = "mlp", .hidden = {16}};
  c.precision = precision;
  c.micro_batch = 9;
  c.epochs = 3;
  c.schedule.lr = 1e-2;
  return c;
}

std::vector<std::string> lines(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> result;
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

std::string text(const fs::path& path) {
  const Bytes bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("a run learns, and writes what it promises") {
  const Dataset data = small_dataset(90);
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    const TestFolder folder("learns");
    const RunSummary summary = run_training(config(precision), data, {.out = folder.path});
    CHECK(summary.steps == 27);
    CHECK(summary.updates + summary.skipped == summary.steps);
    CHECK(summary.test.accuracy() > 0.8);
    const auto metrics = lines(folder.path / "metrics.jsonl");
    CHECK(metrics.size() == 27);
    const auto last = nlohmann::json::parse(metrics.back());
    for (const char* key : {"step", "epoch", "samples", "loss", "lr", "grad_norm", "clip", "scale",
                            "found_inf", "did_step", "growth_tracker", "valid_count"})
      CHECK(last.contains(key));
    const auto json = nlohmann::json::parse(text(folder.path / "summary.json"));
    for (const char* key :
         {"precision", "effective_precision", "device", "seed", "steps", "updates", "skipped",
          "final_scale", "train_loss", "val_accuracy", "test_accuracy", "first_grad_norm",
          "seconds", "images_per_second", "peak_rss_bytes", "memory"})
      CHECK(json.contains(key));
    CHECK(json["precision"] == name(precision));
    CHECK(json["test_accuracy"] == summary.test.accuracy());
    CHECK(fs::exists(folder.path / "last.safetensors"));
    CHECK(fs::exists(folder.path / "best.safetensors"));
  }
}

TEST_CASE("an interrupted and resumed run writes the same metrics and weights") {
  const Dataset data = small_dataset(90);
  const TestFolder whole("whole");
  const TestFolder parts("parts");
  const RunSummary expected = run_training(config(Precision::fp16), data, {.out = whole.path});
  int windows = 0;
  RunHooks hooks;
  hooks.stop = [&] { return ++windows == 4; };
  const RunSummary first = run_training(config(Precision::fp16), data, {.out = parts.path}, hooks);
  CHECK(first.interrupted);
  CHECK_FALSE(fs::exists(parts.path / "summary.json"));
  const RunSummary second =
      run_training(config(Precision::fp16), data, {.out = parts.path, .resume = true});
  CHECK(lines(parts.path / "metrics.jsonl") == lines(whole.path / "metrics.jsonl"));
  CHECK(second.test.correct == expected.test.correct);
  CHECK(second.test.loss == expected.test.loss);
  CHECK(second.train_loss == expected.train_loss);
  CHECK(second.first_gradient.norm == expected.first_gradient.norm);
}

TEST_CASE("steps end a run early, and more steps go on from there") {
  const Dataset data = small_dataset(90);
  const TestFolder whole("steps-whole");
  const TestFolder parts("steps-parts");
  TrainConfig c = config(Precision::bf16);
  c.schedule.kind = ScheduleSettings::Kind::cosine;
  c.steps = 12;
  run_training(c, data, {.out = whole.path});
  c.steps = 6;
  CHECK(run_training(c, data, {.out = parts.path}).steps == 6);
  c.steps = 12;
  CHECK(run_training(c, data, {.out = parts.path, .resume = true}).steps == 12);
  CHECK(lines(parts.path / "metrics.jsonl") == lines(whole.path / "metrics.jsonl"));
}

TEST_CASE("early stopping keeps the best weights for the test") {
  const Dataset data = small_dataset(90);
  TrainConfig c = config(Precision::fp32);
  c.epochs = 50;
  c.schedule.lr = 0.3;  // overshoots
  const RunSummary summary = run_training(c, data, {.early_stop = 2});
  CHECK(summary.stopped_early);
  CHECK(summary.steps < 50 * 9);
  CHECK(summary.best_epoch * 9 == summary.steps - 2 * 9);
}

TEST_CASE("the start-up self test passes a sound model and stops one that overflows in fp16") {
  const Dataset data = small_dataset(90);
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    Trainer trainer(config(precision), data);
    const std::vector<MicroBatch> batch = trainer.cut(trainer.sampler().next(), 8);
    const AmpCheckResult sound = amp_check(trainer.context(), trainer.model(), batch[0].x);
    CHECK(sound.holds);
    CHECK(sound.worst_ratio > 0);
    // The first layer's weights beyond fp16's range: fp32 holds them, fp16 does not.
    const Tensor& weight = trainer.model().parameters().entries()[0].tensor;
    for (std::int64_t i = 0; i < weight.numel(); ++i) weight.data<float>()[i] *= 1e7F;
    trainer.model().parameters().changed(false);
    const AmpCheckResult broken = amp_check(trainer.context(), trainer.model(), batch[0].x);
    CHECK(broken.holds == (precision == Precision::bf16));
  }
}

TEST_CASE("amp-check: stop is the default, fallback trains in fp32 and says so") {
  Dataset data = small_dataset(90);
  // A normalisation that blows pixels up to where fp16 overflows.
  data.normalization.deviation[0] = 1e-6;
  CHECK_THROWS_AS(run_training(config(Precision::fp16), data, {}), SelfTestFailed);
  std::string warning;
  RunHooks hooks;
  hooks.warning = [&](std::string_view text) { warning += text; };
  const TestFolder folder("fallback");
  TrainConfig c = config(Precision::fp16);
  c.steps = 3;
  const RunSummary summary =
      run_training(c, data, {.out = folder.path, .amp_check = AmpCheck::fallback}, hooks);
  CHECK(summary.precision == Precision::fp16);
  CHECK(summary.effective_precision == Precision::fp32);
  CHECK(warning.find("fp32") != std::string::npos);
  c.steps = 5;
  CHECK(run_training(c, data, {.out = folder.path, .resume = true}).effective_precision ==
        Precision::fp32);
}

TEST_CASE("case 57 [NORM] a last batch of one sample is reported before training") {
  Dataset data = small_dataset(112);  // 101 for training after the validation split
  TrainConfig c = config(Precision::fp32);
  c.model.model = "bn-mlp";
  c.micro_batch = 10;
  REQUIRE(data.train.size() == 101);
  CHECK_THROWS_AS(Trainer(c, data), UsageError);
  c.micro_batch = 11;
  CHECK_NOTHROW(Trainer(c, data));
}

TEST_CASE("BatchNorm and dropout warn when a window has several micro-batches") {
  const Dataset data = small_dataset(90);
  std::string warnings;
  RunHooks hooks;
  hooks.warning = [&](std::string_view text) { warnings += text; };
  TrainConfig c = config(Precision::fp32);
  c.model = {.model = "convnet", .batch_norm = true, .dropout = 0.1};
  c.steps = 1;
  c.accumulate = 1;
  run_training(c, data, {}, hooks);
  CHECK(warnings.empty());
  c.accumulate = 3;
  run_training(c, data, {}, hooks);
  CHECK(warnings.find("BatchNorm") != std::string::npos);
  CHECK(warnings.find("dropout") != std::string::npos);
}

TEST_CASE("case 107 [ACCUM] the last incomplete window is an update of its own") {
  const Dataset data = small_dataset(100);  // 90 for training: windows of 40, 40, 10
  TrainConfig c = config(Precision::fp32);
  c.micro_batch = 10;
  c.accumulate = 4;
  c.epochs = 1;
  const TestFolder folder("short");
  CHECK(run_training(c, data, {.out = folder.path}).updates == 3);
  const auto metrics = lines(folder.path / "metrics.jsonl");
  CHECK(nlohmann::json::parse(metrics.back())["valid_count"] == 10);
}

TEST_CASE(
    "a run that ends inside an epoch and goes on has the best of the run that never stopped") {
  const Dataset data = small_dataset(90);
  // Rates at which the validation loss falls and rises again.
  for (const double lr : {1e-2, 0.1, 0.3}) {
    const TestFolder whole("best-whole");
    const TestFolder parts("best-parts");
    TrainConfig c = config(Precision::fp32);
    c.schedule.lr = lr;
    c.steps = 27;
    const RunSummary expected = run_training(c, data, {.out = whole.path});
    for (const std::int64_t steps : {5, 14, 22, 27}) {
      c.steps = steps;
      const RunSummary summary = run_training(c, data, {.out = parts.path, .resume = steps != 5});
      CHECK(summary.steps == steps);
      if (steps != 27) continue;
      CHECK(summary.best_epoch == expected.best_epoch);
      CHECK(summary.test.loss == expected.test.loss);
    }
  }
}

TEST_CASE("memory in the summary is that of training steps, and grows with the micro-batch") {
  const Dataset data = small_dataset(90);
  const auto activations = [&](Precision precision, std::int64_t micro_batch) {
    TrainConfig c = config(precision);
    c.model = {.model = "convnet"};
    c.micro_batch = micro_batch;
    c.steps = 2;
    return run_training(c, data, {})
        .memory.peak[static_cast<std::size_t>(MemoryCategory::activations)];
  };
  const auto four = activations(Precision::fp32, 4);
  CHECK(activations(Precision::fp32, 8) > 3 * four / 2);
  CHECK(activations(Precision::bf16, 4) < 3 * four / 4);
}

TEST_CASE("a validation loss that is not a number is never the best for long") {
  Dataset data = small_dataset(90);
  data.validation.images.as<float>()[0] = 1e30F;  // the first logits are infinite or NaN
  TrainConfig c = config(Precision::fp32);
  std::vector<EpochReport> reports;
  RunHooks hooks;
  hooks.on_epoch = [&](const EpochReport& r) { reports.push_back(r); };
  const RunSummary summary = run_training(c, data, {}, hooks);
  CHECK(reports.size() == 3);
  CHECK(summary.best_epoch >= 1);
}

TEST_CASE("a collapse writes the window that it ended with, saves, and throws") {
  Dataset data = small_dataset(90);
  TrainConfig c = config(Precision::fp16);
  c.max_skips = 3;
  c.scaler.init_scale = 0x1p126;
  const TestFolder folder("collapse");
  CHECK_THROWS_AS(run_training(c, data, {.out = folder.path, .amp_check = AmpCheck::off}),
                  ScaleCollapse);
  CHECK(lines(folder.path / "metrics.jsonl").size() == 3);
  CHECK(fs::exists(folder.path / "last.safetensors"));
  c.max_skips = 0;
  CHECK(run_training(c, data, {.out = folder.path, .resume = true}).steps == 27);
}

TEST_CASE("an early-stopped run that is resumed stays stopped") {
  const Dataset data = small_dataset(90);
  const TestFolder folder("stopped");
  TrainConfig c = config(Precision::fp32);
  c.epochs = 50;
  c.schedule.lr = 0.3;
  const RunSummary first = run_training(c, data, {.out = folder.path, .early_stop = 2});
  REQUIRE(first.stopped_early);
  const RunSummary second =
      run_training(c, data, {.out = folder.path, .resume = true, .early_stop = 2});
  CHECK(second.steps == first.steps);
  CHECK(second.stopped_early);
  CHECK(second.images_per_second > 0);
}

TEST_CASE("what a resumed run needs is looked at before it trains") {
  const Dataset data = small_dataset(90);
  TrainConfig c = config(Precision::fp32);
  c.epochs = 1;
  const auto refused = [&](auto&& damage) {
    const TestFolder folder("damage");
    run_training(c, data, {.out = folder.path});
    damage(folder.path);
    TrainConfig more = c;
    more.epochs = 2;
    int windows = 0;
    RunHooks hooks;
    hooks.on_step = [&](const Trainer&, const StepResult&) { ++windows; };
    CHECK_THROWS_AS(run_training(more, data, {.out = folder.path, .resume = true}, hooks),
                    FileError);
    CHECK(windows == 0);
  };
  refused([](const fs::path& p) { fs::remove(p / "best.safetensors"); });
  refused([](const fs::path& p) { fs::resize_file(p / "best.safetensors", 100); });
  refused([](const fs::path& p) { fs::remove(p / "metrics.jsonl"); });
  refused([](const fs::path& p) { write_file_atomically(p / "metrics.jsonl", "garbage\n"); });
}

TEST_CASE("a folder takes one run at a time") {
  const Dataset data = small_dataset(90);
  const TestFolder folder("lock");
  RunHooks hooks;
  bool refused = false;
  hooks.on_step = [&](const Trainer&, const StepResult&) {
    if (refused) return;
    try {
      run_training(config(Precision::fp32), data, {.out = folder.path});
    } catch (const FileError&) {
      refused = true;
    }
  };
  run_training(config(Precision::fp32), data, {.out = folder.path}, hooks);
  CHECK(refused);
}

TEST_CASE(
    "a schedule that is stretched on resume says so, and fewer windows than done are refused") {
  const Dataset data = small_dataset(90);
  const TestFolder folder("stretch");
  TrainConfig c = config(Precision::fp32);
  c.schedule.kind = ScheduleSettings::Kind::cosine;
  c.epochs = 1;
  std::string warnings;
  RunHooks hooks;
  hooks.warning = [&](std::string_view text) { warnings += text; };
  run_training(c, data, {.out = folder.path}, hooks);
  CHECK(warnings.empty());
  c.epochs = 2;
  run_training(c, data, {.out = folder.path, .resume = true}, hooks);
  CHECK(warnings.find("learning rate jumps") != std::string::npos);
  c.epochs = 1;
  CHECK_THROWS_AS(run_training(c, data, {.out = folder.path, .resume = true}), UsageError);
}

TEST_CASE("settings that contradict each other are refused before anything runs") {
  TrainConfig c = config(Precision::bf16);
  c.accumulator = Accumulator::v100;
  CHECK_THROWS_AS(validate(c), UsageError);
  c = config(Precision::tf32);
  c.accumulator = Accumulator::v100;
  CHECK_THROWS_AS(validate(c), UsageError);
  c = config(Precision::fp32);
  c.max_skips = 3;
  CHECK_THROWS_AS(validate(c), UsageError);
  c = config(Precision::fp16);
  c.max_skips = 3;
  c.accumulator = Accumulator::v100;
  CHECK_NOTHROW(validate(c));
}

TEST_CASE("resuming a complete run leaves its summary alone") {
  const Dataset data = small_dataset(90);
  const TestFolder folder("complete");
  TrainConfig c = config(Precision::fp32);
  for (const std::int64_t steps : {5, 9}) {  // inside an epoch, at its end
    c.steps = steps;
    const RunSummary first = run_training(c, data, {.out = folder.path, .resume = steps != 5});
    const std::string before = text(folder.path / "summary.json");
    std::string warnings;
    RunHooks hooks;
    hooks.warning = [&](std::string_view w) { warnings += w; };
    const RunSummary again = run_training(c, data, {.out = folder.path, .resume = true}, hooks);
    CHECK(warnings.empty());
    CHECK(text(folder.path / "summary.json") == before);
    CHECK(again.train_loss == first.train_loss);
    CHECK(again.best_epoch == first.best_epoch);
    CHECK(again.test.loss == first.test.loss);
  }
}
