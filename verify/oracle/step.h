// The end of a training step: unscale, inf check, norm, clip; SGD, Adam, AdamW.
#pragma once

#include <limits>

#include "verify/oracle/base.h"

namespace roundoff::oracle {

struct UnscaleClipParams {
  double scale = 1;
  double max_norm = std::numeric_limits<double>::infinity();  // infinity: no clipping
  // A finite gradient that unscales to this magnitude or more counts as non-finite: where the
  // format of the unscaled gradients (fp32) rounds to infinity.
  double overflow = 0x1.ffffffp127;
};

struct UnscaleClip {
  std::vector<Values> grads;  // grad / scale, times clip where nothing non-finite was found
  bool found_inf = false;
  double norm = 0;  // of grad / scale; infinite or NaN where found_inf
  double clip = 1;  // max_norm / norm where norm > max_norm, without an epsilon; else 1
};
UnscaleClip unscale_clip(const UnscaleClipParams& p, std::span<const Values> grads);

struct SgdParams {
  double lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
// g = grad + weight_decay w; buffer = momentum buffer + g; w -= lr (nesterov ? g + momentum buffer
// : buffer). Without momentum the buffer is not read and w -= lr g.
void sgd_step(const SgdParams& p, In grad, Values& w, Values& buffer);

struct AdamParams {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  // AdamW: w -= lr weight_decay w first. Otherwise the decay is added to the gradient.
  bool decoupled_decay = false;
};
// step counts from 1. m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
// w -= lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
void adam_step(const AdamParams& p, std::int64_t step, In grad, Values& w, Values& m, Values& v);

}  // namespace roundoff::oracle
