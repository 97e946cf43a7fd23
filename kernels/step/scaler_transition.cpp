#include "kernels/step/scaler_transition.h"

#include <cmath>

#include "kernels/base/check.h"

namespace roundoff {

namespace {

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw UsageError(concat("[loss_scaler] ", parts...));
}

}  // namespace

void validate(const ScalerConfig& c) {
  if (!c.enabled) return;
  // Written so that NaN fails every comparison.
  require(c.min_scale >= kMinLossScale && c.min_scale <= kMaxLossScale, "min_scale ", c.min_scale,
          ", expected within [2^-126, 2^126]");
  require(c.max_scale >= kMinLossScale && c.max_scale <= kMaxLossScale, "max_scale ", c.max_scale,
          ", expected within [2^-126, 2^126]");
  require(c.min_scale <= c.max_scale, "min_scale ", c.min_scale, " exceeds max_scale ",
          c.max_scale);
  require(c.init_scale >= c.min_scale && c.init_scale <= c.max_scale, "init_scale ", c.init_scale,
          ", expected within [min_scale, max_scale] = [", c.min_scale, ", ", c.max_scale, "]");
  if (!c.dynamic) return;
  require(c.growth_factor > 1.0 && std::isfinite(c.growth_factor), "growth_factor ",
          c.growth_factor, ", expected finite and above 1");
  require(c.backoff_factor > 0.0 && c.backoff_factor < 1.0, "backoff_factor ", c.backoff_factor,
          ", expected above 0 and below 1");
  require(c.growth_interval >= 1, "growth_interval ", c.growth_interval, ", expected at least 1");
}

}  // namespace roundoff
