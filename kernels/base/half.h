// IEEE 754 binary16 (fp16): 1 sign, 5 exponent, 10 fraction bits; largest finite value 65504,
// smallest normal 2^-14, smallest subnormal 2^-24.
// Storage only: arithmetic happens in fp32 or fp64. Conversions are integer-only, hence independent
// of the processor's FTZ and DAZ modes, and round to nearest, ties to even, from every source type.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

namespace detail {

// Shifts right by `shift` (>= 0), rounding to nearest, ties to even.
ROUNDOFF_HD constexpr std::uint64_t shift_right_rne(std::uint64_t value, int shift) {
  if (shift <= 0) return value;
  if (shift > 63) return 0;
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rest = value & ((half << 1) - 1);
  const std::uint64_t floor = value >> shift;
  return floor + ((rest > half || (rest == half && (floor & 1) != 0)) ? 1 : 0);
}

// Rounds a binary floating-point pattern to a narrower IEEE layout (RNE). Sizes are in bits; `bits`
// is the source pattern. NaN keeps its sign and its payload's top bits and becomes quiet.
template <int kFromExponent, int kFromFraction, int kToExponent, int kToFraction>
ROUNDOFF_HD constexpr std::uint32_t narrow_bits(std::uint64_t bits) {
  constexpr int kDrop = kFromFraction - kToFraction;
  constexpr int kFromBias = (1 << (kFromExponent - 1)) - 1;
  constexpr int kToBias = (1 << (kToExponent - 1)) - 1;
  constexpr std::uint64_t kFromFractionMask = (std::uint64_t{1} << kFromFraction) - 1;
  constexpr std::uint64_t kToInfinity = ((std::uint64_t{1} << kToExponent) - 1) << kToFraction;
  const auto sign = static_cast<std::uint64_t>((bits >> (kFromExponent + kFromFraction)) & 1)
                    << (kToExponent + kToFraction);
  const auto field = static_cast<int>((bits >> kFromFraction) & ((1U << kFromExponent) - 1));
  const std::uint64_t fraction = bits & kFromFractionMask;
  if (field == (1 << kFromExponent) - 1) {
    if (fraction == 0) return static_cast<std::uint32_t>(sign | kToInfinity);
    const std::uint64_t quiet = std::uint64_t{1} << (kToFraction - 1);
    return static_cast<std::uint32_t>(sign | kToInfinity | quiet | (fraction >> kDrop));
  }
  // value = significand * 2^(exponent - fraction bits)
  const int exponent = (field == 0 ? 1 : field) - kFromBias;
  const std::uint64_t significand =
      field == 0 ? fraction : fraction | (std::uint64_t{1} << kFromFraction);
  const int to_field = exponent + kToBias;
  std::uint64_t rounded = 0;
  if (to_field >= 1) {
    // The hidden bit and a carry out of the fraction both run on into the exponent field; a
    // subnormal source whose exponent range equals the target's has no hidden bit and stays one.
    rounded = (static_cast<std::uint64_t>(to_field - 1) << kToFraction) +
              shift_right_rne(significand, kDrop);
  } else {
    rounded = shift_right_rne(significand, kDrop + 1 - to_field);
  }
  if (rounded >= kToInfinity) rounded = kToInfinity;
  return static_cast<std::uint32_t>(sign | rounded);
}

}  // namespace detail

struct Half {
  std::uint16_t bits = 0;

  constexpr Half() = default;
  ROUNDOFF_HD constexpr explicit Half(float value)
      : bits(static_cast<std::uint16_t>(
            detail::narrow_bits<8, 23, 5, 10>(std::bit_cast<std::uint32_t>(value)))) {}
  ROUNDOFF_HD constexpr explicit Half(double value)
      : bits(static_cast<std::uint16_t>(
            detail::narrow_bits<11, 52, 5, 10>(std::bit_cast<std::uint64_t>(value)))) {}

  ROUNDOFF_HD static constexpr Half from_bits(std::uint16_t pattern) {
    Half h;
    h.bits = pattern;
    return h;
  }

  // Exact. A NaN keeps its payload (and becomes quiet, as hardware conversions make it).
  ROUNDOFF_HD constexpr explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t field = (bits >> 10) & 0x1FU;
    const std::uint32_t fraction = bits & 0x3FFU;
    if (field == 31) {
      const std::uint32_t quiet = fraction != 0 ? 0x00400000U : 0U;
      return std::bit_cast<float>(sign | 0x7F800000U | quiet | (fraction << 13));
    }
    if (field != 0) return std::bit_cast<float>(sign | ((field + 112) << 23) | (fraction << 13));
    if (fraction == 0) return std::bit_cast<float>(sign);
    const int top = 31 - std::countl_zero(fraction);  // fraction = 2^top + ...
    const auto exponent = static_cast<std::uint32_t>(top - 24 + 127);
    const std::uint32_t rest = (fraction << (23 - top)) & 0x7FFFFFU;
    return std::bit_cast<float>(sign | (exponent << 23) | rest);
  }
  ROUNDOFF_HD constexpr explicit operator double() const {
    return static_cast<double>(static_cast<float>(*this));
  }
};

}  // namespace roundoff
