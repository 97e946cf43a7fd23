// The state of the blocks that run together, and the scheduler of their threads. One cluster (of
// one block, mostly) runs at a time on a worker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/fiber.h"
#include "kernels/simt/emulator/shared.h"
#include "kernels/simt/emulator/thread.h"
#include "kernels/simt/emulator/warp.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kMaxThreads = 1024;
inline constexpr unsigned kMaxWarps = kMaxThreads / kWarp;
inline constexpr unsigned kMaxCluster = 16;
inline constexpr unsigned kBarriers = 16;

// What lanes meet for; lanes that meet must agree.
enum class Meeting : std::uint8_t {
  sync,
  shuffle,
  ballot,
  match_any,
  match_all,
  reduce,
  mma,
  ldmatrix,
  stmatrix,
  elect,
  wgmma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  set_registers,
  other
};
constexpr const char* name(Meeting meeting) {
  constexpr const char* kNames[] = {"__syncwarp",
                                    "shuffle",
                                    "vote",
                                    "match",
                                    "match",
                                    "reduce",
                                    "mma.sync",
                                    "ldmatrix",
                                    "stmatrix",
                                    "elect.sync",
                                    "wgmma.mma_async",
                                    "wgmma.fence",
                                    "wgmma.commit_group",
                                    "wgmma.wait_group",
                                    "setmaxnreg",
                                    "collective"};
  return kNames[static_cast<int>(meeting)];
}

// Lanes of a warp that wait for each other.
struct Collective {
  std::uint32_t mask = 0;  // 0: free
  std::uint32_t arrived = 0;
  Meeting meeting = Meeting::other;
  Site site;
  std::array<void*, kWarp> argument{};
};

struct Warp {
  std::uint32_t exists = 0;
  std::uint32_t live = 0;   // not exited
  std::uint32_t ready = 0;  // can run
  unsigned meetings = 0;    // collectives in use
  std::array<Collective, 4> collective;
};

struct Barrier {
  unsigned arrived = 0;
  unsigned expected = 0;  // 0 while free, or for all live threads
  bool in_use = false;
  BarrierReduce reduce = BarrierReduce::none;
  unsigned predicates = 0;  // threads that brought a true one
  unsigned with_predicate = 0;
  std::array<std::uint32_t, kMaxWarps> waiting{};
  // Where a warp's first lane came from; its other lanes must come from the same place.
  std::array<Site, kMaxWarps> site;
  std::array<std::uint32_t, kMaxWarps> came{};
};

struct SharedVariable {
  const void* tag;
  std::size_t offset;
};

struct Cluster;
struct AsyncState;  // of copies, mbarriers, TMA and wgmma (async.h)

struct Block {
  Cluster* cluster = nullptr;
  Geometry geometry;
  std::array<Warp, kMaxWarps> warps;
  std::uint32_t ready_warps = 0;
  unsigned threads = 0;
  unsigned warp_count = 0;
  unsigned live = 0;
  std::array<Barrier, kBarriers> barriers;
  std::vector<SharedVariable> variables;
  std::size_t shared_used = 0;
  std::size_t dynamic_bytes = 0;
  char* window = nullptr;    // kSharedWindow bytes
  Thread* thread = nullptr;  // kMaxThreads of them
  std::unique_ptr<AsyncState> async;

  Block();
  ~Block();
};

struct Cluster {
  explicit Cluster(Emulator& device);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Emulator& device;
  Config config;  // of the running launch
  const LaunchConfig* launch = nullptr;
  const std::function<void()>* body = nullptr;
  Monitor* monitor = nullptr;  // null in runs that nobody watches
  Counters counters;
  std::mt19937_64 random;
  unsigned blocks = 1;
  std::vector<std::unique_ptr<Block>> block;  // by rank; grows when a launch needs more

  // Runs the cluster whose first block is `first`, with the number `index` among clusters.
  void run(const LaunchConfig& launch, const std::function<void()>& body, std::size_t index);

  // An operation that completes when the configuration says: at once, or between later steps of
  // threads. It runs in the context of whichever thread, may wake threads, and must not wait.
  void post(std::function<void()> operation);
  // An asynchronous operation is completing: a fault in it is no thread's.
  bool in_async() const { return in_async_; }
  // Lets what is in flight go on: now and then, or (`idle`: nothing else can run) one operation.
  bool complete_pending(bool idle);

  void wake(Thread& thread) {
    thread.state = ThreadState::ready;
    Block& b = *thread.block;
    b.warps[thread.warp].ready |= 1U << thread.lane;
    b.ready_warps |= 1U << thread.warp;
    ready_blocks_ |= 1U << b.geometry.cluster_rank;
  }
  void wake_lanes(Block& b, unsigned warp, std::uint32_t lanes) {
    if (lanes == 0) return;
    b.warps[warp].ready |= lanes;
    b.ready_warps |= 1U << warp;
    ready_blocks_ |= 1U << b.geometry.cluster_rank;
  }
  // A number in [0, n), n > 0, by the seed.
  unsigned draw(unsigned n) { return static_cast<unsigned>(random() % n); }

  // --- For warp.cpp, barrier.cpp and the other parts of the emulator ---
  void leave(Thread& me);  // goes on with another thread; returns when `me` runs again
  void give_way(Thread& me);
  [[noreturn]] void abandon(std::exception_ptr error);  // from a fiber: ends the cluster's run

 private:
  static void entry();
  void start(Thread& thread);
  void switch_to(Thread& me, Thread& next);
  Thread* pop();
  Thread* pop_after(const Thread& me);
  Thread* take(unsigned b, unsigned w, unsigned l);
  Thread* next();
  void exit_thread(Thread& thread);
  std::string deadlock() const;

  std::vector<std::function<void()>> pending_;
  bool in_async_ = false;
  std::uint32_t ready_blocks_ = 0;
  unsigned at_block_ = 0, at_warp_ = 0, at_lane_ = 0;  // where the last thread that ran stands
  std::unique_ptr<Stacks> stacks_;
  std::vector<std::uint16_t> free_stacks_;
  void* host_ = nullptr;  // the context of the worker
  std::exception_ptr error_;
  char* windows_ = nullptr;
  std::unique_ptr<Thread[]> threads_;
  void grow(unsigned blocks);
};

// "block (0,1,0) thread (33,0,0) [warp 1 lane 1]", with the rank where there is a cluster.
std::string where(const Thread& thread);

// Ends the running launch with "[kernel] message, at block ... thread ...". In the middle of an
// asynchronous operation no thread is named.
[[noreturn]] ROUNDOFF_SIMT_API void fault_in(Cluster& cluster, std::string&& message,
                                             Site site = {"", 0});
template <class... Parts>
[[noreturn]] void fault(const Parts&... parts) {
  fault_in(*current()->block->cluster, concat(parts...));
}
template <class... Parts>
[[noreturn]] void fault_at(Site site, const Parts&... parts) {
  fault_in(*current()->block->cluster, concat(parts...), site);
}

// Parks the running thread until somebody wakes it.
inline void wait(const char* what, std::uint64_t value, Site site) {
  Thread& me = *current();
  me.state = ThreadState::waiting;
  me.waits_for = what;
  me.wait_value = value;
  me.wait_file = site.file;
  me.wait_line = site.line;
  me.block->cluster->leave(me);
}
// Lets others run.
void yield();
// Gives way now and then, as Config::preempt_one_in says.
void preempt();

// A lane arrives at a collective of its warp. The last one gets it, acts for all lanes of the mask
// and calls release(); the others get null once it has.
Collective* arrive(Meeting meeting, std::uint32_t mask, void* argument, Site site, bool aligned);
void release(Collective* collective);

// A thread has exited: barriers that count live threads may be complete.
void barrier_thread_exit(Block& block);

}  // namespace roundoff::simt
