// Products whose every element is one chain of additions over k, first product first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/target.h"

namespace roundoff::study {

// left [m, k] times right [k, n], row-major fp16 values, in this accumulator: fp32 is a chain of
// fused multiply-adds; v100, a100 and h100 are kernels/base/tensor_core.h; fp16 rounds every
// multiply-add. fp64 is not known here and throws.
std::vector<double> chained_product(Accumulator accumulator, std::int64_t m, std::int64_t n,
                                    std::int64_t k, std::span<const double> left,
                                    std::span<const double> right);

}  // namespace roundoff::study
