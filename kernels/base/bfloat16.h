// bfloat16 (bf16): the upper half of an fp32: 1 sign, 8 exponent, 7 fraction bits; largest finite
// value 3.3895e38, smallest normal 2^-126, smallest subnormal 2^-133.
// Storage only, like Half; conversions are integer-only and round to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/half.h"
#include "kernels/base/target.h"

namespace roundoff {

struct BFloat16 {
  std::uint16_t bits = 0;

  constexpr BFloat16() = default;
  ROUNDOFF_HD constexpr explicit BFloat16(float value)
      : bits(static_cast<std::uint16_t>(
            detail::narrow_bits<8, 23, 8, 7>(std::bit_cast<std::uint32_t>(value)))) {}
  ROUNDOFF_HD constexpr explicit BFloat16(double value)
      : bits(static_cast<std::uint16_t>(
            detail::narrow_bits<11, 52, 8, 7>(std::bit_cast<std::uint64_t>(value)))) {}

  ROUNDOFF_HD static constexpr BFloat16 from_bits(std::uint16_t pattern) {
    BFloat16 b;
    b.bits = pattern;
    return b;
  }

  // Exact.
  ROUNDOFF_HD constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  ROUNDOFF_HD constexpr explicit operator double() const {
    return static_cast<double>(static_cast<float>(*this));
  }
};

}  // namespace roundoff
