// Stochastic rounding of fp32 to a 16-bit type: up in magnitude with probability equal to the
// discarded fraction of an ulp (to 2^-32), so that the expectation is the value itself. Sources:
// Forsythe 1950; Croci, Fasi, Higham, Mary and Mikaitis, "Stochastic rounding: implementation,
// error analysis and applications", Royal Society Open Science 9, 2022.
//
// Bits are those of round_to_format(value, format, RoundingMode::sr, random * 2^32): integers only,
// the same on every device.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/base/philox.h"

namespace roundoff {

// Which numbers round an optimizer's 16-bit parameters: element e of parameter s (its place in the
// list) at its update k takes word e mod 4 of the Philox block {e / 4, s, k, this}.
inline constexpr std::uint32_t kRoundingTensor = 0xDA7A0005U;

namespace detail {
template <int kToExponent, int kToFraction>
ROUNDOFF_HD constexpr std::uint32_t narrow_bits_stochastic(std::uint32_t bits,
                                                           std::uint32_t random) {
  constexpr int kDrop = 23 - kToFraction;
  constexpr int kToBias = (1 << (kToExponent - 1)) - 1;
  constexpr std::uint32_t kToInfinity = ((1U << kToExponent) - 1U) << kToFraction;
  const auto field = static_cast<int>(bits >> 23 & 0xFFU);
  if (field == 0xFF) return narrow_bits<8, 23, kToExponent, kToFraction>(bits);
  const std::uint32_t sign = (bits >> 31) << (kToExponent + kToFraction);
  const std::uint32_t fraction = bits & 0x7FFFFFU;
  const std::uint64_t significand = field == 0 ? fraction : fraction | 0x800000U;
  const int to_field = (field == 0 ? 1 : field) - 127 + kToBias;
  const int drop = kDrop + (to_field >= 1 ? 0 : 1 - to_field);
  // The discarded fraction of an ulp, in units of 2^-64.
  const std::uint64_t discarded = drop <= 64   ? significand << (64 - drop)
                                  : drop < 128 ? significand >> (drop - 64)
                                               : 0;
  std::uint32_t rounded = drop < 24 ? static_cast<std::uint32_t>(significand >> drop) : 0U;
  if (to_field >= 1) rounded += static_cast<std::uint32_t>(to_field - 1) << kToFraction;
  rounded += (static_cast<std::uint64_t>(random) << 32) < discarded ? 1U : 0U;
  return sign | (rounded < kToInfinity ? rounded : kToInfinity);
}
}  // namespace detail

ROUNDOFF_HD constexpr void round_stochastic(float value, std::uint32_t random, Half& to) {
  to = Half::from_bits(static_cast<std::uint16_t>(
      detail::narrow_bits_stochastic<5, 10>(std::bit_cast<std::uint32_t>(value), random)));
}
ROUNDOFF_HD constexpr void round_stochastic(float value, std::uint32_t random, BFloat16& to) {
  to = BFloat16::from_bits(static_cast<std::uint16_t>(
      detail::narrow_bits_stochastic<8, 7>(std::bit_cast<std::uint32_t>(value), random)));
}

}  // namespace roundoff
