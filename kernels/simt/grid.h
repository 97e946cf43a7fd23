// How many blocks a kernel with a grid-stride loop is given.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/simt/launch.h"

namespace roundoff {

// Several blocks for every multiprocessor of the largest GPUs. A constant: what a kernel computes
// must not depend on the device, nor must its profile.
inline constexpr std::int64_t kMaxBlocks = 4096;

// Blocks of `threads` threads for `items` >= 1 pieces of work, one or more a thread.
constexpr Dim grid_for(std::int64_t items, unsigned threads) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return {static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kMaxBlocks))};
}

}  // namespace roundoff
