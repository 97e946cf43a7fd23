// What a computation carries with it: where it runs, its memory, its tape and its settings.
// One context belongs to one thread. On a device all its work goes to one stream, in order, and the
// host waits for it only where it reads a tensor or says so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/autocast.h"
#include "engine/device.h"
#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/base/scratch.h"
#include "kernels/base/target.h"

namespace roundoff {

struct DropoutKey;  // kernels/dropout/dropout.h

// Where random numbers stand: they are a function of these, of the tensor's number and of the
// element, and of nothing else. sample0 is the global index (the position in the epoch's order) of
// the first sample of the batch that runs.
struct RngKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t sample0 = 0;
  // On a device, where set: step and sample0 as its kernels read them, in its memory.
  const DropoutKey* device = nullptr;
};

class ProductLibrary;  // ops/product_library.h

class Context {
 public:
  Context() = default;  // on cpu
  // Opens the device with default settings; throws simt::DeviceAbsent where it cannot be used.
  explicit Context(Device device);
  // On a device that was opened; null for cpu. `checked`: runs the kernels that the emulator's
  // sanitizer and profiler see, and gives every tensor memory of exactly its size.
  explicit Context(std::shared_ptr<simt::Runtime> runtime, bool checked = false);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const { return queue_ == nullptr ? Device::cpu : queue_->device(); }
  bool checked() const { return checked_; }
  // Null on cpu.
  const std::shared_ptr<DeviceQueue>& queue() const { return queue_; }
  StreamRef stream() const { return queue_ == nullptr ? StreamRef{} : queue_->stream().ref(); }
  DeviceErrors* errors() const { return reports_ == nullptr ? nullptr : reports_->device(); }

  // Bad data that kernels found (a label out of range): request_errors() once a step makes an error
  // arrive, check_errors() throws it as DeviceDataError some steps later; neither waits for the
  // step that runs. synchronize() waits for all work and throws what went wrong in it. On cpu the
  // operation itself throws, and these do nothing.
  void request_errors();
  void check_errors();
  void synchronize();
  // Zeros in memory of the context's device.
  void zero(const View& view);

 private:
  std::shared_ptr<DeviceQueue> queue_;
  std::unique_ptr<DeviceReports> reports_;
  bool checked_ = false;

 public:
  Allocator allocator;  // before what allocates from it
  Scratch scratch;
  Tape tape;
  Autocast autocast;
  // Of every GEMM, convolution and sum.
  Accumulator accumulator = Accumulator::fp32;
  // GEMM and convolution round fp32 operands to tf32.
  bool tf32 = false;
  // Every sum over samples is one chain in the order of the samples, which begins with what the
  // gradient holds, and what belongs to one sample does not depend on the others: a window's
  // gradient then has the same bits however it is cut into micro-batches (docs/reproducible.md).
  bool reproducible = false;
  // The floating dtype of every operation's first output, in place of the one that it has by
  // itself: for a person who wants a 16-bit product in fp32, say, still with one rounding.
  std::optional<DType> output_dtype;
  bool grad_enabled = true;
  // Dropout drops, BatchNorm normalises by the batch.
  bool training = true;
  RngKey rng;
  // Told of every node where set; not owned.
  NodeObserver* observer = nullptr;
  // Computes products and convolutions in place of our kernels where set, as far as it takes them;
  // not owned.
  ProductLibrary* products = nullptr;
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

// Why computations cannot run on a device, in this build and on this machine; empty where they can.
std::string device_refusal(Device device);

namespace detail {
// Throws: the device has no kernels in this build.
[[noreturn]] void fail_without_kernels(const Context& context);
}  // namespace detail

// Calls f with the tag of the context's device. f is compiled for the targets that the build has
// kernels for: ROUNDOFF_HAS_SIM, ROUNDOFF_HAS_CHECKED and ROUNDOFF_HAS_CUDA, which CMake defines.
template <class F>
void visit_target(const Context& context, F&& f) {
  switch (context.device()) {
    case Device::cpu:
      return f(Ref{});
    case Device::sim:  // NOLINT(bugprone-branch-clone): builds differ
#if defined(ROUNDOFF_HAS_CHECKED)
      if (context.checked()) return f(Checked{context.stream(), context.errors()});
#endif
#if defined(ROUNDOFF_HAS_SIM)
      if (!context.checked()) return f(Sim{context.stream(), context.errors()});
#endif
      break;
    case Device::cuda:
#if defined(ROUNDOFF_HAS_CUDA)
      return f(Cuda{context.stream(), context.errors()});
#endif
      break;
  }
  detail::fail_without_kernels(context);
}

template <class F>
void ForwardFrame::run(F&& f) const {
  visit_target(context_, f);
}
template <class F>
void BackwardFrame::run(F&& f) const {
  visit_target(context_, f);
}

}  // namespace roundoff
