#include "tests/device/scaler.h"

#include "tests/device/gpu.cuh"

using namespace roundoff;

static_assert(transition(ScalerConfig{}, {65536.0F, 1999, 0}, false) ==
              ScalerState{131072.0F, 0, 0});

namespace {

__global__ void play_kernel(ScalerConfig config, StepStatus status, const std::int32_t* found_inf,
                            unsigned n, StepStatus* states) {
  if (blockIdx.x * kBlock + threadIdx.x != 0) return;
  for (unsigned i = 0; i < n; ++i) {
    status.found_inf = found_inf[i];
    update_scale(config, status);
    states[i] = status;
  }
}

}  // namespace

std::vector<StepStatus> play_on_device(const ScalerConfig& config, StepStatus status,
                                       const std::vector<std::int32_t>& found_inf) {
  const auto n = static_cast<unsigned>(found_inf.size());
  Array<std::int32_t> pattern(found_inf.size());
  pattern.fill(found_inf);
  Array<StepStatus> states(found_inf.size());
  launch(play_kernel, 1, config, status, pattern.data(), n, states.data());
  return states.read();
}
