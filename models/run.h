// A whole training run: windows, an evaluation an epoch, the best and the last checkpoint, metrics,
// a summary. `roundoff train`, the demonstration and the studies all run this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/trainer.h"

namespace roundoff {

enum class AmpCheck : unsigned char { stop, fallback, off };

struct RunSettings {
  // Where metrics.jsonl, summary.json, last.safetensors and best.safetensors go; empty: nowhere.
  std::filesystem::path out = {};
  // Continue from out/last.safetensors.
  bool resume = false;
  // End after this many epochs without a better validation loss; 0: never.
  std::int64_t early_stop = 0;
  // Before training, in 16-bit modes.
  AmpCheck amp_check = AmpCheck::stop;
  // Before training: the accumulated gradient against the large batch's.
  bool accum_check = false;
  // Windows between checkpoints inside an epoch; 0: at epochs' ends only.
  std::int64_t checkpoint_every = 0;
};

struct EpochReport {
  std::int64_t epoch = 0;  // from 1
  Evaluation validation;
  bool best = false;
};

struct RunSummary {
  Precision precision = Precision::fp32;
  Precision effective_precision = Precision::fp32;
  Device device = Device::cpu;
  std::uint64_t seed = 0;
  std::int64_t micro_batch = 0;
  std::int64_t accumulate = 1;
  std::int64_t steps = 0;
  std::int64_t updates = 0;
  std::int64_t skipped = 0;
  double final_scale = 1;
  double train_loss = 0;  // mean over the last epoch's updates; NaN where there was none
  Evaluation validation;  // of the best-validation weights
  Evaluation test;
  std::int64_t best_epoch = 0;  // from 1
  Trainer::FirstGradient first_gradient;
  double seconds = 0;  // training alone, evaluations left out
  double images_per_second = 0;
  std::int64_t peak_rss_bytes = 0;
  MemoryStats memory;
  bool interrupted = false;
  bool stopped_early = false;
};

// The summary as pretty-printed JSON with the names that scripts rely on.
std::string summary_json(const RunSummary& summary);

struct RunHooks {
  std::function<void(const Trainer&, const StepResult&)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  // Before anything is written: the settings fit the data, the self tests hold, a checkpoint that
  // the run goes on from is loaded.
  std::function<void()> on_start;
  std::function<void(std::string_view)> note;  // said to the person, not a warning
  std::function<void(std::string_view)> warning;
  std::function<bool()> stop;  // asked after every window; true: save and return
  // Asked before every window: whether the two that follow want to see it. Where they do, the
  // trainer is settled before and after it.
  std::function<bool(const Trainer&)> looks;
  std::function<void(Trainer&)> before_window;
  // Also where the window ended in ScaleCollapse.
  std::function<void(Trainer&)> after_window;
};

// The 16-bit predictions or the accumulated gradient are not what they should be.
class SelfTestFailed : public Error {
 public:
  using Error::Error;
};

// Throws what Trainer throws, SelfTestFailed, and FileError for a checkpoint that is damaged or of
// another run. Whatever is thrown, the last checkpoint written stays whole.
RunSummary run_training(const TrainConfig& config, const Dataset& data, const RunSettings& settings,
                        const RunHooks& hooks = {});

}  // namespace roundoff
