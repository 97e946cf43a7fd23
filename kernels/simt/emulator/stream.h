// What a StreamRef of a simulated device points to.
#pragma once

#include <functional>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/launch.h"

namespace roundoff::simt {

class Emulator;

class ROUNDOFF_SIMT_API SimStream {
 public:
  explicit SimStream(Emulator& device) : device_(device) {}
  virtual ~SimStream();
  SimStream(const SimStream&) = delete;
  SimStream& operator=(const SimStream&) = delete;

  // Runs the grid now; a queue that runs it later overrides this.
  virtual void launch(const LaunchConfig& config, bool checked, std::function<void()> body);
  Emulator& device() const { return device_; }

 private:
  Emulator& device_;
};

// Whether the device behind a simulated stream runs kernels that need `architecture`.
ROUNDOFF_SIMT_API bool sim_runs(StreamRef stream, Architecture architecture);

}  // namespace roundoff::simt
