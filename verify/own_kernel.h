// A person's own kernels under the same check as Roundoff's: launchers on raw device arrays, and
// what they should compute, by name or as a formula.
//
//   OwnKernel k;
//   k.name = "my_softmax";
//   k.oracle = "softmax";                                    // an operation of `roundoff op`
//   k.forward = launcher([](auto target, const KernelCall& call) {
//     my_softmax(target, call.in("x"), call.out("y").view);
//   });
//   return check_main(argc, argv, {k});                      // verify/check_main.h
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/view.h"
#include "verify/check.h"
#include "verify/number.h"

namespace roundoff {

// One call of a launcher. All arrays are in the memory of the call's device, row-major, with
// sentinels around them; outputs hold NaN. A launcher queues its work on `stream` and returns.
class KernelCall {
 public:
  StreamRef stream;
  DeviceErrors* errors = nullptr;
  DType dtype = DType::fp32;  // of the operands
  CaseParameters parameters;  // as the case has them

  bool has(std::string_view name) const { return in_.find(name) != in_.end(); }
  // An input, by the oracle's names ("x", "logits"); backward also sees "dy" and, where forward
  // ran, "y". Absent optional inputs give an absent view. Labels are int64.
  ConstView in(std::string_view name) const;
  // "y" forward, "dx" and so on backward. Throws for a name that the kernel did not declare.
  const Out& out(std::string_view name) const;
  // A parameter as text, or `fallback`.
  std::string text(std::string_view name, std::string_view fallback = "") const;
  // Device memory for the time of the call, not initialised.
  void* workspace(std::size_t bytes) const { return allocate_(bytes); }

 private:
  friend class OwnKernelRun;
  std::map<std::string, ConstView, std::less<>> in_;
  std::map<std::string, Out, std::less<>> out_;
  std::function<void*(std::size_t)> allocate_;
};

// A function for each target that the kernel was built for; the others stay empty.
struct Launcher {
  std::function<void(const KernelCall&)> cpu, sim, checked, cuda;
  explicit operator bool() const { return cpu || sim || checked || cuda; }
};

// f(target, call) for the targets of the kernel library that this file is linked with.
template <class F>
Launcher launcher([[maybe_unused]] F f) {
  Launcher l;
#if defined(ROUNDOFF_HAS_SIM)
  l.sim = [f](const KernelCall& call) { f(Sim{call.stream, call.errors}, call); };
#endif
#if defined(ROUNDOFF_HAS_CHECKED)
  l.checked = [f](const KernelCall& call) { f(Checked{call.stream, call.errors}, call); };
#endif
#if defined(ROUNDOFF_HAS_CUDA)
  l.cuda = [f](const KernelCall& call) { f(Cuda{call.stream, call.errors}, call); };
#endif
  return l;
}
// A function on the host's memory, for the device cpu.
template <class F>
Launcher host_launcher(F f) {
  Launcher l;
  l.cpu = f;
  return l;
}

// A reference of a person's own: reads Numbers, writes Numbers (verify/number.h), and so gives its
// bound with it.
class ReferenceCall {
 public:
  const Case& c;
  const std::vector<Number>& in(std::string_view name) const;
  const Shape& shape(std::string_view name) const;
  // y, or dx in the backward pass: as many as the array has elements.
  std::vector<Number>& out(std::string_view name) { return out_[std::string(name)]; }
  std::string text(std::string_view name, std::string_view fallback = "") const;

 private:
  friend Expectation expectation(const std::function<void(ReferenceCall&)>& forward,
                                 const std::function<void(ReferenceCall&)>& backward);
  explicit ReferenceCall(const Case& which) : c(which) {}
  std::map<std::string, std::vector<Number>, std::less<>> in_;
  std::map<std::string, Shape, std::less<>> shapes_;
  std::map<std::string, std::vector<Number>> out_;
};
Expectation expectation(const std::function<void(ReferenceCall&)>& forward,
                        const std::function<void(ReferenceCall&)>& backward);

struct OwnKernel {
  std::string name;
  Launcher forward;
  // Writes what `gradients` names, from the inputs, "dy" and "y".
  Launcher backward{};
  // Operands whose gradients `backward` writes: {"x"}.
  std::vector<std::string> gradients{"x"};
  // Where they go; leaf and accumulated are fp32.
  GradientForm gradient_form = GradientForm::activation;

  // What it should compute: an operation of ops/run.h ...
  std::string oracle{};
  // ... or a formula.
  std::function<void(ReferenceCall&)> reference{};
  std::function<void(ReferenceCall&)> reference_backward{};

  // Shapes and parameters. Empty, with a named oracle: that operation's own cases, as far as
  // `takes` agrees.
  std::vector<Case> cases{};
  std::function<bool(const Case&)> takes{};
  std::vector<DType> dtypes{DType::fp32, DType::fp16, DType::bf16};
  // What products and sums are formed in, for a named oracle: h100 for wgmma.
  Accumulator accumulator = Accumulator::fp32;
  // exp and the like are within so many ulp; 2 covers CUDA's own.
  double libm_ulps = 2;
};

// Throws UsageError for a kernel that says nothing of what it computes, or that has no launcher.
void validate(const OwnKernel& kernel);
// The cases of a kernel.
std::vector<Case> cases_of(const OwnKernel& kernel, bool full);
// How check_case() has to look at it.
CheckOptions check_options(const OwnKernel& kernel);
// Runs it. Throws UsageError where it was not built for the device.
CallRunner own_runner(const OwnKernel& kernel, Device device, const RunnerOptions& options = {});

namespace detail {
struct OpenedDevice;
}
// The same on a device that is open.
CallRunner own_runner(const OwnKernel& kernel, const detail::OpenedDevice& device,
                      const RunnerOptions& options);
// Runs the forward launcher some more times, and puts the milliseconds of each between events into
// `times`, which must outlive the runner.
CallRunner own_timing_runner(const OwnKernel& kernel, const detail::OpenedDevice& device,
                             const RunnerOptions& options, std::vector<double>& times);

}  // namespace roundoff
