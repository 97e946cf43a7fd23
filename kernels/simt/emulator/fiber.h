// Switching between the stacks of CUDA threads: a few instructions on x86-64, ucontext elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace roundoff::simt {

// Stacks of one worker, made once. Each has a page below it that nobody may touch.
class Stacks {
 public:
  static constexpr std::size_t kBytes = 128 * 1024;
  explicit Stacks(std::size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // A context in `slot` that runs entry() when it is switched to; entry never returns.
  void* prepare(std::size_t slot, void (*entry)());
  std::size_t count() const { return count_; }

 private:
  std::size_t count_;
  char* memory_;
  std::vector<bool> guarded_;
  struct Portable;
  std::unique_ptr<Portable> portable_;
};

// Leaves the running context, keeping it in *save, and goes on with `load`. A context that is kept
// is resumed once. Switching to the context that runs is not allowed.
void switch_context(void** save, void* load);

}  // namespace roundoff::simt
