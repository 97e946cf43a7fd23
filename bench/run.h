// Benchmarks of problems on a device: each verified against the oracle first, then counted (sim) or
// timed (cuda, cpu).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/problem.h"
#include "bench/result.h"
#include "kernels/gemm/kernel.h"

namespace roundoff::bench {

struct RunSettings {
  // Of products: one kernel by name, or every rung of the ladder; what a kernel does not take is a
  // row with its reason. Neither: the kernel that is chosen automatically.
  std::optional<ProductKernel> kernel;
  bool rungs = false;
  // On cuda: beside the vendor's library.
  bool baseline = false;
  std::uint64_t seed = 1;
  // Called before each row with what is run.
  std::function<void(const std::string&)> progress;

  void tell(const Problem& problem, ProductKernel chosen) const;
  // What to run of a problem.
  std::vector<ProductKernel> kernels(const Problem& problem) const;
};

// A row with what the problem says of itself. Of an automatic choice `chosen` is what it came to:
// "automatic (sm90)".
Row begin_row(const Problem& problem, ProductKernel kernel,
              std::optional<ProductKernel> chosen = {});
// The problem computed by that kernel.
Problem with_kernel(const Problem& problem, ProductKernel kernel);

// What stands behind "does not take this product: " in a launcher's error, else all of it.
std::string reason_of(const std::string& error);

// Why a kernel does not take the problem on a GPU of that capability (80 or 90); empty where it
// does. Found by trying it on the emulator, reduced: nothing of it is counted.
std::string refusal(const Problem& problem, ProductKernel kernel, int capability);

struct SimSettings {
  int capability = 90;  // of the simulated device: 80 or 90
  // Clusters of a launch that run where a problem is not small; 0: as many as take about a second.
  std::size_t sample = 0;
};
// Counted by the emulator, of the instrumented kernels. Throws AbsentError where the build has no
// device sim.
Report run_on_sim(const std::vector<Problem>& problems, const RunSettings& settings,
                  const SimSettings& sim);

// Measured by the processor's clock: the reference path.
Report run_on_cpu(const std::vector<Problem>& problems, const RunSettings& settings);

// Measured by the GPU's clock, beside the vendor's library where settings.baseline says so
// (bench/cuda/). Only in builds with ROUNDOFF_HAS_CUDA.
Report run_on_cuda(const std::vector<Problem>& problems, const RunSettings& settings);

}  // namespace roundoff::bench
