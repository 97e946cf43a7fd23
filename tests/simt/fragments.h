// Kernels of one warp around single instructions: what a lane holds is given and returned as it is.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

enum class MmaCase { fp16_k16, bf16_k16, fp16_k8, bf16_k8, tf32_k8, tf32_k4, half_k16, half_k8 };

// Registers lane after lane: a[lane * kA + r]. Accumulators: four words, or two of fp16 pairs.
template <DeviceTarget T>
void launch_mma(T target, MmaCase which, const std::uint32_t* a, const std::uint32_t* b,
                const std::uint32_t* c, std::uint32_t* d);

// 2 x 3 tiles of fp16_k16, bf16_k16, bf16_k8 or tf32_k8: c[2][3][4] a lane, in place.
template <DeviceTarget T>
void launch_mma_tile(T target, MmaCase which, const std::uint32_t* a, const std::uint32_t* b,
                     float* c);

// Rows of 16 bytes stand at row_offset[lane] in 2048 bytes of shared memory, which `image` fills
// (load) or receives (store). Registers: values[lane * count + matrix].
template <DeviceTarget T>
void launch_ldmatrix(T target, int count, bool transpose, const std::uint8_t* image,
                     const int* row_offset, std::uint32_t* values);
template <DeviceTarget T>
void launch_stmatrix(T target, int count, bool transpose, const std::uint32_t* values,
                     const int* row_offset, std::uint8_t* image);

// y[i] = x[i] for i < n, zero up to blocks x 128 words, through three stages of cp.async of 4, 8
// and 16 bytes.
template <DeviceTarget T>
void launch_staged_copy(T target, unsigned blocks, unsigned n, const std::uint32_t* x,
                        std::uint32_t* y);

// C = A B, with A m x k and B n x k (both K-major), bf16, by ldmatrix and mma.sync; m and n are
// multiples of 64 and 64, k of 16.
template <DeviceTarget T>
void launch_mma_gemm(T target, int m, int n, int k, const std::uint16_t* a, const std::uint16_t* b,
                     float* c);

enum class CopyMisuse : int {
  misaligned_copy,
  too_many_source_bytes,
  copy_to_global,
  misaligned_matrix,
  divergent_mma,
  missing_wait,
};
template <DeviceTarget T>
void launch_copy_misuse(T target, CopyMisuse misuse, const std::uint32_t* x, std::uint32_t* y);

}  // namespace roundoff
