#include <algorithm>
#include <cmath>

#include "kernels/base/convert.h"
#include "kernels/base/stochastic.h"
#include "kernels/step/optimizer.h"

namespace roundoff {

namespace {

constexpr std::int64_t kBlock = 1024;

template <class... Parts>
void require(bool condition, std::string_view operation, const Parts&... parts) {
  if (!condition) throw UsageError(concat("[", operation, "] ", parts...));
}

void require_size(double value, std::string_view operation, std::string_view setting) {
  require(value >= 0.0 && std::isfinite(value), operation, setting, " ", value,
          ", expected finite and at least 0");
}

void check_chunk(const OptimizerChunk& c, std::string_view operation, bool first, bool second) {
  const std::int64_t n = c.parameter.numel();
  ROUNDOFF_CHECK(c.parameter.dtype == DType::fp32 || is_16bit(c.parameter.dtype), operation,
                 "parameter of shape ", c.parameter.shape, " is ", name(c.parameter.dtype),
                 "; fp32, fp16 or bf16 expected");
  ROUNDOFF_CHECK(c.gradient.dtype == DType::fp32 || is_16bit(c.gradient.dtype), operation,
                 "gradient of shape ", c.gradient.shape, " is ", name(c.gradient.dtype),
                 "; fp32, fp16 or bf16 expected");
  ROUNDOFF_CHECK(c.gradient.numel() == n, operation, "gradient of shape ", c.gradient.shape,
                 " for a parameter of shape ", c.parameter.shape);
  ROUNDOFF_CHECK(!first || n == 0 || c.first_moment != nullptr, operation, "parameter of shape ",
                 c.parameter.shape, " has no buffer for its first moment");
  ROUNDOFF_CHECK(!second || n == 0 || c.second_moment != nullptr, operation, "parameter of shape ",
                 c.parameter.shape, " has no buffer for its second moment");
  ROUNDOFF_CHECK(c.steps != nullptr, operation, "parameter of shape ", c.parameter.shape,
                 " has no step count");
  if (c.compute_copy.data == nullptr) return;
  ROUNDOFF_CHECK(is_16bit(c.compute_copy.dtype) && c.compute_copy.numel() == n, operation,
                 "compute copy ", name(c.compute_copy.dtype), ' ', c.compute_copy.shape,
                 " for a parameter of shape ", c.parameter.shape, "; fp16 or bf16 expected");
}

// parameter[offset + i] = w[i], rounded stochastically; offset is a multiple of 4.
template <class T>
void narrow_stochastic(const float* w, std::int64_t n, const PhiloxStream& stream,
                       std::uint32_t number, T* parameter, std::int64_t offset) {
  for (std::int64_t i = 0; i < n; i += 4) {
    const PhiloxBlock random = stream.block(number, static_cast<std::uint32_t>((offset + i) / 4));
    for (std::int64_t k = 0; k < std::min<std::int64_t>(4, n - i); ++k)
      round_stochastic(w[i + k], random.word[k], parameter[offset + i + k]);
  }
}

// Walks a chunk in blocks: update(g, w, offset, count) sees the unscaled, clipped gradient and the
// parameter in fp32, and changes w in place. `number`: the chunk's place in the list.
template <class Update>
void walk(const OptimizerChunk& c, const StepStatus& status, const UpdateRounding& rounding,
          std::uint32_t number, const Update& update) {
  const PhiloxStream stream{rounding.seed, static_cast<std::uint32_t>(*c.steps + 1),
                            kRoundingTensor};
  const std::int64_t n = c.parameter.numel();
  const float inv_scale = status.inv_scale;
  const float clip = status.clip;
  float gradient[kBlock];
  float parameter[kBlock];
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t m = std::min(kBlock, n - i);
    widen(c.gradient, i, m, gradient);
    for (std::int64_t j = 0; j < m; ++j) gradient[j] = (gradient[j] * inv_scale) * clip;
    float* w = parameter;
    if (c.parameter.dtype == DType::fp32)
      w = c.parameter.as<float>() + i;
    else
      widen(c.parameter, i, m, w);
    update(gradient, w, i, m);
    if (w == parameter && !rounding.stochastic) narrow(w, m, c.parameter, i);
    if (w == parameter && rounding.stochastic) {
      if (c.parameter.dtype == DType::fp16)
        narrow_stochastic(w, m, stream, number, c.parameter.as<Half>(), i);
      else
        narrow_stochastic(w, m, stream, number, c.parameter.as<BFloat16>(), i);
    }
    if (c.compute_copy.data != nullptr) narrow(w, m, c.compute_copy, i);
  }
}

struct AdamFactors {
  float beta1, beta2, rest1, rest2, step_size, correction, eps;
};

// __restrict: compilers give up on checking four arrays against one another.
void adam_update(const AdamFactors a, const float* __restrict g, float* __restrict w,
                 float* __restrict first, float* __restrict second, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float m = a.beta1 * first[i] + a.rest1 * g[i];
    const float v = a.beta2 * second[i] + (a.rest2 * g[i]) * g[i];
    first[i] = m;
    second[i] = v;
    w[i] -= a.step_size * m / (std::sqrt(v) / a.correction + a.eps);
  }
}

template <class Step>
void for_each_chunk(std::span<const OptimizerChunk> chunks, const StepStatus& status,
                    std::string_view operation, bool first, bool second, const Step& step) {
  for (const OptimizerChunk& c : chunks)
    if (c.gradient.present) check_chunk(c, operation, first, second);
  if (status.found_inf != 0) return;
  std::uint32_t number = 0;
  for (const OptimizerChunk& c : chunks) {
    if (c.gradient.present) step(c, number);
    ++number;
  }
}

}  // namespace

void validate(const SgdParams& p) {
  require_size(p.lr, "sgd", "lr");
  require_size(p.momentum, "sgd", "momentum");
  require_size(p.weight_decay, "sgd", "weight_decay");
  require(!p.nesterov || p.momentum > 0.0, "sgd", "nesterov needs a momentum above 0");
}

void validate(const AdamParams& p) {
  const std::string_view operation = p.decoupled ? "adamw" : "adam";
  require_size(p.lr, operation, "lr");
  require(p.beta1 >= 0.0 && p.beta1 < 1.0, operation, "beta1 ", p.beta1, ", expected in [0, 1)");
  require(p.beta2 >= 0.0 && p.beta2 < 1.0, operation, "beta2 ", p.beta2, ", expected in [0, 1)");
  // An eps that vanishes in fp32 would make 0 / 0 of a zero gradient.
  require_size(p.eps, operation, "eps");
  require(static_cast<float>(p.eps) > 0.0F, operation, "eps ", p.eps, " is 0 in fp32");
  require_size(p.weight_decay, operation, "weight_decay");
}

void sgd_step(Ref, const SgdParams& params, const StepStatus& status,
              std::span<const OptimizerChunk> chunks) {
  validate(params);
  const auto lr = static_cast<float>(params.lr);
  const auto momentum = static_cast<float>(params.momentum);
  const auto decay = static_cast<float>(params.weight_decay);
  const bool has_momentum = params.momentum != 0.0;
  for_each_chunk(chunks, status, "sgd", has_momentum, false,
                 [&](const OptimizerChunk& c, std::uint32_t number) {
                   walk(c, status, params.rounding, number,
                        [&](float* g, float* w, std::int64_t offset, std::int64_t n) {
                          if (decay != 0.0F)
                            for (std::int64_t i = 0; i < n; ++i) g[i] += decay * w[i];
                          if (has_momentum) {
                            float* buffer = c.first_moment + offset;
                            for (std::int64_t i = 0; i < n; ++i) {
                              buffer[i] = momentum * buffer[i] + g[i];
                              g[i] = params.nesterov ? g[i] + momentum * buffer[i] : buffer[i];
                            }
                          }
                          for (std::int64_t i = 0; i < n; ++i) w[i] -= lr * g[i];
                        });
                   ++*c.steps;
                 });
}

void adam_step(Ref, const AdamParams& params, const StepStatus& status,
               std::span<const OptimizerChunk> chunks) {
  validate(params);
  AdamFactors factors{};
  factors.beta1 = static_cast<float>(params.beta1);
  factors.beta2 = static_cast<float>(params.beta2);
  factors.rest1 = static_cast<float>(1.0 - params.beta1);
  factors.rest2 = static_cast<float>(1.0 - params.beta2);
  factors.eps = static_cast<float>(params.eps);
  const float l2 = params.decoupled ? 0.0F : static_cast<float>(params.weight_decay);
  const float keep =
      params.decoupled ? static_cast<float>(1.0 - params.lr * params.weight_decay) : 1.0F;
  const std::string_view operation = params.decoupled ? "adamw" : "adam";
  for_each_chunk(
      chunks, status, operation, true, true, [&](const OptimizerChunk& c, std::uint32_t number) {
        const AdamCorrection corrected = adam_correction(params, params.lr, *c.steps + 1);
        factors.step_size = corrected.step_size;
        factors.correction = corrected.correction;
        walk(c, status, params.rounding, number,
             [&](float* g, float* w, std::int64_t offset, std::int64_t n) {
               if (l2 != 0.0F)
                 for (std::int64_t i = 0; i < n; ++i) g[i] += l2 * w[i];
               if (keep != 1.0F)
                 for (std::int64_t i = 0; i < n; ++i) w[i] *= keep;
               adam_update(factors, g, w, c.first_moment + offset, c.second_moment + offset, n);
             });
        ++*c.steps;
      });
}

}  // namespace roundoff
