// What a computation carries with it: where it runs, its memory, its tape and its settings.
// One context belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/autocast.h"
#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/base/scratch.h"
#include "kernels/base/target.h"

namespace roundoff {

// Where random numbers stand: they are a function of these, of the tensor's number and of the
// element, and of nothing else. sample0 is the global index (the position in the epoch's order) of
// the first sample of the batch that runs.
struct RngKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t sample0 = 0;
};

class Context {
 public:
  Context() = default;
  explicit Context(Device d) : device(d) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device = Device::cpu;
  Allocator allocator;  // before what allocates from it
  Scratch scratch;
  Tape tape;
  Autocast autocast;
  // Of every GEMM, convolution and sum.
  Accumulator accumulator = Accumulator::fp32;
  // GEMM and convolution round fp32 operands to tf32.
  bool tf32 = false;
  // The floating dtype of every operation's first output, in place of the one that it has by
  // itself: for a person who wants a 16-bit product in fp32, say, still with one rounding.
  std::optional<DType> output_dtype;
  bool grad_enabled = true;
  // Dropout drops, BatchNorm normalises by the batch.
  bool training = true;
  RngKey rng;
  // Told of every node where set; not owned.
  NodeObserver* observer = nullptr;
};

// Sets a field for a scope, and puts it back however the scope ends.
template <class T>
class Scoped {
 public:
  Scoped(T& field, T value) : field_(field), before_(std::move(field)) {
    field_ = std::move(value);
  }
  ~Scoped() { field_ = std::move(before_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& field_;
  T before_;
};

// Autocast to `low` inside the scope; DType::fp32 turns it off. Nestable.
class AutocastScope {
 public:
  AutocastScope(Context& context, DType low) : scope_(context.autocast, with(context, low)) {}

 private:
  static Autocast with(const Context& context, DType low) {
    ROUNDOFF_CHECK(is_16bit(low) || low == DType::fp32, "autocast", "cannot cast to ", name(low),
                   "; fp16, bf16 or fp32 (off) expected");
    Autocast a = context.autocast;
    a.low = low;
    return a;
  }
  Scoped<Autocast> scope_;
};

// Nothing is recorded inside the scope.
class NoGrad {
 public:
  explicit NoGrad(Context& context) : scope_(context.grad_enabled, false) {}

 private:
  Scoped<bool> scope_;
};

// Calls f with the tag of `device`.
template <class F>
void visit_target(Device device, F&& f) {
  ROUNDOFF_CHECK(device == Device::cpu, "device",
                 "this build runs on cpu only; sim and cuda are not in it");
  f(Ref{});
}

template <class F>
void ForwardFrame::run(F&& f) const {
  visit_target(context_.device, f);
}
template <class F>
void BackwardFrame::run(F&& f) const {
  visit_target(context_.device, f);
}

}  // namespace roundoff
