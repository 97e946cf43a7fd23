// Runs named calls in a context of a device, with sentinels around every buffer.
#include "ops/shape.h"
#include "verify/guarded_context.h"

namespace roundoff {

namespace {

CallOutcome run(detail::GuardedContext& device, const CallRequest& r) {
  Context& context = device.context();
  const OpSignature& signature = r.parameters->signature();
  Allocator host;
  CallOutcome outcome;
  NamedTensors inputs, leaves;
  for (const auto& [name, t] : r.inputs) {
    Tensor copy = t.to(context.allocator);
    device.guard().name_buffer(copy.raw(), name);
    inputs[name] = copy;
    if (r.dy.defined() && input_role(signature, name) == InputRole::operand) {
      copy = make_leaf(context.allocator, copy, name);
      device.guard().name_buffer(copy.leaf()->grad.raw(), concat("d", name));
      if (const auto before = r.before.find(concat("d", name)); before != r.before.end()) {
        copy.leaf()->grad.copy_from(before->second);
        copy.leaf()->has_grad = true;
      }
      leaves[name] = copy;
      // An activation's gradient has its dtype; one more node lies between it and the leaf.
      if (r.form == GradientForm::activation) copy = reshape(context, copy, copy.shape().extents());
    }
    inputs[name] = copy;
  }
  Tensor dy;
  if (r.dy.defined()) dy = r.dy.to(context.allocator);
  if (dy.defined()) device.guard().name_buffer(dy.raw(), "dy");
  NamedTensors outputs;
  if (signature.numbered()) {
    OpResult result = run_op(context, *r.parameters, inputs);
    outputs = std::move(result.outputs);
  } else {
    const Tensor y = apply_op(context, *r.parameters, inputs, &outputs);
    outputs["y"] = y.detached();
    ROUNDOFF_CHECK(y.shape() == r.c.y, r.c.operation, "y has shape ", y.shape(), ", ", r.c.y,
                   " expected");
    if (dy.defined()) context.tape.backward(context, y, dy);
  }
  context.synchronize();  // throws what kernels reported
  for (const auto& [name, t] : outputs) {
    device.guard().name_buffer(t.raw(), name);
    outcome.outputs[name] = t.to(host);
  }
  for (const auto& [name, t] : leaves) {
    const Leaf& leaf = *t.leaf();
    // An operand that nothing depends on (its factor is 0) has the gradient 0.
    outcome.gradients[concat("d", name)] =
        leaf.has_grad ? leaf.grad.to(host) : Tensor::zeros(host, t.shape(), leaf.grad.dtype());
    if (r.form == GradientForm::activation && leaf.has_grad && t.dtype() != leaf.grad.dtype())
      outcome.gradients[concat("d", name)] = Tensor::from(
          host, outcome.gradients[concat("d", name)].to_vector(), t.shape(), t.dtype());
  }
  for (const auto& [name, t] : r.inputs) {
    const auto found = inputs.find(name);
    const Tensor& now = leaves.count(name) != 0 ? leaves.find(name)->second : found->second;
    if (!detail::same_bits(now.to(host), t)) outcome.faults.push_back(name + " was changed");
  }
  if (dy.defined() && !detail::same_bits(dy.to(host), r.dy))
    outcome.faults.push_back("dy was changed");
  outputs.clear();
  leaves.clear();
  inputs.clear();
  context.tape.clear();
  for (std::string& line : device.guard().overruns()) outcome.faults.push_back(std::move(line));
  return outcome;
}

}  // namespace

namespace detail {

OpenedDevice open_device(Device device, const RunnerOptions& options) {
  ROUNDOFF_CHECK(!options.checked() || device == Device::sim, "check",
                 "the sanitizer and the profiler see kernels on sim only");
  OpenedDevice opened;
  opened.device = device;
  if (device == Device::cpu) return opened;
  if (device == Device::cuda) {
    opened.runtime = simt::open(device);
    return opened;
  }
  using Model = simt::TensorCoreModel;
  opened.config.sanitize = options.sanitize;
  opened.config.profile = options.profile;
  if (options.accumulator == Accumulator::v100) opened.config.tensor_core = Model::v100;
  if (options.accumulator == Accumulator::a100) opened.config.tensor_core = Model::a100;
  if (options.accumulator == Accumulator::h100) opened.config.tensor_core = Model::h100;
  simt::SimOptions sim;
  sim.emulator = opened.config;
  opened.runtime = simt::open_sim(sim);
  return opened;
}

void OpenedDevice::set_schedule(std::uint64_t k) const {
  if (device == Device::sim) simt::emulator(*runtime).config = simt::with_schedule(config, k);
}

}  // namespace detail

CallRunner device_runner(Device device, const RunnerOptions& options) {
  const auto devices = std::make_shared<detail::RenewedDevice>(device, options);
  return [options, devices](const CallRequest& request) {
    const detail::OpenedDevice& opened = devices->next();
    opened.set_schedule(request.schedule);
    detail::GuardedContext guarded(opened.runtime, options);
    return run(guarded, request);
  };
}

}  // namespace roundoff
