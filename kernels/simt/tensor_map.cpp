#include "kernels/simt/tensor_map.h"

#include "kernels/base/check.h"

namespace roundoff {

namespace {

constexpr const char* kOperation = "tensor_map";

std::uint64_t bits_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

template <class Map>
void check_tensor(const Map& map, int smallest_rank) {
  ROUNDOFF_CHECK(map.rank >= smallest_rank && map.rank <= kMaxTensorRank, kOperation, "rank ",
                 map.rank, ", ", smallest_rank, " to 5 expected");
  ROUNDOFF_CHECK(map.address != nullptr && bits_of(map.address) % 16 == 0, kOperation,
                 "the tensor's address must be a multiple of 16 bytes");
  std::uint64_t below = map.size[0] * size_of(map.dtype);  // bytes that a step of the next skips
  for (int i = 0; i < map.rank; ++i) {
    ROUNDOFF_CHECK(map.size[i] >= 1 && map.size[i] <= (std::uint64_t{1} << 32), kOperation, "size ",
                   map.size[i], " of dimension ", i, ", 1 to 2^32 expected");
    ROUNDOFF_CHECK(map.step[i] >= 1 && map.step[i] <= 8, kOperation, "step ", map.step[i],
                   " of dimension ", i, ", 1 to 8 expected");
    if (i == 0) continue;
    const std::uint64_t stride = map.stride_bytes[i];
    ROUNDOFF_CHECK(stride % 16 == 0 && stride < (std::uint64_t{1} << 40), kOperation, "stride of ",
                   stride, " bytes of dimension ", i, ", a multiple of 16 below 2^40 expected");
    ROUNDOFF_CHECK(stride >= below, kOperation, "stride of ", stride, " bytes of dimension ", i,
                   ", less than the ", below, " bytes of dimension ", i - 1);
    below = stride;
  }
  ROUNDOFF_CHECK(map.step[0] == 1, kOperation, "step ", map.step[0],
                 " of dimension 0, which has none: 1 expected");
  ROUNDOFF_CHECK(map.fill == Fill::zeros || is_floating(map.dtype), kOperation,
                 "NaN fills floating types only, ", name(map.dtype), " given");
}

void check_row(std::uint64_t elements, DType dtype, Swizzle swizzle, const char* what) {
  const std::uint64_t bytes = elements * size_of(dtype);
  ROUNDOFF_CHECK(bytes % 16 == 0, kOperation, what, " of ", elements, " ", name(dtype),
                 " elements, ", bytes, " bytes, a multiple of 16 bytes expected");
  if (swizzle == Swizzle::none) return;
  ROUNDOFF_CHECK(bytes <= span_bytes(swizzle), kOperation, what, " of ", bytes,
                 " bytes, at most the swizzle's span of ", span_bytes(swizzle), " expected");
  // The driver takes them; where their rows lie is not documented.
  ROUNDOFF_CHECK(bytes == span_bytes(swizzle), kOperation, what, " of ", bytes,
                 " bytes, shorter than the swizzle's span of ", span_bytes(swizzle),
                 ": take the swizzle of that span, or none");
}

}  // namespace

void check(const TiledMap& map) {
  check_tensor(map, 1);
  for (int i = 0; i < map.rank; ++i)
    ROUNDOFF_CHECK(map.box[i] >= 1 && map.box[i] <= 256, kOperation, "box of ", map.box[i],
                   " elements in dimension ", i, ", 1 to 256 expected");
  check_row(map.box[0], map.dtype, map.swizzle, "box row");
}

void check(const Im2colMap& map) {
  check_tensor(map, 3);
  const int spatial = map.rank - 2;
  const int reach = map.rank == 3 ? 32768 : map.rank == 4 ? 128 : 16;
  for (int i = 0; i < spatial; ++i) {
    for (const int corner : {map.lower[i], map.upper[i]})
      ROUNDOFF_CHECK(corner >= -reach && corner < reach, kOperation, "box corner ", corner, ", ",
                     -reach, " to ", reach - 1, " expected for rank ", map.rank);
    const auto last = static_cast<std::int64_t>(map.size[i + 1]) - 1 + map.upper[i];
    ROUNDOFF_CHECK(last >= map.lower[i], kOperation, "empty bounding box: from ", map.lower[i],
                   " to ", last, " in dimension ", i + 1);
  }
  ROUNDOFF_CHECK(map.channels >= 1 && map.channels <= 256, kOperation, map.channels,
                 " channels a pixel, 1 to 256 expected");
  ROUNDOFF_CHECK(map.pixels >= 1 && map.pixels <= 1024, kOperation, map.pixels,
                 " pixels a column, 1 to 1024 expected");
  check_row(map.channels, map.dtype, map.swizzle, "pixel");
}

}  // namespace roundoff
