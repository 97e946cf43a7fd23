// Which GPU's tensor cores a device has.
#pragma once

#include <optional>

#include "kernels/base/target.h"

namespace roundoff {

// The tensor cores of a GPU of this compute capability (10 major + minor): a100 for 8.x, h100 from
// 9.0 on. Recordings show it for 8.0 and 9.0; for the others it is published work's word
// (docs/numerics.md). Absent below 8.0.
constexpr std::optional<Accumulator> tensor_core_of(int capability) {
  if (capability >= 90) return Accumulator::h100;
  if (capability >= 80) return Accumulator::a100;
  return std::nullopt;
}
// Whether a GPU is known to add as `gpu` does: Blackwell's (10.x) add as Hopper's do.
constexpr bool adds_as(Accumulator gpu, int capability) {
  if (gpu == Accumulator::a100) return capability == 80;
  return gpu == Accumulator::h100 && capability >= 90 && capability < 110;
}

}  // namespace roundoff
