#include "kernels/simt/emulator/atomic.h"

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

std::uint64_t atomic_begin(void* p, unsigned size, Site site) {
  preempt();
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  ++cluster.counters.atomics;
  if (reinterpret_cast<std::uintptr_t>(p) % size != 0)
    fault_at(site, "atomic of ", size, " bytes at the misaligned address ", p);
  if (cluster.monitor != nullptr)
    cluster.monitor->access(me, p, size, Access::atomic, nullptr, site);
  return size == 4 ? __atomic_load_n(static_cast<std::uint32_t*>(p), __ATOMIC_RELAXED)
                   : __atomic_load_n(static_cast<std::uint64_t*>(p), __ATOMIC_RELAXED);
}

bool atomic_exchange_if(void* p, unsigned size, std::uint64_t& expected, std::uint64_t desired) {
  if (size == 4) {
    auto narrow = static_cast<std::uint32_t>(expected);
    const bool done = __atomic_compare_exchange_n(static_cast<std::uint32_t*>(p), &narrow,
                                                  static_cast<std::uint32_t>(desired), false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    expected = narrow;
    return done;
  }
  return __atomic_compare_exchange_n(static_cast<std::uint64_t*>(p), &expected, desired, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

}  // namespace roundoff::simt
