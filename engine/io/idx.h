// IDX, the files that MNIST and its relatives come in: a big-endian magic number 0x000008RR (uint8
// elements, rank RR), RR big-endian 32-bit extents, then the elements, row-major.
// Source: the format's description on Yann LeCun's MNIST page.
#pragma once

#include <span>
#include <string_view>

#include "engine/data/array.h"

namespace roundoff {

inline constexpr std::uint32_t kIdxImages = 0x00000803;  // [N, H, W]
inline constexpr std::uint32_t kIdxLabels = 0x00000801;  // [N]

// Reads a whole file's bytes, gzip or not. `magic` is the number that must be at the start; the
// size must be exactly what the header says, and no extent may be 0. Throws FileError, before
// anything of a size that the header claims is allocated.
HostArray parse_idx(std::span<const std::byte> bytes, std::uint32_t magic, std::string_view origin);

}  // namespace roundoff
