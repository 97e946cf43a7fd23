// mbarrier: a counter in shared memory that threads and asynchronous copies arrive at. A phase ends
// when as many arrivals came as init named and every byte that was announced (expect_tx) has
// landed; then the next phase starts by itself. A wait names the phase by its parity: the first has
// 0, and waiting for parity 1 on a fresh barrier returns at once.
//
// The object lies in shared memory, 8-byte aligned; counts are 1 .. 2^20 - 1, bytes at most 2^20
// - 1. Source: PTX ISA, "mbarrier".
#pragma once

#include "kernels/simt/cluster.h"
#include "kernels/simt/instruction.h"
#if !defined(__CUDACC__)
#include "kernels/simt/emulator/mbarrier.h"
#endif

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  using Mbarrier = std::uint64_t;

  // By one thread; others may use it after a block barrier, and after fence_mbarrier_init and a
  // cluster barrier the cluster's other blocks and asynchronous copies.
  ROUNDOFF_DEVICE void mbarrier_init(Mbarrier * barrier, unsigned count, ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(instruction::shared_address(barrier)),
        "r"(count)
        : "memory");
#else
    simt::mbarrier_init(barrier, count, site);
#endif
  }

  // Its memory may then be used for something else.
  ROUNDOFF_DEVICE void mbarrier_inval(Mbarrier * barrier, ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(instruction::shared_address(barrier))
                 : "memory");
#else
    simt::mbarrier_inval(barrier, site);
#endif
  }

  ROUNDOFF_DEVICE void fence_mbarrier_init(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::fence_mbarrier_init(site);
#elif ROUNDOFF_HOPPER
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
    __trap();
#endif
  }

  // ---- arriving. The result names the phase that the arrival counted in (mbarrier_test_wait).

  ROUNDOFF_DEVICE std::uint64_t mbarrier_arrive(Mbarrier * barrier, ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    std::uint64_t state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];"
                 : "=l"(state)
                 : "r"(instruction::shared_address(barrier))
                 : "memory");
    return state;
#else
    return simt::mbarrier_arrive(barrier, 1, site);
#endif
  }

  ROUNDOFF_DEVICE std::uint64_t mbarrier_arrive(Mbarrier * barrier, unsigned count, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::mbarrier_arrive(barrier, count, site);
#elif ROUNDOFF_HOPPER
    std::uint64_t state;
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(instruction::shared_address(barrier)), "r"(count)
                 : "memory");
    return state;
#else
    __trap();
    return 0;
#endif
  }

  // Announces bytes that asynchronous copies will land, then arrives once.
  ROUNDOFF_DEVICE std::uint64_t mbarrier_arrive_expect_tx(Mbarrier * barrier, unsigned bytes,
                                                          ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::mbarrier_arrive_expect_tx(barrier, bytes, site);
#elif ROUNDOFF_HOPPER
    std::uint64_t state;
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(instruction::shared_address(barrier)), "r"(bytes)
                 : "memory");
    return state;
#else
    __trap();
    return 0;
#endif
  }

  // Announces without arriving.
  ROUNDOFF_DEVICE void mbarrier_expect_tx(Mbarrier * barrier, unsigned bytes, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::mbarrier_expect_tx(barrier, bytes, site);
#elif ROUNDOFF_HOPPER
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                     instruction::shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
#else
    __trap();
#endif
  }

  // Lands announced bytes by hand, as a copy would.
  ROUNDOFF_DEVICE void mbarrier_complete_tx(Mbarrier * barrier, unsigned bytes, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::mbarrier_complete_tx(barrier, bytes, site);
#elif ROUNDOFF_HOPPER
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                     instruction::shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
#else
    __trap();
#endif
  }

  // At the same place in another block of the cluster, with release there.
  ROUNDOFF_DEVICE void mbarrier_arrive_cluster(Mbarrier * barrier, unsigned rank, unsigned count,
                                               ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::mbarrier_arrive(roundoff::cluster_map(barrier, rank, site), count, site);
#elif ROUNDOFF_HOPPER
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote], %2;\n"
        "}" ::"r"(instruction::shared_address(barrier)),
        "r"(rank), "r"(count)
        : "memory");
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void mbarrier_arrive_cluster(Mbarrier * barrier, unsigned rank, ROUNDOFF_SITE) {
    roundoff::mbarrier_arrive_cluster(barrier, rank, 1, site);
  }
  ROUNDOFF_DEVICE void mbarrier_arrive_expect_tx_cluster(Mbarrier * barrier, unsigned rank,
                                                         unsigned bytes, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::mbarrier_arrive_expect_tx(roundoff::cluster_map(barrier, rank, site), bytes, site);
#elif ROUNDOFF_HOPPER
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [remote], %2;\n"
        "}" ::"r"(instruction::shared_address(barrier)),
        "r"(rank), "r"(bytes)
        : "memory");
#else
    __trap();
#endif
  }

  // ---- waiting. True: the phase has ended, and what was released to it can be read. A try_wait
  // may give up early and return false; a test_wait never waits.

  ROUNDOFF_DEVICE bool mbarrier_test_wait(Mbarrier * barrier, std::uint64_t state, ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.test_wait.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(instruction::shared_address(barrier)), "l"(state)
        : "memory");
    return ended != 0;
#else
    return simt::mbarrier_test_wait(barrier, state, site);
#endif
  }

  ROUNDOFF_DEVICE bool mbarrier_test_wait_parity(Mbarrier * barrier, unsigned parity,
                                                 ROUNDOFF_SITE) {
#if defined(__CUDACC__)
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(instruction::shared_address(barrier)), "r"(parity)
        : "memory");
    return ended != 0;
#else
    return simt::mbarrier_test_wait_parity(barrier, parity, site);
#endif
  }

  ROUNDOFF_DEVICE bool mbarrier_try_wait(Mbarrier * barrier, std::uint64_t state, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::mbarrier_try_wait(barrier, state, site);
#elif ROUNDOFF_HOPPER
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(instruction::shared_address(barrier)), "l"(state)
        : "memory");
    return ended != 0;
#else
    return roundoff::mbarrier_test_wait(barrier, state, site);
#endif
  }

  ROUNDOFF_DEVICE bool mbarrier_try_wait_parity(Mbarrier * barrier, unsigned parity,
                                                ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::mbarrier_try_wait_parity(barrier, parity, site);
#elif ROUNDOFF_HOPPER
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(instruction::shared_address(barrier)), "r"(parity)
        : "memory");
    return ended != 0;
#else
    return roundoff::mbarrier_test_wait_parity(barrier, parity, site);
#endif
  }

  // With acquire in the whole cluster: after arrivals of other blocks.
  ROUNDOFF_DEVICE bool mbarrier_try_wait_parity_cluster(Mbarrier * barrier, unsigned parity,
                                                        ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::mbarrier_try_wait_parity(barrier, parity, site);
#elif ROUNDOFF_HOPPER
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(instruction::shared_address(barrier)), "r"(parity)
        : "memory");
    return ended != 0;
#else
    __trap();
    return false;
#endif
  }

  // Until the phase of that parity has ended.
  ROUNDOFF_DEVICE void mbarrier_wait(Mbarrier * barrier, unsigned parity, ROUNDOFF_SITE) {
    while (!roundoff::mbarrier_try_wait_parity(barrier, parity, site)) {
    }
  }
  ROUNDOFF_DEVICE void mbarrier_wait_cluster(Mbarrier * barrier, unsigned parity, ROUNDOFF_SITE) {
    while (!roundoff::mbarrier_try_wait_parity_cluster(barrier, parity, site)) {
    }
  }

}  // inline namespace
}  // namespace roundoff
