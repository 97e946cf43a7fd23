#include "kernels/simt/emulator/async.h"

#include "kernels/simt/emulator/memory.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

void async_reset(Block& block) {
  AsyncState& state = *block.async;
  if (!state.used) return;
  for (Copies& c : state.copies) {
    c.items.clear();
    c.waited = 0;
    c.closed = 0;
  }
  state.mbarriers.clear();
  state.stores.clear();
  for (auto& group : state.warpgroups) group.reset();
  state.barrier = {};
  state.fruitless_polls = 0;
  state.used = false;
}

void async_thread_exit(Thread& thread) {
  Block& block = *thread.block;
  if (block.cluster->blocks > 1) cluster_barrier_thread_exit(thread);
  if (!block.async->used) return;
  copies_thread_exit(thread);
  stores_thread_exit(thread);
  wgmma_thread_exit(thread);
  if (block.live == 1) mbarriers_block_exit(block);
}

AsyncState& async_state(Block& block) {
  block.async->used = true;
  return *block.async;
}

Block& block_of_shared(const void* p, std::size_t bytes, const char* what, Site site) {
  const auto holds = [&](const Block& block) {
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(p) - block.window);
    return offset < kSharedWindow && bytes <= kSharedWindow - offset;
  };
  Block& own = *current()->block;
  if (holds(own)) return own;
  Cluster& cluster = *own.cluster;
  for (unsigned rank = 0; rank < cluster.blocks; ++rank)
    if (holds(*cluster.block[rank])) return *cluster.block[rank];
  fault_at(site, what, ": not an address of shared memory");
}

void check_global(const void* p, std::size_t bytes, const char* what, Site site) {
  const Memory& memory = current()->block->cluster->device.memory();
  const Allocation* a = memory.find(p);
  const auto begin = reinterpret_cast<std::uintptr_t>(p);
  if (a == nullptr || a->freed || begin < a->begin || begin - a->begin > a->bytes ||
      bytes > a->bytes - (begin - a->begin))
    fault_at(site, what, ": ", bytes, " bytes of device memory that are not inside one allocation");
}

void need_sm_90(const char* what, Site site) {
  if (current()->block->cluster->config.architecture == SimArchitecture::sm_80)
    fault_at(site, what, " needs sm_90, this simulated device is sm_80");
}

void fruitless_poll(const char* what, Site site) {
  Cluster& cluster = *current()->block->cluster;
  AsyncState& state = async_state(*cluster.block[0]);
  constexpr unsigned kBetweenLandings = 64;
  constexpr unsigned kForever = 1U << 22;
  if (++state.fruitless_polls % kBetweenLandings == 0 && cluster.complete_pending(true))
    state.fruitless_polls = 0;
  if (state.fruitless_polls >= kForever)
    fault_at(site, what, ": polled for ever, and nothing is in flight");
  yield();
}

}  // namespace roundoff::simt
