// What a launch says about itself, on every target.
#pragma once

#include <cstddef>
#include <optional>

#include "kernels/base/target.h"

namespace roundoff {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  constexpr std::size_t count() const {
    return static_cast<std::size_t>(x) * y * static_cast<std::size_t>(z);
  }
};

// The oldest architecture whose instructions a kernel uses. A kernel for sm_90a has an empty body
// everywhere else, so a launch there is refused.
enum class Architecture : unsigned char { any, sm_90a };

struct LaunchConfig {
  const char* name = "kernel";  // in messages and profiles; static storage
  Dim grid{};                   // blocks; none of them 0
  Dim block{};                  // threads a block, at most 1024
  std::size_t shared = 0;       // bytes of dynamic shared memory a block
  Dim cluster{};                // blocks a cluster; sm_90 and later where it is not 1
  Architecture needs = Architecture::any;
  // Whose tensor cores add: v100, a100 or h100. Emulated; a GPU that adds otherwise is refused.
  // Absent: the device's own.
  std::optional<Accumulator> tensor_core{};
};

}  // namespace roundoff
