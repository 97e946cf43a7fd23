// Dot products in modelled arithmetic, on the host: what the ladder's last rung compares with.
#pragma once

#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/target.h"

namespace roundoff {

// Whether products of these operands are modelled with this accumulator: v100, a100, h100 for the
// types that the GPU multiplies, fp16 for 16-bit ones.
bool has_host_dot(Accumulator accumulator, DType operands);

// One product after another from 0: v100, a100, h100 as kernels/base/tensor_core.h defines them;
// fp16 rounds every multiply-add once.
double host_dot(Accumulator accumulator, DType operands, std::span<const float> a,
                std::span<const float> b);

}  // namespace roundoff
