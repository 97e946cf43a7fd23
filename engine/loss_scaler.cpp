#include "engine/loss_scaler.h"

namespace roundoff {

bool operator==(const LossScalerState& a, const LossScalerState& b) {
  if (a.enabled != b.enabled) return false;
  if (!a.enabled) return true;
  const ScalerConfig& x = a.config;
  const ScalerConfig& y = b.config;
  return a.state == b.state && x.init_scale == y.init_scale && x.growth_factor == y.growth_factor &&
         x.backoff_factor == y.backoff_factor && x.growth_interval == y.growth_interval &&
         x.min_scale == y.min_scale && x.max_scale == y.max_scale && x.dynamic == y.dynamic;
}

void fail_collapsed(const ScalerState& state, std::string_view offender) {
  throw ScaleCollapse(concat("[scaler] ", state.consecutive_skips,
                             " updates in a row were skipped, the scale is down to ", state.scale,
                             "; the first non-finite gradient is that of '", offender, "'"));
}

LossScaler::LossScaler(const ScalerConfig& config, std::int64_t max_skips)
    : config_(config), max_skips_(max_skips) {
  validate(config);
  if (max_skips < 0)
    throw UsageError(concat("[scaler] max_skips is ", max_skips, "; at least 0 expected"));
  state_ = initial_state(config);
}

LossScaler::Seen* LossScaler::find(const Optimizer& optimizer) {
  for (Seen& seen : seen_)
    if (seen.optimizer == &optimizer) return &seen;
  return nullptr;
}

double LossScaler::seed() {
  ROUNDOFF_CHECK(seen_.empty(), "scaler",
                 "a backward pass is scaled after unscale or step; call update first");
  window_open_ = true;
  return state_.scale;
}

void LossScaler::unscale(Optimizer& optimizer) {
  if (!config_.enabled) return;
  ROUNDOFF_CHECK(window_open_, "scaler", "unscale without a scaled backward pass in this window");
  if (const Seen* seen = find(optimizer))
    fail("scaler", seen->stage == Stage::unscaled
                       ? "unscale was called already for this optimizer in this window"
                       : "unscale after step");
  StepStatus status;
  set_scale(status, state_.scale);
  // The check comes before unscaling as well, so that what the division hides is still found.
  optimizer.inspect({}, status);
  optimizer.unscale_gradients(status.inv_scale);
  seen_.push_back({&optimizer, Stage::unscaled, status});
  any_gradient_ = any_gradient_ || status.present != 0;
  if (status.found_inf != 0) {
    if (!found_inf_) offender_ = optimizer.offender(status);
    found_inf_ = true;
  }
}

bool LossScaler::step(Optimizer& optimizer, double lr, const ClipParams& clip) {
  status_ = StepStatus{};
  set_scale(status_, state_.scale);
  status_.growth_tracker = state_.growth_tracker;
  status_.consecutive_skips = state_.consecutive_skips;
  if (!config_.enabled) {
    optimizer.inspect(clip, status_);
    if (status_.present == 0) return false;
    StepStatus regardless = status_;
    regardless.found_inf = 0;
    optimizer.apply(lr, regardless);
    return true;
  }
  ROUNDOFF_CHECK(window_open_, "scaler", "step without a scaled backward pass in this window");
  Seen* seen = find(optimizer);
  ROUNDOFF_CHECK(seen == nullptr || seen->stage == Stage::unscaled, "scaler",
                 "step was called already for this optimizer; call update first");
  if (seen != nullptr) status_.inv_scale = 1.0F;
  optimizer.inspect(clip, status_);
  if (seen != nullptr && seen->found.found_inf != 0) {
    status_.found_inf = 1;
    status_.first_offender = seen->found.first_offender;
    status_.norm = seen->found.norm;
    status_.clip = 1.0F;
  }
  const bool steps = status_.present != 0 && status_.found_inf == 0;
  // Before the window remembers the step: a bad rate throws, and the step can be tried again.
  if (steps) optimizer.apply(lr, status_);
  if (seen != nullptr) {
    seen->stage = Stage::stepped;
  } else {
    seen_.push_back({&optimizer, Stage::stepped, {}});
  }
  any_gradient_ = any_gradient_ || status_.present != 0;
  if (status_.found_inf != 0) {
    if (!found_inf_) offender_ = optimizer.offender(status_);
    found_inf_ = true;
    optimizer.arena().zero_grad();
  }
  return steps;
}

void LossScaler::update() {
  if (!config_.enabled) return;
  ROUNDOFF_CHECK(!seen_.empty(), "scaler",
                 "update without unscale or step: the scale stays the same inside a window, and "
                 "moves once after it");
  const bool counts = any_gradient_;
  const bool found_inf = found_inf_;
  const std::string offender = std::move(offender_);
  abandon();
  if (!counts) return;
  state_ = transition(config_, state_, found_inf);
  if (found_inf && max_skips_ > 0 && state_.consecutive_skips >= max_skips_)
    fail_collapsed(state_, offender);
}

void LossScaler::abandon() {
  window_open_ = false;
  any_gradient_ = false;
  found_inf_ = false;
  offender_.clear();
  seen_.clear();
}

LossScalerState LossScaler::state() const {
  if (!config_.enabled) return {};
  return {true, config_, state_};
}

void LossScaler::load(const LossScalerState& state) {
  ROUNDOFF_CHECK(state.enabled == config_.enabled, "scaler", "the saved state is of ",
                 state.enabled ? "an enabled" : "a disabled", " scaler, this one is ",
                 config_.enabled ? "enabled" : "disabled");
  if (!state.enabled) return;
  ROUNDOFF_CHECK(state.config.enabled, "scaler",
                 "the saved state says both that the scaler is enabled and that it is not");
  validate(state.config);
  // The bounds as the scale meets them, rounded to fp32.
  ROUNDOFF_CHECK(state.state.scale >= static_cast<float>(state.config.min_scale) &&
                     state.state.scale <= static_cast<float>(state.config.max_scale) &&
                     state.state.growth_tracker >= 0 && state.state.consecutive_skips >= 0,
                 "scaler", "the saved scale ", state.state.scale, " or tracker ",
                 state.state.growth_tracker, " is out of range");
  abandon();
  config_ = state.config;
  state_ = state.state;
  // Gradients that were formed before the save may be unscaled at once.
  window_open_ = true;
}

}  // namespace roundoff
