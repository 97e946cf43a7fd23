// Copies of sm_80: global to shared memory without registers (cp.async), and 8 x 8 matrices of
// 16-bit elements between shared memory and a warp's registers (ldmatrix; stmatrix from sm_90).
// Source: PTX ISA, "Data Movement and Conversion Instructions".
#pragma once

#include "kernels/simt/instruction.h"
#if !defined(__CUDACC__)
#include "kernels/simt/emulator/copy.h"
#endif

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  // Which caches keep what a cp.async reads: all of them, or L2 alone (16 bytes only).
  enum class CacheLevel : unsigned char { all, l2 };

  // Copies kBytes (4, 8 or 16, both addresses aligned to them), of which the first source_bytes are
  // read and the others become zero; 0 reads nothing. It may be read after a wait by the thread
  // that issued it, and after a barrier by others.
  template <int kBytes, CacheLevel kCache = CacheLevel::all>
  ROUNDOFF_DEVICE void cp_async(void* shared, const void* global, int source_bytes, ROUNDOFF_SITE) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    static_assert(kCache == CacheLevel::all || kBytes == 16, "only 16 bytes bypass L1");
#if defined(__CUDACC__)
    if constexpr (kCache == CacheLevel::l2)
      asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(
                       instruction::shared_address(shared)),
                   "l"(global), "n"(kBytes), "r"(source_bytes)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(
                       instruction::shared_address(shared)),
                   "l"(global), "n"(kBytes), "r"(source_bytes)
                   : "memory");
#else
    simt::cp_async(shared, global, kBytes, source_bytes, site);
#endif
  }
  template <int kBytes, CacheLevel kCache = CacheLevel::all>
  ROUNDOFF_DEVICE void cp_async(void* shared, const void* global, ROUNDOFF_SITE) {
    cp_async<kBytes, kCache>(shared, global, kBytes, site);
  }

  // Closes the group of this thread's copies since the last commit; it may be empty.
  ROUNDOFF_DEVICE void cp_async_commit(ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    simt::cp_async_commit(site);
#endif
  }

  // Waits until at most the kPending youngest groups of this thread are in flight.
  template <int kPending>
  ROUNDOFF_DEVICE void cp_async_wait(ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
    simt::cp_async_wait(kPending, site);
#endif
  }

  // Waits for every copy of this thread, committed or not.
  ROUNDOFF_DEVICE void cp_async_wait_all(ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#else
    simt::cp_async_wait_all(site);
#endif
  }

  // kCount matrices (1, 2 or 4) of 8 rows of 16 bytes. Lane 8 i + j gives the address of row j of
  // matrix i (16-byte aligned; lanes beyond 8 kCount give any address). Lane 4 g + t gets elements
  // 2t and 2t + 1 of row g of matrix i in values[i], the first in the low half; kTranspose: of
  // column g. The whole warp takes part.
  template <int kCount, bool kTranspose = false>
  ROUNDOFF_DEVICE void ldmatrix(std::uint32_t(&values)[kCount], const void* row, ROUNDOFF_SITE) {
    static_assert(kCount == 1 || kCount == 2 || kCount == 4);
#if defined(__CUDACC__)
    const std::uint32_t address = instruction::shared_address(row);
    if constexpr (kCount == 1 && !kTranspose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                   : "=r"(values[0])
                   : "r"(address)
                   : "memory");
    if constexpr (kCount == 1 && kTranspose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                   : "=r"(values[0])
                   : "r"(address)
                   : "memory");
    if constexpr (kCount == 2 && !kTranspose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(values[0]), "=r"(values[1])
                   : "r"(address)
                   : "memory");
    if constexpr (kCount == 2 && kTranspose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(values[0]), "=r"(values[1])
                   : "r"(address)
                   : "memory");
    if constexpr (kCount == 4 && !kTranspose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                   : "r"(address)
                   : "memory");
    if constexpr (kCount == 4 && kTranspose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                   : "r"(address)
                   : "memory");
#else
    simt::ldmatrix(values, row, kCount, kTranspose, site);
#endif
  }

  // A sequence of them: values[i] from rows[i]. On the emulator it meets once, not kLength times.
  template <int kCount, bool kTranspose = false, int kLength>
  ROUNDOFF_DEVICE void ldmatrix_tile(std::uint32_t(&values)[kLength][kCount],
                                     const void* const(&rows)[kLength], ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    ROUNDOFF_UNROLL
    for (int i = 0; i < kLength; ++i) ldmatrix<kCount, kTranspose>(values[i], rows[i], site);
#else
    static_assert(kCount == 1 || kCount == 2 || kCount == 4);
    simt::ldmatrix_tile(&values[0][0], &rows[0], kLength, kCount, kTranspose, site);
#endif
  }

  // The other way round, with the same layouts (sm_90).
  template <int kCount, bool kTranspose = false>
  ROUNDOFF_DEVICE void stmatrix(void* row, const std::uint32_t(&values)[kCount], ROUNDOFF_SITE) {
    static_assert(kCount == 1 || kCount == 2 || kCount == 4);
#if !defined(__CUDACC__)
    simt::stmatrix(row, values, kCount, kTranspose, site);
#elif ROUNDOFF_HOPPER
    const std::uint32_t address = instruction::shared_address(row);
    if constexpr (kCount == 1 && !kTranspose)
      asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address),
                   "r"(values[0])
                   : "memory");
    if constexpr (kCount == 1 && kTranspose)
      asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address),
                   "r"(values[0])
                   : "memory");
    if constexpr (kCount == 2 && !kTranspose)
      asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address),
                   "r"(values[0]), "r"(values[1])
                   : "memory");
    if constexpr (kCount == 2 && kTranspose)
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
                   "r"(values[0]), "r"(values[1])
                   : "memory");
    if constexpr (kCount == 4 && !kTranspose)
      asm volatile(
          "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
          "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
          : "memory");
    if constexpr (kCount == 4 && kTranspose)
      asm volatile(
          "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
          "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
          : "memory");
#else
    __trap();
#endif
  }

}  // inline namespace
}  // namespace roundoff
