// Every access to shared and global memory: its bounds, its bytes' values, its order to others.
#include <algorithm>

#include "kernels/simt/emulator/sanitizer/sanitizer.h"

namespace roundoff::simt {

namespace {

bool writes(Access kind) {
  return kind == Access::write || kind == Access::strong_write || kind == Access::atomic;
}
bool reads(Access kind) { return kind != Access::write && kind != Access::strong_write; }
bool strong(Access kind) { return kind != Access::read && kind != Access::write; }

}  // namespace

Sanitizer::Target Sanitizer::target(const Place& place, const void* p, std::size_t bytes,
                                    Access kind, const Actor& by, std::uint32_t where) {
  Target t;
  t.place = &place;
  if (place.space == Place::Space::shared) {
    SharedState& state = *shared_[place.block->geometry.cluster_rank];
    const std::uint16_t number = state.at[place.offset / 16];
    t.region = number == 0 ? nullptr : state.regions[number - 1U].get();
    if (t.region == nullptr || place.offset < t.region->offset ||
        place.offset + bytes > t.region->offset + t.region->bytes) {
      if (t.region == nullptr)
        for (unsigned i = 0; i < state.used; ++i)
          if (state.regions[i]->offset <= place.offset &&
              (t.region == nullptr || state.regions[i]->offset > t.region->offset))
            t.region = state.regions[i].get();
      std::string nearest = "; the block has no shared memory";
      if (t.region != nullptr)
        nearest = concat("; the nearest below, ", t.region->name, ", has ", t.region->bytes,
                         " bytes at shared+0x", std::hex, t.region->offset);
      report(by,
             concat("out of bounds: ", simt::name(kind), " of ", bytes, " bytes at shared+0x",
                    std::hex, place.offset, std::move(nearest)),
             where);
    }
    t.shadow = &t.region->shadow;
    t.offset = place.offset - t.region->offset;
    t.floor = cluster_base_;
    t.sets = &shared_sets_;
    return t;
  }
  GlobalBlock* block = find_global(p);
  if (block == nullptr)
    report(by,
           concat("out of bounds: ", simt::name(kind), " of ", bytes, " bytes at ", p,
                  ", before all device memory"),
           where);
  t.block = block;
  t.offset = reinterpret_cast<std::uintptr_t>(p) - block->begin;
  if (block->freed)
    report(by,
           concat("use after free: ", simt::name(kind), " of ", bytes, " bytes at offset ",
                  t.offset, " of allocation ", block->number, ", which was freed"),
           where);
  if (t.offset > block->bytes || bytes > block->bytes - t.offset)
    report(by,
           concat("out of bounds: ", simt::name(kind), " of ", bytes, " bytes at offset ", t.offset,
                  " of allocation ", block->number, ", which has ", block->bytes, " bytes"),
           where);
  t.shadow = &block->shadow;
  t.floor = launch_base_;
  t.sets = &global_sets_;
  return t;
}

bool Sanitizer::unordered_reader(const Actor& actor, const Cell& cell, const Target& target,
                                 Event& reader) {
  if (cell.set == 0) {
    reader = cell.read;
    return !ordered(actor, cell.read, target.floor);
  }
  const ReadSet& set = (*target.sets)[cell.set];
  for (unsigned i = 0; i < set.count; ++i)
    if (!ordered(actor, set.few[i], target.floor)) {
      reader = set.few[i];
      return true;
    }
  if (set.cluster == cluster_base_ && !set.dense.empty() && actor.now.base) {
    // Mostly a barrier stands in between, and no entry needs a closer look.
    const std::uint32_t* known = actor.now.base.times().data();
    std::uint32_t later = 0;
    for (std::size_t t = 0; t < set.dense.size(); ++t) later |= set.dense[t] > known[t] ? 1U : 0U;
    if (later == 0) return false;
  }
  for (std::uint32_t t = 0; t < set.dense.size(); ++t) {
    if (set.dense[t] == 0) continue;
    const Event event{set.cluster + t, set.dense[t], cell.read.where};
    if (!ordered(actor, event, target.floor)) {
      reader = event;
      return true;
    }
  }
  return false;
}

void Sanitizer::check(Actor& by, const Target& t, std::size_t bytes, Access kind,
                      std::uint32_t where, bool async) {
  if (t.region != nullptr && t.region->bytes_in_flight != 0 &&
      !t.region->in_flight.none(t.offset, bytes)) {
    const std::size_t at = t.offset + t.region->in_flight.find(t.offset, bytes, true);
    const Cell& cell = *t.shadow->cells(at, 1, *t.sets).begin;
    report(by,
           concat(simt::name(kind), " of ", spelled(t, at), " while an asynchronous copy to it by ",
                  who(cell.write), " is in flight: it was not waited for", spot(cell.write.where)),
           where);
  }
  if (reads(kind) && !t.shadow->written().all(t.offset, bytes)) {
    const std::size_t at = t.offset + t.shadow->written().find(t.offset, bytes, false);
    report(by,
           concat("uninitialised: ", simt::name(kind), " of ", bytes, " bytes at ",
                  spelled(t, t.offset),
                  at == t.offset ? ", which nobody has written"
                                 : concat(", where nobody has written ", spelled(t, at))),
           where);
  }
  const Event mine{by.who, by.when(), where};
  const Shadow::Range range = t.shadow->cells(t.offset, bytes, *t.sets);
  for (Cell* cell = range.begin; cell != range.end; ++cell) {
    if (cell->write.who != by.who && cell->write.who >= t.floor &&
        !(strong(kind) && (cell->flags & kStrong) != 0) && !ordered(by, cell->write, t.floor))
      race(by, t, t.shadow->offset(cell), bytes, kind, where, cell->write, "wrote");
    const bool was_read = cell->read.who >= t.floor && cell->read.who != 0;
    if (!writes(kind)) {
      if (async && (cell->flags & kGeneric) != 0 && cell->write.who >= t.floor &&
          cell->write.who - cluster_base_ < slots_ &&
          !by.proxied.knows(cell->write.who - cluster_base_, cell->write.when, by.warp()))
        report(by,
               concat("no fence.proxy.async: the asynchronous proxy reads ",
                      spelled(t, t.shadow->offset(cell)), ", which ", who(cell->write),
                      " wrote by an ordinary store", spot(cell->write.where),
                      ", and no such fence stands in between"),
               where);
      if (!was_read) {
        cell->read = mine;
        cell->set = 0;
        cell->flags = static_cast<std::uint8_t>(strong(kind) ? cell->flags | kStrongReads
                                                             : cell->flags & ~kStrongReads);
        continue;
      }
      if (!strong(kind)) cell->flags = static_cast<std::uint8_t>(cell->flags & ~kStrongReads);
      if (cell->read.who == mine.who && cell->read.when == mine.when) continue;
      Event other;
      if (cell->set == 0 && cell->read.who == mine.who) {
        cell->read = mine;
      } else if (!unordered_reader(by, *cell, t, other)) {
        if (cell->set != 0) t.sets->free(cell->set);
        cell->set = 0;
        cell->read = mine;
      } else {
        if (cell->set == 0) {
          cell->set = t.sets->make();
          t.sets->add(cell->set, cell->read, cluster_base_, slots_);
        }
        t.sets->add(cell->set, mine, cluster_base_, slots_);
        cell->read = mine;
      }
      continue;
    }
    if (was_read) {
      Event reader;
      if (!(strong(kind) && (cell->flags & kStrongReads) != 0) &&
          unordered_reader(by, *cell, t, reader))
        race(by, t, t.shadow->offset(cell), bytes, kind, where, reader, "read");
      if (cell->set != 0) t.sets->free(cell->set);
    }
    cell->write = mine;
    cell->read = Event{};
    cell->set = 0;
    cell->flags = static_cast<std::uint8_t>((strong(kind) ? kStrong : 0) | (async ? 0 : kGeneric));
  }
  if (writes(kind)) t.shadow->written().set(t.offset, bytes, true);
}

void Sanitizer::access(Thread& thread, const Place& place, const void* p, std::size_t bytes,
                       Access kind, const void* code, Site site) {
  if (bytes == 0) return;
  Actor& me = actor(thread);
  const std::uint32_t where = where_of(code, site);
  const Target t = target(place, p, bytes, kind, me, where);
  check(me, t, bytes, kind, where, false);
  if (place.space == Place::Space::shared && place.block != thread.block)
    shared_[place.block->geometry.cluster_rank]->remote[me.who] = {me.who, me.when(), where};
  if (kind == Access::atomic) synchronise(me, p);
}

// --- Copies and the asynchronous proxy ----------------------------------------------------------

void Sanitizer::copy_begin(Thread& thread, const Place& to, std::size_t bytes, Site site) {
  if (bytes == 0) return;
  Actor& me = actor(thread);
  const std::uint32_t where = where_of(nullptr, site);
  const Target t = target(to, nullptr, bytes, Access::write, me, where);
  check(me, t, bytes, Access::write, where, false);
  if (t.region == nullptr) return;
  t.region->in_flight.set(t.offset, bytes, true);
  t.region->bytes_in_flight += bytes;
  me.site = site;
  ++me.copies;
}

void Sanitizer::copy_done(Thread& thread, const Place& to, std::size_t bytes) {
  if (bytes == 0) return;
  Actor& me = actor(thread);
  const Target t = target(to, nullptr, bytes, Access::write, me, 0);
  if (t.region == nullptr) return;
  t.region->in_flight.set(t.offset, bytes, false);
  t.region->bytes_in_flight -= std::min(t.region->bytes_in_flight, bytes);
  const Shadow::Range range = t.shadow->cells(t.offset, bytes, *t.sets);
  for (Cell* cell = range.begin; cell != range.end; ++cell) cell->write.when = me.when();
  if (me.copies != 0) --me.copies;
}

std::uint64_t Sanitizer::async_begin(Thread& first, unsigned threads, Site site) {
  const std::uint64_t id = next_operation_++;
  const auto slot = static_cast<std::uint32_t>(id % kSlots);
  Actor& op = operations_[id];
  op.slot = slots_ - kSlots + slot;
  op.who = cluster_base_ + op.slot;
  op.site = site;
  Actor* issuer = &actor(first);
  op.issuer = {issuer->who, issuer->when(), 0};
  for (unsigned i = 0; i < threads; ++i) {
    Actor& a = issuer[i];
    op.now.join(clock_of(a.now, a.warp()), op.warp());
    if (a.proxied.any) op.proxied.join(clock_of(a.proxied, a.warp()), op.warp());
    join(op.foreign, a.foreign);
    a.tick();
    a.within = 0;
  }
  op.now.warp[op.slot % 32] = ++slot_time_[slot];
  return id;
}

void Sanitizer::async_access(std::uint64_t operation, const Place& place, const void* p,
                             std::size_t bytes, Access kind) {
  const auto found = operations_.find(operation);
  if (found == operations_.end() || bytes == 0) return;
  Actor& op = found->second;
  const std::uint32_t where = where_of(nullptr, op.site);
  check(op, target(place, p, bytes, kind, op, where), bytes, kind, where, true);
}

void Sanitizer::async_release(std::uint64_t operation, std::uintptr_t object) {
  const auto found = operations_.find(operation);
  if (found == operations_.end()) return;
  Actor& op = found->second;
  Object& o = objects_[object];
  op.now.add_to(pool_, o.now, op.warp());
  if (op.proxied.any) op.proxied.add_to(pool_, o.proxied, op.warp());
  join(o.foreign, op.foreign);
}

void Sanitizer::async_join(std::uint64_t operation, Thread& first, unsigned threads) {
  const auto found = operations_.find(operation);
  if (found == operations_.end()) return;
  const Actor& op = found->second;
  const Clock clock = clock_of(op.now, op.warp());
  Actor* waiter = &actor(first);
  for (unsigned i = 0; i < threads; ++i) {
    waiter[i].now.join(clock, waiter[i].warp());
    waiter[i].within = 0;
  }
}

}  // namespace roundoff::simt
