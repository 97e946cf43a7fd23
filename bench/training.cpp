#include "bench/training.h"

#include <cmath>

#include "engine/data/random.h"
#include "models/train_step.h"

namespace roundoff::bench {

namespace {

struct Workload {
  std::string_view model;
  std::int64_t batch;
};
constexpr Workload kWorkloads[] = {{"tiny-mlp", 16}, {"convnet", 64}};
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16, Precision::fp16};
constexpr std::int64_t kSide = 24;
constexpr std::int64_t kClasses = 3;

}  // namespace

std::int64_t training_batch_size(std::string_view model) {
  for (const Workload& w : kWorkloads)
    if (w.model == model) return w.batch;
  fail("bench", "unknown model '", model, "'; tiny-mlp or convnet expected");
}

ModelSettings training_model(std::string_view model) {
  ModelSettings settings;
  settings.model = model;
  settings.input = {kSide, kSide, 1};
  settings.classes = kClasses;
  return settings;
}

MicroBatch training_batch(Allocator& allocator, std::string_view model, std::int64_t samples) {
  const std::int64_t usual = training_batch_size(model);
  const std::int64_t n = samples == 0 ? usual : samples;
  RandomStream random(1, RandomUse::glyphs, 0);
  std::vector<double> x(static_cast<std::size_t>(n * kSide * kSide)), labels;
  for (double& value : x) value = static_cast<float>(random.normal());
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(static_cast<double>(i % kClasses));
  MicroBatch batch;
  batch.x = Tensor::from(allocator, x, {n, kSide, kSide, 1}, DType::fp32);
  batch.labels = Tensor::from(allocator, labels, {n}, DType::i64);
  return batch;
}

struct TrainingStep::State {
  Context context;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  MicroBatch batch;

  State(std::string_view name, Precision precision)
      : model(make_model(training_model(name))), scaler({.enabled = precision == Precision::fp16}) {
    apply_precision(context, precision);
    model->parameters().allocate(context.allocator, arena_settings(precision, 1));
    optimizer = std::make_unique<Optimizer>(context, model->parameters(), OptimizerSettings{});
    batch = training_batch(context.allocator, name);
  }
};

TrainingStep::TrainingStep(std::string_view name, Precision precision)
    : state_(std::make_unique<State>(name, precision)) {}
TrainingStep::~TrainingStep() = default;

void TrainingStep::operator()() {
  State& s = *state_;
  const StepResult result =
      train_step(s.context, *s.model, *s.optimizer, s.scaler, {&s.batch, 1}, {.lr = 0});
  ROUNDOFF_CHECK(std::isfinite(result.loss), "bench", "the loss is ", result.loss);
}

std::string TrainingCase::name() const { return concat(model, ' ', roundoff::name(precision)); }

std::vector<TrainingCase> training_cases() {
  std::vector<TrainingCase> cases;
  for (const Workload& w : kWorkloads)
    for (const Precision p : kPrecisions) cases.push_back({w.model, p});
  return cases;
}

}  // namespace roundoff::bench
