#include "models/trainer.h"

#include <algorithm>
#include <cmath>

namespace roundoff {

namespace {

void require(bool holds, const auto&... what) {
  if (!holds) throw UsageError(concat("[train] ", what...));
}

ScalerConfig scaler_config(const TrainConfig& config) {
  ScalerConfig scaler = config.scaler;
  ScaleMode mode = config.scale;
  if (mode == ScaleMode::by_precision)
    mode = config.precision == Precision::fp16 ? ScaleMode::dynamic : ScaleMode::off;
  scaler.enabled = mode != ScaleMode::off;
  scaler.dynamic = mode == ScaleMode::dynamic;
  return scaler;
}

ModelSettings model_settings(const TrainConfig& config, const Dataset& data) {
  ModelSettings settings = config.model;
  settings.input = data.image;
  settings.classes = data.classes;
  return settings;
}

// A schedule ends with the epochs, so that a run that `steps` ends early can be continued on the
// same curve; steps beyond the epochs lengthen it.
std::int64_t updates_of(const TrainConfig& config, std::int64_t windows_per_epoch) {
  return std::max(config.steps, config.epochs * windows_per_epoch);
}

}  // namespace

void validate(const TrainConfig& c) {
  require(c.epochs >= 1, "epochs is ", c.epochs, "; at least 1 expected");
  require(c.steps >= 0, "steps is ", c.steps, "; at least 1 expected, or 0 to let epochs decide");
  require(c.micro_batch >= 1, "micro-batch is ", c.micro_batch, "; at least 1 expected");
  require(c.accumulate >= 1, "accumulate is ", c.accumulate, "; at least 1 expected");
  require(c.micro_batch <= (std::int64_t{1} << 40) / c.accumulate, "micro-batch ", c.micro_batch,
          " times accumulate ", c.accumulate, " is out of range");
  require(c.accumulator != Accumulator::v100 || low_dtype(c.precision) != DType::bf16,
          "acc v100 does not go with ", name(c.precision), ": a V100 multiplies fp16 only");
  require(c.accumulator != Accumulator::v100 || c.precision != Precision::tf32,
          "acc v100 does not go with tf32: a V100 multiplies fp16 only");
  require(c.max_skips >= 0, "max-skips is ", c.max_skips, "; at least 0 expected");
  require(c.max_skips == 0 || scaler_config(c).enabled,
          "max-skips counts skipped steps, and without loss scaling no step is skipped");
  require(c.label_smoothing >= 0 && c.label_smoothing < 1, "label-smoothing is ", c.label_smoothing,
          "; a number in [0, 1) expected");
  require(c.autocast.empty() || is_mixed(c.precision),
          "autocast choices need a mixed precision, it is ", name(c.precision));
  validate(ClipParams{.max_norm = c.clip});
  if (!c.reproducible) return;
  require(c.accumulator != Accumulator::fp64,
          "reproducible does not go with acc fp64: a gradient waits for the next micro-batch in "
          "fp32, which would round its sum where a micro-batch ends");
  require(c.accumulator == Accumulator::fp32, "reproducible does not go with acc ",
          name(c.accumulator),
          ": it adds products in blocks that a micro-batch's end would cut, or begins a sum at 0");
  require(!c.weight_grad_16bit,
          "reproducible does not go with weight-grad 16bit, which rounds once a micro-batch");
}

Trainer::Trainer(const TrainConfig& config, const Dataset& data,
                 std::shared_ptr<simt::Runtime> runtime)
    : config_((validate(config), config)),
      data_(data),
      context_(runtime != nullptr || config.device == Device::cpu ? std::move(runtime)
                                                                  : simt::open(config.device)),
      model_(make_model(model_settings(config, data))),
      scaler_(scaler_config(config), config.max_skips),
      sampler_({.seed = config.seed,
                .count = data.train.size(),
                .batch = std::min(config.micro_batch * config.accumulate, data.train.size())}),
      reader_(data.train, data.normalization),
      schedule_(config.schedule, updates_of(config, sampler_.batches_per_epoch())),
      total_steps_(config.steps > 0 ? config.steps : config.epochs * sampler_.batches_per_epoch()) {
  // Checked here and not at an epoch's end, hours into a run.
  const std::int64_t window = sampler_.settings().batch;
  const std::int64_t last_window =
      data.train.size() % window == 0 ? window : data.train.size() % window;
  for (const std::int64_t size : {window, last_window}) {
    const std::int64_t rest = size % config.micro_batch;
    const std::int64_t smallest = rest == 0 ? std::min(size, config.micro_batch) : rest;
    require(smallest >= model_->smallest_batch(), "BatchNorm needs two values a channel; ",
            data.train.size(), " samples in windows of ", window, " leave a micro-batch of ",
            smallest);
  }
  require(!config.reproducible || !model_->has_batch_statistics(),
          "reproducible does not go with BatchNorm, which normalises by the micro-batch's own mean "
          "and variance: no order of summation makes cuts agree");
  apply_precision(context_, config.precision);
  context_.accumulator = config.accumulator;
  context_.reproducible = config.reproducible;
  context_.autocast.weight_grad_16bit = config.weight_grad_16bit;
  context_.autocast.overrides = config.autocast;
  context_.rng.seed = config.seed;
  model_->parameters().allocate(context_.allocator, arena_settings(config.precision, config.seed));
  optimizer_ = std::make_unique<Optimizer>(context_, model_->parameters(), config.optimizer);
  if (context_.device() == Device::cpu) return;
  device_step_ = std::make_unique<DeviceStep>(
      context_, *optimizer_, scaler_, ClipParams{.max_norm = config.clip}, schedule_.rate());
  const bool wanted =
      config.graph == TrainConfig::Graph::on ||
      (config.graph == TrainConfig::Graph::by_device && context_.device() == Device::cuda &&
       StepGraph::refusal(context_, *model_).empty());
  if (wanted)
    graph_ = std::make_unique<StepGraph>(context_, *model_, *device_step_, step_settings().loss);
}

std::int64_t Trainer::epoch() const { return steps_ / sampler_.batches_per_epoch(); }

std::int64_t Trainer::schedule_length() const {
  return updates_of(config_, sampler_.batches_per_epoch());
}

double Trainer::lr() const { return schedule_.lr(updates_); }

StepSettings Trainer::step_settings() const {
  return {.lr = schedule_.lr(updates_),
          .max_norm = config_.clip,
          .loss = {.label_smoothing = config_.label_smoothing}};
}

std::vector<MicroBatch> Trainer::cut(const Sampler::Batch& batch, std::int64_t micro_batch) {
  std::vector<MicroBatch> window;
  cut(batch, micro_batch, window);
  return window;
}

void Trainer::cut(const Sampler::Batch& batch, std::int64_t micro_batch,
                  std::vector<MicroBatch>& window) {
  window.clear();
  const auto total = static_cast<std::int64_t>(batch.indices.size());
  for (std::int64_t begin = 0; begin < total; begin += micro_batch) {
    const std::int64_t n = std::min(micro_batch, total - begin);
    Shape shape = data_.train.images.shape;
    shape.set(0, n);
    MicroBatch& micro = window.emplace_back();
    micro.x = Tensor::empty(context_.allocator, shape, DType::fp32);
    micro.labels = Tensor::empty(context_.allocator, {n}, DType::i64);
    micro.sample0 = static_cast<std::uint64_t>(batch.first + begin);
    micro.host_labels = reader_.gather(
        batch.indices.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)),
        micro.x, micro.labels, host_);
    micro.x = model_input(context_, *model_, micro.x);
  }
}

StepResult Trainer::step() {
  ROUNDOFF_CHECK(!done(), "train", "the run's ", total_steps_, " windows are done");
  finished_.clear();
  const std::int64_t epoch = this->epoch();
  const Sampler::Batch batch = sampler_.next();
  cut(batch, config_.micro_batch, window_);
  context_.rng.step = static_cast<std::uint64_t>(steps_);
  ++steps_;
  samples_ += static_cast<std::int64_t>(batch.indices.size());
  if (device_step_ != nullptr) {
    queued_.push_back({progress(), epoch});
    if (graph_ != nullptr) {
      graph_->queue(window_);
    } else {
      queue_window(context_, *model_, *device_step_, window_, step_settings().loss);
    }
    while (const auto record = device_step_->next()) finish(*record);
    return last_;
  }
  const StepSettings settings = step_settings();
  const auto note = [&] {
    updates_ += last_.did_step;
    finished_.push_back({last_, steps_, epoch, samples_, settings.lr, scaler_.growth_tracker()});
  };
  try {
    last_ = train_step(context_, *model_, *optimizer_, scaler_, window_, settings, &last_);
  } catch (const ScaleCollapse&) {
    note();
    throw;
  }
  note();
  return last_;
}

void Trainer::settle() {
  finished_.clear();
  if (device_step_ == nullptr) return;
  while (const auto record = device_step_->wait()) finish(*record);
}

void Trainer::finish(const StepRecord& record) {
  const Queued queued = queued_.front();
  queued_.erase(queued_.begin());
  updates_ = record.updates;
  if (record.halt != StepHalt::bad_data) {
    last_ = step_result(record);
    finished_.push_back({last_, queued.progress.steps, queued.epoch, queued.progress.samples,
                         record.lr, record.status.growth_tracker});
  }
  if (record.halt == StepHalt::none) return;
  // The windows behind it have changed nothing: they will run again.
  queued_.clear();
  sampler_.restore(queued.progress.sampler);
  steps_ = queued.progress.steps;
  samples_ = queued.progress.samples;
  device_step_->fail(record);
}

Evaluation Trainer::evaluate(const Split& split) {
  return roundoff::evaluate(context_, *model_, split, data_.normalization);
}

Trainer::FirstGradient Trainer::first_gradient() {
  const SamplerState before = sampler_.state();
  const std::vector<MicroBatch> window = cut(sampler_.next(), config_.micro_batch);
  sampler_.restore(before);
  ParameterArena& parameters = model_->parameters();
  FirstGradient first;
  for (first.scale = scaler_.scale(); first.scale >= 0x1p-60; first.scale /= 2) {
    context_.rng.step = static_cast<std::uint64_t>(steps_);
    accumulate_window(context_, *model_, window, first.scale, step_settings().loss);
    parameters.discard_buffers();
    StepStatus status;
    set_scale(status, static_cast<float>(first.scale));
    optimizer_->inspect({}, status);
    if (status.found_inf == 0) {
      first.norm = status.norm;
      for (const ParameterEntry& entry : parameters.entries()) {
        const std::size_t at = first.values.size();
        const std::int64_t n = entry.shape.numel();
        first.values.resize(at + static_cast<std::size_t>(n));
        if (!entry.tensor.leaf()->has_grad) continue;
        const Tensor grad = on_host(entry.tensor.leaf()->grad);
        const auto* g = grad.data<float>();
        for (std::int64_t i = 0; i < n; ++i)
          first.values[at + static_cast<std::size_t>(i)] = g[i] * status.inv_scale;
      }
      parameters.zero_grad();
      return first;
    }
    parameters.zero_grad();
  }
  return first;
}

void Trainer::restore(const Progress& progress) {
  ROUNDOFF_CHECK(
      progress.steps >= progress.updates && progress.updates >= 0 && progress.samples >= 0,
      "resume", "a run of ", progress.steps, " windows with ", progress.updates,
      " updates makes no sense");
  sampler_.restore(progress.sampler);
  steps_ = progress.steps;
  updates_ = progress.updates;
  samples_ = progress.samples;
  queued_.clear();
  finished_.clear();
  if (device_step_ != nullptr) device_step_->restore(updates_);
}

}  // namespace roundoff
