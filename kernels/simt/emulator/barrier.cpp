// Barriers of a block: bar.sync, bar.arrive and bar.red. One with count 0 is for every thread that
// has not exited, as __syncthreads is.
#include <bit>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {

// The name of a barrier to the monitor.
std::uintptr_t object(const Barrier& barrier) { return reinterpret_cast<std::uintptr_t>(&barrier); }

std::uint64_t answer(const Barrier& b) {
  switch (b.reduce) {
    case BarrierReduce::none:
      return 0;
    case BarrierReduce::any:
      return b.predicates != 0 ? 1 : 0;
    case BarrierReduce::all:
      return b.predicates == b.with_predicate ? 1 : 0;
    case BarrierReduce::count:
      return b.predicates;
  }
  return 0;
}

// Opens the barrier if everybody is there. `me`: the thread that has just arrived and does not
// wait.
void open_if_complete(Block& block, Barrier& b, Thread* me) {
  const unsigned needed = b.expected != 0 ? b.expected : block.live;
  if (b.arrived < needed) return;
  Cluster& cluster = *block.cluster;
  if (b.arrived > needed)
    fault("named barrier: ", b.arrived, " threads arrived, ", needed, " were expected");
  const std::uint64_t result = answer(b);
  for (unsigned w = 0; w < block.warp_count; ++w) {
    std::uint32_t lanes = b.waiting[w];
    for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
      Thread& t = block.thread[w * kWarp + static_cast<unsigned>(std::countr_zero(m))];
      t.answer = result;
      t.state = ThreadState::ready;
      if (cluster.monitor != nullptr) cluster.monitor->acquire(t, object(b));
    }
    if (me != nullptr && me->warp == w) lanes &= ~(1U << me->lane);
    cluster.wake_lanes(block, w, lanes);
    b.waiting[w] = 0;
    b.came[w] = 0;
  }
  if (cluster.monitor != nullptr) cluster.monitor->forget(object(b));
  b.arrived = 0;
  b.expected = 0;
  b.in_use = false;
  b.predicates = 0;
  b.with_predicate = 0;
  b.reduce = BarrierReduce::none;
  ++cluster.counters.barriers;
}

Barrier& come(Thread& me, unsigned id, unsigned count, BarrierReduce reduce, bool predicate,
              Site site) {
  if (id >= kBarriers) fault_at(site, "barrier ", id, " does not exist; there are 16");
  if (count % kWarp != 0 || count > kMaxThreads)
    fault_at(site, "barrier ", id, ": a count of ", count, " threads, a multiple of 32 expected");
  Block& block = *me.block;
  Barrier& b = block.barriers[id];
  if (!b.in_use) {
    b.in_use = true;
    b.expected = count;
    b.reduce = reduce;
  }
  if (b.expected != count)
    fault_at(site, "barrier ", id, ": threads disagree on its count, ", count, " here and ",
             b.expected, " before");
  if (b.reduce != reduce) fault_at(site, "barrier ", id, ": threads disagree on what is reduced");
  // The instruction is `.aligned`: the lanes of a warp execute it together.
  if (b.came[me.warp] != 0 && !(b.site[me.warp] == site))
    fault_at(site, "barrier ", id,
             " must be reached by all lanes of a warp together, but others came at ",
             b.site[me.warp].file, ":", b.site[me.warp].line);
  b.site[me.warp] = site;
  b.came[me.warp] |= 1U << me.lane;
  ++b.arrived;
  ++b.with_predicate;
  if (predicate) ++b.predicates;
  Cluster& cluster = *block.cluster;
  if (cluster.monitor != nullptr) cluster.monitor->release(me, object(b));
  return b;
}

}  // namespace

int barrier_sync(unsigned id, unsigned count, BarrierReduce reduce, bool predicate, Site site) {
  Thread& me = *current();
  Barrier& b = come(me, id, count, reduce, predicate, site);
  b.waiting[me.warp] |= 1U << me.lane;
  open_if_complete(*me.block, b, &me);
  if (b.in_use && (b.waiting[me.warp] >> me.lane & 1U) != 0) {
    wait(count == 0 ? "__syncthreads" : "barrier", id, site);
  } else if (me.block->cluster->config.schedule != Schedule::depth_first) {
    yield();
  }
  return static_cast<int>(me.answer);
}

void barrier_arrive(unsigned id, unsigned count, Site site) {
  Thread& me = *current();
  if (count == 0) fault_at(site, "barrier ", id, ": arrive needs a thread count");
  Barrier& b = come(me, id, count, BarrierReduce::none, false, site);
  open_if_complete(*me.block, b, nullptr);
}

void barrier_thread_exit(Block& block) {
  for (Barrier& b : block.barriers)
    if (b.in_use && b.expected == 0) open_if_complete(block, b, nullptr);
}

}  // namespace roundoff::simt
