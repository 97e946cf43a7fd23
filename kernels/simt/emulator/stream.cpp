#include "kernels/simt/emulator/stream.h"

#include "kernels/base/check.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/launch.h"

namespace roundoff::simt {

SimStream::~SimStream() = default;

void SimStream::launch(const LaunchConfig& config, bool checked, std::function<void()> body) {
  device_.run(config, checked, body);
}

void sim_launch(StreamRef stream, const LaunchConfig& config, bool checked,
                std::function<void()> body) {
  ROUNDOFF_CHECK(stream.handle != nullptr, config.name,
                 "a launch on the simulated device needs a stream");
  static_cast<SimStream*>(stream.handle)->launch(config, checked, std::move(body));
}

bool sim_runs(StreamRef stream, Architecture architecture) {
  if (architecture == Architecture::any) return true;
  return stream.handle != nullptr &&
         static_cast<SimStream*>(stream.handle)->device().config.architecture ==
             SimArchitecture::sm_90a;
}

}  // namespace roundoff::simt
