#include "kernels/simt/emulator/cluster.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <utility>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/monitor.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROUNDOFF_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ROUNDOFF_ASAN 1
#endif

namespace roundoff::simt {

__thread Thread* t_current = nullptr;

namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kWindowStride = kSharedWindow + 2 * kGuard;

// The next set bit after i, in turn; mask is not 0.
unsigned bit_after(std::uint32_t mask, unsigned i) {
  const std::uint32_t above = i >= 31 ? 0 : mask & (~0U << (i + 1));
  return static_cast<unsigned>(std::countr_zero(above != 0 ? above : mask));
}
unsigned lowest_bit(std::uint32_t mask) { return static_cast<unsigned>(std::countr_zero(mask)); }
unsigned highest_bit(std::uint32_t mask) {
  return 31U - static_cast<unsigned>(std::countl_zero(mask));
}
unsigned nth_bit(std::uint32_t mask, unsigned n) {
  while (n-- > 0) mask &= mask - 1;
  return lowest_bit(mask);
}

}  // namespace

Block::Block() : async(std::make_unique<AsyncState>()) {}
Block::~Block() = default;

Cluster::Cluster(Emulator& emulator) : device(emulator) {
  void* p = mmap(nullptr, kMaxCluster * kWindowStride, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ROUNDOFF_CHECK(p != MAP_FAILED, "simulated device", "no address space for shared memory");
  windows_ = static_cast<char*>(p);
  grow(1);
}

Cluster::~Cluster() { munmap(windows_, kMaxCluster * kWindowStride); }

void Cluster::grow(unsigned wanted) {
  if (block.size() >= wanted) return;
  stacks_ = std::make_unique<Stacks>(std::size_t{wanted} * kMaxThreads);
  threads_ = std::make_unique<Thread[]>(std::size_t{wanted} * kMaxThreads);
  while (block.size() < wanted) block.push_back(std::make_unique<Block>());
  for (unsigned rank = 0; rank < wanted; ++rank) {
    Block& b = *block[rank];
    b.cluster = this;
    b.thread = threads_.get() + std::size_t{rank} * kMaxThreads;
    b.window = windows_ + rank * kWindowStride + kGuard;
    ROUNDOFF_CHECK(mprotect(b.window, kSharedWindow, PROT_READ | PROT_WRITE) == 0,
                   "simulated device", "mprotect failed");
    b.threads = 0;  // indices are laid out again
    for (unsigned i = 0; i < kMaxThreads; ++i) {
      Thread& t = b.thread[i];
      t.block = &b;
      t.geometry = &b.geometry;
      t.linear = static_cast<std::uint16_t>(i);
      t.warp = static_cast<std::uint8_t>(i / kWarp);
      t.lane = static_cast<std::uint8_t>(i % kWarp);
    }
  }
}

namespace {

// Brings a block to its start; what a faulted launch left behind goes.
void begin_block(Block& b, const Geometry& geometry, std::size_t dynamic_bytes) {
  const dim3 before = b.geometry.block_dim;
  const dim3 dim = geometry.block_dim;
  b.geometry = geometry;
  const unsigned n = dim.x * dim.y * dim.z;
  if (b.threads != n || before.x != dim.x || before.y != dim.y || before.z != dim.z) {
    unsigned i = 0;
    for (unsigned z = 0; z < dim.z; ++z)
      for (unsigned y = 0; y < dim.y; ++y)
        for (unsigned x = 0; x < dim.x; ++x) b.thread[i++].index = {x, y, z};
  }
  b.threads = n;
  b.warp_count = (n + kWarp - 1) / kWarp;
  b.live = n;
  b.ready_warps = 0;
  b.variables.clear();
  b.dynamic_bytes = dynamic_bytes;
  b.shared_used = dynamic_bytes;
  for (unsigned i = 0; i < n; ++i) {
    b.thread[i].state = ThreadState::ready;
    b.thread[i].started = false;
  }
  for (unsigned w = 0; w < b.warp_count; ++w) {
    Warp& warp = b.warps[w];
    const unsigned lanes = std::min(kWarp, n - w * kWarp);
    warp.exists = lanes == kWarp ? ~0U : (1U << lanes) - 1;
    warp.live = warp.exists;
    warp.ready = warp.exists;
    b.ready_warps |= 1U << w;
    if (warp.meetings != 0) {
      warp.meetings = 0;
      for (Collective& c : warp.collective) c.mask = 0;
    }
  }
  for (Barrier& barrier : b.barriers)
    if (barrier.in_use) barrier = Barrier{};
  async_reset(b);
}

}  // namespace

void Cluster::run(const LaunchConfig& config_of_launch, const std::function<void()>& thread_body,
                  std::size_t index) {
  launch = &config_of_launch;
  body = &thread_body;
  const Dim grid = launch->grid;
  const Dim shape = launch->cluster;
  blocks = static_cast<unsigned>(shape.count());
  grow(blocks);
  random.seed(config.seed * 0x9E3779B97F4A7C15ULL + index);
  pending_.clear();
  error_ = nullptr;
  ready_blocks_ = 0;
  at_block_ = at_warp_ = at_lane_ = 0;

  const std::size_t across = grid.x / shape.x;
  const std::size_t down = grid.y / shape.y;
  const auto x0 = static_cast<unsigned>(index % across) * shape.x;
  const auto y0 = static_cast<unsigned>(index / across % down) * shape.y;
  const auto z0 = static_cast<unsigned>(index / across / down) * shape.z;
  unsigned live = 0;
  for (unsigned rank = 0; rank < blocks; ++rank) {
    Geometry g;
    g.cluster_index = {rank % shape.x, rank / shape.x % shape.y, rank / shape.x / shape.y};
    g.block_index = {x0 + g.cluster_index.x, y0 + g.cluster_index.y, z0 + g.cluster_index.z};
    g.block_dim = dim3(launch->block.x, launch->block.y, launch->block.z);
    g.grid_dim = dim3(grid.x, grid.y, grid.z);
    g.cluster_dim = dim3(shape.x, shape.y, shape.z);
    g.cluster_rank = rank;
    begin_block(*block[rank], g, launch->shared);
    live += block[rank]->live;
    ready_blocks_ |= 1U << rank;
  }
  counters.blocks += blocks;
  counters.threads += live;
  free_stacks_.clear();
  for (std::size_t slot = std::size_t{blocks} * kMaxThreads; slot-- > 0;)
    free_stacks_.push_back(static_cast<std::uint16_t>(slot));
  if (monitor != nullptr) monitor->cluster_begin(*this);

  Thread* first = pop();
  start(*first);
  t_current = first;
  switch_context(&host_, first->stack_pointer);
  t_current = nullptr;

  if (error_ == nullptr) {
    live = 0;
    for (unsigned rank = 0; rank < blocks; ++rank) live += block[rank]->live;
    if (live != 0)
      error_ = std::make_exception_ptr(KernelFault(
          concat("[", launch->name, "] ", deadlock(), " (", schedule_text(config), ")")));
  }
  pending_.clear();
  if (monitor != nullptr) monitor->cluster_end(*this, error_ != nullptr);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

Thread* Cluster::pop() {
  if (ready_blocks_ == 0) return nullptr;
  unsigned b = 0;
  unsigned w = 0;
  unsigned l = 0;
  switch (config.schedule) {
    case Schedule::depth_first:
      if (Block& same = *block[at_block_]; same.warps[at_warp_].ready != 0) {
        // The common case, short: the next lane of the same warp.
        const std::uint32_t ready = same.warps[at_warp_].ready;
        const std::uint32_t rest = ready & (ready - 1);
        same.warps[at_warp_].ready = rest;
        if (rest == 0 && (same.ready_warps &= ~(1U << at_warp_)) == 0)
          ready_blocks_ &= ~(1U << at_block_);
        at_lane_ = lowest_bit(ready);
        return &same.thread[at_warp_ * kWarp + at_lane_];
      }
      b = (ready_blocks_ >> at_block_ & 1U) != 0 ? at_block_ : bit_after(ready_blocks_, at_block_);
      w = (block[b]->ready_warps >> at_warp_ & 1U) != 0
              ? at_warp_
              : bit_after(block[b]->ready_warps, at_warp_);
      l = lowest_bit(block[b]->warps[w].ready);
      break;
    case Schedule::breadth_first:
      b = bit_after(ready_blocks_, at_block_);
      w = bit_after(block[b]->ready_warps, at_warp_);
      l = bit_after(block[b]->warps[w].ready, at_lane_);
      break;
    case Schedule::reverse:
      b = highest_bit(ready_blocks_);
      w = highest_bit(block[b]->ready_warps);
      l = highest_bit(block[b]->warps[w].ready);
      break;
    case Schedule::random: {
      const auto one_of = [this](std::uint32_t mask) {
        return nth_bit(mask, draw(static_cast<unsigned>(std::popcount(mask))));
      };
      b = one_of(ready_blocks_);
      w = one_of(block[b]->ready_warps);
      l = one_of(block[b]->warps[w].ready);
      break;
    }
  }
  at_block_ = b;
  at_warp_ = w;
  at_lane_ = l;
  return take(b, w, l);
}

// Asynchronous operations land between the steps of threads.
bool Cluster::complete_pending(bool idle) {
  if (pending_.empty()) return false;
  if (!idle && (config.async == Async::late || draw(4) != 0)) return false;
  const std::size_t i = config.async == Async::random ? draw(static_cast<unsigned>(pending_.size()))
                                                      : pending_.size() - 1;
  const std::function<void()> operation = std::move(pending_[i]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
  in_async_ = true;
  operation();
  in_async_ = false;
  return true;
}

void Cluster::post(std::function<void()> operation) {
  if (config.async == Async::eager) {
    in_async_ = true;
    operation();
    in_async_ = false;
    return;
  }
  pending_.push_back(std::move(operation));
}

Thread* Cluster::next() {
  for (;;) {
    if (!pending_.empty()) complete_pending(false);
    if (Thread* thread = pop()) return thread;
    if (!complete_pending(true)) return nullptr;
  }
}

void Cluster::start(Thread& thread) {
  thread.stack = free_stacks_.back();
  free_stacks_.pop_back();
  thread.started = true;
  thread.stack_pointer = stacks_->prepare(thread.stack, &Cluster::entry);
}

void Cluster::switch_to(Thread& me, Thread& to) {
  if (!to.started) start(to);
  t_current = &to;
  ++counters.switches;
  switch_context(&me.stack_pointer, to.stack_pointer);
}

void Cluster::leave(Thread& me) {
  Thread* to = next();
  if (to == &me) {
    t_current = &me;
    return;
  }
  if (to != nullptr) {
    switch_to(me, *to);
  } else {
    t_current = nullptr;
    switch_context(&me.stack_pointer, host_);
  }
}

// The next ready thread after `me`, in turn over lanes, warps and blocks: threads that poll must
// not keep others from what they poll for.
Thread* Cluster::pop_after(const Thread& me) {
  if (ready_blocks_ == 0) return nullptr;
  at_block_ = me.geometry->cluster_rank;
  at_warp_ = me.warp;
  const auto above = [](unsigned i) { return i >= 31 ? 0U : ~0U << (i + 1); };
  const Block& own = *block[at_block_];
  std::uint32_t lanes = own.warps[at_warp_].ready & above(me.lane);
  if (lanes == 0) {
    const std::uint32_t warps = own.ready_warps & above(at_warp_);
    if (warps == 0) at_block_ = bit_after(ready_blocks_, at_block_);
    at_warp_ = lowest_bit(warps != 0 ? warps : block[at_block_]->ready_warps);
    lanes = block[at_block_]->warps[at_warp_].ready;
  }
  at_lane_ = lowest_bit(lanes);
  return take(at_block_, at_warp_, at_lane_);
}

Thread* Cluster::take(unsigned b, unsigned w, unsigned l) {
  Block& chosen = *block[b];
  if ((chosen.warps[w].ready &= ~(1U << l)) == 0) {
    if ((chosen.ready_warps &= ~(1U << w)) == 0) ready_blocks_ &= ~(1U << b);
  }
  return &chosen.thread[w * kWarp + l];
}

void Cluster::give_way(Thread& me) {
  Thread* to = config.schedule == Schedule::random ? pop() : pop_after(me);
  wake(me);
  if (to == nullptr) {
    leave(me);
  } else {
    switch_to(me, *to);
  }
}

// Runs threads one after another: one that never waited leaves its stack to the next.
void Cluster::entry() {
  for (;;) {
    Thread* me = t_current;
    Cluster& cluster = *me->block->cluster;
    std::exception_ptr error;
    Thread* to = nullptr;
    try {
      (*cluster.body)();
      cluster.exit_thread(*me);
      to = cluster.next();
    } catch (...) {
      error = std::current_exception();
    }
    if (error != nullptr) cluster.abandon(std::move(error));
    if (to != nullptr && !to->started) {
      to->started = true;
      to->stack = me->stack;
      t_current = to;
      continue;
    }
    cluster.free_stacks_.push_back(me->stack);
    if (to != nullptr) {
      cluster.switch_to(*me, *to);
    } else {
      t_current = nullptr;
      switch_context(&me->stack_pointer, cluster.host_);
    }
  }
}

void Cluster::exit_thread(Thread& thread) {
  Block& b = *thread.block;
  Warp& warp = b.warps[thread.warp];
  for (const Collective& c : warp.collective)
    if ((c.mask >> thread.lane & 1U) != 0)
      fault_at(c.site, "a thread exits while lanes of its warp wait for it in a collective (",
               name(c.meeting), ", mask 0x", std::hex, c.mask, ")");
  async_thread_exit(thread);
  if (monitor != nullptr) monitor->thread_exit(thread);
  thread.state = ThreadState::exited;
  warp.live &= ~(1U << thread.lane);
  --b.live;
  barrier_thread_exit(b);
}

void Cluster::abandon(std::exception_ptr error) {
  error_ = std::move(error);
  in_async_ = false;
  void* forgotten = nullptr;
  t_current = nullptr;
  switch_context(&forgotten, host_);
  __builtin_unreachable();
}

std::string Cluster::deadlock() const {
  std::ostringstream out;
  out << "deadlock: no thread can run and nothing is in flight";
  constexpr unsigned kShown = 12;
  unsigned shown = 0;
  for (unsigned rank = 0; rank < blocks; ++rank) {
    const Block& b = *block[rank];
    const uint3 at = b.geometry.block_index;
    out << "; block (" << at.x << "," << at.y << "," << at.z << ")";
    for (unsigned i = 0; i < b.threads && shown < kShown; ++shown) {
      const Thread& t = b.thread[i];
      const auto same = [&](const Thread& o) {
        return o.state == t.state && (t.state == ThreadState::exited ||
                                      (o.waits_for == t.waits_for && o.wait_value == t.wait_value &&
                                       o.wait_line == t.wait_line));
      };
      unsigned last = i;
      while (last + 1 < b.threads && same(b.thread[last + 1])) ++last;
      out << (i == 0 ? " " : ", ") << "threads " << i;
      if (last != i) out << "-" << last;
      if (t.state == ThreadState::exited) {
        out << " have exited";
      } else {
        out << " wait in " << t.waits_for << " 0x" << std::hex << t.wait_value << std::dec;
        if (t.wait_line != 0) out << " (" << t.wait_file << ":" << t.wait_line << ")";
      }
      i = last + 1;
    }
    if (shown == kShown) out << " and others";
  }
  return out.str();
}

std::string where(const Thread& thread) {
  const Geometry& g = *thread.geometry;
  std::ostringstream out;
  out << "block (" << g.block_index.x << "," << g.block_index.y << "," << g.block_index.z << ")";
  if (g.cluster_dim.x * g.cluster_dim.y * g.cluster_dim.z > 1)
    out << " (rank " << g.cluster_rank << ")";
  out << " thread (" << thread.index.x << "," << thread.index.y << "," << thread.index.z
      << ") [warp " << static_cast<unsigned>(thread.warp) << " lane "
      << static_cast<unsigned>(thread.lane) << "]";
  return out.str();
}

namespace {
// Takes the message: its caller's stack is left without destructors.
std::exception_ptr kernel_fault(Cluster& cluster, std::string&& given, Site site) {
  const std::string message = std::move(given);
  std::ostringstream out;
  out << "[" << cluster.launch->name << "] " << message;
  if (cluster.in_async()) {
    const uint3 at = cluster.block[0]->geometry.block_index;
    out << ", in an asynchronous operation of block (" << at.x << "," << at.y << "," << at.z << ")"
        << (cluster.blocks > 1 ? "'s cluster" : "");
  } else if (current() != nullptr) {
    out << ", at " << where(*current());
  }
  if (site.line != 0) out << ", " << site.file << ":" << site.line;
  out << " (" << schedule_text(cluster.config) << ")";
  return std::make_exception_ptr(KernelFault(out.str()));
}
}  // namespace

// The stack is left without destructors, so nothing on it may own memory by then.
void fault_in(Cluster& cluster, std::string&& message, Site site) {
  std::exception_ptr fault = kernel_fault(cluster, std::move(message), site);
#if defined(ROUNDOFF_ASAN)
  // Where leaks are looked for, and no hook is on the stack that must not throw.
  std::rethrow_exception(std::move(fault));
#else
  cluster.abandon(std::move(fault));
#endif
}

void yield() {
  Thread& me = *current();
  me.block->cluster->give_way(me);
}

void preempt() {
  Thread* me = current();
  if (me == nullptr) return;
  Cluster& cluster = *me->block->cluster;
  const unsigned n = cluster.config.preempt_one_in;
  if (n != 0 && !cluster.in_async() && cluster.draw(n) == 0) cluster.give_way(*me);
}

}  // namespace roundoff::simt
