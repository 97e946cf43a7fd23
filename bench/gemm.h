// Square products: fp16 and bf16 by converting, multiplying in fp32 and rounding (kernels/gemm),
// beside fp32 and beside Eigen's own 16-bit scalar types.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/measure.h"

namespace roundoff::bench {

// C = A B, n x n each, normally distributed. What each contender holds lives in it.
//   fp32, fp16, bf16              gemm() of kernels/gemm, C in the operands' type
//   fp16 (Eigen), bf16 (Eigen)    Eigen::half and Eigen::bfloat16 matrices
std::vector<Contender> gemm_contenders(std::int64_t n);

// The same product by Eigen alone; a, b, c: n x n, 16-bit patterns. In a file of its own, because
// its header is heavy.
void eigen_half_product(const void* a, const void* b, void* c, std::int64_t n);
void eigen_bfloat16_product(const void* a, const void* b, void* c, std::int64_t n);

}  // namespace roundoff::bench
