// The arithmetic of the simulated tensor cores.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_core.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/operand.h"

namespace roundoff::simt {

// c += a b with fp32 accumulators, as the chosen model has it.
void multiply(TensorCoreModel model, Operand operand, const TensorCoreTile& tile);
// The same of fp16 with fp16 accumulators; c holds values of fp16. The fp32 model rounds once,
// after a chain of fused multiply-adds.
void multiply_half(TensorCoreModel model, const TensorCoreTile& tile);

// to[i] = the 16-bit pattern from[i], for i in [0, n). Exact.
void widen(Operand operand, const std::uint16_t* from, int n, float* to);
// The value that a tensor core reads from a register of tf32: the lower 13 bits do not count.
inline float tf32_value(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xFFFFE000U); }

}  // namespace roundoff::simt
