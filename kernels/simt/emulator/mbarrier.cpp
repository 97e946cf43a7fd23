#include "kernels/simt/emulator/mbarrier.h"

#include <cstring>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {

constexpr std::uint32_t kMostArrivals = (1U << 20) - 1;
constexpr std::int64_t kMostBytes = (1 << 20) - 1;

// Two phases of one barrier are two objects to the monitor: a wait must not see what was released
// in the next.
std::uintptr_t object(const std::uint64_t* at, std::uint64_t phase) {
  return reinterpret_cast<std::uintptr_t>(at) + 1 + (phase & 1);
}

void store_image(MbarrierState& b) {
  b.image = (b.phase & 1) | std::uint64_t{b.expected} << 1 | std::uint64_t{b.pending} << 21 |
            static_cast<std::uint64_t>(b.bytes + (1 << 21)) << 41 | std::uint64_t{1} << 63;
  std::memcpy(b.at, &b.image, sizeof(b.image));
}

MbarrierState* find(Block& block, const std::uint64_t* at) {
  for (MbarrierState& b : block.async->mbarriers)
    if (b.at == at) return &b;
  return nullptr;
}

MbarrierState& state_of(Block& block, std::uint64_t* at, const char* what, Site site) {
  // That of a thread: its use must come after the barrier was made, as it sees it.
  Monitor* monitor = block.cluster->monitor;
  if (monitor != nullptr && site.line != 0)
    monitor->touch(*current(), at, 8, Access::mbarrier, site);
  MbarrierState* b = find(block, at);
  if (b == nullptr) fault_at(site, what, ": used before mbarrier.init, or after mbarrier.inval");
  std::uint64_t image = 0;
  std::memcpy(&image, at, sizeof(image));
  if (image != b->image)
    fault_at(site, what, ": the barrier's memory was overwritten since it was last used");
  return *b;
}

Block& block_of(const std::uint64_t* at, const char* what, Site site) {
  if (reinterpret_cast<std::uintptr_t>(at) % 8 != 0)
    fault_at(site, what, ": the barrier's address is not a multiple of 8");
  Block& block = block_of_shared(at, 8, what, site);
  if (block.live == 0)
    fault_at(site, what, ": the barrier lies in shared memory of a block that has exited");
  return block;
}

// Ends the phase when all arrivals and bytes are there.
void flip_if_complete(Block& block, MbarrierState& b, const char* what, Site site) {
  if (b.pending == 0 && b.bytes < 0)
    fault_at(site, what, ": all arrivals of the phase are in, and ", -b.bytes,
             " bytes landed that nobody had announced (expect_tx)");
  if (b.pending == 0 && b.bytes == 0) {
    Monitor* monitor = block.cluster->monitor;
    // What was released two phases ago has been waited for, or never will be.
    if (monitor != nullptr) monitor->forget(object(b.at, b.phase + 1));
    for (Thread* t : b.waiting) {
      if (monitor != nullptr) monitor->acquire(*t, object(b.at, b.phase));
      block.cluster->wake(*t);
    }
    b.waiting.clear();
    async_state(*block.cluster->block[0]).fruitless_polls = 0;
    ++b.phase;
    b.pending = b.expected;
  }
  store_image(b);
}

void announce(MbarrierState& b, unsigned bytes, const char* what, Site site) {
  b.bytes += bytes;
  if (b.bytes > kMostBytes)
    fault_at(site, what, ": ", b.bytes, " bytes are announced and have not landed, at most ",
             kMostBytes, " are possible (tx-count overflow)");
}

std::uint64_t count_arrivals(Block& block, MbarrierState& b, unsigned count, const char* what,
                             Site site) {
  if (count == 0 || count > kMostArrivals)
    fault_at(site, what, ": a count of ", count, ", 1 to 2^20 - 1 expected");
  if (count > b.pending)
    fault_at(site, what, ": ", count, " arrivals where the phase expects ", b.pending, " more (of ",
             b.expected, ")");
  if (Monitor* monitor = block.cluster->monitor)
    monitor->release(*current(), object(b.at, b.phase));
  b.pending -= count;
  const std::uint64_t phase = b.phase;
  flip_if_complete(block, b, what, site);
  return phase;
}

// The phase `phase` has ended: the calling thread's past grows.
bool passed(Block& block, const MbarrierState& b, std::uint64_t phase) {
  if (b.phase == phase) return false;
  if (Monitor* monitor = block.cluster->monitor) monitor->acquire(*current(), object(b.at, phase));
  return true;
}

// Whether `phase`, the present or the last one, has ended; waits for it.
bool try_wait(Block& block, std::uint64_t* barrier, std::uint64_t phase, const char* what,
              Site site) {
  Thread& me = *current();
  Cluster& cluster = *block.cluster;
  // The instruction may give up early.
  if (cluster.config.schedule == Schedule::random && cluster.draw(8) == 0) {
    fruitless_poll(what, site);
    return false;
  }
  MbarrierState& b = state_of(block, barrier, what, site);
  if (passed(block, b, phase)) return true;
  b.waiting.push_back(&me);
  wait(what, shared_address(barrier), site);
  const MbarrierState* after = find(block, barrier);
  if (after != nullptr && after->phase > phase + 1)
    fault_at(site, what, ": the phase ended, and the next one too, before this wait saw it");
  return true;
}

std::uint64_t phase_of_parity(const MbarrierState& b, unsigned parity, const char* what,
                              Site site) {
  if (parity > 1) fault_at(site, what, ": parity ", parity, ", 0 or 1 expected");
  return (b.phase & 1) == parity ? b.phase : b.phase - 1;
}

std::uint64_t phase_of_state(const MbarrierState& b, std::uint64_t state, const char* what,
                             Site site) {
  if (state > b.phase || b.phase - state > 1)
    fault_at(site, what, ": the state is neither of this phase nor of the one before");
  return state;
}

}  // namespace

void mbarrier_init(std::uint64_t* barrier, unsigned count, Site site) {
  constexpr const char* kWhat = "mbarrier.init";
  Block& block = block_of(barrier, kWhat, site);
  if (&block != current()->block)
    fault_at(site, kWhat, ": the barrier lies in another block's shared memory");
  if (count == 0 || count > kMostArrivals)
    fault_at(site, kWhat, ": a count of ", count, ", 1 to 2^20 - 1 expected");
  AsyncState& state = async_state(block);
  if (find(block, barrier) != nullptr)
    fault_at(site, kWhat, ": there is a barrier already, which mbarrier.inval must end first");
  MbarrierState b;
  b.at = barrier;
  b.expected = count;
  b.pending = count;
  store_image(b);
  state.mbarriers.push_back(std::move(b));
  if (Monitor* monitor = block.cluster->monitor) {
    monitor->touch(*current(), barrier, 8, Access::write, site);
    monitor->forget(object(barrier, 0));
    monitor->forget(object(barrier, 1));
  }
}

void mbarrier_inval(std::uint64_t* barrier, Site site) {
  constexpr const char* kWhat = "mbarrier.inval";
  Block& block = block_of(barrier, kWhat, site);
  const MbarrierState& b = state_of(block, barrier, kWhat, site);
  if (!b.waiting.empty()) fault_at(site, kWhat, ": threads wait for the barrier");
  if (b.bytes != 0) fault_at(site, kWhat, ": copies that signal the barrier are in flight");
  auto& all = block.async->mbarriers;
  all.erase(all.begin() + (&b - all.data()));
}

void fence_mbarrier_init(Site site) { need_sm_90("fence.mbarrier_init", site); }

std::uint64_t mbarrier_arrive(std::uint64_t* barrier, unsigned count, Site site) {
  constexpr const char* kWhat = "mbarrier.arrive";
  Block& block = block_of(barrier, kWhat, site);
  const std::uint64_t phase =
      count_arrivals(block, state_of(block, barrier, kWhat, site), count, kWhat, site);
  preempt();
  return phase;
}

std::uint64_t mbarrier_arrive_expect_tx(std::uint64_t* barrier, unsigned bytes, Site site) {
  constexpr const char* kWhat = "mbarrier.arrive.expect_tx";
  need_sm_90(kWhat, site);
  Block& block = block_of(barrier, kWhat, site);
  MbarrierState& b = state_of(block, barrier, kWhat, site);
  announce(b, bytes, kWhat, site);
  const std::uint64_t phase = count_arrivals(block, b, 1, kWhat, site);
  preempt();
  return phase;
}

void mbarrier_expect_tx(std::uint64_t* barrier, unsigned bytes, Site site) {
  constexpr const char* kWhat = "mbarrier.expect_tx";
  need_sm_90(kWhat, site);
  Block& block = block_of(barrier, kWhat, site);
  MbarrierState& b = state_of(block, barrier, kWhat, site);
  announce(b, bytes, kWhat, site);
  store_image(b);
}

void mbarrier_complete_tx(std::uint64_t* barrier, unsigned bytes, Site site) {
  constexpr const char* kWhat = "mbarrier.complete_tx";
  need_sm_90(kWhat, site);
  Block& block = block_of(barrier, kWhat, site);
  MbarrierState& b = state_of(block, barrier, kWhat, site);
  b.bytes -= bytes;
  if (b.bytes < -kMostBytes) fault_at(site, kWhat, ": tx-count underflow");
  flip_if_complete(block, b, kWhat, site);
}

bool mbarrier_test_wait(std::uint64_t* barrier, std::uint64_t state, Site site) {
  constexpr const char* kWhat = "mbarrier.test_wait";
  Block& block = block_of(barrier, kWhat, site);
  const MbarrierState& b = state_of(block, barrier, kWhat, site);
  if (passed(block, b, phase_of_state(b, state, kWhat, site))) return true;
  fruitless_poll(kWhat, site);
  return false;
}

bool mbarrier_test_wait_parity(std::uint64_t* barrier, unsigned parity, Site site) {
  constexpr const char* kWhat = "mbarrier.test_wait";
  Block& block = block_of(barrier, kWhat, site);
  const MbarrierState& b = state_of(block, barrier, kWhat, site);
  if (passed(block, b, phase_of_parity(b, parity, kWhat, site))) return true;
  fruitless_poll(kWhat, site);
  return false;
}

bool mbarrier_try_wait(std::uint64_t* barrier, std::uint64_t state, Site site) {
  constexpr const char* kWhat = "mbarrier.try_wait";
  Block& block = block_of(barrier, kWhat, site);
  const MbarrierState& b = state_of(block, barrier, kWhat, site);
  return try_wait(block, barrier, phase_of_state(b, state, kWhat, site), kWhat, site);
}

bool mbarrier_try_wait_parity(std::uint64_t* barrier, unsigned parity, Site site) {
  constexpr const char* kWhat = "mbarrier.try_wait";
  Block& block = block_of(barrier, kWhat, site);
  const MbarrierState& b = state_of(block, barrier, kWhat, site);
  return try_wait(block, barrier, phase_of_parity(b, parity, kWhat, site), kWhat, site);
}

std::uint64_t phase_of(std::uint64_t* barrier, const char* what, Site site) {
  return state_of(block_of(barrier, what, site), barrier, what, site).phase;
}

void check_landing(Block& block, std::uint64_t* barrier, std::size_t bytes, std::uint64_t phase) {
  const MbarrierState* b = find(block, barrier);
  if (b != nullptr && b->phase != phase)
    fault("a copy's mbarrier: the phase in which the copy was issued ended before its ", bytes,
          " bytes landed; they were not announced in time (expect_tx)");
  if (block.live == 0)
    fault("a copy of ", bytes, " bytes landed in shared memory of a block that has exited");
}

void land_bytes(Block& block, std::uint64_t* barrier, std::size_t bytes, std::uint64_t operation) {
  constexpr const char* kWhat = "a copy's mbarrier";
  MbarrierState& b = state_of(block, barrier, kWhat, {"", 0});
  if (Monitor* monitor = block.cluster->monitor)
    monitor->async_release(operation, object(barrier, b.phase));
  b.bytes -= static_cast<std::int64_t>(bytes);
  if (b.bytes < -kMostBytes) fault(kWhat, ": tx-count underflow");
  flip_if_complete(block, b, kWhat, {"", 0});
}

void mbarriers_block_exit(Block& block) {
  for (const MbarrierState& b : block.async->mbarriers)
    if (b.bytes < 0)
      fault("the block exits, and ", -b.bytes,
            " bytes landed at an mbarrier that nobody had announced (expect_tx)");
}

}  // namespace roundoff::simt
