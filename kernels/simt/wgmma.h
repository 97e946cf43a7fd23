// wgmma (sm_90a): four warps multiply 64 x K by K x N and add 64 x N, asynchronously. K is 16 for
// 16-bit operands and 8 for tf32.
//
// Order of a batch: wgmma_fence, any number of wgmma on one or several accumulators, wgmma_commit,
// wgmma_wait. Until a wait covers them the accumulators must not be touched, nor may the operands
// in shared memory be written. Operands that threads wrote need fence_proxy_async and a barrier
// first. The fence comes before the first wgmma and wherever the threads touched the registers
// since.
//
// Accumulators, with warp w = 0 .. 3 of the four, g = lane / 4, t = lane % 4: d[i] is row
// 16 w + g + 8 ((i >> 1) & 1), column 8 (i >> 2) + 2t + (i & 1). A in registers: as the A of mma.h
// for rows 16 w ..
//
// Operands in shared memory are named by a descriptor: the start, a swizzle and two distances, in
// units of 8 x 16-byte blocks. K-major (a row's k contiguous): 8 rows of a span of 16 (no swizzle),
// 32, 64 or 128 bytes; `stride` leads to the next 8 rows, `leading` to the next 16 bytes of k where
// there is no swizzle (else it is not read). MN-major (transposed; 16-bit only): 8 lines of k, each
// a span of rows; with a swizzle `leading` leads to the next span of rows and `stride` to the next
// 8 k; without one it is the other way round. Numerics: kernels/base/tensor_core.h. Source: PTX
// ISA, "Asynchronous Warpgroup Level Matrix".
#pragma once

#include "kernels/simt/instruction.h"
#include "kernels/simt/tensor_map.h"
#include "kernels/simt/tf32.h"
#if defined(__CUDACC__)
#include "kernels/simt/wgmma_text.h"
#else
#include "kernels/simt/emulator/wgmma.h"
#endif

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  // `shared` is 16-byte aligned, and lies in the first of the swizzle's 8 lines (tiles are aligned
  // to 8 spans). Distances in bytes, multiples of 16.
  ROUNDOFF_DEVICE std::uint64_t wgmma_descriptor(const void* shared, Swizzle swizzle,
                                                 unsigned leading_bytes, unsigned stride_bytes) {
#if defined(__CUDACC__)
    const std::uint32_t address = instruction::shared_address(shared);
#else
    const std::uint32_t address = simt::shared_address(shared);
#endif
    // Layout codes: 1, 2, 3 are spans of 128, 64, 32 bytes.
    const std::uint64_t layout =
        swizzle == Swizzle::none ? 0U : 4U - static_cast<unsigned>(swizzle);
    return std::uint64_t{(address & 0x3FFFFU) >> 4} |
           (std::uint64_t{(leading_bytes >> 4) & 0x3FFFU} << 16) |
           (std::uint64_t{(stride_bytes >> 4) & 0x3FFFU} << 32) | (layout << 62);
  }
  // The same operand, so many bytes further (a multiple of 16): the next K within a span.
  ROUNDOFF_DEVICE std::uint64_t wgmma_advance(std::uint64_t descriptor, unsigned bytes) {
    return descriptor + (bytes >> 4);
  }

  // Major order of an operand in shared memory.
  enum class Major : unsigned char { k, mn };

  // d = a b, or d += a b.
  template <class T, int kN, Major kMajorA = Major::k, Major kMajorB = Major::k>
  ROUNDOFF_DEVICE void wgmma(float(&d)[kN / 2], std::uint64_t a_descriptor,
                             std::uint64_t b_descriptor, bool accumulate, ROUNDOFF_SITE) {
    static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
    static_assert(sizeof(T) == 2 || (kMajorA == Major::k && kMajorB == Major::k),
                  "tf32 operands are K-major");
#if !defined(__CUDACC__)
    simt::wgmma(d, {simt::operand<T>, kN, kMajorA == Major::mn, kMajorB == Major::mn}, a_descriptor,
                b_descriptor, accumulate, site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_WGMMA_CASE(N, r0, r1, r2, r3, r4, r5, r6)                             \
  if constexpr (kN == N && std::is_same_v<T, Half>)                                    \
    ROUNDOFF_WGMMA_SS(N, r0, r1, r2, "k16.f32.f16.f16", ", %" #r3 ", %" #r4, ,         \
                      "n"(static_cast<int>(kMajorA)), "n"(static_cast<int>(kMajorB))); \
  if constexpr (kN == N && std::is_same_v<T, BFloat16>)                                \
    ROUNDOFF_WGMMA_SS(N, r0, r1, r2, "k16.f32.bf16.bf16", ", %" #r3 ", %" #r4, ,       \
                      "n"(static_cast<int>(kMajorA)), "n"(static_cast<int>(kMajorB))); \
  if constexpr (kN == N && std::is_same_v<T, Tf32>)                                    \
    ROUNDOFF_WGMMA_SS(N, r0, r1, r2, "k8.f32.tf32.tf32", "");
    ROUNDOFF_WGMMA_EACH(ROUNDOFF_WGMMA_CASE)
#undef ROUNDOFF_WGMMA_CASE
#else
    __trap();
#endif
  }

  template <class T, int kN, Major kMajorB = Major::k>
  ROUNDOFF_DEVICE void wgmma(float(&d)[kN / 2], const std::uint32_t(&a)[4],
                             std::uint64_t b_descriptor, bool accumulate, ROUNDOFF_SITE) {
    static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
    static_assert(sizeof(T) == 2 || kMajorB == Major::k, "tf32 operands are K-major");
#if !defined(__CUDACC__)
    simt::wgmma(d, {simt::operand<T>, kN, false, kMajorB == Major::mn}, a, b_descriptor, accumulate,
                site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_WGMMA_CASE(N, r0, r1, r2, r3, r4, r5, r6)                         \
  if constexpr (kN == N && std::is_same_v<T, Half>)                                \
    ROUNDOFF_WGMMA_RS(N, r0, r1, r2, r3, r4, r5, "k16.f32.f16.f16", ", %" #r6, ,   \
                      "n"(static_cast<int>(kMajorB)));                             \
  if constexpr (kN == N && std::is_same_v<T, BFloat16>)                            \
    ROUNDOFF_WGMMA_RS(N, r0, r1, r2, r3, r4, r5, "k16.f32.bf16.bf16", ", %" #r6, , \
                      "n"(static_cast<int>(kMajorB)));                             \
  if constexpr (kN == N && std::is_same_v<T, Tf32>)                                \
    ROUNDOFF_WGMMA_RS(N, r0, r1, r2, r3, r4, r5, "k8.f32.tf32.tf32", "");
    ROUNDOFF_WGMMA_EACH(ROUNDOFF_WGMMA_CASE)
#undef ROUNDOFF_WGMMA_CASE
#else
    __trap();
#endif
  }

  // fp16 operands and accumulators, for N a multiple of 16: d[i] holds elements 2i and 2i + 1 of
  // the fp32 layout, the first in the low half.
  template <int kN, Major kMajorA = Major::k, Major kMajorB = Major::k>
  ROUNDOFF_DEVICE void wgmma_half(std::uint32_t(&d)[kN / 4], std::uint64_t a_descriptor,
                                  std::uint64_t b_descriptor, bool accumulate, ROUNDOFF_SITE) {
    static_assert(kN % 16 == 0 && kN >= 16 && kN <= 256);
#if !defined(__CUDACC__)
    simt::wgmma(d, {simt::Operand::fp16, kN, kMajorA == Major::mn, kMajorB == Major::mn, true},
                a_descriptor, b_descriptor, accumulate, site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_WGMMA_CASE(N, M, r0, r1, r2, r3, r4, r5, r6)       \
  if constexpr (kN == N)                                            \
    ROUNDOFF_WGMMA_SS_HALF(N, M, r0, r1, r2, ", %" #r3 ", %" #r4, , \
                           "n"(static_cast<int>(kMajorA)), "n"(static_cast<int>(kMajorB)));
    ROUNDOFF_WGMMA_EACH_HALF(ROUNDOFF_WGMMA_CASE)
#undef ROUNDOFF_WGMMA_CASE
#else
    __trap();
#endif
  }

  // The four warps take part in each of these as a whole.
  ROUNDOFF_DEVICE void wgmma_fence(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::wgmma_fence(site);
#elif ROUNDOFF_HOPPER
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void wgmma_commit(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::wgmma_commit(site);
#elif ROUNDOFF_HOPPER
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
    __trap();
#endif
  }
  // Until at most the kPending youngest groups are in flight.
  template <int kPending>
  ROUNDOFF_DEVICE void wgmma_wait(ROUNDOFF_SITE) {
    static_assert(kPending >= 0 && kPending <= 7);
#if !defined(__CUDACC__)
    simt::wgmma_wait(kPending, site);
#elif ROUNDOFF_HOPPER
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#else
    __trap();
#endif
  }

  // Gives registers of every thread of the warp back to the block, or takes them (waiting until
  // there are): kCount is the number after it, a multiple of 8 from 24 to 256.
  template <int kCount>
  ROUNDOFF_DEVICE void registers_decrease(ROUNDOFF_SITE) {
    static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
#if !defined(__CUDACC__)
    simt::set_registers(kCount, false, site);
#elif ROUNDOFF_HOPPER
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#else
    __trap();
#endif
  }
  template <int kCount>
  ROUNDOFF_DEVICE void registers_increase(ROUNDOFF_SITE) {
    static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
#if !defined(__CUDACC__)
    simt::set_registers(kCount, true, site);
#elif ROUNDOFF_HOPPER
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#else
    __trap();
#endif
  }

}  // inline namespace
}  // namespace roundoff
