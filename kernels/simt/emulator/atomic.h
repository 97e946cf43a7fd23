// CUDA's atomics. They live out of line: the instrumentation would turn inline ones into calls of
// the thread sanitizer's own.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

// `size` is 4 or 8; the address is aligned to it.
ROUNDOFF_SIMT_API std::uint64_t atomic_begin(void* p, unsigned size, Site site);
// Stores `desired` where *p holds `expected`, else loads it; as compare-exchange does.
ROUNDOFF_SIMT_API bool atomic_exchange_if(void* p, unsigned size, std::uint64_t& expected,
                                          std::uint64_t desired);

template <class T, class F>
ROUNDOFF_UNINSTRUMENTED T atomic_update(T* p, Site site, F f) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  std::uint64_t before = atomic_begin(p, sizeof(T), site);
  for (;;) {
    T old;
    std::memcpy(&old, &before, sizeof(T));
    const T next = f(old);
    std::uint64_t after = 0;
    std::memcpy(&after, &next, sizeof(T));
    if (atomic_exchange_if(p, sizeof(T), before, after)) return old;
  }
}

}  // namespace roundoff::simt

#define ROUNDOFF_ATOMIC(name, expression)                                                      \
  template <class T>                                                                           \
  inline T name(T* p, std::type_identity_t<T> v,                                               \
                ::roundoff::simt::Site site = ::roundoff::simt::Site::here()) {                \
    return ::roundoff::simt::atomic_update(p, site,                                            \
                                           [v](T old) { return static_cast<T>(expression); }); \
  }
ROUNDOFF_ATOMIC(atomicAdd, old + v)
ROUNDOFF_ATOMIC(atomicSub, old - v)
ROUNDOFF_ATOMIC(atomicMax, old < v ? v : old)
ROUNDOFF_ATOMIC(atomicMin, v < old ? v : old)
ROUNDOFF_ATOMIC(atomicAnd, old& v)
ROUNDOFF_ATOMIC(atomicOr, old | v)
ROUNDOFF_ATOMIC(atomicXor, old ^ v)
ROUNDOFF_ATOMIC(atomicExch, (static_cast<void>(old), v))
#undef ROUNDOFF_ATOMIC
template <class T>
inline T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
                   ::roundoff::simt::Site site = ::roundoff::simt::Site::here()) {
  return ::roundoff::simt::atomic_update(
      p, site, [expected, desired](T old) { return old == expected ? desired : old; });
}
