// One training step: a window of micro-batches, one update.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device_step.h"
#include "engine/loss_scaler.h"
#include "engine/optimizer.h"
#include "models/model.h"
#include "models/precision.h"

namespace roundoff {

struct MicroBatch {
  Tensor x;       // [m, ...] fp32
  Tensor labels;  // [m] int64
  // Global index (position in the epoch's order) of the first sample.
  std::uint64_t sample0 = 0;
  // Where `labels` are a device's: the same, as the host holds them, so that counting them reads
  // nothing back. May be undefined.
  Tensor host_labels = {};
  // In memory of a device: the window's number and sample0, for a graph (RngKey::device).
  const DropoutKey* key = nullptr;
};

struct LossSettings {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  Tensor class_weights{};  // [classes] or undefined
};

struct StepSettings {
  double lr = 1e-3;
  double max_norm = std::numeric_limits<double>::infinity();
  LossSettings loss = {};
};

struct StepResult {
  double loss = 0;   // mean over the window's valid weight
  double valid = 0;  // the window's valid weight: samples, or the sum of their class weights
  std::int64_t samples = 0;
  std::int64_t correct = 0;
  double grad_norm = 0;  // of the unscaled, unclipped gradient
  double clip = 1;
  double scale = 1;  // that the window ran with
  bool found_inf = false;
  // First parameter, in the arena's order, whose gradient is not finite; -1: none.
  std::int32_t offender = -1;
  bool did_step = false;  // false: skipped, nothing changed
};

// Runs the window, which may be of unequal micro-batches, and updates once or skips:
//   every micro-batch backward at one constant scale, its sum of losses weighted 1/n by the
//   window's valid weight n  ->  unscale, check and norm in one pass  ->  clip, update  ->  scaler.
// Gradients are absent afterwards. A window without a valid target is neutral. Throws
// ScaleCollapse as LossScaler does, with everything in place for the next window; `reached`, where
// given, has the result then too. On a device the host waits inside; queue_window does not.
StepResult train_step(Context& context, Model& model, Optimizer& optimizer, LossScaler& scaler,
                      std::span<const MicroBatch> window, const StepSettings& settings,
                      StepResult* reached = nullptr);

// The same on a device, queued and not waited for: passes, update, scaler and the commit of buffers
// (engine/device_step.h). The outcome arrives through step.next(). A micro-batch whose labels only
// the device holds runs even if it has no valid target.
void queue_window(Context& context, Model& model, DeviceStep& step,
                  std::span<const MicroBatch> window, const LossSettings& loss);
// Its part that a graph may hold: everything but the copy of the outcome.
void run_window_on_device(Context& context, Model& model, DeviceStep& step,
                          std::span<const MicroBatch> window, const LossSettings& loss);
StepResult step_result(const StepRecord& record);

// The window's gradient alone: adds (loss gradient) * seed to the parameters' gradients; fills
// loss, valid, samples and correct of the result. Micro-batches without a valid target are left
// out.
StepResult accumulate_window(Context& context, Model& model, std::span<const MicroBatch> window,
                             double seed, const LossSettings& loss);

}  // namespace roundoff
