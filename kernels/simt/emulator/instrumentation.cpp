// The functions that `-fsanitize=thread` calls at every load and store. Kernels built that way are
// linked to these instead of ThreadSanitizer's run time, so that no kernel has to be changed to be
// watched. Left out where the program itself is under a sanitizer.
#include <cstddef>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"

#if !defined(__SANITIZE_THREAD__)

namespace roundoff::simt {
namespace {

void seen(void* p, std::size_t bytes, Access kind, const void* code) {
  if (current() == nullptr) return;
  preempt();
  Thread& me = *current();
  if (Monitor* monitor = me.block->cluster->monitor)
    monitor->access(me, p, bytes, kind, code, Site{"", 0});
}

}  // namespace
}  // namespace roundoff::simt

using roundoff::simt::Access;
using roundoff::simt::seen;

#define ROUNDOFF_HOOK(name, bytes, kind) \
  ROUNDOFF_SIMT_API void name(void* p);  \
  void name(void* p) { seen(p, bytes, kind, __builtin_return_address(0)); }
#define ROUNDOFF_HOOKS(bytes)                                               \
  ROUNDOFF_HOOK(__tsan_read##bytes, bytes, Access::read)                    \
  ROUNDOFF_HOOK(__tsan_write##bytes, bytes, Access::write)                  \
  ROUNDOFF_HOOK(__tsan_unaligned_read##bytes, bytes, Access::read)          \
  ROUNDOFF_HOOK(__tsan_unaligned_write##bytes, bytes, Access::write)        \
  ROUNDOFF_HOOK(__tsan_volatile_read##bytes, bytes, Access::read)           \
  ROUNDOFF_HOOK(__tsan_volatile_write##bytes, bytes, Access::write)         \
  ROUNDOFF_HOOK(__tsan_unaligned_volatile_read##bytes, bytes, Access::read) \
  ROUNDOFF_HOOK(__tsan_unaligned_volatile_write##bytes, bytes, Access::write)

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
}

#endif
