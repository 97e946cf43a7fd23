// What a block has in flight: copies, mbarriers, warpgroup products; and its cluster's barrier.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/wgmma.h"

namespace roundoff::simt {

// ---- cp.async, of one thread

struct Copy {
  void* to;
  const void* from;
  std::uint8_t bytes;
  std::uint8_t source_bytes;
  bool landed;
  std::uint64_t group;
};
struct Copies {
  std::vector<Copy> items;  // those before `waited` are done with
  std::size_t waited = 0;
  std::uint64_t closed = 0;  // groups
};

// ---- mbarriers

struct MbarrierState {
  std::uint64_t* at = nullptr;
  std::uint32_t expected = 0;
  std::uint32_t pending = 0;
  std::int64_t bytes = 0;  // announced and not landed
  std::uint64_t phase = 0;
  std::uint64_t image = 0;  // what the memory must hold
  std::vector<Thread*> waiting;
};

// ---- bulk stores, of one thread

struct BulkStore {
  bool read = false;
  bool written = false;
  std::uint64_t operation = 0;  // the monitor's
};
struct BulkStores {
  std::vector<std::shared_ptr<BulkStore>> open;
  std::deque<std::vector<std::shared_ptr<BulkStore>>> groups;
  bool waiting = false;
};

// ---- wgmma, of four warps

struct WgmmaAccumulator {
  int n = 0;
  bool half = false;
  std::array<std::uint32_t*, 128> registers{};
  std::array<bool, 4> attached{};           // of each warp: in flight
  std::array<std::uint64_t, 4> last_use{};  // of each warp: one more than its last operation
  std::vector<float> value;                 // 64 x n
};
struct WgmmaOperation {
  WgmmaKind kind{};
  std::uint64_t a = 0, b = 0;
  bool a_in_registers = false;
  bool accumulate = false;
  bool done = false;
  unsigned issued = 0;                                    // a bit for each warp
  std::vector<std::array<std::uint32_t, 4>> a_registers;  // of 128 threads, where A is in them
  std::shared_ptr<WgmmaAccumulator> accumulator;
  std::uint64_t operation = 0;  // the monitor's
  Site site;
};
struct WgmmaWarp {
  std::uint64_t issued = 0;
  std::uint64_t waited = 0;           // operations that its waits have covered
  std::deque<std::uint64_t> commits;  // operations issued at each commit that may be in flight
  bool fenced = false;
  Thread* waiting = nullptr;
  unsigned registers = 0;  // by setmaxnreg; 0: as launched
  // In flight or, for the check of the fence, the last that were.
  std::vector<std::shared_ptr<WgmmaAccumulator>> accumulators;
};
struct Warpgroup {
  std::array<WgmmaWarp, 4> warp;
  std::deque<WgmmaOperation> operations;
  std::uint64_t first = 0;  // the number of the first of `operations`
};

struct ClusterBarrier {
  unsigned arrived = 0;
  std::uint64_t phase = 0;
  std::vector<Thread*> waiting;
  // Of each thread of each block: the phases it has arrived in and waited for.
  std::vector<std::uint64_t> came, passed;
};

struct AsyncState {
  std::vector<Copies> copies;  // by thread, once one copies
  std::vector<MbarrierState> mbarriers;
  std::map<unsigned, BulkStores> stores;
  std::array<std::unique_ptr<Warpgroup>, 8> warpgroups;
  ClusterBarrier barrier;  // of the cluster, in its first block
  bool used = false;
  unsigned fruitless_polls = 0;
};

// A new cluster starts in this block; nothing is in flight.
void async_reset(Block& block);
// Faults where a thread exits with something in flight that it had to wait for.
void async_thread_exit(Thread& thread);

// ---- for the parts

// The state, which is no longer empty.
AsyncState& async_state(Block& block);
// The block of the running cluster whose shared memory holds [p, p + bytes); faults otherwise.
Block& block_of_shared(const void* p, std::size_t bytes, const char* what, Site site);
// Faults unless [p, p + bytes) lies in one live allocation of the device.
void check_global(const void* p, std::size_t bytes, const char* what, Site site);
// Faults on a device that claims to be older.
void need_sm_90(const char* what, Site site);
// A poll that found nothing: lets others run, and what is in flight land when only polls go on.
void fruitless_poll(const char* what, Site site);

// Before a copy lands: faults where it comes too late for the phase that it was issued in, or for
// its block.
void check_landing(Block& block, std::uint64_t* barrier, std::size_t bytes, std::uint64_t phase);
// Its bytes count on the barrier.
void land_bytes(Block& block, std::uint64_t* barrier, std::size_t bytes, std::uint64_t operation);
// Looks a barrier up for a copy that will signal it: its phase.
std::uint64_t phase_of(std::uint64_t* barrier, const char* what, Site site);

void copies_thread_exit(Thread& thread);
void stores_thread_exit(Thread& thread);
void wgmma_thread_exit(Thread& thread);
void cluster_barrier_thread_exit(Thread& thread);
void mbarriers_block_exit(Block& block);

}  // namespace roundoff::simt
