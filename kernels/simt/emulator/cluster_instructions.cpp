#include "kernels/simt/emulator/cluster_instructions.h"

#include <bit>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {

// The two phases that may be alive are two objects to the monitor.
std::uintptr_t object(const ClusterBarrier& b, std::uint64_t phase) {
  return reinterpret_cast<std::uintptr_t>(&b) + (phase & 1);
}

unsigned live_threads(const Cluster& cluster) {
  unsigned live = 0;
  for (unsigned rank = 0; rank < cluster.blocks; ++rank) live += cluster.block[rank]->live;
  return live;
}

ClusterBarrier& barrier_of(Cluster& cluster) {
  ClusterBarrier& b = async_state(*cluster.block[0]).barrier;
  if (b.came.empty()) {
    b.came.assign(std::size_t{cluster.blocks} * kMaxThreads, 0);
    b.passed.assign(b.came.size(), 0);
  }
  return b;
}

void open_if_complete(Cluster& cluster, ClusterBarrier& b, unsigned live) {
  if (b.arrived < live || b.arrived == 0) return;
  if (cluster.monitor != nullptr) cluster.monitor->forget(object(b, b.phase + 1));
  for (Thread* t : b.waiting) {
    if (cluster.monitor != nullptr) cluster.monitor->acquire(*t, object(b, b.phase));
    cluster.wake(*t);
  }
  b.waiting.clear();
  b.arrived = 0;
  ++b.phase;
}

std::size_t index_of(const Thread& t) {
  return std::size_t{t.geometry->cluster_rank} * kMaxThreads + t.linear;
}

}  // namespace

unsigned cluster_rank(Site) { return current()->geometry->cluster_rank; }
unsigned cluster_size(Site) { return current()->block->cluster->blocks; }

void cluster_arrive(Site site) {
  need_sm_90("barrier.cluster", site);
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  ClusterBarrier& b = barrier_of(cluster);
  const std::size_t i = index_of(me);
  if (b.came[i] != b.passed[i])
    fault_at(site, "barrier.cluster.arrive: the thread has not waited since it last arrived");
  ++b.came[i];
  ++b.arrived;
  if (cluster.monitor != nullptr) cluster.monitor->release(me, object(b, b.phase));
  open_if_complete(cluster, b, live_threads(cluster));
}

void cluster_wait(Site site) {
  need_sm_90("barrier.cluster", site);
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  ClusterBarrier& b = barrier_of(cluster);
  const std::size_t i = index_of(me);
  if (b.came[i] == b.passed[i]) fault_at(site, "barrier.cluster.wait: the thread has not arrived");
  // The phase in which it arrived.
  const std::uint64_t phase = b.passed[i]++;
  if (b.phase != phase) {
    if (cluster.monitor != nullptr) cluster.monitor->acquire(me, object(b, phase));
    if (cluster.config.schedule != Schedule::depth_first) yield();
    return;
  }
  b.waiting.push_back(&me);
  wait("barrier.cluster", phase, site);
}

void cluster_barrier_thread_exit(Thread& thread) {
  Cluster& cluster = *thread.block->cluster;
  AsyncState& state = *cluster.block[0]->async;
  if (!state.used || state.barrier.came.empty()) return;
  ClusterBarrier& b = state.barrier;
  const std::size_t i = index_of(thread);
  // An arrival counts, a thread that has exited does not.
  if (b.came[i] != b.passed[i] && b.came[i] == b.phase + 1) --b.arrived;
  open_if_complete(cluster, b, live_threads(cluster) - 1);
}

void* cluster_map(const void* shared, unsigned rank, Site site) {
  need_sm_90("mapa", site);
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  if (rank >= cluster.blocks)
    fault_at(site, "mapa: rank ", rank, " in a cluster of ", cluster.blocks, " blocks");
  if (&block_of_shared(shared, 1, "mapa", site) != me.block)
    fault_at(site, "mapa: the address is not in this block's own shared memory");
  Block& other = *cluster.block[rank];
  if (other.live == 0)
    fault_at(site, "mapa: block ", rank, " of the cluster has exited, its shared memory is gone");
  return other.window + (static_cast<const char*>(shared) - me.block->window);
}

bool elect_one(Site site) {
  need_sm_90("elect.sync", site);
  bool elected = false;
  if (Collective* c = arrive(Meeting::elect, ~0U, &elected, site, true)) {
    *static_cast<bool*>(c->argument[0]) = true;
    release(c);
  }
  return elected;
}

}  // namespace roundoff::simt
