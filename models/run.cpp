#include "models/run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
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

// Names of what a run's folder holds.
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kLast = "last.safetensors";
constexpr const char* kBest = "best.safetensors";
// The best of whole epochs, while best.safetensors is of a run that ended inside one.
constexpr const char* kBestOfEpochs = "best-of-epochs.safetensors";

// One run at a time in a folder.
class FolderLock {
 public:
  FolderLock() = default;
  // Does nothing where the folder is not there, or is locked by this already.
  void take(const std::filesystem::path& folder) {
    if (descriptor_ >= 0 || !std::filesystem::is_directory(folder)) return;
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0) fail_file("train", folder.string(), "the folder cannot be opened");
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      ::close(descriptor_);
      fail_file("train", folder.string(), "another run is at work in this folder");
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

// metrics.jsonl: one line a window. On resume, lines of windows after the checkpoint are dropped.
class MetricsLog {
 public:
  MetricsLog(const std::filesystem::path& out, const std::string& kept) {
    if (out.empty()) return;
    const std::filesystem::path path = out / kMetrics;
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

// The lines of the first `windows` windows; throws where the file does not have them.
std::string read_metrics(const std::filesystem::path& path, std::int64_t windows) {
  std::ifstream in(path);
  std::string kept;
  std::string line;
  for (std::int64_t i = 1; i <= windows; ++i) {
    const bool got = static_cast<bool>(std::getline(in, line));
    const nlohmann::json json = nlohmann::json::parse(got ? line : "", nullptr, false);
    if (!json.is_object() || json.value("step", nlohmann::json()) != i)
      fail_file("metrics", path.string(), "line ", i, " is not that of window ", i,
                ", and the checkpoint is of window ", windows);
    kept += line + "\n";
  }
  return kept;
}

// The largest of two peaks, by category.
void merge_peaks(MemoryStats& into, const MemoryStats& stats) {
  constexpr auto kActivations = static_cast<std::size_t>(MemoryCategory::activations);
  if (stats.peak[kActivations] > into.peak[kActivations])
    into.activation_peak_node = stats.activation_peak_node;
  for (std::size_t c = 0; c < kMemoryCategories; ++c)
    into.peak[c] = std::max(into.peak[c], stats.peak[c]);
  into.total_peak = std::max(into.total_peak, stats.total_peak);
  into.system_allocations = stats.system_allocations;
}

class Run {
 public:
  Run(const TrainConfig& config, const Dataset& data, const RunSettings& settings,
      const RunHooks& hooks)
      : requested_(config.precision), data_(data), settings_(settings), hooks_(hooks) {
    TrainConfig effective = config;
    if (settings.resume) {
      // A run that fell back to fp32 goes on in fp32.
      const CheckpointModel saved = read_checkpoint_model(settings.out / kLast);
      if (saved.requested_precision == config.precision && saved.precision == Precision::fp32 &&
          config.precision != Precision::fp32)
        fall_back(effective);
    }
    trainer_ = std::make_unique<Trainer>(effective, data);
  }

  RunSummary run() {
    std::string kept = prepare();
    FolderLock lock;
    lock.take(settings_.out);  // before on_start, which may replace an earlier run
    if (hooks_.on_start) hooks_.on_start();
    lock.take(settings_.out);
    MetricsLog metrics(settings_.out, kept);
    kept = {};
    RunSummary summary;
    summary.stopped_early = stops_early();
    const std::int64_t windows = trainer_->windows_per_epoch();
    nothing_left_ = settings_.resume && (trainer_->done() || summary.stopped_early);
    // A checkpoint from inside an epoch comes before the evaluation that its run ended with.
    if (nothing_left_ && trainer_->steps_done() % windows != 0) end_epoch(false);
    while (!trainer_->done() && !summary.stopped_early) {
      step(metrics);
      const bool epoch_ends = trainer_->steps_done() % windows == 0;
      if (epoch_ends || trainer_->done()) {
        settle(metrics);
        // A run that ends inside an epoch may go on: its checkpoint is that of a run that never
        // stopped, without this evaluation.
        if (!epoch_ends) save(kLast);
        end_epoch(epoch_ends);
        if (epoch_ends) save(kLast);
        summary.stopped_early = stops_early();
      } else if (settings_.checkpoint_every > 0 &&
                 trainer_->steps_done() % settings_.checkpoint_every == 0) {
        settle(metrics);
        save(kLast);
      }
      if (hooks_.stop && hooks_.stop() && !trainer_->done()) {
        settle(metrics);
        save(kLast);
        summary.interrupted = true;
        break;
      }
    }
    finish(summary);
    return summary;
  }

 private:
  void say(const std::function<void(std::string_view)>& to, std::string_view text) {
    if (to) to(text);
  }

  bool stops_early() const {
    return settings_.early_stop > 0 && notes_.epochs_without_better >= settings_.early_stop;
  }

  static void fall_back(TrainConfig& config) {
    config.precision = Precision::fp32;
    config.autocast.clear();
    config.max_skips = 0;  // of loss scaling, which fp32 has none of
  }

  // Everything that can stop a run before it writes anything. Returns the metrics that stay.
  std::string prepare() {
    const TrainConfig& config = trainer_->config();
    notes_.requested_precision = requested_;
    notes_.best_validation_loss = HUGE_VAL;
    notes_.train_loss = std::nan("");
    std::string kept;
    if (settings_.resume) kept = load();
    if (config.accumulate > 1) {
      say(hooks_.note, concat("effective batch ", trainer_->sampler().settings().batch, " = ",
                              config.accumulate, " micro-batches of ", config.micro_batch));
      const Model& model = trainer_->model();
      if (model.has_batch_statistics())
        say(hooks_.warning,
            "BatchNorm sees micro-batches: the result is not the large batch's, and differs from "
            "it by more than rounding");
      if (model.has_dropout())
        say(hooks_.warning,
            "dropout: the result is the large batch's only because masks belong to samples here; "
            "with a call-order generator it would not be");
    }
    if (settings_.resume) return kept;
    if (is_mixed(config.precision) && settings_.amp_check != AmpCheck::off) check_amp();
    if (settings_.accum_check) check_accumulation();
    first_ = trainer_->first_gradient();
    notes_.first_grad_norm = first_.norm;
    return kept;
  }

  std::string load() {
    const std::filesystem::path& out = settings_.out;
    notes_ = load_checkpoint(out / kLast, *trainer_);
    if (std::isnan(notes_.best_validation_loss)) notes_.best_validation_loss = HUGE_VAL;
    if (trainer_->steps_done() > trainer_->total_steps())
      throw UsageError(concat("[resume] the run in ", out.string(), " has done ",
                              trainer_->steps_done(), " windows already, ", trainer_->total_steps(),
                              " were asked for"));
    if (trainer_->config().schedule.kind != ScheduleSettings::Kind::constant &&
        notes_.schedule_length != trainer_->schedule_length())
      say(hooks_.warning,
          concat("the schedule now spans ", trainer_->schedule_length(), " updates, before it was ",
                 notes_.schedule_length, ": the learning rate jumps"));
    // Back to the best of whole epochs, the one that the checkpoint speaks of.
    if (std::filesystem::exists(out / kBestOfEpochs))
      std::filesystem::rename(out / kBestOfEpochs, out / kBest);
    // Found now, and not at the end of a long run.
    if (notes_.best_epoch > 0) read_checkpoint_model(out / kBest);
    return read_metrics(out / kMetrics, trainer_->steps_done());
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
    if (parts == 1) {
      say(hooks_.note, "accum-check: a window is one micro-batch, there is nothing to compare");
      return;
    }
    const AccumulationCheck check =
        compare_accumulated(trainer_->context(), trainer_->model(), batch.x, batch.labels, parts,
                            {.label_smoothing = config.label_smoothing});
    say(hooks_.note,
        concat("accum-check: ", parts, " micro-batches against the whole ", batch.labels.numel(),
               " samples: largest difference ", check.largest_difference, ", ",
               check.largest_difference / check.largest_gradient, " of the largest gradient"));
  }

  // Runs `work`, which moves the trainer on, and notes the windows that it found done.
  template <class Work>
  void advance(MetricsLog& metrics, const Work& work) {
    Allocator& allocator = trainer_->context().allocator;
    allocator.reset_peaks();
    const auto begin = Clock::now();
    const auto record = [&] {
      notes_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
      merge_peaks(memory_, allocator.stats());
      for (const Trainer::Finished& f : trainer_->finished()) {
        if (f.result.did_step) {
          notes_.epoch_loss_sum += f.result.loss;
          ++notes_.epoch_updates;
        }
        metrics.add({.step = f.step,
                     .epoch = f.epoch,
                     .samples = f.samples,
                     .loss = f.result.loss,
                     .lr = f.lr,
                     .grad_norm = f.result.grad_norm,
                     .clip = f.result.clip,
                     .scale = f.result.scale,
                     .found_inf = f.result.found_inf,
                     .did_step = f.result.did_step,
                     .growth_tracker = f.growth_tracker,
                     .valid_count = f.result.valid});
      }
    };
    try {
      work();
    } catch (const ScaleCollapse&) {
      record();
      save(kLast);
      throw;
    }
    record();
    if (!hooks_.on_step) return;
    for (const Trainer::Finished& f : trainer_->finished()) hooks_.on_step(*trainer_, f.result);
  }
  void step(MetricsLog& metrics) {
    const bool looked_at = hooks_.looks && hooks_.looks(*trainer_);
    if (!looked_at) return advance(metrics, [&] { trainer_->step(); });
    settle(metrics);
    hooks_.before_window(*trainer_);
    try {
      advance(metrics, [&] { trainer_->step(); });
      settle(metrics);
    } catch (const ScaleCollapse&) {
      hooks_.after_window(*trainer_);
      throw;
    }
    hooks_.after_window(*trainer_);
  }
  // Before a checkpoint or an evaluation: all windows are done, and noted.
  void settle(MetricsLog& metrics) {
    advance(metrics, [&] { trainer_->settle(); });
  }

  void save(const char* file) {
    if (!settings_.out.empty()) save_checkpoint(settings_.out / file, *trainer_, notes_);
  }

  void end_epoch(bool whole) {
    EpochReport report;
    report.epoch = (trainer_->steps_done() + trainer_->windows_per_epoch() - 1) /
                   trainer_->windows_per_epoch();
    report.validation = trainer_->evaluate(data_.validation);
    const double loss = std::isnan(report.validation.loss) ? HUGE_VAL : report.validation.loss;
    report.best = loss < notes_.best_validation_loss || notes_.best_epoch == 0;
    if (notes_.epoch_updates > 0)
      notes_.train_loss = notes_.epoch_loss_sum / static_cast<double>(notes_.epoch_updates);
    notes_.epoch_loss_sum = 0;
    notes_.epoch_updates = 0;
    const bool had_best = notes_.best_epoch > 0;
    if (report.best) {
      notes_.best_validation_loss = loss;
      notes_.best_epoch = report.epoch;
      notes_.epochs_without_better = 0;
      keep_best();
    } else {
      ++notes_.epochs_without_better;
    }
    if (report.best && !settings_.out.empty()) {
      if (!whole && had_best)
        std::filesystem::rename(settings_.out / kBest, settings_.out / kBestOfEpochs);
      save(kBest);
    }
    if (hooks_.on_epoch) hooks_.on_epoch(report);
  }

  // The best weights stay in memory where no file keeps them.
  void keep_best() {
    if (!settings_.out.empty()) return;
    const auto keep = [](const Tensor& from, std::vector<std::byte>& to) {
      to.resize(from.bytes());
      from.read(to.data());
    };
    keep(trainer_->model().parameters().flat_master(), best_);
    best_buffers_.clear();
    for (const Buffer& b : trainer_->model().parameters().buffers())
      keep(b.value, best_buffers_.emplace_back());
  }

  void restore_best() {
    if (notes_.best_epoch == 0) return;
    if (!settings_.out.empty()) {
      load_weights(settings_.out / kBest, trainer_->model());
      return;
    }
    ParameterArena& parameters = trainer_->model().parameters();
    parameters.flat_master().write(best_.data());
    std::size_t i = 0;
    for (const Buffer& b : parameters.buffers()) b.value.write(best_buffers_[i++].data());
    parameters.discard_buffers();
    parameters.changed(/*copies_written=*/false);
  }

  void finish(RunSummary& summary) {
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
    summary.images_per_second =
        notes_.seconds > 0 ? static_cast<double>(trainer_->samples_done()) / notes_.seconds : 0;
    summary.memory = memory_;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    summary.peak_rss_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
    if (summary.interrupted) return;
    if (summary.updates == 0 && summary.steps > 0)
      say(hooks_.warning, "every step was skipped: nothing was learnt");
    else if (!std::isfinite(summary.train_loss))
      say(hooks_.warning, "the training loss is not finite: the run has diverged");
    restore_best();
    summary.validation = trainer_->evaluate(data_.validation);
    summary.test = trainer_->evaluate(data_.test);
    const std::filesystem::path file = settings_.out / "summary.json";
    // That of the run which did the work knows its memory, too.
    if (nothing_left_ && std::filesystem::exists(file)) {
      say(hooks_.note, "the run is complete: nothing was trained, its summary stays");
    } else if (!settings_.out.empty()) {
      write_file_atomically(file, summary_json(summary));
    }
  }

  Precision requested_;
  const Dataset& data_;
  const RunSettings& settings_;
  const RunHooks& hooks_;
  std::unique_ptr<Trainer> trainer_;
  CheckpointNotes notes_;
  Trainer::FirstGradient first_;
  bool nothing_left_ = false;  // of a run that is resumed
  MemoryStats memory_;         // peaks of training steps alone
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
  for (const char* key :
       {"train_loss", "val_loss", "val_accuracy", "val_interval", "test_loss", "test_accuracy",
        "test_interval", "first_grad_norm", "seconds", "images_per_second", "peak_rss_bytes"})
    provenance[key] = "measured";
  for (const char* key :
       {"steps", "updates", "skipped", "final_scale", "test_samples", "best_epoch", "memory"})
    provenance[key] = "counted";
  json["provenance"] = provenance;
  return json.dump(2) + "\n";
}

RunSummary run_training(const TrainConfig& config, const Dataset& data, const RunSettings& settings,
                        const RunHooks& hooks) {
  return Run(config, data, settings, hooks).run();
}

}  // namespace roundoff
