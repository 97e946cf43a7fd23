// tf32: fp32's exponent with 10 fraction bits, held in the upper 19 bits of 32.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

struct Tf32 {
  std::uint32_t bits = 0;

  constexpr Tf32() = default;
  // RNE by integers (the instruction for it exists from sm_90 on); NaN stays NaN.
  ROUNDOFF_HD constexpr explicit Tf32(float value) {
    const auto pattern = std::bit_cast<std::uint32_t>(value);
    const bool nan = (pattern & 0x7FFFFFFFU) > 0x7F800000U;
    const std::uint32_t rounded = pattern + 0xFFFU + ((pattern >> 13) & 1U);
    bits = (nan ? pattern | 0x00400000U : rounded) & 0xFFFFE000U;
  }
  ROUNDOFF_HD constexpr explicit operator float() const { return std::bit_cast<float>(bits); }
};

}  // namespace roundoff
