// What one training step knows about itself, in one POD that can live on a device, so that the host
// never waits for it: the first pass over the gradients writes it, the optimizer and the loss
// scaler read it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/base/target.h"

namespace roundoff {

struct StepStatus {
  // Of the window that is being closed. A gradient's true value is gradient * inv_scale.
  float scale = 1.0F;
  float inv_scale = 1.0F;
  // 1 where an element of a gradient is infinite or NaN, before or after unscaling.
  std::int32_t found_inf = 0;
  // Index of the first gradient with such an element, in the order of the list; -1: none.
  std::int32_t first_offender = -1;
  // Global L2 norm of the unscaled gradients: inf or NaN where found_inf. fp64, because the norm
  // of finite fp32 values may exceed the largest of them.
  double norm = 0.0;
  // max_norm / norm where the norm exceeds max_norm, else 1; 1 too where found_inf.
  float clip = 1.0F;
  // Gradients that were present; a step with none is neutral: the scaler counts nothing.
  std::int32_t present = 0;
  // The loss scaler's counters, carried here so that its update needs nothing from the host.
  std::int32_t growth_tracker = 0;
  std::int32_t consecutive_skips = 0;
};
static_assert(std::is_trivially_copyable_v<StepStatus> && std::is_standard_layout_v<StepStatus>);

// Sets scale and inv_scale = 1 / (scale * divisor), in fp64 with one rounding to fp32. `divisor` is
// the part of a window's normalisation that the backward seed did not carry (numerics.md), 1
// otherwise. A power-of-two scale changes only the exponent of inv_scale, whatever the divisor, as
// long as the result is a normal fp32.
ROUNDOFF_HD constexpr void set_scale(StepStatus& status, float scale, double divisor = 1.0) {
  status.scale = scale;
  status.inv_scale = static_cast<float>(1.0 / (static_cast<double>(scale) * divisor));
}

}  // namespace roundoff
