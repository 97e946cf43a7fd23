#include "study/faulty_loops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/data/loader.h"
#include "models/evaluate.h"
#include "models/precision.h"
#include "models/train_step.h"

namespace roundoff::study {

namespace {

class Loop {
 public:
  Loop(const LoopSettings& settings, const Dataset& data)
      : settings_(settings), data_(data), reader_(data.train, data.normalization) {
    ModelSettings model = settings.model;
    model.input = data.image;
    model.classes = data.classes;
    model_ = make_model(model);
    apply_precision(context_, Precision::fp32);
    parameters().allocate(context_.allocator, arena_settings(Precision::fp32, settings.seed));
    optimizer_ = std::make_unique<Optimizer>(context_, parameters(), settings.optimizer);
  }

  ParameterArena& parameters() { return model_->parameters(); }
  Context& context() { return context_; }
  Model& model() { return *model_; }

  MicroBatch batch(std::int64_t n) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(n));
    for (std::int64_t& index : indices) {
      index = next_;
      next_ = (next_ + 1) % data_.train.size();
    }
    std::vector<std::int64_t> extents{n};
    extents.insert(extents.end(), data_.image.extents().begin(), data_.image.extents().end());
    MicroBatch micro;
    micro.x = Tensor::empty(context_.allocator, Shape(std::span<const std::int64_t>(extents)),
                            DType::fp32);
    micro.labels = Tensor::empty(context_.allocator, {n}, DType::i64);
    micro.host_labels = reader_.gather(indices, micro.x, micro.labels, host_);
    return micro;
  }
  std::vector<MicroBatch> window() {
    std::vector<MicroBatch> all;
    for (const std::int64_t n : settings_.sizes) all.push_back(batch(n));
    return all;
  }

  // Adds seed times the mean gradient of `part`.
  StepResult add(std::span<const MicroBatch> part, double seed) {
    return accumulate_window(context_, *model_, part, seed, {});
  }
  void update(double max_norm) {
    StepStatus status;
    optimizer_->inspect({.max_norm = max_norm}, status);
    optimizer_->apply(settings_.lr, status);
  }
  std::vector<double> weights() { return flat(parameters().flat_master()); }
  std::vector<double> gradient() { return flat(parameters().flat_gradient()); }
  void set_gradient(const std::vector<double>& values) {
    std::vector<float> rounded(values.begin(), values.end());
    parameters().flat_gradient().write(reinterpret_cast<const std::byte*>(rounded.data()));
  }

 private:
  // Padding between parameters is whatever memory held: it is left out.
  std::vector<double> flat(const Tensor& block) {
    std::vector<double> values = block.to_vector();
    std::vector<bool> used(values.size(), false);
    for (const ParameterEntry& e : parameters().entries())
      for (std::int64_t i = 0; i < e.shape.numel(); ++i)
        used[static_cast<std::size_t>(e.offset + i)] = true;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!used[i]) values[i] = 0;
    return values;
  }

  const LoopSettings& settings_;
  const Dataset& data_;
  BatchReader reader_;
  Allocator host_;
  Context context_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t next_ = 0;
};

double norm(const std::vector<double>& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

// The window's loss, for the curve; what the fault does to the gradient is its own affair.
double accumulate_and_update(Fault fault, Loop& loop, const LoopSettings& settings) {
  std::vector<MicroBatch> window = loop.window();
  if (fault == Fault::drops_last_micro_batch && window.size() > 1) window.pop_back();
  const auto count = static_cast<double>(window.size());
  const auto mean_loss = [&](auto&& each) {
    double loss = 0;
    double samples = 0;
    for (const MicroBatch& micro : window) {
      const StepResult r = each(micro);
      loss += r.loss * r.valid;
      samples += r.valid;
    }
    return loss / samples;
  };
  const auto one = [](const MicroBatch& micro) { return std::span(&micro, 1); };
  double loss = 0;
  switch (fault) {
    case Fault::steps_every_micro_batch:
      return mean_loss([&](const MicroBatch& micro) {
        const StepResult r = loop.add(one(micro), 1);
        loop.update(settings.max_norm);
        loop.parameters().zero_grad();
        return r;
      });
    case Fault::averages_means:
      loss = mean_loss([&](const MicroBatch& micro) { return loop.add(one(micro), 1 / count); });
      break;
    case Fault::does_not_divide:
      loss = mean_loss([&](const MicroBatch& micro) { return loop.add(one(micro), 1); });
      break;
    case Fault::clips_every_micro_batch: {
      const auto samples = static_cast<double>(
          std::accumulate(settings.sizes.begin(), settings.sizes.end(), std::int64_t{0}));
      std::vector<double> sum;
      loss = mean_loss([&](const MicroBatch& micro) {
        loop.parameters().zero_grad();
        const StepResult r = loop.add(one(micro), 1);
        const std::vector<double> g = loop.gradient();
        const double clip = std::min(1.0, settings.max_norm / (norm(g) + 1e-6));
        sum.resize(g.size(), 0);
        for (std::size_t i = 0; i < g.size(); ++i) sum[i] += clip * g[i] * r.valid / samples;
        return r;
      });
      loop.set_gradient(sum);
      break;
    }
    case Fault::none:
    case Fault::keeps_gradients:
    case Fault::drops_last_micro_batch:
      loss = loop.add(window, 1).loss;
      break;
  }
  loop.update(fault == Fault::clips_every_micro_batch ? std::numeric_limits<double>::infinity()
                                                      : settings.max_norm);
  if (fault != Fault::keeps_gradients) loop.parameters().zero_grad();
  return loss;
}

}  // namespace

std::string_view name(Fault fault) {
  constexpr std::string_view kNames[kFaults] = {"none",
                                                "steps every micro-batch",
                                                "averages the means",
                                                "keeps old gradients",
                                                "does not divide by A",
                                                "clips every micro-batch",
                                                "drops the last micro-batch"};
  return kNames[static_cast<int>(fault)];
}

LoopOutcome run_loop(Fault fault, const LoopSettings& settings, const Dataset& data,
                     std::int64_t windows) {
  Loop loop(settings, data);
  LoopOutcome outcome;
  outcome.start = loop.weights();
  for (std::int64_t w = 0; w < windows; ++w)
    outcome.losses.push_back(accumulate_and_update(fault, loop, settings));
  outcome.end = loop.weights();
  outcome.updates = windows;
  if (fault == Fault::steps_every_micro_batch)
    outcome.updates *= static_cast<std::int64_t>(settings.sizes.size());
  outcome.accuracy =
      evaluate(loop.context(), loop.model(), data.train, data.normalization).accuracy();
  return outcome;
}

SampleGradients sample_gradients(const LoopSettings& settings, const Dataset& data) {
  Loop loop(settings, data);
  const std::int64_t n =
      std::accumulate(settings.sizes.begin(), settings.sizes.end(), std::int64_t{0});
  SampleGradients result;
  for (std::int64_t i = 0; i < n; ++i) {
    const MicroBatch micro = loop.batch(1);
    loop.add(std::span(&micro, 1), 1);
    const std::vector<double> g = loop.gradient();
    loop.parameters().zero_grad();
    result.mean.resize(g.size(), 0);
    result.mean_magnitude.resize(g.size(), 0);
    for (std::size_t j = 0; j < g.size(); ++j) {
      result.mean[j] += g[j] / static_cast<double>(n);
      result.mean_magnitude[j] += std::abs(g[j]) / static_cast<double>(n);
    }
  }
  // Every layer's sum is walked forward and backward; the window's samples are summed once.
  result.depth = n;
  for (const ParameterEntry& e : loop.parameters().entries())
    if (e.shape.rank() > 1) result.depth += 2 * e.fan_in;
  return result;
}

double first_update_tolerance(const LoopSettings& settings, const SampleGradients& gradients,
                              const LoopOutcome& reference) {
  constexpr double kUnit = 0x1p-24;
  const bool adam = settings.optimizer.kind != OptimizerSettings::Kind::sgd;
  const auto direction = [&](double g) {
    return adam ? g / (std::abs(g) + settings.optimizer.eps) : g;
  };
  double squares = 0;
  double length = 0;
  for (std::size_t i = 0; i < gradients.mean.size(); ++i) {
    const double g = gradients.mean[i];
    const double error = static_cast<double>(gradients.depth) * kUnit * gradients.mean_magnitude[i];
    // The formula is monotone: its largest change is at an end.
    const double change = std::max(std::abs(direction(g + error) - direction(g)),
                                   std::abs(direction(g - error) - direction(g)));
    const double weight = std::abs(reference.start[i]);
    // Both of the two that are compared are rounded.
    const double bound = 2 * (settings.lr * change + kUnit * weight);
    squares += bound * bound;
    const double step = reference.end[i] - reference.start[i];
    length += step * step;
  }
  return std::sqrt(squares / length);
}

double update_distance(const LoopOutcome& a, const LoopOutcome& b) {
  double difference = 0;
  double length = 0;
  for (std::size_t i = 0; i < a.start.size(); ++i) {
    const double step = b.end[i] - b.start[i];
    const double d = (a.end[i] - a.start[i]) - step;
    difference += d * d;
    length += step * step;
  }
  return std::sqrt(difference / length);
}

}  // namespace roundoff::study
