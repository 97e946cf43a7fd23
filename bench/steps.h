// Whole training steps: forward, cross-entropy, backward, check and norm of the gradients, AdamW,
// and for fp16 the loss scaler.
#pragma once

#include <string>
#include <vector>

#include "bench/result.h"
#include "bench/run.h"
#include "models/precision.h"

namespace roundoff::bench {

struct StepProblem {
  std::string model;  // "tiny-mlp" or "convnet", as TrainingStep (bench/training.h) has them
  Precision precision = Precision::fp32;
};
// Both models in each of these types, which are fp32, bf16 and fp16. Throws UsageError for another.
std::vector<StepProblem> step_problems(const std::vector<DType>& dtypes);

// Counted, of a window in the middle of a run: launches, allocations and waits of the host by the
// fast kernels' run, memory traffic by that of the instrumented ones.
Report run_steps_on_sim(const std::vector<StepProblem>& steps, const RunSettings& settings,
                        const SimSettings& sim);
// Measured by the processor's clock.
Report run_steps_on_cpu(const std::vector<StepProblem>& steps, const RunSettings& settings);
// Measured on a GPU (bench/cuda/). Only in builds with ROUNDOFF_HAS_CUDA.
Report run_steps_on_cuda(const std::vector<StepProblem>& steps, const RunSettings& settings);

}  // namespace roundoff::bench
