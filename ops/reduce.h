// Reductions over axes. The output has the input's dtype (fp32 under autocast); sums are formed in
// the context's accumulator. What they give for no elements, and for NaN: kernels/reduce/reduce.h.
#pragma once

#include <array>
#include <span>

#include "engine/context.h"

namespace roundoff {

// Which axes are reduced: all of them by default; negative ones count from the end.
class Axes {
 public:
  Axes() = default;
  Axes(std::int64_t axis) : Axes(std::span<const std::int64_t>(&axis, 1)) {}
  Axes(std::initializer_list<std::int64_t> axes)
      : Axes(std::span<const std::int64_t>(axes.begin(), axes.size())) {}
  // None means all, as everywhere.
  explicit Axes(std::span<const std::int64_t> axes);

  // Bit i: axis i of `shape`. Throws for an axis out of range or given twice.
  std::uint32_t mask(const Shape& shape, std::string_view operation) const;

 private:
  std::array<std::int64_t, kMaxRank> axes_{};
  int count_ = 0;
};

Tensor sum(Context& context, const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(Context& context, const Tensor& x, const Axes& axes = {}, bool keepdim = false);
// The gradient goes to the first element that attains the maximum.
Tensor max(Context& context, const Tensor& x, const Axes& axes = {}, bool keepdim = false);
// The L2 norm; its gradient at 0 is 0.
Tensor norm(Context& context, const Tensor& x, const Axes& axes = {}, bool keepdim = false);

}  // namespace roundoff
