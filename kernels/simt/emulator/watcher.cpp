#include "kernels/simt/emulator/watcher.h"

#include <link.h>

#include <algorithm>

#include "kernels/simt/emulator/fiber.h"

namespace roundoff::simt {

namespace {
// An address below it comes of a null pointer.
constexpr std::uintptr_t kNullPage = 4096;
}  // namespace

const char* name(Access kind) {
  constexpr const char* kNames[] = {"read",          "write",          "atomic",
                                    "volatile read", "volatile write", "use as an mbarrier"};
  return kNames[static_cast<int>(kind)];
}

Watcher::Watcher(Emulator& device)
    : device_(device), sanitizer_(device, lines_), profiler_(lines_) {
  // What was written to memory that is older than the watch is not known.
  device.memory().for_each(
      [this](const Allocation& allocation) { sanitizer_.allocated(allocation, true); });
}

Place Watcher::place(Block& block, const void* p) const {
  const auto in = [p](const Block& b) {
    return static_cast<std::size_t>(static_cast<const char*>(p) - b.window);
  };
  std::size_t offset = in(block);
  if (offset < kSharedWindow) return {Place::Space::shared, &block, offset};
  if (device_.owns(p)) return {Place::Space::global, &block, 0};
  const Cluster& cluster = *block.cluster;
  for (unsigned rank = 0; rank < cluster.blocks && cluster.blocks > 1; ++rank) {
    offset = in(*cluster.block[rank]);
    if (offset < kSharedWindow) return {Place::Space::shared, cluster.block[rank].get(), offset};
  }
  return {};
}

// Whether an instrumented kernel may well look there: at constants, and at what stands behind
// threadIdx and the like.
bool Watcher::in_program(const Thread& thread, std::uintptr_t at) {
  const auto within = [at](const void* p, std::size_t bytes) {
    return at - reinterpret_cast<std::uintptr_t>(p) < bytes;
  };
  const Block& block = *thread.block;
  if (within(block.thread, kMaxThreads * sizeof(Thread)) || within(&block, sizeof(Block)) ||
      within(block.cluster->body, sizeof(*block.cluster->body)))
    return true;
  // Variables of the host thread, of which the running CUDA thread is one.
  if (at - (reinterpret_cast<std::uintptr_t>(&t_current) - kNullPage) < 2 * kNullPage) return true;
  const auto found = [&] {
    return std::any_of(segments_.begin(), segments_.end(),
                       [at](const Segment& s) { return at >= s.begin && at < s.end; });
  };
  if (found()) return true;
  segments_.clear();
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* all) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& header = object->dlpi_phdr[i];
          if (header.p_type != PT_LOAD) continue;
          const std::uintptr_t begin = object->dlpi_addr + header.p_vaddr;
          static_cast<std::vector<Segment>*>(all)->push_back({begin, begin + header.p_memsz});
        }
        return 0;
      },
      &segments_);
  return found();
}

void Watcher::launch_begin(const LaunchConfig& launch) {
  sanitize_ = device_.config.sanitize;
  profile_ = device_.config.profile;
  if (sanitize_) sanitizer_.launch_begin(launch);
  if (profile_) profiler_.launch_begin(launch);
}

void Watcher::launch_end(Counters& counters) {
  if (sanitize_) {
    sanitizer_.launch_end();
  } else {
    sanitizer_.unwatched();
  }
  if (profile_) profiler_.launch_end(counters);
}

void Watcher::cluster_begin(Cluster& cluster) {
  if (sanitize_) sanitizer_.cluster_begin(cluster);
  if (profile_) profiler_.cluster_begin(cluster);
}

void Watcher::cluster_end(Cluster&, bool faulted) {
  if (sanitize_) sanitizer_.cluster_end();
  if (profile_) profiler_.cluster_end(faulted);
}

void Watcher::thread_exit(Thread& thread) {
  if (sanitize_) sanitizer_.thread_exit(thread);
}

void Watcher::access(Thread& thread, const void* p, std::size_t bytes, Access kind,
                     const void* code, Site site) {
  const Place at = place(*thread.block, p);
  if (at.space == Place::Space::none) {
    // A thread's own variables, constants: nobody else's business.
    if (!sanitize_) return;
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (at - (frame - Stacks::kBytes) < 2 * Stacks::kBytes) return;
    if (at < kNullPage) sanitizer_.wild(p, bytes, kind, code, site, "next to the null pointer");
    if (!in_program(thread, at))
      sanitizer_.wild(p, bytes, kind, code, site,
                      "which is memory of the host, neither the device's nor shared");
    return;
  }
  if (sanitize_) sanitizer_.access(thread, at, p, bytes, kind, code, site);
  if (profile_) profiler_.access(thread, at, p, bytes, kind, code, site);
}

void Watcher::touch(Thread& thread, const void* p, std::size_t bytes, Access kind, Site site) {
  if (!sanitize_) return;
  const Place at = place(*thread.block, p);
  if (at.space != Place::Space::none) sanitizer_.access(thread, at, p, bytes, kind, nullptr, site);
}

void Watcher::misaligned(Thread& thread, const void* p, std::size_t bytes, Access kind,
                         const void* code) {
  const Place at = place(*thread.block, p);
  if (sanitize_ && at.space != Place::Space::none) sanitizer_.misaligned(at, p, bytes, kind, code);
}

void Watcher::shared_variable(Block& block, std::size_t offset, std::size_t bytes,
                              const char* name) {
  if (sanitize_) sanitizer_.shared_variable(block, offset, bytes, name);
}

void Watcher::host_wrote(const void* device, std::size_t bytes) {
  sanitizer_.host_wrote(device, bytes);
}
void Watcher::allocated(const void* device, std::size_t) {
  if (const Allocation* allocation = device_.memory().find(device))
    sanitizer_.allocated(*allocation, false);
}
void Watcher::freed(const void* device, std::size_t) { sanitizer_.freed(device); }
void Watcher::unwatched() { sanitizer_.unwatched(); }

void Watcher::release(Thread& thread, std::uintptr_t object) {
  if (sanitize_) sanitizer_.release(thread, object);
}
void Watcher::acquire(Thread& thread, std::uintptr_t object) {
  if (sanitize_) sanitizer_.acquire(thread, object);
}
void Watcher::forget(std::uintptr_t object) {
  if (sanitize_) sanitizer_.forget(object);
}
void Watcher::warp_meets(Block& block, unsigned warp, std::uint32_t mask) {
  if (sanitize_) sanitizer_.warp_meets(block, warp, mask);
}
void Watcher::fence(Thread& thread) {
  if (sanitize_) sanitizer_.fence(thread);
}
void Watcher::proxy_fence(Thread& thread) {
  if (sanitize_) sanitizer_.proxy_fence(thread);
}

void Watcher::copy_begin(Thread& thread, void* to, std::size_t bytes, Site site) {
  if (sanitize_) sanitizer_.copy_begin(thread, place(*thread.block, to), bytes, site);
}
void Watcher::copy_done(Thread& thread, void* to, std::size_t bytes) {
  if (sanitize_) sanitizer_.copy_done(thread, place(*thread.block, to), bytes);
}
std::uint64_t Watcher::async_begin(Thread& first, unsigned threads, Site site) {
  return sanitize_ ? sanitizer_.async_begin(first, threads, site) : 0;
}
void Watcher::async_write(std::uint64_t operation, Block& block, void* to, std::size_t bytes,
                          Access kind) {
  if (sanitize_) sanitizer_.async_access(operation, place(block, to), to, bytes, kind);
}
void Watcher::async_read(std::uint64_t operation, Block& block, const void* from,
                         std::size_t bytes) {
  if (sanitize_) sanitizer_.async_access(operation, place(block, from), from, bytes, Access::read);
}
void Watcher::async_release(std::uint64_t operation, std::uintptr_t object) {
  if (sanitize_) sanitizer_.async_release(operation, object);
}
void Watcher::async_join(std::uint64_t operation, Thread& first, unsigned threads) {
  if (sanitize_) sanitizer_.async_join(operation, first, threads);
}
void Watcher::shared_request(Thread&, const void* const* addresses, unsigned count, unsigned bytes,
                             Access kind, Site site) {
  if (profile_) profiler_.shared_request(addresses, count, bytes, kind, site);
}

}  // namespace roundoff::simt
