// Reductions over some axes of a row-major array; the result keeps the other axes, in order.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

enum class Reduce : unsigned char {
  sum,
  mean,  // of nothing: NaN
  max,   // NaN wins in every order; of nothing: an error
  norm,  // square root of the sum of squares
};

// Who gets the gradient of a maximum that several elements attain.
enum class Ties : unsigned char { first, share };

// Axes may be negative; no axes at all means all of them.
Values reduce(Reduce f, In x, const Shape& shape, std::span<const std::int64_t> axes);

// The norm's gradient at 0 is 0.
Values reduce_backward(Reduce f, In x, const Shape& shape, std::span<const std::int64_t> axes,
                       In dy, Ties ties = Ties::first);

// For each element of x, the index of the result that it goes into; and how many results.
struct Groups {
  std::vector<std::size_t> of;
  std::size_t count = 0;
};
Groups reduction_groups(const Shape& shape, std::span<const std::int64_t> axes);

}  // namespace roundoff::oracle
