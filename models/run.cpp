#include "models/run.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/file.h"
#include "models/checkpoint.h"
#include "models/self_test.h"

namespace roundoff {

namespace {

using Clock = std::chrono::steady_clock;

// metrics.jsonl: one line a window. On resume, lines of windows after the checkpoint are dropped.
class MetricsLog {
 public:
  MetricsLog(const std::filesystem::path& out, std::int64_t keep) {
    if (out.empty()) return;
    const std::filesystem::path path = out / "metrics.jsonl";
    std::string kept;
    if (keep > 0) {
      std::ifstream old(path);
      std::string line;
      for (std::int64_t i = 0; i < keep && std::getline(old, line); ++i) kept += line + "\n";
    }
    write_file_atomically(path, kept);
    file_.open(path, std::ios::app);
    if (!file_) fail_file("metrics", path.string(), "cannot be written");
    path_ = path.string();
  }
  void add(const MetricsRecord& record) {
    if (path_.empty()) return;
    file_ << json_line(record) << '\n' << std::flush;
    if (!file_) fail_file("metrics", path_, "cannot be written");
  }

 private:
  std::string path_;
  std::ofstream file_;
};

class Run {
 public:
  Run(const TrainConfig& config, const Dataset& data, const RunSettings& settings,
      const RunHooks& hooks)
      : requested_(config.precision), data_(data), settings_(settings), hooks_(hooks) {
    TrainConfig effective = config;
    // A run that fell back to fp32 goes on in fp32.
    if (settings.resume &&
        read_checkpoint_model(settings.out / "last.safetensors").precision == Precision::fp32)
      fall_back(effective);
    trainer_ = std::make_unique<Trainer>(effective, data);
  }

  RunSummary run() {
    prepare();
    MetricsLog metrics(settings_.out, trainer_->steps_done());
    RunSummary summary;
    const double seconds_before = notes_.seconds;
    const std::int64_t samples_before = trainer_->samples_done();
    const std::int64_t windows = trainer_->windows_per_epoch();
    while (!trainer_->done()) {
      const auto begin = Clock::now();
      const double lr = trainer_->lr();
      const std::int64_t epoch = trainer_->epoch();
      const StepResult step = trainer_->step();
      notes_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
      if (step.did_step) {
        notes_.epoch_loss_sum += step.loss;
        ++notes_.epoch_updates;
      }
      metrics.add({.step = trainer_->steps_done(),
                   .epoch = epoch,
                   .samples = trainer_->samples_done(),
                   .loss = step.loss,
                   .lr = lr,
                   .grad_norm = step.grad_norm,
                   .clip = step.clip,
                   .scale = step.scale,
                   .found_inf = step.found_inf,
                   .did_step = step.did_step,
                   .growth_tracker = trainer_->scaler().growth_tracker(),
                   .valid_count = step.valid});
      if (hooks_.on_step) hooks_.on_step(*trainer_, step);
      const bool epoch_ends = trainer_->steps_done() % windows == 0;
      if (epoch_ends || trainer_->done()) {
        // A run that ends inside an epoch may go on: its checkpoint is that of a run that never
        // stopped, without this evaluation.
        if (!epoch_ends) save("last.safetensors");
        end_epoch();
        if (epoch_ends) save("last.safetensors");
        if (settings_.early_stop > 0 && notes_.epochs_without_better >= settings_.early_stop) {
          summary.stopped_early = true;
          break;
        }
      } else if (settings_.checkpoint_every > 0 &&
                 trainer_->steps_done() % settings_.checkpoint_every == 0) {
        save("last.safetensors");
      }
      if (hooks_.stop && hooks_.stop() && !trainer_->done()) {
        save("last.safetensors");
        summary.interrupted = true;
        break;
      }
    }
    finish(summary, notes_.seconds - seconds_before, trainer_->samples_done() - samples_before);
    return summary;
  }

 private:
  void say(const std::function<void(std::string_view)>& to, std::string_view text) {
    if (to) to(text);
  }

  static void fall_back(TrainConfig& config) {
    config.precision = Precision::fp32;
    config.autocast.clear();
  }

  void prepare() {
    const TrainConfig& config = trainer_->config();
    notes_.requested_precision = requested_;
    notes_.best_validation_loss = HUGE_VAL;
    if (settings_.resume) {
      notes_ = load_checkpoint(settings_.out / "last.safetensors", *trainer_);
      if (std::isnan(notes_.best_validation_loss)) notes_.best_validation_loss = HUGE_VAL;
    }
    if (config.accumulate > 1) {
      say(hooks_.note, concat("effective batch ", config.micro_batch * config.accumulate, " = ",
                              config.accumulate, " micro-batches of ", config.micro_batch));
      const Model& model = trainer_->model();
      if (model.has_batch_statistics())
        say(hooks_.warning,
            "BatchNorm sees micro-batches: the result is not the large batch's, and differs from "
            "it "
            "by more than rounding");
      if (model.has_dropout())
        say(hooks_.warning,
            "dropout: masks belong to samples here, so they are the large batch's; with a "
            "call-order generator the result would not be");
    }
    if (settings_.resume) return;
    if (is_mixed(config.precision) && settings_.amp_check != AmpCheck::off) check_amp();
    if (settings_.accum_check && config.accumulate > 1) check_accumulation();
    first_ = trainer_->first_gradient();
    notes_.first_grad_norm = first_.norm;
  }

  MicroBatch first_batch(std::int64_t samples) {
    Sampler& sampler = trainer_->sampler();
    const SamplerState before = sampler.state();
    std::vector<MicroBatch> window = trainer_->cut(sampler.next(), samples);
    sampler.restore(before);
    return window.front();
  }

  void check_amp() {
    const AmpCheckResult result =
        amp_check(trainer_->context(), trainer_->model(), first_batch(8).x);
    if (result.holds) {
      say(hooks_.note, result.text());
      return;
    }
    if (settings_.amp_check == AmpCheck::stop)
      throw SelfTestFailed(
          concat("[amp-check] ", result.text(), "; --amp-check fallback trains in fp32 instead"));
    say(hooks_.warning, concat(result.text(), "; training in fp32 instead"));
    TrainConfig config = trainer_->config();
    fall_back(config);
    trainer_ = std::make_unique<Trainer>(config, data_);
  }

  void check_accumulation() {
    const TrainConfig& config = trainer_->config();
    const MicroBatch batch = first_batch(config.micro_batch * config.accumulate);
    const std::int64_t parts = std::min(config.accumulate, batch.labels.numel());
    const double difference =
        accumulate_gradients(trainer_->context(), trainer_->model(), batch.x, batch.labels, parts);
    say(hooks_.note, concat("accumulated gradient against the whole batch of ",
                            batch.labels.numel(), ": largest difference ", difference));
  }

  void save(const char* file) {
    if (!settings_.out.empty()) save_checkpoint(settings_.out / file, *trainer_, notes_);
  }

  void end_epoch() {
    EpochReport report;
    report.epoch = (trainer_->steps_done() + trainer_->windows_per_epoch() - 1) /
                   trainer_->windows_per_epoch();
    report.validation = trainer_->evaluate(data_.validation);
    report.best = report.validation.loss < notes_.best_validation_loss || notes_.best_epoch == 0;
    if (report.best) {
      notes_.best_validation_loss = report.validation.loss;
      notes_.best_epoch = report.epoch;
      notes_.epochs_without_better = 0;
      keep_best();
    } else {
      ++notes_.epochs_without_better;
    }
    if (notes_.epoch_updates > 0)
      notes_.train_loss = notes_.epoch_loss_sum / static_cast<double>(notes_.epoch_updates);
    notes_.epoch_loss_sum = 0;
    notes_.epoch_updates = 0;
    if (report.best) save("best.safetensors");
    if (hooks_.on_epoch) hooks_.on_epoch(report);
  }

  // The best weights stay in memory where no file keeps them.
  void keep_best() {
    if (!settings_.out.empty()) return;
    const Tensor& master = trainer_->model().parameters().flat_master();
    best_.assign(master.data<std::byte>(), master.data<std::byte>() + master.bytes());
    best_buffers_.clear();
    for (const Buffer& b : trainer_->model().parameters().buffers())
      best_buffers_.emplace_back(b.value.data<std::byte>(),
                                 b.value.data<std::byte>() + b.value.bytes());
  }

  void restore_best() {
    if (notes_.best_epoch == 0) return;
    if (!settings_.out.empty()) {
      load_weights(settings_.out / "best.safetensors", trainer_->model());
      return;
    }
    ParameterArena& parameters = trainer_->model().parameters();
    std::copy(best_.begin(), best_.end(), parameters.flat_master().data<std::byte>());
    std::size_t i = 0;
    for (Buffer& b : parameters.buffers()) {
      std::copy(best_buffers_[i].begin(), best_buffers_[i].end(), b.value.data<std::byte>());
      ++i;
    }
    parameters.discard_buffers();
    parameters.changed(/*copies_written=*/false);
  }

  void finish(RunSummary& summary, double seconds, std::int64_t samples) {
    summary.precision = notes_.requested_precision;
    summary.effective_precision = trainer_->config().precision;
    summary.device = trainer_->config().device;
    summary.seed = trainer_->config().seed;
    summary.micro_batch = trainer_->config().micro_batch;
    summary.accumulate = trainer_->config().accumulate;
    summary.steps = trainer_->steps_done();
    summary.updates = trainer_->updates();
    summary.skipped = trainer_->skipped();
    summary.final_scale = trainer_->scaler().scale();
    summary.train_loss = notes_.train_loss;
    summary.best_epoch = notes_.best_epoch;
    summary.first_gradient = std::move(first_);
    summary.first_gradient.norm = notes_.first_grad_norm;
    summary.seconds = notes_.seconds;
    summary.images_per_second = seconds > 0 ? static_cast<double>(samples) / seconds : 0;
    summary.memory = trainer_->context().allocator.stats();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    summary.peak_rss_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
    if (summary.interrupted) return;
    restore_best();
    summary.validation = trainer_->evaluate(data_.validation);
    summary.test = trainer_->evaluate(data_.test);
    if (!settings_.out.empty())
      write_file_atomically(settings_.out / "summary.json", summary_json(summary));
  }

  Precision requested_;
  const Dataset& data_;
  const RunSettings& settings_;
  const RunHooks& hooks_;
  std::unique_ptr<Trainer> trainer_;
  CheckpointNotes notes_;
  Trainer::FirstGradient first_;
  std::vector<std::byte> best_;
  std::vector<std::vector<std::byte>> best_buffers_;
};

}  // namespace

std::string summary_json(const RunSummary& s) {
  nlohmann::ordered_json json;
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  json["precision"] = name(s.precision);
  json["effective_precision"] = name(s.effective_precision);
  json["device"] = s.device == Device::cpu ? "cpu" : s.device == Device::sim ? "sim" : "cuda";
  json["seed"] = s.seed;
  json["micro_batch"] = s.micro_batch;
  json["accumulate"] = s.accumulate;
  json["steps"] = s.steps;
  json["updates"] = s.updates;
  json["skipped"] = s.skipped;
  json["final_scale"] = s.final_scale;
  json["train_loss"] = number(s.train_loss);
  json["val_loss"] = number(s.validation.loss);
  json["val_accuracy"] = s.validation.accuracy();
  json["val_interval"] = {s.validation.interval().low, s.validation.interval().high};
  json["test_loss"] = number(s.test.loss);
  json["test_accuracy"] = s.test.accuracy();
  json["test_interval"] = {s.test.interval().low, s.test.interval().high};
  json["test_samples"] = s.test.samples;
  json["best_epoch"] = s.best_epoch;
  json["stopped_early"] = s.stopped_early;
  json["first_grad_norm"] = number(s.first_gradient.norm);
  json["seconds"] = s.seconds;
  json["images_per_second"] = s.images_per_second;
  json["peak_rss_bytes"] = s.peak_rss_bytes;
  nlohmann::ordered_json memory;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    std::string key(name(static_cast<MemoryCategory>(c)));
    memory[key] = s.memory.peak[c];
  }
  memory["activations_peak_at"] = s.memory.activation_peak_node;
  json["memory"] = memory;
  nlohmann::ordered_json provenance;
  for (const char* key : {"seconds", "images_per_second", "peak_rss_bytes", "train_loss",
                          "val_accuracy", "test_accuracy", "first_grad_norm"})
    provenance[key] = "measured";
  for (const char* key : {"steps", "updates", "skipped", "memory"}) provenance[key] = "counted";
  json["provenance"] = provenance;
  return json.dump(2) + "\n";
}

RunSummary run_training(const TrainConfig& config, const Dataset& data, const RunSettings& settings,
                        const RunHooks& hooks) {
  return Run(config, data, settings, hooks).run();
}

}  // namespace roundoff
