// Other shapes for the same elements. reshape and flatten share their input's storage; transpose
// copies.
#pragma once

#include <span>

#include "engine/context.h"

namespace roundoff {

// At most one extent may be -1: it becomes what is left of x's elements.
Tensor reshape(Context& context, const Tensor& x, std::span<const std::int64_t> extents);
Tensor reshape(Context& context, const Tensor& x, std::initializer_list<std::int64_t> extents);

// Axes first to last (negative: counted from the end) become one.
Tensor flatten(Context& context, const Tensor& x, std::int64_t first = 0, std::int64_t last = -1);

// Axis i of the result is axis `axes[i]` of x. No axes: all of them in reverse order.
Tensor transpose(Context& context, const Tensor& x, std::span<const std::int64_t> axes);
Tensor transpose(Context& context, const Tensor& x, std::initializer_list<std::int64_t> axes = {});

}  // namespace roundoff
