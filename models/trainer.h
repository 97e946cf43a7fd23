// A training run in memory: everything that a checkpoint holds, and the step that moves it on.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/data/loader.h"
#include "engine/loss_scaler.h"
#include "engine/optimizer.h"
#include "engine/schedule.h"
#include "models/evaluate.h"
#include "models/model.h"
#include "models/precision.h"
#include "models/step_graph.h"
#include "models/train_step.h"

namespace roundoff {

// Loss scaling: by_precision is dynamic for fp16 mixed precision and off for everything else.
enum class ScaleMode : unsigned char { by_precision, dynamic, off, fixed };

struct TrainConfig {
  std::string data = "fashion-mnist";
  ModelSettings model;  // input and classes are taken from the data
  Precision precision = Precision::fp32;
  Device device = Device::cpu;
  std::int64_t epochs = 1;
  std::int64_t steps = 0;  // windows from the run's start, skipped ones included; 0: epochs decide
  std::int64_t micro_batch = 64;
  std::int64_t accumulate = 1;  // micro-batches a window
  OptimizerSettings optimizer;
  ScheduleSettings schedule;  // lr, kind, warm-up
  double clip = std::numeric_limits<double>::infinity();
  std::uint64_t seed = 1;
  ScaleMode scale = ScaleMode::by_precision;
  ScalerConfig scaler;  // init_scale is the fixed scale, too
  std::int64_t max_skips = 0;
  Accumulator accumulator = Accumulator::fp32;
  // The trajectory has the same bits for every way to cut windows into micro-batches
  // (Context::reproducible). Refuses BatchNorm, accumulators other than fp32, and weight
  // gradients of 16 bit.
  bool reproducible = false;
  bool weight_grad_16bit = false;
  std::vector<std::pair<std::string, DType>> autocast;
  double label_smoothing = 0;
  // Whether a device's step runs as one graph (models/step_graph.h); by_device: on cuda, where the
  // model allows it.
  enum class Graph : unsigned char { by_device, on, off };
  Graph graph = Graph::by_device;
};

// Throws UsageError, one line that names the setting.
void validate(const TrainConfig& config);

class Trainer {
 public:
  // `data` must outlive the trainer. Checks config against the data (a last batch of one sample
  // with BatchNorm, for example) before anything runs.
  // `runtime`: an opened device in place of the one that config.device opens.
  Trainer(const TrainConfig& config, const Dataset& data,
          std::shared_ptr<simt::Runtime> runtime = nullptr);

  // One window. On cpu it is done on return. On a device it is queued, and what comes back is the
  // result of the last window that is known to be done, which is at most two windows old.
  // Throws ScaleCollapse as the scaler does; last() has that window's result then too. On a device
  // it does so up to two windows later, as for bad data (DeviceDataError): the windows in between
  // have changed nothing, and everything stands as after the window that it speaks of.
  StepResult step();
  const StepResult& last() const { return last_; }
  // A window that is done.
  struct Finished {
    StepResult result;
    std::int64_t step = 0;     // its number, from 1
    std::int64_t epoch = 0;    // from 0
    std::int64_t samples = 0;  // of the run, it included
    double lr = 0;
    std::int32_t growth_tracker = 0;  // after it
  };
  // Those that the last call of step() or settle() found done, in order.
  std::span<const Finished> finished() const { return finished_; }
  // Waits for the windows that are still queued; throws as step() does. Before a checkpoint, an
  // evaluation, or a look at updates(), lr() and the scaler that is not to be two windows old.
  void settle();
  // Windows that the whole run has, and that are done.
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_done() const { return steps_; }
  std::int64_t updates() const { return updates_; }
  std::int64_t skipped() const { return steps_ - updates_; }
  std::int64_t samples_done() const { return samples_; }
  std::int64_t windows_per_epoch() const { return sampler_.batches_per_epoch(); }
  // Epoch that the next window belongs to, from 0.
  std::int64_t epoch() const;
  bool done() const { return steps_ >= total_steps_; }
  // Updates that the schedule spans.
  std::int64_t schedule_length() const;
  // Learning rate of the next update.
  double lr() const;

  Evaluation evaluate(const Split& split);

  // The gradient of the first window at the first weights, unscaled, flat in the arena's order with
  // padding left out; computed at the scaler's first scale, or at the largest power of two below it
  // that gives finite numbers. Empty where none does. Moves nothing on: call it before step().
  struct FirstGradient {
    std::vector<float> values;
    double norm = std::numeric_limits<double>::quiet_NaN();
    double scale = 1;
  };
  FirstGradient first_gradient();

  const TrainConfig& config() const { return config_; }
  const Dataset& data() const { return data_; }
  Context& context() { return context_; }
  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  LossScaler& scaler() { return scaler_; }
  Sampler& sampler() { return sampler_; }
  const StepGraph* graph() const { return graph_.get(); }
  // What a checkpoint puts back.
  struct Progress {
    std::int64_t steps = 0;
    std::int64_t updates = 0;
    std::int64_t samples = 0;
    SamplerState sampler;
  };
  // Of a settled trainer.
  Progress progress() const { return {steps_, updates_, samples_, sampler_.state()}; }
  void restore(const Progress& progress);

  // The micro-batches of a batch of the sampler.
  std::vector<MicroBatch> cut(const Sampler::Batch& batch, std::int64_t micro_batch);

 private:
  void cut(const Sampler::Batch& batch, std::int64_t micro_batch, std::vector<MicroBatch>& window);
  StepSettings step_settings() const;
  void finish(const StepRecord& record);

  TrainConfig config_;
  const Dataset& data_;
  Context context_;
  Allocator host_;  // batches on their way to a device
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  LossScaler scaler_;
  std::unique_ptr<DeviceStep> device_step_;  // null on cpu
  std::unique_ptr<StepGraph> graph_;         // null where windows run kernel by kernel
  Sampler sampler_;
  BatchReader reader_;
  Schedule schedule_;
  std::vector<MicroBatch> window_;
  // Windows whose outcome is not known: the run as it stands after each.
  struct Queued {
    Progress progress;
    std::int64_t epoch = 0;
  };
  std::vector<Queued> queued_;
  std::vector<Finished> finished_;
  StepResult last_;
  std::int64_t total_steps_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t updates_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace roundoff
