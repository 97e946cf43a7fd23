// Compares an array with its reference and bound.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/view.h"
#include "verify/bound/base.h"

namespace roundoff {

// Whether one value is right. A NaN is right where the reference is NaN and nowhere else; an
// infinity where the reference is that infinity, or where |reference| + tolerance reaches the
// format's overflow threshold on that side; a finite value where it lies within the tolerance.
// A NaN tolerance accepts nothing finite.
bool judge(double actual, double reference, double tolerance, const Format& format);

// The smallest magnitude that rounds to nearest beyond the largest finite number.
double overflow_threshold(const Format& format);
// Spacing of the format at |x|; the smallest subnormal from 0 up.
double ulp(double x, const Format& format);

struct Comparison {
  // Over the elements where value and reference are both finite; 0 for none.
  double max_abs = 0;
  double max_rel = 0;  // over references other than 0
  double max_ulp = 0;  // in ulps of the array's dtype at the reference
  double rms = 0;      // of the absolute error
  // The largest |error| / tolerance: at most 1 where the bound holds; infinite where an element
  // should be exact, or non-finite, and is not.
  double bound_ratio = 0;
  bool holds = true;
  std::int64_t outside = 0;  // elements beyond their tolerance
  std::int64_t worst = -1;   // index of the element with the largest ratio; -1 for an empty array
  double worst_actual = 0, worst_reference = 0, worst_tolerance = 0;
};

// Throws where the sizes differ or the dtype is not floating.
Comparison compare(const ConstView& actual, std::span<const double> reference,
                   std::span<const double> tolerance);
Comparison compare(const ConstView& actual, const Bound& bound);

// "[1,2]": where element `index` of a row-major array stands; empty for an array of one.
std::string element_text(std::int64_t index, const Shape& shape);

// "error 1.2e-7 at element 3 (got ..., expected ... +- ...), 0.4 of the bound": for messages.
std::string describe(const Comparison& comparison);

}  // namespace roundoff
