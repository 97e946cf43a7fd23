// The parts of the study of loss scaling; each adds its tables, figures and claims.
#pragma once

#include "study/study.h"

namespace roundoff::study {

// The state machine alone, and beside it a training run whose windows tell what they bear.
void scaler_dynamics(const Options& options, Result& result);
// Gradients that need a scale below 1, and gradients that no scale fits.
void scaler_range(const Options& options, Result& result);
// What is divided and clipped, and in which order.
void scaler_order(const Options& options, Result& result);

}  // namespace roundoff::study
