#include "kernels/simt/emulator/fiber.h"

#include <sys/mman.h>

#include "kernels/base/check.h"

#if !defined(__x86_64__) || defined(ROUNDOFF_PORTABLE_FIBERS)
#define ROUNDOFF_UCONTEXT 1
#include <ucontext.h>

#include <vector>
#else
#define ROUNDOFF_UCONTEXT 0
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROUNDOFF_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ROUNDOFF_ASAN 1
#endif
#if defined(ROUNDOFF_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace roundoff::simt {

namespace {
constexpr std::size_t kGuard = 4096;
// Stacks start at different lines of the cache, or all of them would compete for the same ones.
constexpr std::size_t kColours = 61;
constexpr std::size_t kColourBytes = 192;
}  // namespace

#if ROUNDOFF_UCONTEXT

struct Stacks::Portable {
  std::vector<ucontext_t> contexts;
};

namespace {
// The context of the host thread that switched to a fiber first stands on that thread's stack.
thread_local ucontext_t t_host;
thread_local ucontext_t* t_running = nullptr;
}  // namespace

void switch_context(void** save, void* load) {
  ucontext_t* from = t_running == nullptr ? &t_host : t_running;
  *save = from;
  auto* to = static_cast<ucontext_t*>(load);
  t_running = to == &t_host ? nullptr : to;
  swapcontext(from, to);
}

#else

struct Stacks::Portable {};

// Keeps what the calling convention asks a callee to keep. Ends in `ret`: a jump would put the
// processor's prediction of returns out of step.
extern "C" void roundoff_switch_context(void** save, void* load);
asm(R"(
.text
.type roundoff_switch_context,@function
roundoff_switch_context:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size roundoff_switch_context, .-roundoff_switch_context
)");

void switch_context(void** save, void* load) { roundoff_switch_context(save, load); }

#endif

Stacks::Stacks(std::size_t count) : count_(count) {
  void* p = mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  ROUNDOFF_CHECK(p != MAP_FAILED, "simulated device", "no address space for stacks");
  memory_ = static_cast<char*>(p);
  guarded_.assign(count, false);
  portable_ = std::make_unique<Portable>();
#if ROUNDOFF_UCONTEXT
  portable_->contexts.resize(count);
#endif
}

Stacks::~Stacks() { munmap(memory_, count_ * kBytes); }

void* Stacks::prepare(std::size_t slot, void (*entry)()) {
  char* bottom = memory_ + slot * kBytes + kGuard;
  if (!guarded_[slot]) {
    mprotect(bottom - kGuard, kGuard, PROT_NONE);
    guarded_[slot] = true;
  }
  // A stack that a fault left behind keeps the marks of its frames.
  ASAN_UNPOISON_MEMORY_REGION(bottom, kBytes - kGuard);
  const std::size_t usable =
      (kBytes - kGuard - (slot % kColours) * kColourBytes) & ~std::size_t{63};
#if ROUNDOFF_UCONTEXT
  ucontext_t& context = portable_->contexts[slot];
  getcontext(&context);
  context.uc_stack.ss_sp = bottom;
  context.uc_stack.ss_size = usable;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
  return &context;
#else
  auto* top = reinterpret_cast<void**>(bottom + usable);
  *--top = nullptr;  // where a return address would stand: entry is called, so to speak
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
#endif
}

}  // namespace roundoff::simt
