// Reordering of axes.
#pragma once

#include <array>

#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

// Axis i of the result is axis `axes[i]` of the input.
struct PermuteParams {
  std::array<signed char, kMaxRank> axes{};
};

Shape permuted_shape(const Shape& shape, const PermuteParams& params);
PermuteParams inverse(const PermuteParams& params, int rank);

// y = x with its axes reordered; y has permuted_shape. Any dtype where x and y agree and y is
// overwritten, floating types otherwise (rounded once to y's).
// Errors: axes that are no permutation, a shape that does not fit.
void permute(Ref, const PermuteParams& params, const ConstView& x, const Out& y);

}  // namespace roundoff
