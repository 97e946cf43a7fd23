// The axes of a broadcast result, as loops over it see them.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/view.h"

namespace roundoff::detail {

// Neighbouring axes are merged where both operands step alike; axes of extent 1 are gone. Index 0
// is innermost; strides are in elements, 0 along an axis that the operand is repeated along.
struct Broadcast {
  struct Axis {
    std::int64_t extent = 1;
    std::int64_t a = 0;
    std::int64_t b = 0;
  };
  std::array<Axis, kMaxRank> axes{};
  int rank = 0;  // at least 1

  Broadcast(const Shape& a, const Shape& b, const Shape& out) {
    std::int64_t step_a = 1;
    std::int64_t step_b = 1;
    for (int i = 1; i <= out.rank(); ++i) {
      const std::int64_t extent = out[-i];
      const std::int64_t extent_a = i <= a.rank() ? a[-i] : 1;
      const std::int64_t extent_b = i <= b.rank() ? b[-i] : 1;
      if (extent != 1) {
        const bool repeat_a = extent_a == 1;
        const bool repeat_b = extent_b == 1;
        Axis* last = rank == 0 ? nullptr : &axes[static_cast<std::size_t>(rank - 1)];
        if (last != nullptr && (last->a == 0) == repeat_a && (last->b == 0) == repeat_b)
          last->extent *= extent;
        else
          axes[static_cast<std::size_t>(rank++)] = {extent, repeat_a ? 0 : step_a,
                                                    repeat_b ? 0 : step_b};
      }
      step_a *= extent_a;
      step_b *= extent_b;
    }
    if (rank == 0) axes[static_cast<std::size_t>(rank++)] = {1, 0, 0};
  }

  const Axis& inner() const { return axes[0]; }
  // Offsets into a and b of the element at `offset` of the result.
  void locate(std::int64_t offset, std::int64_t& a, std::int64_t& b) const {
    a = b = 0;
    for (int i = 0; i < rank; ++i) {
      const Axis& axis = axes[static_cast<std::size_t>(i)];
      const std::int64_t index = i + 1 == rank ? offset : offset % axis.extent;
      a += index * axis.a;
      b += index * axis.b;
      offset /= axis.extent;
    }
  }
};

// Which axes of `out` an operand of shape `in` was repeated along.
inline std::uint32_t repeated_axes(const Shape& in, const Shape& out) {
  std::uint32_t axes = 0;
  for (int i = 1; i <= out.rank(); ++i)
    if (out[-i] != 1 && (i > in.rank() || in[-i] == 1)) axes |= 1U << (out.rank() - i);
  return axes;
}

}  // namespace roundoff::detail
