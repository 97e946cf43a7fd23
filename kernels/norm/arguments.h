// What the norms' launchers check before they run, on every target, and how they see a tensor.
#pragma once

#include <string_view>

#include "kernels/norm/batch_norm.h"
#include "kernels/norm/layer_norm.h"

namespace roundoff {

// [outer, channels, inner].
struct NormMatrix {
  std::int64_t outer = 1;
  std::int64_t channels = 1;
  std::int64_t inner = 1;
  constexpr std::int64_t count() const { return outer * inner; }  // elements of a channel
};

// All throw for what the launchers refuse.

// outer rows of `channels` elements.
NormMatrix check_layer_norm(const LayerNormParams& params, const ConstView& x,
                            const ConstView& gamma, const ConstView& beta, const Out& y,
                            const Out& mean, const Out& rstd);
NormMatrix check_layer_norm_backward(const LayerNormParams& params, const ConstView& x,
                                     const ConstView& gamma, const ConstView& mean,
                                     const ConstView& rstd, const ConstView& dy, const Out& dx,
                                     const Out& dgamma, const Out& dbeta);

NormMatrix check_batch_norm_training(const BatchNormParams& params, const ConstView& x,
                                     const ConstView& gamma, const ConstView& beta,
                                     const ConstView& running_mean, const ConstView& running_var,
                                     const Out& y, const Out& mean, const Out& rstd,
                                     const Out& running_mean_next, const Out& running_var_next);
NormMatrix check_batch_norm_eval(const BatchNormParams& params, const ConstView& x,
                                 const ConstView& gamma, const ConstView& beta,
                                 const ConstView& running_mean, const ConstView& running_var,
                                 const Out& y);
// deviation: rstd, or the running variance.
NormMatrix check_batch_norm_backward(const BatchNormParams& params, const ConstView& x,
                                     const ConstView& gamma, const ConstView& mean,
                                     const ConstView& deviation, const ConstView& dy, const Out& dx,
                                     const Out& dgamma, const Out& dbeta);

}  // namespace roundoff
