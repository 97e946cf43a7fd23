// The second pass of a step: SGD, Adam and AdamW over flat parameter chunks. One pass unscales,
// clips, updates the parameter and its moments, and writes the 16-bit compute copy.
//
// For each element, in fp32, every operation rounded once; hyperparameters and the quotients of
// bias corrections are formed in fp64 and rounded once to fp32:
//
//   g = (fp32(gradient) * inv_scale) * clip
//   SGD    g += decay w;  b = momentum b + g;  d = nesterov ? g + momentum b : b;  w -= lr d
//   Adam   g += decay w;  then as below
//   AdamW  w *= 1 - lr decay;  then as below
//          m = beta1 m + (1 - beta1) g;  v = beta2 v + ((1 - beta2) g) g
//          w -= (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// with t the number of updates that this parameter has had, this one included. Sources: Kingma and
// Ba 2015, Loshchilov and Hutter 2019, Sutskever et al. 2013; conventions (L2 decay added to the
// gradient, dampening 0, Nesterov's form) as PyTorch documents them. v overflows where
// |g| > 1.8e19 / sqrt(1 - beta2): such an element stops moving.
//
// Where status.found_inf is set nothing at all changes: parameters, copies, moments, counts.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/base/view.h"
#include "kernels/step/learning_rate.h"
#include "kernels/step/status.h"

namespace roundoff {

// How the update of a 16-bit parameter is rounded: to nearest even, or stochastically
// (kernels/base/stochastic.h), by numbers that are a function of the seed, the parameter's place in
// the list, its count of updates and the element. fp32 parameters and compute copies are rounded to
// nearest, always.
struct UpdateRounding {
  bool stochastic = false;
  std::uint64_t seed = 0;
};

struct SgdParams {
  double lr = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  UpdateRounding rounding = {};
};

struct AdamParams {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;  // true: AdamW
  UpdateRounding rounding = {};
};

// The quotients of bias corrections, each formed in fp64 and rounded once.
struct AdamCorrection {
  float step_size;   // lr / (1 - beta1^t)
  float correction;  // sqrt(1 - beta2^t)
};
// Of the t-th update of a parameter, with `lr` in place of the parameters' own.
ROUNDOFF_HD inline AdamCorrection adam_correction(const AdamParams& p, double lr, std::int64_t t) {
  return {static_cast<float>(lr / (1.0 - integer_power(p.beta1, t))),
          static_cast<float>(std::sqrt(1.0 - integer_power(p.beta2, t)))};
}

// Throw UsageError, one line that names the setting, unless lr, momentum and weight_decay are
// finite and at least 0, eps is finite and above 0 in fp32, beta1 and beta2 are in [0, 1), and
// Nesterov comes with momentum > 0.
void validate(const SgdParams& params);
void validate(const AdamParams& params);

// One parameter's part of the flat arena; n elements everywhere.
struct OptimizerChunk {
  // fp32 (the master weights), or fp16/bf16 (pure 16-bit training): read, updated in fp32 and
  // rounded once (UpdateRounding).
  View parameter;
  // fp16, bf16 or fp32, scaled. Absent: the chunk is left alone, its step count included.
  ConstView gradient = ConstView::absent();
  // [n] SGD's momentum buffer (null where momentum is 0), or Adam's m. Zero before the first step.
  float* first_moment = nullptr;
  // [n] Adam's v. Zero before the first step.
  float* second_moment = nullptr;
  // fp16 or bf16 copy that the next forward pass reads; no copy where data is null.
  View compute_copy;
  // The number of updates this parameter has had; one is added.
  std::int64_t* steps = nullptr;
};

// Throw, before anything changes, where a size or dtype of a chunk does not fit or a buffer that
// the parameters ask for is missing.
void sgd_step(Ref, const SgdParams& params, const StepStatus& status,
              std::span<const OptimizerChunk> chunks);
void adam_step(Ref, const AdamParams& params, const StepStatus& status,
               std::span<const OptimizerChunk> chunks);

}  // namespace roundoff
