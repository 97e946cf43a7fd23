#include "kernels/base/view.h"

#include <limits>

namespace roundoff {

Shape::Shape(std::span<const std::int64_t> extents) {
  ROUNDOFF_CHECK(extents.size() <= static_cast<std::size_t>(kMaxRank), "shape", extents.size(),
                 " axes, at most ", kMaxRank, " are taken");
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    ROUNDOFF_CHECK(extent >= 0, "shape", "negative extent ", extent);
    if (extent != 0) {
      ROUNDOFF_CHECK(product <= std::numeric_limits<std::int64_t>::max() / extent, "shape",
                     "the number of elements leaves 64 bit");
      product *= extent;
    }
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

int Shape::normalize_axis(std::int64_t axis, std::string_view operation) const {
  const std::int64_t from_start = axis < 0 ? axis + rank_ : axis;
  ROUNDOFF_CHECK(from_start >= 0 && from_start < rank_, operation, "axis ", axis,
                 " is out of range for shape ", *this);
  return static_cast<int>(from_start);
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i == 0 ? "" : ", ") << shape[i];
  return out << ']';
}

}  // namespace roundoff
