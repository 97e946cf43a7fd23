// The monitor of a device: hands what it is told to the sanitizer and to the profiler, whichever
// the launch asks for.
#pragma once

#include <vector>

#include "kernels/simt/emulator/monitor.h"
#include "kernels/simt/emulator/profiler/profiler.h"
#include "kernels/simt/emulator/sanitizer/lines.h"
#include "kernels/simt/emulator/sanitizer/sanitizer.h"

namespace roundoff::simt {

class Watcher final : public Monitor {
 public:
  explicit Watcher(Emulator& device);

  void launch_begin(const LaunchConfig& launch) override;
  void launch_end(Counters& counters) override;
  void cluster_begin(Cluster& cluster) override;
  void cluster_end(Cluster& cluster, bool faulted) override;
  void thread_exit(Thread& thread) override;
  void access(Thread& thread, const void* p, std::size_t bytes, Access kind, const void* code,
              Site site) override;
  void touch(Thread& thread, const void* p, std::size_t bytes, Access kind, Site site) override;
  void misaligned(Thread& thread, const void* p, std::size_t bytes, Access kind,
                  const void* code) override;
  void shared_variable(Block& block, std::size_t offset, std::size_t bytes,
                       const char* name) override;
  void host_wrote(const void* device, std::size_t bytes) override;
  void allocated(const void* device, std::size_t bytes) override;
  void freed(const void* device, std::size_t bytes) override;
  void unwatched() override;
  void release(Thread& thread, std::uintptr_t object) override;
  void acquire(Thread& thread, std::uintptr_t object) override;
  void forget(std::uintptr_t object) override;
  void warp_meets(Block& block, unsigned warp, std::uint32_t mask) override;
  void fence(Thread& thread) override;
  void copy_begin(Thread& thread, void* to, std::size_t bytes, Site site) override;
  void copy_done(Thread& thread, void* to, std::size_t bytes) override;
  std::uint64_t async_begin(Thread& first, unsigned threads, Site site) override;
  void async_write(std::uint64_t operation, Block& block, void* to, std::size_t bytes,
                   Access kind) override;
  void async_read(std::uint64_t operation, Block& block, const void* from,
                  std::size_t bytes) override;
  void async_release(std::uint64_t operation, std::uintptr_t object) override;
  void async_join(std::uint64_t operation, Thread& first, unsigned threads) override;
  void proxy_fence(Thread& thread) override;
  void shared_request(Thread& thread, const void* const* addresses, unsigned count, unsigned bytes,
                      Access kind, Site site) override;

  Profile profile() { return profiler_.profile(); }
  void reset_profile() { profiler_.reset(); }

 private:
  Place place(Block& block, const void* p) const;
  bool in_program(const Thread& thread, std::uintptr_t at);

  Emulator& device_;
  SourceLines lines_;
  // Of the program and its libraries: where constants are.
  struct Segment {
    std::uintptr_t begin, end;
  };
  std::vector<Segment> segments_;
  Sanitizer sanitizer_;
  Profiler profiler_;
  // Of the running launch.
  bool sanitize_ = false;
  bool profile_ = false;
};

}  // namespace roundoff::simt
