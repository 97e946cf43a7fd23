#include <algorithm>
#include <cmath>

#include "kernels/base/convert.h"
#include "kernels/step/unscale.h"

namespace roundoff {

namespace {

constexpr std::int64_t kBlock = 1024;
constexpr std::int64_t kLanes = 16;
static_assert(kBlock % kLanes == 0);  // the lane of an element does not depend on its block

void check_gradient(const ConstView& g, std::string_view operation) {
  ROUNDOFF_CHECK(is_16bit(g.dtype) || g.dtype == DType::fp32, operation, "gradient of shape ",
                 g.shape, " is ", name(g.dtype), "; fp16, bf16 or fp32 expected");
}

// lanes[i mod kLanes] += (g[i] * inv_scale)^2
void add_squares(const float* g, std::int64_t n, float inv_scale, double* lanes) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const auto u = static_cast<double>(g[i + j] * inv_scale);
      lanes[j] += u * u;
    }
  }
  for (std::int64_t j = 0; i + j < n; ++j) {
    const auto u = static_cast<double>(g[i + j] * inv_scale);
    lanes[j] += u * u;
  }
}

double sum_of_squares(const ConstView& gradient, float inv_scale) {
  const std::int64_t n = gradient.numel();
  double lanes[kLanes] = {};
  if (gradient.dtype == DType::fp32) {
    add_squares(gradient.as<float>(), n, inv_scale, lanes);
  } else {
    float block[kBlock];
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t m = std::min(kBlock, n - i);
      widen(gradient, i, m, block);
      add_squares(block, m, inv_scale, lanes);
    }
  }
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace

void validate(const ClipParams& params) {
  if (!(params.max_norm >= 0.0))
    throw UsageError(concat("[clip] max_norm ", params.max_norm, ", expected at least 0"));
}

void inspect_gradients(Ref, const ClipParams& params, std::span<const ConstView> gradients,
                       StepStatus& status) {
  validate(params);
  ROUNDOFF_CHECK(status.inv_scale > 0.0F && std::isfinite(status.inv_scale), "unscale",
                 "inverse loss scale ", status.inv_scale, ", expected finite and above 0");
  for (const ConstView& g : gradients)
    if (g.present) check_gradient(g, "unscale");

  double total = 0.0;
  std::int32_t present = 0;
  std::int32_t first_offender = -1;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].present) continue;
    ++present;
    const double sum = sum_of_squares(gradients[k], status.inv_scale);
    if (first_offender < 0 && !std::isfinite(sum)) first_offender = static_cast<std::int32_t>(k);
    total += sum;
  }
  status.found_inf = first_offender >= 0 ? 1 : 0;
  status.first_offender = first_offender;
  status.norm = std::sqrt(total);
  status.clip = clip_coefficient(status.norm, params.max_norm);
  status.present = present;
}

void unscale(Ref, float inv_scale, const ConstView& from, const View& to) {
  check_gradient(from, "unscale");
  ROUNDOFF_CHECK(to.dtype == DType::fp32, "unscale", "writes fp32, not ", name(to.dtype),
                 ": a small gradient times 1/scale would be lost in 16 bit");
  ROUNDOFF_CHECK(from.numel() == to.numel(), "unscale", "shapes ", from.shape, " and ", to.shape,
                 " differ in size");
  const std::int64_t n = from.numel();
  float* y = to.as<float>();
  if (from.dtype == DType::fp32) {
    const float* x = from.as<float>();
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * inv_scale;
    return;
  }
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t m = std::min(kBlock, n - i);
    widen(from, i, m, y + i);
    for (std::int64_t j = i; j < i + m; ++j) y[j] *= inv_scale;
  }
}

bool all_finite(Ref, const ConstView& gradient) {
  check_gradient(gradient, "all_finite");
  return std::isfinite(sum_of_squares(gradient, 1.0F));
}

double global_norm(Ref, std::span<const ConstView> gradients) {
  double total = 0.0;
  for (const ConstView& g : gradients) {
    if (!g.present) continue;
    check_gradient(g, "global_norm");
    total += sum_of_squares(g, 1.0F);
  }
  return std::sqrt(total);
}

void scale_gradient(Ref, float factor, const View& gradient) {
  ROUNDOFF_CHECK(gradient.dtype == DType::fp32, "scale_gradient", "gradient is ",
                 name(gradient.dtype), "; fp32 expected");
  if (factor == 1.0F) return;
  float* g = gradient.as<float>();
  const std::int64_t n = gradient.numel();
  for (std::int64_t i = 0; i < n; ++i) g[i] *= factor;
}

}  // namespace roundoff
