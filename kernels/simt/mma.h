// mma.sync: a warp multiplies 16 x K by K x 8 and adds 16 x 8.
//
// Layout of a lane's fragments, with g = lane / 4 and t = lane % 4. 16-bit operands, two in a
// register, the smaller k in the low half:
//   a[i], K = 16: row g + 8 (i & 1), k = 2t + 8 (i >> 1) and the next;  K = 8: a[0], a[1] of these
//   b[i]:         column g,          k = 2t + 8 i and the next
// tf32, one in a register:
//   a[i]:         row g + 8 (i & 1), k = t + 4 (i >> 1)
//   b[i]:         column g,          k = t + 4 i
// fp32 accumulators: c[i] is row g + 8 (i >> 1), column 2t + (i & 1); fp16 ones hold two columns in
// a register: c[i] is row g + 8 i, columns 2t and 2t + 1. Numerics: kernels/base/tensor_core.h.
// Source: PTX ISA, "Matrix Fragments for mma".
#pragma once

#include <bit>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/simt/instruction.h"
#include "kernels/simt/tf32.h"
#if !defined(__CUDACC__)
#include "kernels/simt/emulator/mma.h"
#endif

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  // Registers of a lane for operands T (Half, BFloat16, Tf32) and a K of the instruction.
  template <class T, int kK>
  struct MmaShape {
    static constexpr int kPerRegister = sizeof(T) == 2 ? 2 : 1;
    static constexpr int kA = 16 * kK / 32 / kPerRegister;
    static constexpr int kB = 8 * kK / 32 / kPerRegister;
    static_assert(sizeof(T) == 2 ? kK == 16 || kK == 8 : kK == 8 || kK == 4);
  };

  // d = c + a b with fp32 accumulators; d may be c.
  template <class T, int kK>
  ROUNDOFF_DEVICE void mma(float(&d)[4], const std::uint32_t(&a)[MmaShape<T, kK>::kA],
                           const std::uint32_t(&b)[MmaShape<T, kK>::kB], const float(&c)[4],
                           ROUNDOFF_SITE) {
#if defined(__CUDACC__)
#define ROUNDOFF_MMA_4_2(shape)                                                               \
  asm volatile("mma.sync.aligned." shape                                                      \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"         \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), \
                 "f"(c[1]), "f"(c[2]), "f"(c[3]))
#define ROUNDOFF_MMA_2_1(shape)                                                                  \
  asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};" \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                  \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]))
    if constexpr (std::is_same_v<T, Half> && kK == 16)
      ROUNDOFF_MMA_4_2("m16n8k16.row.col.f32.f16.f16.f32");
    if constexpr (std::is_same_v<T, BFloat16> && kK == 16)
      ROUNDOFF_MMA_4_2("m16n8k16.row.col.f32.bf16.bf16.f32");
    if constexpr (std::is_same_v<T, Tf32> && kK == 8)
      ROUNDOFF_MMA_4_2("m16n8k8.row.col.f32.tf32.tf32.f32");
    if constexpr (std::is_same_v<T, Half> && kK == 8)
      ROUNDOFF_MMA_2_1("m16n8k8.row.col.f32.f16.f16.f32");
    if constexpr (std::is_same_v<T, BFloat16> && kK == 8)
      ROUNDOFF_MMA_2_1("m16n8k8.row.col.f32.bf16.bf16.f32");
    if constexpr (std::is_same_v<T, Tf32> && kK == 4)
      ROUNDOFF_MMA_2_1("m16n8k4.row.col.f32.tf32.tf32.f32");
#undef ROUNDOFF_MMA_4_2
#undef ROUNDOFF_MMA_2_1
#else
    simt::mma(d, a, b, c, {simt::operand<T>, kK}, site);
#endif
  }

  // d = c + a b of fp16 with fp16 accumulators.
  template <int kK>
  ROUNDOFF_DEVICE void mma_half(
      std::uint32_t(&d)[2], const std::uint32_t(&a)[MmaShape<Half, kK>::kA],
      const std::uint32_t(&b)[MmaShape<Half, kK>::kB], const std::uint32_t(&c)[2], ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    if constexpr (kK == 16)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
          "{%8, %9};"
          : "=r"(d[0]), "=r"(d[1])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%5, %6};"
          : "=r"(d[0]), "=r"(d[1])
          : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
#else
    simt::mma_half(d, a, b, c, kK, site);
#endif
  }

  // A warp's tile: c[i][j] += a[i] b[j], row after row. On the emulator the sequence meets once,
  // not kM kN times.
  template <class T, int kK, int kM, int kN>
  ROUNDOFF_DEVICE void mma_tile(float(&c)[kM][kN][4],
                                const std::uint32_t(&a)[kM][MmaShape<T, kK>::kA],
                                const std::uint32_t(&b)[kN][MmaShape<T, kK>::kB], ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    ROUNDOFF_UNROLL
    for (int i = 0; i < kM; ++i) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kN; ++j) mma<T, kK>(c[i][j], a[i], b[j], c[i][j], site);
    }
#else
    simt::mma_tile(&c[0][0][0], &a[0][0], &b[0][0], kM, kN, {simt::operand<T>, kK}, site);
#endif
  }

}  // inline namespace
}  // namespace roundoff
