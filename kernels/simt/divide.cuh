// Division of indices by extents that are known at the launch.
//
// q = floor(n / d) for n < 2^31 is (floor(m n / 2^32) + n) / 2^s with s = ceil(log2 d) and
// m = floor(2^32 (2^s - d) / d) + 1 (Granlund and Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994); larger indices are divided by instruction.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/simt/simt.h"

namespace roundoff {

struct Divisor {
  std::int64_t extent = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  Divisor() = default;
  // d >= 1
  explicit Divisor(std::int64_t d) : extent(d) {
    if (d >> 31 != 0) return;  // never the fast way: an index below 2^31 gives 0
    shift = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(d - 1)));
    const std::uint64_t excess = (std::uint64_t{1} << shift) - static_cast<std::uint64_t>(d);
    multiplier = static_cast<std::uint32_t>((excess << 32) / static_cast<std::uint64_t>(d) + 1);
  }
};

ROUNDOFF_DEVICE_NAMESPACE {
  // n >= 0
  ROUNDOFF_DEVICE std::int64_t divide(std::int64_t n, const Divisor& d) {
    if (n >> 31 != 0) return n / d.extent;
    if (d.extent >> 31 != 0) return 0;
    const auto small = static_cast<std::uint32_t>(n);
    return (__umulhi(small, d.multiplier) + small) >> d.shift;
  }

}  // namespace

}  // namespace roundoff
