// Where pooling windows lie, and what its launchers check before they run, on every target.
#pragma once

#include <algorithm>
#include <string_view>

#include "kernels/pool/pool.h"

namespace roundoff {

inline constexpr std::string_view kMaxPool2d = "max_pool2d";
inline constexpr std::string_view kAvgPool2d = "avg_pool2d";

struct Pool2dGeometry {
  std::int64_t n = 0, h = 0, w = 0, c = 0, p = 0, q = 0;
  Pool2dParams params;
  std::int64_t image() const { return h * w * c; }
  std::int64_t result() const { return p * q * c; }
};

// Throws as pool2d_shape() does, in the name of `operation`.
Pool2dGeometry pool2d_geometry(std::string_view operation, const Shape& x,
                               const Pool2dParams& params);

// Throw for what the launchers refuse.
Pool2dGeometry check_max_pool2d(const Pool2dParams& params, const ConstView& x, const Out& y,
                                const Out& argmax);
Pool2dGeometry check_max_pool2d_backward(const Pool2dParams& params, const ConstView& argmax,
                                         const ConstView& dy, const Out& dx);
Pool2dGeometry check_avg_pool2d(const Pool2dParams& params, const ConstView& x, const Out& y);
Pool2dGeometry check_avg_pool2d_backward(const Pool2dParams& params, const ConstView& dy,
                                         const Out& dx);

// Image rows or columns [begin, end) of a window along one axis.
struct PoolRange {
  std::int64_t begin, end;
};
inline PoolRange pool_window(std::int64_t index, std::size_t axis, std::int64_t extent,
                             const Pool2dParams& p) {
  const std::int64_t start = index * p.stride[axis] - p.padding[axis];
  return {std::max<std::int64_t>(start, 0), std::min(start + p.kernel[axis], extent)};
}

// What a mean divides by.
inline std::int64_t pool_divisor(const Pool2dParams& p, PoolRange rows, PoolRange columns) {
  return p.count_include_pad ? p.kernel[0] * p.kernel[1]
                             : (rows.end - rows.begin) * (columns.end - columns.begin);
}

}  // namespace roundoff
