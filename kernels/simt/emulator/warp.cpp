// Collectives of a warp: lanes leave their arguments, the last to arrive acts for all.
#include "kernels/simt/emulator/warp.h"

#include <bit>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {

template <class F>
void each_lane(std::uint32_t mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(std::countr_zero(mask)));
}

[[gnu::noinline]] Collective* open_collective(Warp& warp, const Thread& me, Meeting meeting,
                                              std::uint32_t mask, Site site) {
  const std::uint32_t bit = 1U << me.lane;
  if ((mask & bit) == 0)
    fault_at(site, name(meeting), ": the mask 0x", std::hex, mask,
             " does not name the lane itself");
  if ((mask & ~warp.exists) != 0)
    fault_at(site, name(meeting), ": the mask 0x", std::hex, mask,
             " names lanes that this warp does not have (0x", warp.exists, ")");
  if ((mask & ~warp.live) != 0)
    fault_at(site, name(meeting), ": the mask 0x", std::hex, mask,
             " names lanes that have exited (0x", mask & ~warp.live, ")");
  Collective* free = nullptr;
  for (Collective& c : warp.collective) {
    if ((c.mask & mask) != 0)
      fault_at(site, name(meeting), " with mask 0x", std::hex, mask,
               ": lanes of it wait in another ", name(c.meeting), " with mask 0x", c.mask, " (",
               c.site.file, ":", std::dec, c.site.line, "), the warp has diverged");
    if (c.mask == 0 && free == nullptr) free = &c;
  }
  if (free == nullptr) fault_at(site, "more than 4 collectives of one warp at once");
  free->mask = mask;
  free->arrived = 0;
  free->meeting = meeting;
  free->site = site;
  ++warp.meetings;
  return free;
}

// The one that has `mask`, or a new one.
[[gnu::noinline]] Collective* find_collective(Warp& warp, const Thread& me, Meeting meeting,
                                              std::uint32_t mask, Site site) {
  if (warp.meetings != 0 && (mask >> me.lane & 1U) != 0)
    for (Collective& c : warp.collective)
      if (c.mask == mask) return &c;
  return open_collective(warp, me, meeting, mask, site);
}

[[noreturn, gnu::noinline]] void lanes_disagree(const Collective& c, Meeting meeting, Site site) {
  if (c.meeting != meeting)
    fault_at(site, "lanes of one warp wait in different collectives: ", name(meeting), " here, ",
             name(c.meeting), " at ", c.site.file, ":", c.site.line);
  fault_at(site, name(meeting), " must be reached by all lanes together, but others wait at ",
           c.site.file, ":", c.site.line);
}

struct ShuffleArgument {
  std::uint64_t value;
  std::uint64_t result;
  unsigned lane;
  Shuffle mode;
  unsigned width;
};

struct WordArgument {
  std::uint64_t value;
  std::uint32_t result;
};

template <class Argument>
Argument& argument(Collective& c, unsigned lane) {
  return *static_cast<Argument*>(c.argument[lane]);
}

// Which lane a lane reads, as PTX's shfl.sync says; beyond its segment it reads itself. An
// exclusive or may reach into earlier segments.
unsigned source_lane(const ShuffleArgument& a, unsigned lane) {
  const unsigned within = lane & (a.width - 1);
  const unsigned segment = lane - within;
  switch (a.mode) {
    case Shuffle::index:
      return segment + (a.lane & (a.width - 1));
    case Shuffle::up:
      return a.lane > within ? lane : lane - a.lane;
    case Shuffle::down:
      return a.lane >= a.width - within ? lane : lane + a.lane;
    case Shuffle::exclusive_or:
      break;
  }
  const unsigned other = lane ^ a.lane;
  return other >= segment + a.width ? lane : other;
}

}  // namespace

Collective* arrive(Meeting meeting, std::uint32_t mask, void* argument, Site site, bool aligned) {
  Thread& me = *current();
  Warp& warp = me.block->warps[me.warp];
  // The common case, short: the whole warp, most of which is here already.
  Collective* c = &warp.collective[0];
  if (mask != ~0U || c->mask != mask) c = find_collective(warp, me, meeting, mask, site);
  if (c->meeting != meeting || (aligned && !(c->site == site))) lanes_disagree(*c, meeting, site);
  c->arrived |= 1U << me.lane;
  c->argument[me.lane] = argument;
  if (c->arrived == c->mask) return c;
  wait(name(meeting), mask, site);
  return nullptr;
}

void release(Collective* c) {
  Thread& me = *current();
  Block& b = *me.block;
  const std::uint32_t others = c->mask & ~(1U << me.lane);
  each_lane(others, [&](unsigned l) { b.thread[me.warp * kWarp + l].state = ThreadState::ready; });
  b.cluster->wake_lanes(b, me.warp, others);
  c->mask = 0;
  --b.warps[me.warp].meetings;
  // The last to arrive has no head start, save in the order that is kept for its speed.
  if (b.cluster->config.schedule != Schedule::depth_first) yield();
}

void warp_sync(std::uint32_t mask, Site site) {
  if (Collective* c = arrive(Meeting::sync, mask, nullptr, site, false)) {
    Thread& me = *current();
    Cluster& cluster = *me.block->cluster;
    ++cluster.counters.warp_syncs;
    if (cluster.monitor != nullptr) cluster.monitor->warp_meets(*me.block, me.warp, mask);
    release(c);
  }
}

std::uint64_t warp_shuffle(std::uint32_t mask, std::uint64_t value, unsigned lane, Shuffle mode,
                           unsigned width, Site site) {
  if (width == 0 || width > kWarp || !std::has_single_bit(width))
    fault_at(site, "shuffle: the width ", width, " is not a power of two up to 32");
  ShuffleArgument mine{value, value, lane % kWarp, mode, width};
  if (Collective* c = arrive(Meeting::shuffle, mask, &mine, site, false)) {
    ++current()->block->cluster->counters.shuffles;
    each_lane(mask, [&](unsigned l) {
      auto& a = argument<ShuffleArgument>(*c, l);
      const unsigned source = source_lane(a, l);
      if ((mask >> source & 1U) == 0)
        fault_at(site, "shuffle: lane ", l, " reads lane ", source, ", which the mask 0x", std::hex,
                 mask, " does not name");
      a.result = argument<ShuffleArgument>(*c, source).value;
    });
    release(c);
  }
  return mine.result;
}

std::uint32_t warp_ballot(std::uint32_t mask, bool predicate, Site site) {
  WordArgument mine{predicate ? 1U : 0U, 0};
  if (Collective* c = arrive(Meeting::ballot, mask, &mine, site, false)) {
    ++current()->block->cluster->counters.votes;
    std::uint32_t votes = 0;
    each_lane(mask, [&](unsigned l) {
      if (argument<WordArgument>(*c, l).value != 0) votes |= 1U << l;
    });
    each_lane(mask, [&](unsigned l) { argument<WordArgument>(*c, l).result = votes; });
    release(c);
  }
  return mine.result;
}

std::uint32_t warp_match_any(std::uint32_t mask, std::uint64_t value, Site site) {
  WordArgument mine{value, 0};
  if (Collective* c = arrive(Meeting::match_any, mask, &mine, site, false)) {
    ++current()->block->cluster->counters.votes;
    each_lane(mask, [&](unsigned l) {
      auto& a = argument<WordArgument>(*c, l);
      each_lane(mask, [&](unsigned o) {
        if (argument<WordArgument>(*c, o).value == a.value) a.result |= 1U << o;
      });
    });
    release(c);
  }
  return mine.result;
}

std::uint32_t warp_match_all(std::uint32_t mask, std::uint64_t value, Site site) {
  const std::uint32_t same = warp_match_any(mask, value, site);
  return same == mask ? mask : 0;
}

std::uint32_t warp_reduce(std::uint32_t mask, std::uint32_t value, WarpReduce operation,
                          bool is_signed, Site site) {
  WordArgument mine{value, 0};
  if (Collective* c = arrive(Meeting::reduce, mask, &mine, site, false)) {
    ++current()->block->cluster->counters.reductions;
    bool first = true;
    std::uint32_t result = 0;
    const auto less = [is_signed](std::uint32_t a, std::uint32_t b) {
      return is_signed ? static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b) : a < b;
    };
    each_lane(mask, [&](unsigned l) {
      const auto v = static_cast<std::uint32_t>(argument<WordArgument>(*c, l).value);
      if (first) {
        result = v;
        first = false;
        return;
      }
      switch (operation) {
        case WarpReduce::add:
          result += v;
          break;
        case WarpReduce::min:
          result = less(v, result) ? v : result;
          break;
        case WarpReduce::max:
          result = less(result, v) ? v : result;
          break;
        case WarpReduce::bit_and:
          result &= v;
          break;
        case WarpReduce::bit_or:
          result |= v;
          break;
        case WarpReduce::bit_xor:
          result ^= v;
          break;
      }
    });
    each_lane(mask, [&](unsigned l) { argument<WordArgument>(*c, l).result = result; });
    release(c);
  }
  return mine.result;
}

std::uint32_t active_mask() { return 1U << current()->lane; }

void memory_fence() {
#if !defined(__SANITIZE_THREAD__)  // which follows atomics, and these acquire and release
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
  Cluster& cluster = *current()->block->cluster;
  if (cluster.monitor != nullptr) cluster.monitor->fence(*current());
}

}  // namespace roundoff::simt
