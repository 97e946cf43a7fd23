// Which memory there is, and what orders threads.
#include "kernels/simt/emulator/sanitizer/sanitizer.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace roundoff::simt {

Sanitizer::Sanitizer(Emulator& device, SourceLines& lines) : device_(device), lines_(lines) {}

// --- Launches -----------------------------------------------------------------------------------

void Sanitizer::launch_begin(const LaunchConfig& launch) {
  const std::size_t blocks = launch.cluster.count();
  block_slots_ = static_cast<std::uint32_t>((launch.block.count() + 31) / 32 * 32);
  slots_ = static_cast<std::uint32_t>(blocks * block_slots_) + kSlots;
  const std::uint64_t numbers = launch.grid.count() / blocks * std::uint64_t{slots_};
  ROUNDOFF_CHECK(numbers < 0xFFFF0000U, launch.name,
                 "has more threads than the sanitizer can tell apart: ", numbers);
  if (0xFFFF0000U - next_base_ < numbers) {
    // Numbers are used again, so everything older is forgotten.
    for (const auto& block : global_) block->shadow.forget();
    for (const auto& state : shared_)
      for (const auto& region : state->regions) region->shadow.forget();
    next_base_ = 1;
  }
  launch_base_ = next_base_;
  next_base_ += static_cast<std::uint32_t>(numbers);
  cluster_number_ = 0;
  ran_.clear();
  atomics_.clear();
  global_sets_.reset();
}

void Sanitizer::launch_end() {
  atomics_.clear();
  ran_.clear();
  next_base_ = std::max(next_base_, launch_base_ + 1);
}

void Sanitizer::cluster_begin(Cluster& cluster) {
  cluster_ = &cluster;
  cluster_base_ = launch_base_ + cluster_number_ * slots_;
  ran_.push_back({cluster.block[0]->geometry.block_index, cluster.block[0]->geometry.cluster_dim});
  shared_sets_.reset();

  // Whoever knew something is gone.
  objects_.clear();
  operations_.clear();
  for (Actor& a : actors_) a = Actor{};
  for (auto& [address, object] : atomics_) object.now = Clock();
  pool_.reset(slots_);
  slot_time_.fill(0);

  actors_.resize(slots_ - kSlots);
  for (std::uint32_t i = 0; i < actors_.size(); ++i) {
    actors_[i].who = cluster_base_ + i;
    actors_[i].slot = i;
    actors_[i].now.warp[i % 32] = 1;
  }
  while (shared_.size() < cluster.blocks) shared_.push_back(std::make_unique<SharedState>());
  for (unsigned rank = 0; rank < cluster.blocks; ++rank) {
    SharedState& state = *shared_[rank];
    state.at.fill(0);
    state.used = 0;
    state.remote.clear();
    const std::size_t dynamic = cluster.block[rank]->dynamic_bytes;
    if (dynamic != 0) add_region(state, 0, dynamic, "dynamic");
  }
}

void Sanitizer::cluster_end() {
  for (auto it = atomics_.begin(); it != atomics_.end();) {
    AtomicObject& object = it->second;
    if (!device_.owns(it->first)) {
      it = atomics_.erase(it);
      continue;
    }
    if (object.now) {
      const auto times = std::make_shared<const std::vector<std::uint32_t>>(object.now.times());
      join(object.foreign,
           std::make_shared<const ForeignMap>(ForeignMap{{cluster_number_, times}}));
      object.now = Clock();
    }
    ++it;
  }
  ++cluster_number_;
  cluster_ = nullptr;
}

void Sanitizer::thread_exit(Thread& thread) {
  const Actor& me = actor(thread);
  if (me.copies != 0)
    report(me,
           concat("exits with ", me.copies, " asynchronous cop", me.copies == 1 ? "y" : "ies",
                  " (cp.async) that it did not wait for"),
           where_of(nullptr, me.site));
  if (thread.block->live == 1 && cluster_->blocks > 1) check_block_exit(thread);
}

// The shared memory of a block is gone with its last thread.
void Sanitizer::check_block_exit(Thread& last) {
  const unsigned rank = last.geometry->cluster_rank;
  for (const auto& [number, event] : shared_[rank]->remote) {
    bool known = false;
    for (std::uint32_t i = 0; i < block_slots_ && !known; ++i)
      known = ordered(actors_[rank * block_slots_ + i], event, cluster_base_);
    if (!known)
      report(
          actor(last),
          concat("exits as the last thread of its block, whose shared memory ", who(event),
                 " accessed", spot(event.where), ", with nothing that orders that before the exit"),
          0);
  }
}

// --- Memory -------------------------------------------------------------------------------------

void Sanitizer::add_region(SharedState& state, std::size_t offset, std::size_t bytes,
                           const char* name) {
  if (state.regions.size() == state.used) state.regions.push_back(std::make_unique<Region>());
  Region& region = *state.regions[state.used++];
  region.offset = offset;
  region.bytes = bytes;
  region.name = name;
  region.shadow.start(bytes, false);
  region.in_flight.resize(bytes, false);
  region.bytes_in_flight = 0;
  for (std::size_t i = offset / 16; i < (offset + bytes + 15) / 16; ++i)
    state.at[i] = static_cast<std::uint16_t>(state.used);
}

void Sanitizer::shared_variable(Block& block, std::size_t offset, std::size_t bytes,
                                const char* name) {
  add_region(*shared_[block.geometry.cluster_rank], offset, bytes, name);
}

Sanitizer::GlobalBlock* Sanitizer::find_global(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (GlobalBlock* b : recent_)
    if (b != nullptr && at - b->begin < b->bytes) return b;
  auto after = std::upper_bound(
      global_.begin(), global_.end(), at,
      [](std::uintptr_t address, const auto& block) { return address < block->begin; });
  if (after == global_.begin()) return nullptr;
  GlobalBlock* block = std::prev(after)->get();
  recent_[next_recent_++ % recent_.size()] = block;
  return block;
}

void Sanitizer::allocated(const Allocation& allocation, bool written) {
  auto block = std::make_unique<GlobalBlock>();
  block->begin = allocation.begin;
  block->bytes = allocation.bytes;
  block->number = allocation.number;
  block->freed = allocation.freed;
  if (!block->freed) block->shadow.start(allocation.bytes, written);
  // Addresses only grow.
  global_.push_back(std::move(block));
}

void Sanitizer::freed(const void* device) {
  if (GlobalBlock* block = find_global(device)) {
    block->freed = true;
    block->shadow = Shadow();
  }
}

void Sanitizer::host_wrote(const void* device, std::size_t bytes) {
  GlobalBlock* block = find_global(device);
  if (block == nullptr || block->freed) return;
  block->shadow.written().set(reinterpret_cast<std::uintptr_t>(device) - block->begin, bytes, true);
}

void Sanitizer::unwatched() {
  for (const auto& block : global_)
    if (!block->freed) block->shadow.written().set(0, block->bytes, true);
}

// --- Order --------------------------------------------------------------------------------------

Clock Sanitizer::clock_of(const Known& known, std::uint32_t warp) {
  Clock clock;
  known.add_to(pool_, clock, warp);
  return clock;
}

void Sanitizer::release(Thread& thread, std::uintptr_t object) {
  Actor& me = actor(thread);
  Object& o = objects_[object];
  if (o.number == 0) o.number = next_object_++;
  me.now.add_to(pool_, o.now, me.warp());
  if (me.fenced.any) me.fenced.add_to(pool_, o.fenced, me.warp());
  if (me.proxied.any) me.proxied.add_to(pool_, o.proxied, me.warp());
  join(o.foreign, me.foreign);
  me.tick();
  me.within = o.number;
}

void Sanitizer::acquire(Thread& thread, std::uintptr_t object) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return;
  Actor& me = actor(thread);
  const Object& o = found->second;
  if (me.within == o.number && o.number != 0) {
    const std::uint32_t mine = me.when();
    me.now.base = o.now;
    for (std::size_t l = 0; l < 32; ++l) me.now.warp[l] = o.now[me.warp() * 32 + l];
    me.now.warp[me.slot % 32] = mine;
  } else {
    me.now.join(o.now, me.warp());
  }
  me.fenced.join(o.fenced, me.warp());
  me.proxied.join(o.proxied, me.warp());
  join(me.foreign, o.foreign);
  me.within = 0;
}

void Sanitizer::warp_meets(Block& block, unsigned warp, std::uint32_t mask) {
  const std::uint32_t first = block.geometry.cluster_rank * block_slots_ + warp * 32;
  Known now;
  Known fenced;
  Known proxied;
  Foreign foreign;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    const Actor& a = actors_[first + static_cast<std::uint32_t>(std::countr_zero(m))];
    const auto add = [](Known& all, const Known& one) {
      all.base.join(one.base);
      for (std::size_t l = 0; l < 32; ++l) all.warp[l] = std::max(all.warp[l], one.warp[l]);
      all.any = true;
    };
    add(now, a.now);
    if (a.fenced.any) add(fenced, a.fenced);
    if (a.proxied.any) add(proxied, a.proxied);
    join(foreign, a.foreign);
  }
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    Actor& a = actors_[first + static_cast<std::uint32_t>(std::countr_zero(m))];
    a.now = now;
    a.fenced = fenced;
    a.proxied = proxied;
    a.foreign = foreign;
    a.within = 0;
    a.tick();
  }
}

void Sanitizer::fence(Thread& thread) {
  Actor& me = actor(thread);
  me.fenced = me.now;
  me.fenced.any = true;
  me.tick();
  me.within = 0;
}

void Sanitizer::proxy_fence(Thread& thread) {
  Actor& me = actor(thread);
  me.proxied = me.now;
  me.proxied.any = true;
  me.tick();
  me.within = 0;
}

// An atomic makes visible what was fenced before it; whoever meets it there knows that.
void Sanitizer::synchronise(Actor& by, const void* p) {
  const auto found = atomics_.find(p);
  if (found == atomics_.end() && !by.fenced.any) return;
  AtomicObject& object = found == atomics_.end() ? atomics_[p] : found->second;
  by.now.join(object.now, by.warp());
  Foreign foreign = by.foreign;
  join(by.foreign, object.foreign);
  by.within = 0;
  if (by.fenced.any) {
    by.fenced.add_to(pool_, object.now, by.warp());
    join(object.foreign, foreign);
  }
}

bool Sanitizer::ordered_foreign(const Actor& actor, const Event& event) const {
  if (actor.foreign == nullptr) return false;
  const std::uint32_t number = event.who - launch_base_;
  const auto known = actor.foreign->find(number / slots_);
  return known != actor.foreign->end() && (*known->second)[number % slots_] >= event.when;
}

}  // namespace roundoff::simt
