// Clusters (sm_90): blocks that run together, see one another's shared memory and share a barrier.
// Source: PTX ISA, "barrier.cluster", "mapa", "elect.sync".
#pragma once

#include "kernels/simt/instruction.h"
#if !defined(__CUDACC__)
#include "kernels/simt/emulator/cluster_instructions.h"
#endif

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  // This block's place in its cluster, and how many blocks that has; 0 of 1 without a cluster.
  ROUNDOFF_DEVICE unsigned cluster_rank(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::cluster_rank(site);
#elif ROUNDOFF_HOPPER
    std::uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
  }
  ROUNDOFF_DEVICE unsigned cluster_size(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::cluster_size(site);
#elif ROUNDOFF_HOPPER
    std::uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
#else
    return 1;
#endif
  }

  // Every thread of every block arrives, then waits; the pair orders memory like a block's barrier.
  // Warps take part as a whole.
  ROUNDOFF_DEVICE void cluster_arrive(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::cluster_arrive(site);
#elif ROUNDOFF_HOPPER
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void cluster_wait(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::cluster_wait(site);
#elif ROUNDOFF_HOPPER
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void cluster_sync(ROUNDOFF_SITE) {
    roundoff::cluster_arrive(site);
    roundoff::cluster_wait(site);
  }

  // The place in block `rank`'s shared memory that `shared` has in this block's. It can be read,
  // written and used with atomics like any pointer, while that block has not exited.
  template <class T>
  ROUNDOFF_DEVICE T* cluster_map(T * shared, unsigned rank, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return static_cast<T*>(simt::cluster_map(shared, rank, site));
#elif ROUNDOFF_HOPPER
    std::uint64_t mapped;
    asm("mapa.u64 %0, %1, %2;"
        : "=l"(mapped)
        : "l"(reinterpret_cast<std::uint64_t>(shared)), "r"(rank));
    return reinterpret_cast<T*>(mapped);
#else
    __trap();
    return shared;
#endif
  }

  template <class T>
  ROUNDOFF_DEVICE T cluster_load(const T* shared, unsigned rank, ROUNDOFF_SITE) {
    return *roundoff::cluster_map(shared, rank, site);
  }
  template <class T>
  ROUNDOFF_DEVICE void cluster_store(T * shared, unsigned rank, T value, ROUNDOFF_SITE) {
    *roundoff::cluster_map(shared, rank, site) = value;
  }

  // True in one lane of the warp, which takes part as a whole.
  ROUNDOFF_DEVICE bool elect_one(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    return simt::elect_one(site);
#elif ROUNDOFF_HOPPER
    std::uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xFFFFFFFF;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(elected)
        :
        : "memory");
    return elected != 0;
#else
    __trap();
    return false;
#endif
  }

}  // inline namespace
}  // namespace roundoff
