// The tensor memory accelerator (sm_90): one thread starts a copy of a whole box between device
// memory and shared memory. Loads signal an mbarrier, stores complete by groups.
//
// A load's box lies in shared memory at a 128-byte aligned address, row after row, permuted by the
// map's swizzle (by bits of the address: align to 1024 bytes where another reads it swizzled). The
// barrier is told the whole box's bytes, whatever lies outside the tensor: those elements are
// filled on a load and left alone on a store. Coordinates are in elements, innermost first, and may
// be negative. Source: PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor".
#pragma once

#include "kernels/simt/instruction.h"
#include "kernels/simt/mbarrier.h"
#include "kernels/simt/tensor_map.h"
#if defined(__CUDACC__)
#include "kernels/simt/tensor_map_cuda.h"
#else
#include "kernels/simt/emulator/tma.h"
#endif

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
// A kernel takes it by value as `const __grid_constant__ TensorMap`, and gives its address.
#if defined(__CUDACC__)
  using TensorMap = CUtensorMap;
  inline TensorMap encode_tiled(const TiledMap& map) { return tensor_map_cuda::encode(map); }
  inline TensorMap encode_im2col(const Im2colMap& map) { return tensor_map_cuda::encode(map); }
#else
  using TensorMap = simt::TensorMap;
  inline TensorMap encode_tiled(const TiledMap& map) { return simt::encode(map); }
  inline TensorMap encode_im2col(const Im2colMap& map) { return simt::encode(map); }
#endif

#if defined(__CUDACC__) && ROUNDOFF_HOPPER
// The coordinates' operands start at %3; what a variant adds comes after them.
#define ROUNDOFF_TMA_LOAD(text, at_text, tail_text, at_operands, ...)                          \
  asm volatile("cp.async.bulk.tensor." text " [%0], [%1, {" at_text "}], [%2]" tail_text       \
               ";" ::"r"(instruction::shared_address(shared)),                                 \
               "l"(instruction::generic_address(map)), "r"(instruction::shared_address(done)), \
               at_operands __VA_ARGS__                                                         \
               : "memory")
#define ROUNDOFF_TMA_STORE(text, at_text, at_operands)                                      \
  asm volatile(text " [%0, {" at_text "}], [%1];" ::"l"(instruction::generic_address(map)), \
               "r"(instruction::shared_address(shared)), at_operands                        \
               : "memory")
#define ROUNDOFF_AT_1 "r"(at[0])
#define ROUNDOFF_AT_2 "r"(at[0]), "r"(at[1])
#define ROUNDOFF_AT_3 "r"(at[0]), "r"(at[1]), "r"(at[2])
#define ROUNDOFF_AT_4 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
#define ROUNDOFF_AT_5 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
#endif

  // ---- boxes of tensors to shared memory

  template <int kRank>
  ROUNDOFF_DEVICE void tma_load(void* shared, const TensorMap* map, const int(&at)[kRank],
                                Mbarrier* done, ROUNDOFF_SITE) {
    static_assert(kRank >= 1 && kRank <= kMaxTensorRank);
#if !defined(__CUDACC__)
    simt::tma_load(shared, map, at, kRank, done, site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_TILE(dim) dim ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    if constexpr (kRank == 1) ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("1d"), "%3", "", ROUNDOFF_AT_1);
    if constexpr (kRank == 2) ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("2d"), "%3, %4", "", ROUNDOFF_AT_2);
    if constexpr (kRank == 3)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("3d"), "%3, %4, %5", "", ROUNDOFF_AT_3);
    if constexpr (kRank == 4)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("4d"), "%3, %4, %5, %6", "", ROUNDOFF_AT_4);
    if constexpr (kRank == 5)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("5d"), "%3, %4, %5, %6, %7", "", ROUNDOFF_AT_5);
#undef ROUNDOFF_TILE
#else
    __trap();
#endif
  }

  // To every block of the cluster whose bit is set: to the same place as `shared` there, signalling
  // the barrier at the same place as `done` there.
  template <int kRank>
  ROUNDOFF_DEVICE void tma_load_multicast(void* shared, const TensorMap* map, const int(&at)[kRank],
                                          Mbarrier* done, std::uint16_t ranks, ROUNDOFF_SITE) {
    static_assert(kRank >= 1 && kRank <= kMaxTensorRank);
#if !defined(__CUDACC__)
    simt::tma_load_multicast(shared, map, at, kRank, done, ranks, site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_TILE(dim) \
  dim ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    if constexpr (kRank == 1)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("1d"), "%3", ", %4", ROUNDOFF_AT_1, , "h"(ranks));
    if constexpr (kRank == 2)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("2d"), "%3, %4", ", %5", ROUNDOFF_AT_2, , "h"(ranks));
    if constexpr (kRank == 3)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("3d"), "%3, %4, %5", ", %6", ROUNDOFF_AT_3, , "h"(ranks));
    if constexpr (kRank == 4)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("4d"), "%3, %4, %5, %6", ", %7", ROUNDOFF_AT_4, , "h"(ranks));
    if constexpr (kRank == 5)
      ROUNDOFF_TMA_LOAD(ROUNDOFF_TILE("5d"), "%3, %4, %5, %6, %7", ", %8", ROUNDOFF_AT_5, ,
                        "h"(ranks));
#undef ROUNDOFF_TILE
#else
    __trap();
#endif
  }

  // Pixels of an im2col map {C, W, H, N}: the first base pixel is at {c, w, h, n}, and every pixel
  // is read `offset` {w, h} further.
  ROUNDOFF_DEVICE void tma_load_im2col(void* shared, const TensorMap* map, const int(&at)[4],
                                       const std::uint16_t(&offset)[2], Mbarrier* done,
                                       ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::tma_load_im2col(shared, map, at, offset, 4, done, site);
#elif ROUNDOFF_HOPPER
    ROUNDOFF_TMA_LOAD("4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
                      "%3, %4, %5, %6", ", {%7, %8}", ROUNDOFF_AT_4, , "h"(offset[0]),
                      "h"(offset[1]));
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void tma_load_im2col_multicast(
      void* shared, const TensorMap* map, const int(&at)[4], const std::uint16_t(&offset)[2],
      Mbarrier* done, std::uint16_t ranks, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::tma_load_im2col_multicast(shared, map, at, offset, 4, done, ranks, site);
#elif ROUNDOFF_HOPPER
    ROUNDOFF_TMA_LOAD(
        "4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster",
        "%3, %4, %5, %6", ", {%7, %8}, %9", ROUNDOFF_AT_4, , "h"(offset[0]), "h"(offset[1]),
        "h"(ranks));
#else
    __trap();
#endif
  }

  // ---- boxes from shared memory to tensors. Before: fence_proxy_async by the threads that wrote
  // the box, and a barrier. After: tma_store_commit and a wait by the thread that stores.

  template <int kRank>
  ROUNDOFF_DEVICE void tma_store(const TensorMap* map, const int(&at)[kRank], const void* shared,
                                 ROUNDOFF_SITE) {
    static_assert(kRank >= 1 && kRank <= kMaxTensorRank);
#if !defined(__CUDACC__)
    simt::tma_store(map, at, kRank, shared, false, site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_TILE(dim) "cp.async.bulk.tensor." dim ".global.shared::cta.tile.bulk_group"
    if constexpr (kRank == 1) ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("1d"), "%2", ROUNDOFF_AT_1);
    if constexpr (kRank == 2) ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("2d"), "%2, %3", ROUNDOFF_AT_2);
    if constexpr (kRank == 3) ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("3d"), "%2, %3, %4", ROUNDOFF_AT_3);
    if constexpr (kRank == 4)
      ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("4d"), "%2, %3, %4, %5", ROUNDOFF_AT_4);
    if constexpr (kRank == 5)
      ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("5d"), "%2, %3, %4, %5, %6", ROUNDOFF_AT_5);
#undef ROUNDOFF_TILE
#else
    __trap();
#endif
  }

  // Adds the box to the tensor, element by element, each atomically and in no fixed order: fp32,
  // fp16 and bf16 round to nearest at each addition.
  template <int kRank>
  ROUNDOFF_DEVICE void tma_reduce_add(const TensorMap* map, const int(&at)[kRank],
                                      const void* shared, ROUNDOFF_SITE) {
    static_assert(kRank >= 1 && kRank <= kMaxTensorRank);
#if !defined(__CUDACC__)
    simt::tma_store(map, at, kRank, shared, true, site);
#elif ROUNDOFF_HOPPER
#define ROUNDOFF_TILE(dim) \
  "cp.reduce.async.bulk.tensor." dim ".global.shared::cta.add.tile.bulk_group"
    if constexpr (kRank == 1) ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("1d"), "%2", ROUNDOFF_AT_1);
    if constexpr (kRank == 2) ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("2d"), "%2, %3", ROUNDOFF_AT_2);
    if constexpr (kRank == 3) ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("3d"), "%2, %3, %4", ROUNDOFF_AT_3);
    if constexpr (kRank == 4)
      ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("4d"), "%2, %3, %4, %5", ROUNDOFF_AT_4);
    if constexpr (kRank == 5)
      ROUNDOFF_TMA_STORE(ROUNDOFF_TILE("5d"), "%2, %3, %4, %5, %6", ROUNDOFF_AT_5);
#undef ROUNDOFF_TILE
#else
    __trap();
#endif
  }

  // ---- runs of bytes: both addresses and the size are multiples of 16

  ROUNDOFF_DEVICE void bulk_load(void* shared, const void* global, unsigned bytes, Mbarrier* done,
                                 ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::bulk_load(shared, global, bytes, done, site);
#elif ROUNDOFF_HOPPER
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(instruction::shared_address(shared)),
        "l"(global), "r"(bytes), "r"(instruction::shared_address(done))
        : "memory");
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void bulk_load_multicast(void* shared, const void* global, unsigned bytes,
                                           Mbarrier* done, std::uint16_t ranks, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::bulk_load_multicast(shared, global, bytes, done, ranks, site);
#elif ROUNDOFF_HOPPER
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], "
        "[%1], %2, [%3], %4;" ::"r"(instruction::shared_address(shared)),
        "l"(global), "r"(bytes), "r"(instruction::shared_address(done)), "h"(ranks)
        : "memory");
#else
    __trap();
#endif
  }
  ROUNDOFF_DEVICE void bulk_store(void* global, const void* shared, unsigned bytes, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::bulk_store(global, shared, bytes, site);
#elif ROUNDOFF_HOPPER
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(instruction::shared_address(shared)), "r"(bytes)
                 : "memory");
#else
    __trap();
#endif
  }

  // ---- groups of a thread's stores

  ROUNDOFF_DEVICE void tma_store_commit(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::bulk_commit(site);
#elif ROUNDOFF_HOPPER
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
    __trap();
#endif
  }
  // Until at most the kPending youngest groups are in flight: what they wrote can be read.
  template <int kPending>
  ROUNDOFF_DEVICE void tma_store_wait(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::bulk_wait(kPending, false, site);
#elif ROUNDOFF_HOPPER
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#else
    __trap();
#endif
  }
  // Until at most the kPending youngest groups still read their shared memory.
  template <int kPending>
  ROUNDOFF_DEVICE void tma_store_wait_read(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::bulk_wait(kPending, true, site);
#elif ROUNDOFF_HOPPER
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#else
    __trap();
#endif
  }

  // Orders this thread's ordinary accesses to shared memory before later ones of the asynchronous
  // proxy: TMA stores and wgmma's operands.
  ROUNDOFF_DEVICE void fence_proxy_async(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::fence_proxy_async(site);
#elif ROUNDOFF_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    __trap();
#endif
  }

  // The same for device memory that this thread wrote and a later copy of the asynchronous proxy
  // reads.
  ROUNDOFF_DEVICE void fence_proxy_async_global(ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::fence_proxy_async(site);
#elif ROUNDOFF_HOPPER
    asm volatile("fence.proxy.async.global;" ::: "memory");
#else
    __trap();
#endif
  }

  // A hint.
  ROUNDOFF_DEVICE void tma_prefetch(const TensorMap* map, ROUNDOFF_SITE) {
#if !defined(__CUDACC__)
    simt::tma_prefetch(map, site);
#elif ROUNDOFF_HOPPER
    asm volatile("prefetch.tensormap [%0];" ::"l"(instruction::generic_address(map)) : "memory");
#else
    __trap();
#endif
  }

#if defined(__CUDACC__) && ROUNDOFF_HOPPER
#undef ROUNDOFF_TMA_LOAD
#undef ROUNDOFF_TMA_STORE
#undef ROUNDOFF_AT_1
#undef ROUNDOFF_AT_2
#undef ROUNDOFF_AT_3
#undef ROUNDOFF_AT_4
#undef ROUNDOFF_AT_5
#endif

}  // inline namespace
}  // namespace roundoff
