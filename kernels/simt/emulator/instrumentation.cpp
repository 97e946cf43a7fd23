// The functions that `-fsanitize=thread` calls at every load and store. Kernels built that way are
// linked to these instead of ThreadSanitizer's run time, so that no kernel has to be changed to be
// watched. Left out where the program itself is under a sanitizer.
#include "kernels/simt/emulator/instrumentation.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define ROUNDOFF_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDOFF_SANITIZED 1
#endif

#if !defined(ROUNDOFF_SANITIZED)

namespace roundoff::simt {
namespace {

void seen(void* p, std::size_t bytes, Access kind, const void* code) {
  if (current() == nullptr) return;
  preempt();
  Thread& me = *current();
  if (Monitor* monitor = me.block->cluster->monitor)
    monitor->access(me, p, bytes, kind, code, Site{"", 0});
}

void seen_aligned(void* p, std::size_t bytes, Access kind, const void* code) {
  if (current() == nullptr) return;
  if ((reinterpret_cast<std::uintptr_t>(p) & (bytes - 1)) != 0)
    if (Monitor* monitor = current()->block->cluster->monitor)
      monitor->misaligned(*current(), p, bytes, kind, code);
  seen(p, bytes, kind, code);
}

}  // namespace

void vector_load(const void* p, std::size_t bytes, const void* code) {
  seen_aligned(const_cast<void*>(p), bytes, Access::read, code);
}
void vector_store(void* p, std::size_t bytes, const void* code) {
  seen_aligned(p, bytes, Access::write, code);
}
void copy_arguments(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace roundoff::simt

using roundoff::simt::Access;
using roundoff::simt::seen;
using roundoff::simt::seen_aligned;

#define ROUNDOFF_HOOK(name, seen, bytes, kind) \
  ROUNDOFF_SIMT_API void name(void* p);        \
  void name(void* p) { seen(p, bytes, kind, __builtin_return_address(0)); }
#define ROUNDOFF_HOOKS(bytes)                                                            \
  ROUNDOFF_HOOK(__tsan_read##bytes, seen_aligned, bytes, Access::read)                   \
  ROUNDOFF_HOOK(__tsan_write##bytes, seen_aligned, bytes, Access::write)                 \
  ROUNDOFF_HOOK(__tsan_unaligned_read##bytes, seen, bytes, Access::read)                 \
  ROUNDOFF_HOOK(__tsan_unaligned_write##bytes, seen, bytes, Access::write)               \
  ROUNDOFF_HOOK(__tsan_volatile_read##bytes, seen_aligned, bytes, Access::strong_read)   \
  ROUNDOFF_HOOK(__tsan_volatile_write##bytes, seen_aligned, bytes, Access::strong_write) \
  ROUNDOFF_HOOK(__tsan_unaligned_volatile_read##bytes, seen, bytes, Access::strong_read) \
  ROUNDOFF_HOOK(__tsan_unaligned_volatile_write##bytes, seen, bytes, Access::strong_write)

extern "C" {
ROUNDOFF_HOOKS(1)
ROUNDOFF_HOOKS(2)
ROUNDOFF_HOOKS(4)
ROUNDOFF_HOOKS(8)
ROUNDOFF_HOOKS(16)

ROUNDOFF_SIMT_API void __tsan_init();
ROUNDOFF_SIMT_API void __tsan_func_entry(void*);
ROUNDOFF_SIMT_API void __tsan_func_exit();
ROUNDOFF_SIMT_API void __tsan_vptr_update(void**, void*);
ROUNDOFF_SIMT_API void __tsan_vptr_read(void**);
ROUNDOFF_SIMT_API void __tsan_read_range(void*, long);
ROUNDOFF_SIMT_API void __tsan_write_range(void*, long);
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* p, long n) {
  seen(p, static_cast<std::size_t>(n), Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* p, long n) {
  seen(p, static_cast<std::size_t>(n), Access::write, __builtin_return_address(0));
}

// Copies of structures, which clang does not instrument otherwise: the library of instrumented
// kernels is linked with --wrap for these three.
ROUNDOFF_SIMT_API void* __wrap_memcpy(void*, const void*, std::size_t);
ROUNDOFF_SIMT_API void* __wrap_memmove(void*, const void*, std::size_t);
ROUNDOFF_SIMT_API void* __wrap_memset(void*, int, std::size_t);
void* __wrap_memcpy(void* to, const void* from, std::size_t n) {
  seen(const_cast<void*>(from), n, Access::read, __builtin_return_address(0));
  seen(to, n, Access::write, __builtin_return_address(0));
  return std::memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, std::size_t n) {
  seen(const_cast<void*>(from), n, Access::read, __builtin_return_address(0));
  seen(to, n, Access::write, __builtin_return_address(0));
  return std::memmove(to, from, n);
}
void* __wrap_memset(void* to, int byte, std::size_t n) {
  seen(to, n, Access::write, __builtin_return_address(0));
  return std::memset(to, byte, n);
}
}

#endif
