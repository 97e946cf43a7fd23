// The state machine of dynamic loss scaling as a pure function, for host and device.
// Source: PyTorch's torch.amp.GradScaler and its _amp_update_scale_ kernel define the counting.
// Added here: growth stops at max_scale and backoff at min_scale.
//
//   found_inf           scale <- max(scale * backoff, min_scale), tracker <- 0
//   finite, counter at interval - 1
//                       scale <- min(scale * growth, max_scale),  tracker <- 0
//   finite otherwise    tracker <- tracker + 1
//
// Products are formed in fp64 and rounded once to fp32.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"
#include "kernels/step/status.h"

namespace roundoff {

// Both a scale in these bounds and its reciprocal are normal fp32 numbers.
inline constexpr float kMinLossScale = 0x1p-126F;
inline constexpr float kMaxLossScale = 0x1p126F;

struct ScalerConfig {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::int32_t growth_interval = 2000;  // finite updates in a row before the scale grows
  double min_scale = kMinLossScale;
  double max_scale = kMaxLossScale;
  bool dynamic = true;  // false: the scale stays; a step with a non-finite gradient still skips
  bool enabled = true;  // false: the scale is 1 and nothing is counted
};

struct ScalerState {
  float scale = 1.0F;
  std::int32_t growth_tracker = 0;     // finite updates since the scale last changed
  std::int32_t consecutive_skips = 0;  // updates in a row that found a non-finite gradient
  friend constexpr bool operator==(const ScalerState&, const ScalerState&) = default;
};

// Throws UsageError, one line that names the setting, unless
//   2^-126 <= min_scale <= init_scale <= max_scale <= 2^126, 1 < growth_factor < inf,
//   0 < backoff_factor < 1, growth_interval >= 1.
// Nothing is asked of a disabled scaler; nothing of the factors of a static one.
void validate(const ScalerConfig& config);

constexpr ScalerState initial_state(const ScalerConfig& config) {
  return {config.enabled ? static_cast<float>(config.init_scale) : 1.0F, 0, 0};
}

// The state after an update. A step without any gradient is neutral: do not call this for it.
ROUNDOFF_HD constexpr ScalerState transition(const ScalerConfig& config, ScalerState state,
                                             bool found_inf) {
  if (!config.enabled) return state;
  state.consecutive_skips = found_inf ? state.consecutive_skips + 1 : 0;
  if (!config.dynamic) return state;
  const double scale = static_cast<double>(state.scale);
  if (found_inf) {
    const double lower = scale * config.backoff_factor;
    state.scale = static_cast<float>(lower > config.min_scale ? lower : config.min_scale);
    state.growth_tracker = 0;
    return state;
  }
  // At least, not equal: a tracker restored under a shorter interval must not count for ever.
  if (state.growth_tracker + 1 >= config.growth_interval) {
    const double higher = scale * config.growth_factor;
    state.scale = static_cast<float>(higher < config.max_scale ? higher : config.max_scale);
    state.growth_tracker = 0;
  } else {
    ++state.growth_tracker;
  }
  return state;
}

// The same on a step's status: moves scale, inv_scale and the counters on for the next window.
// A step that saw no gradient at all changes nothing.
ROUNDOFF_HD constexpr void update_scale(const ScalerConfig& config, StepStatus& status) {
  if (status.present == 0) return;
  const ScalerState next =
      transition(config, {status.scale, status.growth_tracker, status.consecutive_skips},
                 status.found_inf != 0);
  set_scale(status, next.scale);
  status.growth_tracker = next.growth_tracker;
  status.consecutive_skips = next.consecutive_skips;
}

}  // namespace roundoff
