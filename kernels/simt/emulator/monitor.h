// What the emulator tells its sanitizer and profiler. All hooks run on the worker's thread, between
// accesses of the kernel; a hook that finds a fault calls fault() (cluster.h) and does not return.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/emulator/thread.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

struct Block;
struct Cluster;
struct Counters;

// The strong ones are volatile: two of them at one place are no race, as two atomics are none.
enum class Access : std::uint8_t { read, write, atomic, strong_read, strong_write, mbarrier };
const char* name(Access kind);

class ROUNDOFF_SIMT_API Monitor {
 public:
  virtual ~Monitor() = default;

  // --- Launches ---
  virtual void launch_begin(const LaunchConfig& launch) = 0;
  virtual void launch_end(Counters& counters) = 0;
  virtual void cluster_begin(Cluster& cluster) = 0;
  virtual void cluster_end(Cluster& cluster, bool faulted) = 0;
  virtual void thread_exit(Thread& thread) = 0;

  // --- Memory ---
  // An access by the kernel's own code. `code` is an address in it, null where `site` says more.
  virtual void access(Thread& thread, const void* p, std::size_t bytes, Access kind,
                      const void* code, Site site) = 0;
  // The same for what an instruction of the emulator does to shared memory: the profiler is told of
  // it otherwise, or not at all.
  virtual void touch(Thread& thread, const void* p, std::size_t bytes, Access kind, Site site) = 0;
  // One whose address is not a multiple of its size, where the language asks for that. Does not
  // return.
  virtual void misaligned(Thread& thread, const void* p, std::size_t bytes, Access kind,
                          const void* code) = 0;
  // Shared memory that a variable occupies from now on.
  virtual void shared_variable(Block& block, std::size_t offset, std::size_t bytes,
                               const char* name) = 0;
  virtual void host_wrote(const void* device, std::size_t bytes) = 0;
  virtual void allocated(const void* device, std::size_t bytes) = 0;
  virtual void freed(const void* device, std::size_t bytes) = 0;
  // A kernel ran whose accesses were not seen.
  virtual void unwatched() = 0;

  // --- Order: what one thread did before happens before what others do after ---
  // `release` adds the thread's past to the object, `acquire` makes the object's past the thread's.
  // An object is named by an address or a number that is unique while it lives.
  virtual void release(Thread& thread, std::uintptr_t object) = 0;
  virtual void acquire(Thread& thread, std::uintptr_t object) = 0;
  virtual void forget(std::uintptr_t object) = 0;
  // All threads of `mask` in a warp meet.
  virtual void warp_meets(Block& block, unsigned warp, std::uint32_t mask) = 0;
  virtual void fence(Thread& thread) = 0;

  // --- Asynchronous copies and tensor cores ---
  // cp.async: shared memory that must not be touched until the copy is waited for.
  virtual void copy_begin(Thread& thread, void* to, std::size_t bytes, Site site) = 0;
  // Waited for by the thread that issued it.
  virtual void copy_done(Thread& thread, void* to, std::size_t bytes) = 0;
  // An operation of the asynchronous proxy (TMA, wgmma) starts: its past is that of `threads`
  // threads from `first` on. The number that comes back names it.
  virtual std::uint64_t async_begin(Thread& first, unsigned threads, Site site) = 0;
  // kind: write, or strong_write where the operation adds to what is there.
  virtual void async_write(std::uint64_t operation, Block& block, void* to, std::size_t bytes,
                           Access kind = Access::write) = 0;
  virtual void async_read(std::uint64_t operation, Block& block, const void* from,
                          std::size_t bytes) = 0;
  // Its end becomes part of an object's past (an mbarrier's), or of the threads that waited.
  virtual void async_release(std::uint64_t operation, std::uintptr_t object) = 0;
  virtual void async_join(std::uint64_t operation, Thread& first, unsigned threads) = 0;
  // fence.proxy.async: what the thread wrote by ordinary stores is visible to that proxy.
  virtual void proxy_fence(Thread& thread) = 0;
  // A request that does not go through access(): ldmatrix and the like. `count` addresses of
  // `bytes` each, in the order of lanes.
  virtual void shared_request(Thread& thread, const void* const* addresses, unsigned count,
                              unsigned bytes, Access kind, Site site) = 0;
};

}  // namespace roundoff::simt
