// What a tensor map says, and what the driver demands of it: the same checks on every device.
// Dimension 0 is the innermost, contiguous one: NHWC is {C, W, H, N}.
// Source: CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace roundoff {

inline constexpr int kMaxTensorRank = 5;

// How 16-byte chunks are permuted in shared memory, by bits of their address: chunk ^= line, where
// a chunk is 16 bytes of a span of 32, 64 or 128 bytes, and line the number of the 128-byte line
// (its last 1, 2 or 3 bits).
enum class Swizzle : unsigned char { none, span32, span64, span128 };
constexpr unsigned span_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 0U : 16U << static_cast<unsigned>(swizzle);
}
// Where a byte of a tile lies that would have that address without a swizzle.
constexpr std::uint32_t swizzled(std::uint32_t address, Swizzle swizzle) {
  const std::uint32_t mask = (1U << static_cast<unsigned>(swizzle)) - 1U;
  return address ^ (((address >> 7) & mask) << 4);
}

// What elements outside the tensor read as.
enum class Fill : unsigned char { zeros, nan };
// How much the L2 cache fetches at a time; of no effect on results.
enum class L2Promotion : unsigned char { none, bytes64, bytes128, bytes256 };

// A tensor in device memory and the box that one copy moves. Sizes, boxes and steps in elements.
struct TiledMap {
  DType dtype = DType::fp32;
  const void* address = nullptr;  // 16-byte aligned
  int rank = 1;
  std::uint64_t size[kMaxTensorRank] = {};          // 1 .. 2^32
  std::uint64_t stride_bytes[kMaxTensorRank] = {};  // of dimensions 1 .. rank - 1: multiples of 16,
                                                    // below 2^40; [0] is not read
  std::uint32_t box[kMaxTensorRank] = {};           // 1 .. 256; box[0] a multiple of 16 bytes
  std::uint32_t step[kMaxTensorRank] = {1, 1, 1, 1, 1};  // 1 .. 8; a box of n takes ceil(n / step)
  Swizzle swizzle = Swizzle::none;                       // box[0] then has the span's bytes
  Fill fill = Fill::zeros;
  L2Promotion promotion = L2Promotion::none;
};

// A tensor {C, W, H, N} (or with fewer or more spatial dimensions) and the pixels that one copy
// gathers: base pixels run from the copy's coordinates through the bounding box, W fastest, then H
// (and D), then N; each is read at its place plus the copy's offsets. The box reaches from `lower`
// to size - 1 + `upper`, both inclusive, in the order W, H, D.
struct Im2colMap {
  DType dtype = DType::fp32;
  const void* address = nullptr;
  int rank = 4;  // 3, 4 or 5
  std::uint64_t size[kMaxTensorRank] = {};
  std::uint64_t stride_bytes[kMaxTensorRank] = {};
  int lower[kMaxTensorRank - 2] = {};  // rank 3: 16 bits; rank 4: -128 .. 127; rank 5: -16 .. 15
  int upper[kMaxTensorRank - 2] = {};
  std::uint32_t channels = 0;  // of a pixel: up to 256, a multiple of 16 bytes
  std::uint32_t pixels = 0;    // of a copy: up to 1024
  std::uint32_t step[kMaxTensorRank] = {1, 1, 1, 1, 1};  // of base pixels
  Swizzle swizzle = Swizzle::none;
  Fill fill = Fill::zeros;
  L2Promotion promotion = L2Promotion::none;
};

// Throws an Error that says which rule is broken.
void check(const TiledMap& map);
void check(const Im2colMap& map);

}  // namespace roundoff
