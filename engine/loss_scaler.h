// Dynamic loss scaling with PyTorch's counting (kernels/step/scaler_transition.h) and a checked
// order of calls:
//
//   for every micro-batch:  tape.backward(context, loss, scaler.seed())   the scale stays the same
//   optional:               scaler.unscale(optimizer)                     gradients in true units
//   scaler.step(optimizer, lr, clip)                                      update, or skip
//   scaler.update()                                                       once, after every
//   optimizer
//
// The scale is the seed of the backward pass, so the loss itself cannot overflow. Several
// optimizers share one scaler: one that overflows skips, the others step, and the scale backs off
// once. Disabled: the seed is 1, unscale does nothing, step always executes, whatever the gradients
// hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/optimizer.h"
#include "kernels/step/scaler_transition.h"

namespace roundoff {

// The scale fell through too many skipped updates in a row; names the first offending parameter.
class ScaleCollapse : public Error {
 public:
  using Error::Error;
};

// Throws ScaleCollapse for a scaler that has reached `state`.
[[noreturn]] void fail_collapsed(const ScalerState& state, std::string_view offender);

// What a checkpoint keeps; a disabled scaler's is empty and can be loaded.
struct LossScalerState {
  bool enabled = false;
  ScalerConfig config;
  ScalerState state;
  friend bool operator==(const LossScalerState&, const LossScalerState&);
};

class LossScaler {
 public:
  // Throws UsageError for a setting out of range (validate(ScalerConfig)). max_skips: consecutive
  // skipped updates after which update() throws ScaleCollapse; 0: no limit.
  explicit LossScaler(const ScalerConfig& config, std::int64_t max_skips = 0);

  // The factor of a backward pass, fp32-representable. Opens the window.
  double seed();
  float scale() const { return state_.scale; }
  const ScalerConfig& config() const { return config_; }
  std::int32_t growth_tracker() const { return state_.growth_tracker; }
  std::int64_t max_skips() const { return max_skips_; }
  // What a device that moves the scale on by itself (engine/device_step.h) has reached.
  void follow(const ScalerState& state) { state_ = state; }

  // Divides the optimizer's gradients by the scale, in place. Once a window and optimizer. A
  // non-finite gradient found here makes step() skip, whatever becomes of the gradients in between.
  void unscale(Optimizer& optimizer);
  // Checks, clips and updates in two passes; true if it stepped. A skipped step changes nothing and
  // clears the optimizer's gradients. Without any gradient nothing happens and false comes back.
  bool step(Optimizer& optimizer, double lr, const ClipParams& clip = {});
  // Moves the scale on, once a window. May throw ScaleCollapse, with the new state in place.
  void update();
  // Ends the window without counting it (no valid target in it).
  void abandon();

  // What the last step() found, until the next window.
  const StepStatus& status() const { return status_; }

  LossScalerState state() const;
  // Throws where the state does not satisfy its own configuration, or is of an enabled scaler and
  // this one is disabled, or the other way about.
  void load(const LossScalerState& state);

 private:
  enum class Stage : unsigned char { unscaled, stepped };
  struct Seen {
    const Optimizer* optimizer;
    Stage stage;
    StepStatus found;  // by unscale
  };
  Seen* find(const Optimizer& optimizer);

  ScalerConfig config_;
  ScalerState state_;
  std::int64_t max_skips_;
  bool window_open_ = false;
  bool any_gradient_ = false;
  bool found_inf_ = false;
  std::string offender_;
  std::vector<Seen> seen_;
  StepStatus status_;
};

}  // namespace roundoff
