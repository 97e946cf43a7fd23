// Finds what a kernel must not do to memory: accesses outside of it, reads of what nobody wrote,
// and two threads at one place without an order between them. Knows nothing of values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/memory.h"
#include "kernels/simt/emulator/monitor.h"
#include "kernels/simt/emulator/sanitizer/clock.h"
#include "kernels/simt/emulator/sanitizer/lines.h"
#include "kernels/simt/emulator/sanitizer/shadow.h"

namespace roundoff::simt {

// What an address is to the kernel.
struct Place {
  enum class Space : std::uint8_t { none, shared, global };
  Space space = Space::none;
  Block* block = nullptr;  // whose shared memory
  std::size_t offset = 0;  // in it
};

class Sanitizer {
 public:
  Sanitizer(Emulator& device, SourceLines& lines);

  void launch_begin(const LaunchConfig& launch);
  void launch_end();
  void cluster_begin(Cluster& cluster);
  void cluster_end();
  void thread_exit(Thread& thread);

  void access(Thread& thread, const Place& place, const void* p, std::size_t bytes, Access kind,
              const void* code, Site site);
  void misaligned(const Place& place, const void* p, std::size_t bytes, Access kind,
                  const void* code);
  // Memory that is not the kernel's; `what` ends the sentence.
  void wild(const void* p, std::size_t bytes, Access kind, const void* code, Site site,
            const char* what);
  void shared_variable(Block& block, std::size_t offset, std::size_t bytes, const char* name);

  void host_wrote(const void* device, std::size_t bytes);
  void allocated(const Allocation& allocation, bool written);
  void freed(const void* device);
  // A kernel that is not watched ran: it may have written anything.
  void unwatched();

  void release(Thread& thread, std::uintptr_t object);
  void acquire(Thread& thread, std::uintptr_t object);
  void forget(std::uintptr_t object) { objects_.erase(object); }
  void warp_meets(Block& block, unsigned warp, std::uint32_t mask);
  void fence(Thread& thread);
  void proxy_fence(Thread& thread);

  void copy_begin(Thread& thread, const Place& to, std::size_t bytes, Site site);
  void copy_done(Thread& thread, const Place& to, std::size_t bytes);
  std::uint64_t async_begin(Thread& first, unsigned threads, Site site);
  void async_access(std::uint64_t operation, const Place& place, const void* p, std::size_t bytes,
                    Access kind);
  void async_release(std::uint64_t operation, std::uintptr_t object);
  void async_join(std::uint64_t operation, Thread& first, unsigned threads);

 private:
  // Whoever accesses memory: a thread, or an operation of the asynchronous proxy.
  struct Actor {
    std::uint32_t who = 0;
    std::uint32_t slot = 0;  // in the clocks
    Known now;
    Known fenced;   // what a fence of this thread made visible, or of one that it met
    Known proxied;  // the same for the asynchronous proxy
    Foreign foreign;
    std::uint64_t within = 0;  // the number of an object that knows all this thread knows
    unsigned copies = 0;       // in flight
    Site site;                 // of an operation
    Event issuer;              // the same
    std::uint32_t warp() const { return slot / 32; }
    std::uint32_t when() const { return now.warp[slot % 32]; }
    void tick() { ++now.warp[slot % 32]; }
  };
  struct Object {
    Clock now, fenced, proxied;
    Foreign foreign;
    std::uint64_t number = 0;  // never used again
  };
  // What goes with an address that threads meet at by atomics.
  struct AtomicObject {
    std::uint32_t cluster = 0;
    Clock now;
    Foreign foreign;
  };
  struct Region {
    std::size_t offset = 0, bytes = 0;
    const char* name = "";
    Shadow shadow;
    ByteSet in_flight;
    std::size_t bytes_in_flight = 0;
  };
  struct SharedState {
    std::vector<std::unique_ptr<Region>> regions;
    unsigned used = 0;
    std::array<std::uint16_t, kSharedWindow / 16> at{};  // 1 + the region's number
    // The last accesses by threads of other blocks, which must be over when this one exits.
    std::unordered_map<std::uint32_t, Event> remote;
  };
  struct GlobalBlock {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t number = 0;
    bool freed = false;
    Shadow shadow;
  };
  // Where an access goes, after its bounds were checked.
  struct Target {
    const Place* place;
    Shadow* shadow = nullptr;
    std::size_t offset = 0;  // in it
    Region* region = nullptr;
    const GlobalBlock* block = nullptr;
    std::uint32_t floor = 0;  // accesses by lower numbers are over
    ReadSets* sets = nullptr;
  };

  Actor& actor(const Thread& thread) {
    return actors_[thread.geometry->cluster_rank * block_slots_ + thread.linear];
  }
  bool ordered(const Actor& actor, const Event& event, std::uint32_t floor) const {
    if (event.who < floor || event.who == actor.who) return true;
    const std::uint32_t slot = event.who - cluster_base_;
    if (slot < slots_) return actor.now.knows(slot, event.when, actor.warp());
    return ordered_foreign(actor, event);
  }
  bool ordered_foreign(const Actor& actor, const Event& event) const;
  // Null, or a reader that the actor does not know to be done.
  bool unordered_reader(const Actor& actor, const Cell& cell, const Target& target, Event& reader);
  Target target(const Place& place, const void* p, std::size_t bytes, Access kind, const Actor& by,
                std::uint32_t where);
  void check(Actor& by, const Target& target, std::size_t bytes, Access kind, std::uint32_t where,
             bool async);
  void synchronise(Actor& by, const void* p);
  void check_block_exit(Thread& last);
  GlobalBlock* find_global(const void* p);
  void add_region(SharedState& state, std::size_t offset, std::size_t bytes, const char* name);
  Clock clock_of(const Known& known, std::uint32_t warp);

  // --- Reports ---
  std::uint32_t where_of(const void* code, Site site);
  std::string spot(std::uint32_t where);
  std::string who(const Event& event, bool with_block = false) const;
  std::string spelled(const Target& target, std::size_t offset) const;
  [[noreturn]] void report(const Actor& by, std::string message, std::uint32_t where);
  [[noreturn]] void race(const Actor& by, const Target& target, std::size_t offset,
                         std::size_t bytes, Access kind, std::uint32_t where, const Event& other,
                         const char* did);

  Emulator& device_;
  SourceLines& lines_;
  Cluster* cluster_ = nullptr;
  ClockPool pool_;
  std::vector<Actor> actors_;  // threads, block after block, then kSlots for operations
  std::unordered_map<std::uintptr_t, Object> objects_;
  std::uint64_t next_object_ = 1;
  std::unordered_map<const void*, AtomicObject> atomics_;
  std::vector<std::unique_ptr<SharedState>> shared_;  // by rank
  std::vector<std::unique_ptr<GlobalBlock>> global_;  // by address
  std::array<GlobalBlock*, 4> recent_{};
  unsigned next_recent_ = 0;
  ReadSets shared_sets_, global_sets_;

  static constexpr std::uint32_t kSlots = 64;
  std::uint32_t launch_base_ = 1, cluster_base_ = 1, next_base_ = 1;
  std::uint32_t cluster_number_ = 0;           // in the launch's order
  std::uint32_t block_slots_ = 0, slots_ = 0;  // of a block, of the cluster
  struct Ran {
    uint3 first_block;
    dim3 cluster_dim;
  };
  std::vector<Ran> ran_;  // clusters of this launch

  std::unordered_map<std::uint64_t, Actor> operations_;
  std::uint64_t next_operation_ = 1;
  std::array<std::uint32_t, kSlots> slot_time_{};

  std::uintptr_t anchor_ = 0;
  std::vector<Site> sites_;
  std::vector<const void*> far_code_;
};

}  // namespace roundoff::simt
