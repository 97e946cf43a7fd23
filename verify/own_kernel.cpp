#include "verify/own_kernel.h"

#include <algorithm>

#include "verify/bound.h"
#include "verify/cases.h"
#include "verify/guarded_context.h"

namespace roundoff {

namespace {

std::string text_of(const CaseParameters& parameters, std::string_view name,
                    std::string_view fallback) {
  const auto found = parameters.find(std::string(name));
  return found == parameters.end() ? std::string(fallback) : found->second;
}

// What a launcher runs on a device; empty where it was not built for it.
const std::function<void(const KernelCall&)>& function_of(const Launcher& l, Device device,
                                                          bool checked) {
  if (device == Device::cpu) return l.cpu;
  if (device == Device::cuda) return l.cuda;
  return checked ? l.checked : l.sim;
}

DType wide_of(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

}  // namespace

ConstView KernelCall::in(std::string_view name) const {
  const auto found = in_.find(name);
  return found == in_.end() ? ConstView::absent() : found->second;
}

const Out& KernelCall::out(std::string_view name) const {
  const auto found = out_.find(name);
  ROUNDOFF_CHECK(found != out_.end(), "own kernel", "there is no output '", name, "' in this call");
  return found->second;
}

std::string KernelCall::text(std::string_view name, std::string_view fallback) const {
  return text_of(parameters, name, fallback);
}

const std::vector<Number>& ReferenceCall::in(std::string_view name) const {
  const auto found = in_.find(name);
  ROUNDOFF_CHECK(found != in_.end(), c.operation, "the reference asks for '", name,
                 "', which the case does not have");
  return found->second;
}
const Shape& ReferenceCall::shape(std::string_view name) const {
  const auto found = shapes_.find(name);
  ROUNDOFF_CHECK(found != shapes_.end(), c.operation, "the reference asks for '", name,
                 "', which the case does not have");
  return found->second;
}
std::string ReferenceCall::text(std::string_view name, std::string_view fallback) const {
  return text_of(c.parameters, name, fallback);
}

Expectation expectation(const std::function<void(ReferenceCall&)>& forward,
                        const std::function<void(ReferenceCall&)>& backward) {
  return [forward, backward](const CallRequest& request, const JudgedArithmetic& judged,
                             Pass pass) -> NamedBounds {
    const auto& formula = pass == Pass::forward ? forward : backward;
    if (!formula) return {};
    const bool wide = judged.operands == DType::fp64 || judged.accumulator == Accumulator::fp64;
    Arithmetic arithmetic;
    arithmetic.accumulator = wide ? kFp64 : kFp32;
    arithmetic.output = format_of(judged.output);
    arithmetic.libm_ulps = judged.libm_ulps;
    ReferenceCall call(request.c);
    const auto add = [&](const std::string& name, const Tensor& t) {
      call.in_[name] = numbers(t.to_vector(), arithmetic);
      call.shapes_[name] = t.shape();
    };
    for (const auto& [name, t] : request.inputs) add(name, t);
    if (pass == Pass::backward && request.dy.defined()) add("dy", request.dy);
    call.shapes_["y"] = request.c.y;
    formula(call);
    NamedBounds bounds;
    for (const auto& [name, results] : call.out_) bounds[name] = bound_of(results, arithmetic);
    return bounds;
  };
}

void validate(const OwnKernel& k) {
  if (k.name.empty()) throw UsageError("[own kernel] a kernel has no name");
  if (!k.forward) throw UsageError(concat("[", k.name, "] has no launcher that this build has"));
  if (k.oracle.empty() == !k.reference)
    throw UsageError(concat("[", k.name, "] needs either a named oracle or a reference"));
  if (!k.oracle.empty()) (void)op_signature(k.oracle);
  if (k.reference && k.cases.empty())
    throw UsageError(concat("[", k.name, "] has a reference of its own and no cases"));
  if (k.backward && k.reference && !k.reference_backward)
    throw UsageError(concat("[", k.name, "] has a backward launcher and no reference for it"));
}

std::vector<Case> cases_of(const OwnKernel& k, bool full) {
  std::vector<Case> all = k.cases;
  if (all.empty()) all = list_cases(full ? CaseSet::full : CaseSet::quick, k.oracle);
  std::vector<Case> taken;
  for (Case& c : all) {
    if (k.reference) c.operation = k.name;
    if (!k.reference && c.operation.empty()) c.operation = k.oracle;
    if (!k.takes || k.takes(c)) taken.push_back(std::move(c));
  }
  return taken;
}

CheckOptions check_options(const OwnKernel& k) {
  CheckOptions options;
  options.accumulator = k.accumulator;
  options.libm_ulps = k.libm_ulps;
  options.gradients = static_cast<bool>(k.backward);
  options.form = k.gradient_form;
  if (k.reference) options.reference = expectation(k.reference, k.reference_backward);
  return options;
}

// Fills calls and brings their results back.
class OwnKernelRun {
 public:
  OwnKernelRun(const OwnKernel& kernel, detail::GuardedContext& device, const CallRequest& request,
               std::vector<double>* times = nullptr)
      : kernel_(kernel),
        device_(device),
        context_(device.context()),
        request_(request),
        times_(times) {}

  CallOutcome run() {
    for (const auto& [name, t] : request_.inputs) to_device(name, t);
    const bool loss = request_.parameters != nullptr && request_.parameters->signature().loss;
    const DType y_dtype = loss ? wide_of(request_.dtype) : request_.dtype;
    KernelCall forward = call();
    add_output(forward, "y", request_.c.y, y_dtype);
    launch(kernel_.forward, forward);
    if (times_ != nullptr) time(forward);
    fetch("y", outcome_.outputs);
    if (request_.dy.defined() && kernel_.backward) {
      arrays_["y"] = results_.at("y");
      to_device("dy", request_.dy);
      KernelCall backward = call();
      for (const std::string& operand : kernel_.gradients) {
        const auto found = request_.inputs.find(operand);
        if (found == request_.inputs.end()) continue;
        const bool activation = request_.form == GradientForm::activation;
        add_output(backward, concat("d", operand), found->second.shape(),
                   activation ? request_.dtype : wide_of(request_.dtype));
      }
      launch(kernel_.backward, backward);
      for (const auto& output : backward.out_) fetch(output.first, outcome_.gradients);
    }
    check_unchanged();
    arrays_.clear();
    results_.clear();
    held_.clear();
    for (std::string& line : device_.guard().overruns()) outcome_.faults.push_back(std::move(line));
    return std::move(outcome_);
  }

 private:
  void to_device(const std::string& name, const Tensor& t) {
    arrays_[name] = t.to(context_.allocator);
    device_.guard().name_buffer(arrays_[name].raw(), name);
  }

  KernelCall call() {
    KernelCall c;
    c.stream = context_.stream();
    c.errors = context_.errors();
    c.dtype = request_.dtype;
    c.parameters = request_.c.parameters;
    for (const auto& [name, t] : arrays_) c.in_[name] = t.const_view();
    c.allocate_ = [this](std::size_t bytes) {
      held_.push_back(
          Tensor::empty(context_.allocator, {static_cast<std::int64_t>(bytes)}, DType::u8));
      device_.guard().name_buffer(held_.back().raw(), "workspace");
      return held_.back().raw();
    };
    return c;
  }

  void add_output(KernelCall& c, const std::string& name, const Shape& shape, DType dtype) {
    Tensor t = Tensor::empty(context_.allocator, shape, dtype);
    device_.guard().name_buffer(t.raw(), name);
    Write write = Write::overwrite;
    if (const auto before = request_.before.find(name); before != request_.before.end()) {
      t.copy_from(before->second);
      write = Write::accumulate;
    }
    c.out_[name] = Out(t.view(), write);
    results_[name] = std::move(t);
  }

  void launch(const Launcher& l, const KernelCall& c, bool wait = true) {
    const auto& f = function_of(l, context_.device(), context_.checked());
    f(c);
    if (wait) context_.synchronize();
  }

  // Twenty launches after three that warm up.
  void time(const KernelCall& c) {
    constexpr int kWarm = 3, kTimed = 20;
    simt::Stream& stream = context_.queue()->stream();
    simt::Event before(stream.shared_runtime()), after(stream.shared_runtime());
    for (int i = 0; i < kWarm + kTimed; ++i) {
      before.record(stream);
      launch(kernel_.forward, c, false);
      after.record(stream);
      after.synchronize();
      if (i >= kWarm) times_->push_back(after.milliseconds_since(before));
    }
  }

  void fetch(const std::string& name, NamedTensors& to) { to[name] = results_.at(name).to(host_); }

  void check_unchanged() {
    for (const auto& [name, t] : arrays_) {
      const auto given = request_.inputs.find(name);
      const Tensor& before = name == "dy"  ? request_.dy
                             : name == "y" ? outcome_.outputs.at("y")
                                           : given->second;
      if (!detail::same_bits(t.to(host_), before))
        outcome_.faults.push_back(concat(name, " was changed"));
    }
  }

  const OwnKernel& kernel_;
  detail::GuardedContext& device_;
  Context& context_;
  const CallRequest& request_;
  std::vector<double>* times_;
  Allocator host_;
  CallOutcome outcome_;
  std::map<std::string, Tensor> arrays_, results_;
  std::vector<Tensor> held_;
};

namespace {

void check_built(const OwnKernel& kernel, Device device, bool checked) {
  constexpr const char* kNames[] = {"cpu", "sim", "cuda"};
  for (const Launcher* l : {&kernel.forward, &kernel.backward})
    if (*l && !function_of(*l, device, checked))
      throw UsageError(concat("[", kernel.name, "] is not built for ",
                              kNames[static_cast<int>(device)],
                              checked ? " with the sanitizer and profiler" : ""));
}

}  // namespace

CallRunner own_runner(const OwnKernel& kernel, Device device, const RunnerOptions& options) {
  validate(kernel);
  check_built(kernel, device, options.checked());
  const auto devices = std::make_shared<detail::RenewedDevice>(device, options);
  return [kernel, options, devices](const CallRequest& request) {
    const detail::OpenedDevice& opened = devices->next();
    opened.set_schedule(request.schedule);
    detail::GuardedContext guarded(opened.runtime, options);
    return OwnKernelRun(kernel, guarded, request).run();
  };
}

CallRunner own_runner(const OwnKernel& kernel, const detail::OpenedDevice& device,
                      const RunnerOptions& options) {
  validate(kernel);
  check_built(kernel, device.device, options.checked());
  return [kernel, options, device](const CallRequest& request) {
    device.set_schedule(request.schedule);
    detail::GuardedContext guarded(device.runtime, options);
    return OwnKernelRun(kernel, guarded, request).run();
  };
}

CallRunner own_timing_runner(const OwnKernel& kernel, const detail::OpenedDevice& device,
                             const RunnerOptions& options, std::vector<double>& times) {
  return [kernel, options, device, &times](const CallRequest& request) {
    detail::GuardedContext guarded(device.runtime, options);
    return OwnKernelRun(kernel, guarded, request, &times).run();
  };
}

}  // namespace roundoff
