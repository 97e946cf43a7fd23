// How a launch reaches the emulator.
#pragma once

#include <functional>

#include "kernels/base/target.h"
#include "kernels/simt/emulator/api.h"
#include "kernels/simt/launch.h"

namespace roundoff::simt {

// Puts a grid of `body`, which every thread calls, on a simulated stream (SimStream, stream.h).
// `checked`: the body is instrumented, so the device's sanitizer and profiler see it.
ROUNDOFF_SIMT_API void sim_launch(StreamRef stream, const LaunchConfig& config, bool checked,
                                  std::function<void()> body);

}  // namespace roundoff::simt
