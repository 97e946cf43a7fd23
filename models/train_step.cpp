#include "models/train_step.h"

#include <algorithm>
#include <vector>

#include "models/evaluate.h"
#include "ops/cross_entropy.h"
#include "ops/reduce.h"

namespace roundoff {

namespace {

// Adds the weight that a micro-batch's targets put into the window's mean, one after the other.
void add_valid_weight(const MicroBatch& micro, const LossSettings& loss, double& weight) {
  const Tensor labels = on_host(micro.host_labels.defined() ? micro.host_labels : micro.labels);
  const auto* label = labels.data<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == loss.ignore_index) continue;
    const bool weighted =
        loss.class_weights.defined() && label[i] >= 0 && label[i] < loss.class_weights.numel();
    weight += weighted ? loss.class_weights.at(label[i]) : 1.0;
  }
}

double valid_weight(const MicroBatch& micro, const LossSettings& loss) {
  double weight = 0;
  add_valid_weight(micro, loss, weight);
  return weight;
}

// Whether a micro-batch adds anything, as far as the host knows.
bool may_have_target(const MicroBatch& micro, const LossSettings& loss) {
  if (!micro.host_labels.defined()) return micro.labels.numel() != 0;
  const auto* label = micro.host_labels.data<std::int64_t>();
  return std::any_of(label, label + micro.host_labels.numel(),
                     [&](std::int64_t l) { return l != loss.ignore_index; });
}

struct Forward {
  Tensor logits;
  Tensor loss;   // sum
  Tensor terms;  // where the context is reproducible: of each sample
};
Forward forward(Context& context, Model& model, const MicroBatch& micro,
                const LossSettings& settings) {
  context.rng.sample0 = micro.sample0;
  context.rng.device = micro.key;
  Forward f;
  f.logits = model.forward(context, micro.x);
  const Tensor loss =
      cross_entropy(context, f.logits, micro.labels,
                    {.ignore_index = settings.ignore_index,
                     .label_smoothing = settings.label_smoothing,
                     .reduction = context.reproducible ? Reduction::none : Reduction::sum},
                    settings.class_weights)
          .loss;
  if (context.reproducible) {
    // The sum only spreads the seed: what is reported is added sample by sample.
    f.terms = loss;
    f.loss = sum(context, loss);
  } else {
    f.loss = loss;
  }
  return f;
}

}  // namespace

StepResult accumulate_window(Context& context, Model& model, std::span<const MicroBatch> window,
                             double seed, const LossSettings& loss_settings) {
  StepResult result;
  LossSettings host_loss = loss_settings;
  host_loss.class_weights = on_host(loss_settings.class_weights);
  for (const MicroBatch& micro : window) {
    if (context.reproducible)
      add_valid_weight(micro, host_loss, result.valid);
    else
      result.valid += valid_weight(micro, host_loss);
    result.samples += micro.labels.numel();
  }
  if (result.valid == 0) return result;
  for (const MicroBatch& micro : window) {
    // Where the context is reproducible they run: leaving them out would be another sum.
    if (!context.reproducible && valid_weight(micro, host_loss) == 0) continue;
    if (micro.labels.numel() == 0) continue;
    const Forward f = forward(context, model, micro, loss_settings);
    context.tape.backward(context, f.loss, seed / result.valid);
    context.tape.clear();
    if (f.terms.defined()) {
      for (const double term : f.terms.to_vector()) result.loss += term / result.valid;
    } else {
      result.loss += f.loss.item() / result.valid;
    }
    result.correct +=
        count_correct(f.logits, micro.host_labels.defined() ? micro.host_labels : micro.labels);
  }
  return result;
}

StepResult train_step(Context& context, Model& model, Optimizer& optimizer, LossScaler& scaler,
                      std::span<const MicroBatch> window, const StepSettings& settings,
                      StepResult* reached) {
  ParameterArena& parameters = model.parameters();
  const double scale = scaler.seed();
  StepResult result = accumulate_window(context, model, window, scale, settings.loss);
  result.scale = scale;
  if (result.valid == 0) {
    scaler.abandon();
    parameters.discard_buffers();
    return result;
  }

  if (context.observer != nullptr) context.observer->has_gradients(parameters);
  result.did_step = scaler.step(optimizer, settings.lr, {.max_norm = settings.max_norm});
  const StepStatus& status = scaler.status();
  result.grad_norm = status.norm;
  result.clip = status.clip;
  result.found_inf = status.found_inf != 0;
  result.offender = status.first_offender;
  if (result.did_step) {
    parameters.commit_buffers();
  } else {
    parameters.discard_buffers();
  }
  parameters.zero_grad();
  if (reached != nullptr) *reached = result;
  scaler.update();
  return result;
}

void queue_window(Context& context, Model& model, DeviceStep& step,
                  std::span<const MicroBatch> window, const LossSettings& loss) {
  run_window_on_device(context, model, step, window, loss);
  step.queue_record();
}

void run_window_on_device(Context& context, Model& model, DeviceStep& step,
                          std::span<const MicroBatch> window, const LossSettings& loss) {
  std::vector<ConstView> labels;
  for (const MicroBatch& micro : window) labels.push_back(micro.labels.view());
  step.open(labels, loss.ignore_index, loss.class_weights, context.reproducible);
  for (const MicroBatch& micro : window) {
    if (micro.labels.numel() == 0) continue;
    if (!context.reproducible && !may_have_target(micro, loss)) continue;
    const Forward f = forward(context, model, micro, loss);
    context.tape.backward(context, f.loss, step.seed());
    context.tape.clear();
    step.score(f.logits, micro.labels, f.terms.defined() ? f.terms : f.loss);
  }
  if (context.observer != nullptr) context.observer->has_gradients(model.parameters());
  step.close_on_device();
}

StepResult step_result(const StepRecord& r) {
  return {.loss = r.loss,
          .valid = r.valid,
          .samples = r.samples,
          .correct = static_cast<std::int64_t>(r.correct),
          .grad_norm = r.status.norm,
          .clip = r.status.clip,
          .scale = r.status.scale,
          .found_inf = r.status.found_inf != 0,
          .offender = r.status.first_offender,
          .did_step = r.did_step != 0};
}

}  // namespace roundoff
