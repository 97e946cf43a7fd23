// Benchmarks of problems on a GPU, by the rules of docs/gpu_bench.md: each implementation
// verified, captured as a graph, and replayed in turns with the others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/ceilings.h"
#include "bench/cuda/nvml.h"
#include "bench/cuda/timing.h"
#include "bench/cuda/vendor.h"
#include "bench/operands.h"
#include "bench/run.h"
#include "bench/steps.h"

namespace roundoff::bench {

// Where problems run. Tests put the emulator in a GPU's place, with a clock of their own.
struct Bench {
  std::shared_ptr<simt::Runtime> runtime;
  std::shared_ptr<Stopwatch> stopwatch;
  // Of what the stopwatch says: measured on a GPU, and nothing else is.
  Provenance times = Provenance::measured;
  simt::GpuLimits gpu;
  VendorNames vendor;
  std::vector<std::string> nvml = Nvml::default_names();
  TimingSettings timing;
  std::size_t copy_bytes = std::size_t{1} << 30;  // of the copies that measure the bandwidth
  // Whose tensor cores products may run on (verify/reference.h).
  std::optional<Accumulator> device_core;
};

// The GPU `ordinal`, its vendor's libraries looked for in `folders` first.
Bench open_gpu(int ordinal = 0, std::vector<std::filesystem::path> folders = {});

Report run_on(const Bench& bench, const std::vector<Problem>& problems,
              const RunSettings& settings);

// The same for whole training steps.
Report run_steps_on(const Bench& bench, const std::vector<StepProblem>& steps,
                    const RunSettings& settings);

// Operands for a check that is exact: whole numbers, so small that every sum is a whole number that
// the result's type holds. Results of every right implementation have the same bits.
Operands whole_operands(const Problem& problem, std::uint64_t seed);

}  // namespace roundoff::bench
