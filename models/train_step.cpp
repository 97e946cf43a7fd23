#include "models/train_step.h"

#include "models/evaluate.h"
#include "ops/cross_entropy.h"

namespace roundoff {

namespace {

// The weight that a micro-batch's targets put into the window's mean.
double valid_weight(const MicroBatch& micro, const LossSettings& loss) {
  const Tensor labels = on_host(micro.host_labels.defined() ? micro.host_labels : micro.labels);
  double weight = 0;
  const auto* label = labels.data<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == loss.ignore_index) continue;
    const bool weighted =
        loss.class_weights.defined() && label[i] >= 0 && label[i] < loss.class_weights.numel();
    weight += weighted ? loss.class_weights.at(label[i]) : 1.0;
  }
  return weight;
}

}  // namespace

StepResult accumulate_window(Context& context, Model& model, std::span<const MicroBatch> window,
                             double seed, const LossSettings& loss_settings) {
  StepResult result;
  LossSettings host_loss = loss_settings;
  host_loss.class_weights = on_host(loss_settings.class_weights);
  for (const MicroBatch& micro : window) {
    result.valid += valid_weight(micro, host_loss);
    result.samples += micro.labels.numel();
  }
  if (result.valid == 0) return result;
  for (const MicroBatch& micro : window) {
    if (valid_weight(micro, host_loss) == 0) continue;
    context.rng.sample0 = micro.sample0;
    const Tensor logits = model.forward(context, micro.x);
    const CrossEntropyResult loss = cross_entropy(context, logits, micro.labels,
                                                  {.ignore_index = loss_settings.ignore_index,
                                                   .label_smoothing = loss_settings.label_smoothing,
                                                   .reduction = Reduction::sum},
                                                  loss_settings.class_weights);
    context.tape.backward(context, loss.loss, seed / result.valid);
    context.tape.clear();
    result.loss += loss.loss.item() / result.valid;
    result.correct +=
        count_correct(logits, micro.host_labels.defined() ? micro.host_labels : micro.labels);
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

  result.did_step = scaler.step(optimizer, settings.lr, {.max_norm = settings.max_norm});
  const StepStatus& status = scaler.status();
  result.grad_norm = status.norm;
  result.clip = status.clip;
  result.found_inf = status.found_inf != 0;
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

}  // namespace roundoff
