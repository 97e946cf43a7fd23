#include "kernels/simt/emulator/fiber.h"

#include <sys/mman.h>

#include "kernels/base/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROUNDOFF_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define ROUNDOFF_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ROUNDOFF_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define ROUNDOFF_TSAN 1
#endif

// Sanitizers follow switches of stacks if they are told; the portable contexts have room for what
// they hand out.
#if !defined(__x86_64__) || defined(ROUNDOFF_PORTABLE_FIBERS) || defined(ROUNDOFF_ASAN) || \
    defined(ROUNDOFF_TSAN)
#define ROUNDOFF_UCONTEXT 1
#include <pthread.h>
#include <ucontext.h>

#include <vector>
#else
#define ROUNDOFF_UCONTEXT 0
#endif

#if defined(ROUNDOFF_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif
#if defined(ROUNDOFF_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace roundoff::simt {

namespace {
constexpr std::size_t kGuard = 4096;
// Stacks start at different lines of the cache, or all of them would compete for the same ones.
constexpr std::size_t kColours = 61;
constexpr std::size_t kColourBytes = 192;
}  // namespace

#if ROUNDOFF_UCONTEXT

namespace {

struct Context {
  ucontext_t registers;
  // What the sanitizers know it by.
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake_stack = nullptr;  // kept for the slot's next fiber: what was abandoned frees nothing
  void* fiber = nullptr;
  bool own_fiber = false;
  unsigned uses = 0;
  void (*entry)() = nullptr;

  Context() = default;
  ~Context() { forget(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void forget() {
#if defined(ROUNDOFF_TSAN)
    if (own_fiber) __tsan_destroy_fiber(fiber);
    fiber = nullptr;
    own_fiber = false;
#endif
  }
};

// The context of the host thread that switched to a fiber first stands on that thread's stack.
Context& host() {
  static thread_local Context context;
  return context;
}
thread_local Context* t_running = nullptr;

void arrived([[maybe_unused]] Context* here) {
#if defined(ROUNDOFF_ASAN)
  __sanitizer_finish_switch_fiber(here->fake_stack, nullptr, nullptr);
#endif
}

}  // namespace

struct Stacks::Portable {
  std::vector<std::unique_ptr<Context>> contexts;
};

void switch_context(void** save, void* load) {
  Context* from = t_running == nullptr ? &host() : t_running;
  auto* to = static_cast<Context*>(load);
#if defined(ROUNDOFF_ASAN)
  if (from == &host() && from->bottom == nullptr) {
    pthread_attr_t attributes;
    void* bottom = nullptr;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &bottom, &from->bytes);
      pthread_attr_destroy(&attributes);
      from->bottom = bottom;
    }
  }
  __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
#if defined(ROUNDOFF_TSAN)
  if (from->fiber == nullptr) from->fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->fiber, 0);
#endif
  *save = from;
  t_running = to == &host() ? nullptr : to;
  swapcontext(&from->registers, &to->registers);
  arrived(from);
}

namespace {
// The first thing that a context runs.
void begin() {
  arrived(t_running);
  t_running->entry();
}
}  // namespace

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
  while (portable_->contexts.size() < count)
    portable_->contexts.push_back(std::make_unique<Context>());
#endif
}

Stacks::~Stacks() {
  // The marks of frames must not outlive the memory: what is mapped here next is no stack.
  ASAN_UNPOISON_MEMORY_REGION(memory_, count_ * kBytes);
  munmap(memory_, count_ * kBytes);
}

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
  Context& context = *portable_->contexts[slot];
  context.bottom = bottom;
  context.bytes = usable;
#if defined(ROUNDOFF_TSAN)
  // A context is not left by returning, so its fiber would hold ever more open calls.
  constexpr unsigned kMostUses = 500;
  if (context.uses++ % kMostUses == 0) {
    context.forget();
    context.fiber = __tsan_create_fiber(0);
    context.own_fiber = true;
  }
#endif
  context.entry = entry;
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = bottom;
  context.registers.uc_stack.ss_size = usable;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, begin, 0);
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
