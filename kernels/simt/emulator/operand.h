// Types of what tensor cores multiply.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/simt/tf32.h"

namespace roundoff::simt {

enum class Operand : std::uint8_t { fp16, bf16, tf32 };

template <class T>
inline constexpr Operand operand = Operand::fp16;
template <>
inline constexpr Operand operand<BFloat16> = Operand::bf16;
template <>
inline constexpr Operand operand<Tf32> = Operand::tf32;

}  // namespace roundoff::simt
