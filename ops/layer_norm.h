// Layer normalisation over the trailing axes. Formulas and errors: kernels/norm/layer_norm.h.
#pragma once

#include <cstdint>

#include "engine/context.h"

namespace roundoff {

struct LayerNormOptions {
  std::int64_t axes = 1;  // how many trailing axes are normalised over
  double eps = 1e-5;
};

// gamma and beta have the shape of the normalised axes, or are undefined (1 and 0).
Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma = {},
                  const Tensor& beta = {}, const LayerNormOptions& options = {});

}  // namespace roundoff
