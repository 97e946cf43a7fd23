// A bit-exact model of tensor-core dot products with an fp32 accumulator.
//
// One block computes d = c + sum of K products: the significands' products and c are aligned to the
// largest exponent emax among c and the non-zero products (a product's exponent is the sum of its
// operands'; a subnormal counts with its format's emin), each is truncated to a multiple of
// 2^(emax - F), they are added exactly, and the sum is truncated to fp32. Longer sums chain blocks
// through c. With an fp16 accumulator the block's sum is rounded to fp16, to nearest, at once.
//   V100: F = 23, K = 4 (fp16).  A100: F = 24, K = 8 (fp16, bf16), 4 (tf32).
//   H100: F = 25, K = 16 (fp16, bf16), 8 (tf32); F = 13, K = 32 (E4M3), truncated to 13 fraction
//   bits.
// Sources: Fasi, Higham, Mikaitis, Pranesh, PeerJ CS 7:e330 (2021); Khattak, Mikaitis,
// arXiv 2512.07004. It reproduces recorded dot products of one block on those GPUs; that blocks
// chain so, infinities, NaN, E4M3 with an addend and wgmma are not covered by recordings.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/half.h"
#include "kernels/base/target.h"

namespace roundoff {

struct TensorCore {
  int kept_bits = 25;      // F, at least 23
  int block = 16;          // K
  int emin = -14;          // of the operands' format
  int fraction_bits = 23;  // of an fp32 result: the others are cut off
};

// Whether `gpu` (v100, a100 or h100) multiplies `operand`: fp16, bf16, or fp32, which stands for
// tf32. False for every other accumulator and type.
bool has_tensor_core(Accumulator gpu, DType operand);
// The model; throws where there is none.
TensorCore tensor_core(Accumulator gpu, DType operand);
// How far a chain of `terms` products may be off, relative to the sum of their magnitudes, where
// every block aligns and cuts (verify/bound/linear.h has the derivation).
double tensor_core_error(const TensorCore& core, std::int64_t terms);
// H100's for E4M3 operands (fp8: 4 significant bits, emin = -6).
TensorCore tensor_core_e4m3();

// value = significand * 2^(exponent - 10); of 11 bits or fewer, as fp16, bf16 and tf32 have them.
struct TensorCoreOperand {
  std::int32_t significand = 0;
  std::int32_t exponent = 0;
};
inline constexpr std::int32_t kZeroExponent = -(1 << 20);

// A finite number that fits the operands' format; a zero gets kZeroExponent.
TensorCoreOperand tensor_core_operand(float value, const TensorCore& core);

// d of one block of n <= core.block products; finite operands, each array with one value a product.
// A result of 2^128 or more is infinite; where every addend is zero it is +0.
float tensor_core_block(const TensorCore& core, const std::int32_t* a_significand,
                        const std::int32_t* a_exponent, const std::int32_t* b_significand,
                        const std::int32_t* b_exponent, int n, float c);

// The whole sum of k products, chained; any values that fit the format. NaN, infinities of both
// signs, and 0 times infinity give the NaN 0x7FFFFFFF.
float tensor_core_dot(const TensorCore& core, const float* a, const float* b, std::int64_t k,
                      float c);
// The same with an fp16 accumulator: each block's sum is rounded once, to nearest, ties to even.
Half tensor_core_dot_half(const TensorCore& core, const float* a, const float* b, std::int64_t k,
                          Half c);

// c += a b of a tile, row-major: a is m x k, b is k x n, c is m x n; lda, ldb and ldc are the
// distances of rows, in elements. Any sizes.
struct TensorCoreTile {
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  int m = 0, n = 0, k = 0;
};

// Every element as tensor_core_dot has it, bit for bit; with vector instructions where the build's
// target has AVX2.
void tensor_core_tile(const TensorCore& core, const TensorCoreTile& tile);
// Every element as tensor_core_dot_half has it; c holds values of fp16.
void tensor_core_tile_half(const TensorCore& core, const TensorCoreTile& tile);
// Every element as a chain of k fused multiply-adds in fp32, first product first.
void fma_tile(const TensorCoreTile& tile);

}  // namespace roundoff
