// bfloat16 (bf16): the upper half of an fp32: 1 sign, 8 exponent, 7 fraction bits; largest finite
// value 3.3895e38, smallest normal 2^-126, smallest subnormal 2^-133.
// Storage only, like Half; conversions are integer-only and round to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/half.h"
#include "kernels/base/target.h"

namespace roundoff {

namespace detail {

// An fp32 pattern as the fp64 pattern of the same value; NaN becomes quiet. Integer-only: the
// instruction would obey DAZ.
ROUNDOFF_HD constexpr std::uint64_t widen_fp32_bits(std::uint32_t bits) {
  const std::uint64_t sign = static_cast<std::uint64_t>(bits >> 31) << 63;
  const std::uint32_t field = (bits >> 23) & 0xFFU;
  const std::uint32_t fraction = bits & 0x7FFFFFU;
  if (field == 255) {
    const std::uint64_t quiet = fraction != 0 ? std::uint64_t{1} << 51 : 0;
    return sign | (std::uint64_t{0x7FF} << 52) | quiet | (std::uint64_t{fraction} << 29);
  }
  if (field != 0)
    return sign | (static_cast<std::uint64_t>(field + 896) << 52) | (std::uint64_t{fraction} << 29);
  if (fraction == 0) return sign;
  const int top = 31 - std::countl_zero(fraction);  // value = (2^top + ...) 2^-149
  const std::uint64_t rest = (std::uint64_t{fraction} << (52 - top)) & 0xFFFFFFFFFFFFFU;
  return sign | (static_cast<std::uint64_t>(top - 149 + 1023) << 52) | rest;
}

}  // namespace detail

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
    return std::bit_cast<double>(detail::widen_fp32_bits(static_cast<std::uint32_t>(bits) << 16));
  }
};

}  // namespace roundoff
