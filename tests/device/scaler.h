// The loss scaler's transition as a GPU computes it, to be compared with the host's.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/step/scaler_transition.h"

// The status after each update of a run that starts from `status`; found_inf[i] != 0 where window i
// overflowed. One thread plays the whole run.
std::vector<roundoff::StepStatus> play_on_device(const roundoff::ScalerConfig& config,
                                                 roundoff::StepStatus status,
                                                 const std::vector<std::int32_t>& found_inf);
