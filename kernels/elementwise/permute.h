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
template <DeviceTarget T>
void permute(T target, const PermuteParams& params, const ConstView& x, const Out& y);

namespace detail {
// What permute() throws for.
void check_permute(const PermuteParams& params, const ConstView& x, const Out& y);

// The axes of y, innermost first, with the distance of neighbours in x; axes that are neighbours in
// both are one, axes of extent 1 are gone. `axes` may be 0.
struct PermuteGeometry {
  std::array<std::int64_t, kMaxRank> extent{};
  std::array<std::int64_t, kMaxRank> stride{};
  int axes = 0;

  PermuteGeometry(const PermuteParams& params, const Shape& x);
};
}  // namespace detail

}  // namespace roundoff
