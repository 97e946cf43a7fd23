// Warp and block collectives under CUDA's names.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

enum class Shuffle : std::uint8_t { index, up, down, exclusive_or };
enum class WarpReduce : std::uint8_t { add, min, max, bit_and, bit_or, bit_xor };
enum class BarrierReduce : std::uint8_t { none, any, all, count };

// bar.sync: count 0 means every thread of the block that has not exited; otherwise a multiple
// of 32.
ROUNDOFF_SIMT_API int barrier_sync(unsigned id, unsigned count, BarrierReduce reduce,
                                   bool predicate, Site site);
ROUNDOFF_SIMT_API void barrier_arrive(unsigned id, unsigned count, Site site);
ROUNDOFF_SIMT_API void warp_sync(std::uint32_t mask, Site site);
ROUNDOFF_SIMT_API std::uint64_t warp_shuffle(std::uint32_t mask, std::uint64_t value, unsigned lane,
                                             Shuffle mode, unsigned width, Site site);
ROUNDOFF_SIMT_API std::uint32_t warp_ballot(std::uint32_t mask, bool predicate, Site site);
ROUNDOFF_SIMT_API std::uint32_t warp_match_any(std::uint32_t mask, std::uint64_t value, Site site);
ROUNDOFF_SIMT_API std::uint32_t warp_match_all(std::uint32_t mask, std::uint64_t value, Site site);
// 32-bit values; min and max of signed ones where `is_signed`.
ROUNDOFF_SIMT_API std::uint32_t warp_reduce(std::uint32_t mask, std::uint32_t value,
                                            WarpReduce operation, bool is_signed, Site site);
ROUNDOFF_SIMT_API std::uint32_t active_mask();
ROUNDOFF_SIMT_API void memory_fence();

template <class T>
ROUNDOFF_UNINSTRUMENTED T shuffle(unsigned mask, T value, unsigned lane, Shuffle mode, int width,
                                  Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_shuffle(mask, bits, lane, mode, static_cast<unsigned>(width), site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
ROUNDOFF_UNINSTRUMENTED std::uint64_t bits_of(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

}  // namespace roundoff::simt

#define ROUNDOFF_SITE ::roundoff::simt::Site site = ::roundoff::simt::Site::here()

inline void __syncthreads(ROUNDOFF_SITE) {
  ::roundoff::simt::barrier_sync(0, 0, ::roundoff::simt::BarrierReduce::none, false, site);
}
inline int __syncthreads_or(int p, ROUNDOFF_SITE) {
  return ::roundoff::simt::barrier_sync(0, 0, ::roundoff::simt::BarrierReduce::any, p != 0, site);
}
inline int __syncthreads_and(int p, ROUNDOFF_SITE) {
  return ::roundoff::simt::barrier_sync(0, 0, ::roundoff::simt::BarrierReduce::all, p != 0, site);
}
inline int __syncthreads_count(int p, ROUNDOFF_SITE) {
  return ::roundoff::simt::barrier_sync(0, 0, ::roundoff::simt::BarrierReduce::count, p != 0, site);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, ROUNDOFF_SITE) {
  ::roundoff::simt::warp_sync(mask, site);
}
template <class T>
inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32, ROUNDOFF_SITE) {
  return ::roundoff::simt::shuffle(mask, v, static_cast<unsigned>(lane),
                                   ::roundoff::simt::Shuffle::index, width, site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, ROUNDOFF_SITE) {
  return ::roundoff::simt::shuffle(mask, v, delta, ::roundoff::simt::Shuffle::up, width, site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, ROUNDOFF_SITE) {
  return ::roundoff::simt::shuffle(mask, v, delta, ::roundoff::simt::Shuffle::down, width, site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, ROUNDOFF_SITE) {
  return ::roundoff::simt::shuffle(mask, v, static_cast<unsigned>(lanes),
                                   ::roundoff::simt::Shuffle::exclusive_or, width, site);
}
inline unsigned __ballot_sync(unsigned mask, int p, ROUNDOFF_SITE) {
  return ::roundoff::simt::warp_ballot(mask, p != 0, site);
}
inline int __any_sync(unsigned mask, int p, ROUNDOFF_SITE) {
  return ::roundoff::simt::warp_ballot(mask, p != 0, site) != 0;
}
inline int __all_sync(unsigned mask, int p, ROUNDOFF_SITE) {
  return ::roundoff::simt::warp_ballot(mask, p != 0, site) == mask;
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T v, ROUNDOFF_SITE) {
  return ::roundoff::simt::warp_match_any(mask, ::roundoff::simt::bits_of(v), site);
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T v, int* all, ROUNDOFF_SITE) {
  const unsigned r = ::roundoff::simt::warp_match_all(mask, ::roundoff::simt::bits_of(v), site);
  *all = r != 0;
  return r;
}
#define ROUNDOFF_REDUCE_SYNC(suffix, operation)                                                   \
  inline unsigned __reduce_##suffix##_sync(unsigned mask, unsigned v, ROUNDOFF_SITE) {            \
    return ::roundoff::simt::warp_reduce(mask, v, ::roundoff::simt::WarpReduce::operation, false, \
                                         site);                                                   \
  }
#define ROUNDOFF_REDUCE_SIGNED_SYNC(suffix, operation)                                         \
  inline int __reduce_##suffix##_sync(unsigned mask, int v, ROUNDOFF_SITE) {                   \
    return static_cast<int>(::roundoff::simt::warp_reduce(                                     \
        mask, static_cast<unsigned>(v), ::roundoff::simt::WarpReduce::operation, true, site)); \
  }
ROUNDOFF_REDUCE_SYNC(add, add)
ROUNDOFF_REDUCE_SYNC(min, min)
ROUNDOFF_REDUCE_SYNC(max, max)
ROUNDOFF_REDUCE_SYNC(and, bit_and)
ROUNDOFF_REDUCE_SYNC(or, bit_or)
ROUNDOFF_REDUCE_SYNC(xor, bit_xor)
ROUNDOFF_REDUCE_SIGNED_SYNC(add, add)
ROUNDOFF_REDUCE_SIGNED_SYNC(min, min)
ROUNDOFF_REDUCE_SIGNED_SYNC(max, max)
#undef ROUNDOFF_REDUCE_SYNC
#undef ROUNDOFF_REDUCE_SIGNED_SYNC
// Named barriers, PTX's bar.sync and bar.arrive: `threads` is a multiple of 32.
namespace roundoff::simt {
inline void bar_sync(unsigned id, unsigned threads, ROUNDOFF_SITE) {
  barrier_sync(id, threads, BarrierReduce::none, false, site);
}
inline void bar_arrive(unsigned id, unsigned threads, ROUNDOFF_SITE) {
  barrier_arrive(id, threads, site);
}
}  // namespace roundoff::simt
// Any set that holds the caller is legal, and this one is the least that a kernel may rely on.
inline unsigned __activemask() { return ::roundoff::simt::active_mask(); }
inline void __threadfence() { ::roundoff::simt::memory_fence(); }
inline void __threadfence_block() { ::roundoff::simt::memory_fence(); }
inline void __threadfence_system() { ::roundoff::simt::memory_fence(); }
