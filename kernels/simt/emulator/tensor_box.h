// The simulated device's tensor maps, and the walks of their boxes: which bytes of the tensor a
// copy moves, in which order, and where they lie in shared memory. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/tensor_map.h"

namespace roundoff::simt {

// As large and at least as aligned as the driver's.
struct alignas(64) TensorMap {
  std::uint32_t magic = 0;
  DType dtype = DType::fp32;
  std::uint8_t rank = 0;
  Swizzle swizzle = Swizzle::none;
  Fill fill = Fill::zeros;
  const char* address = nullptr;
  std::uint64_t size[kMaxTensorRank] = {};
  std::uint64_t stride[kMaxTensorRank - 1] = {};  // bytes, of dimensions 1, 2, ...
  std::uint16_t box[kMaxTensorRank] = {};         // tiled: elements; im2col: channels, pixels
  std::int16_t lower[kMaxTensorRank - 2] = {};
  std::int16_t upper[kMaxTensorRank - 2] = {};
  std::uint8_t step[kMaxTensorRank] = {};
  bool im2col = false;
};
static_assert(sizeof(TensorMap) == 128);
inline constexpr std::uint32_t kTensorMapMagic = 0x544D4150;

// Throw as check(map) does.
ROUNDOFF_SIMT_API TensorMap encode(const TiledMap& map);
ROUNDOFF_SIMT_API TensorMap encode(const Im2colMap& map);

// Bytes of a box in shared memory, and of one of its rows.
ROUNDOFF_SIMT_API std::size_t box_bytes(const TensorMap& map);
ROUNDOFF_SIMT_API std::size_t row_bytes(const TensorMap& map);
// Bytes from the tensor's address to the end of its last element.
ROUNDOFF_SIMT_API std::uint64_t extent_bytes(const TensorMap& map);

// One row of a box: `elements` elements at `global` of which those in [first, last) lie inside the
// tensor (none: global is not valid).
struct BoxRow {
  const char* global = nullptr;
  int first = 0, last = 0;
  int elements = 0;
};
// Rows in the order in which they lie in shared memory. `offset` (im2col): {w, h, d}.
ROUNDOFF_SIMT_API std::vector<BoxRow> rows_of_box(const TensorMap& map, const int* at,
                                                  const std::uint16_t* offset);
// Whether an im2col copy that starts at `at` starts inside its bounding box.
ROUNDOFF_SIMT_API bool starts_in_bounds(const TensorMap& map, const int* at);

// Dense bytes of the box: what lies outside is filled.
ROUNDOFF_SIMT_API void read_box(const TensorMap& map, const std::vector<BoxRow>& rows, char* dense);
// The other way: what lies outside is left alone. `add`: to what is there.
ROUNDOFF_SIMT_API void write_box(const TensorMap& map, const std::vector<BoxRow>& rows,
                                 const char* dense, bool add);

}  // namespace roundoff::simt
