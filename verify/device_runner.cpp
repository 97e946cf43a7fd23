// Runs named calls in a context of a device, with sentinels around every buffer.
#include <cstring>

#include "engine/device.h"
#include "kernels/simt/runtime_sim.h"
#include "ops/shape.h"
#include "verify/check.h"
#include "verify/guard.h"

namespace roundoff {

namespace {

// One context of a device, guarded.
class GuardedContext {
 public:
  GuardedContext(std::shared_ptr<simt::Runtime> runtime, const RunnerOptions& options)
      : guard_(access()), context_(std::move(runtime), options.sanitize) {
    // The sanitizer knows the bounds of buffers, and would take a margin for a part of them.
    if (!options.sanitize) context_.allocator.observe(&guard_);
    context_.accumulator = options.accumulator;
  }

  Context& context() { return context_; }
  MemoryGuard& guard() { return guard_; }

 private:
  MemoryAccess access() {
    const MemoryAccess host = host_memory();
    return {[this, host](void* to, const void* from, std::size_t bytes) {
              DeviceQueue* queue = context_.queue().get();
              if (queue == nullptr)
                host.to_device(to, from, bytes);
              else if (bytes != 0)
                queue->write(to, from, bytes);
            },
            [this, host](void* to, const void* from, std::size_t bytes) {
              DeviceQueue* queue = context_.queue().get();
              if (queue == nullptr)
                host.to_host(to, from, bytes);
              else if (bytes != 0)
                queue->read(to, from, bytes);
            }};
  }

  MemoryGuard guard_;  // outlives the context's blocks
  Context context_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

CallOutcome run(GuardedContext& device, const CallRequest& r) {
  Context& context = device.context();
  const OpSignature& signature = r.parameters.signature();
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
    OpResult result = run_op(context, r.parameters, inputs);
    outputs = std::move(result.outputs);
  } else {
    const Tensor y = apply_op(context, r.parameters, inputs, &outputs);
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
    if (!same_bits(now.to(host), t)) outcome.faults.push_back(name + " was changed");
  }
  if (dy.defined() && !same_bits(dy.to(host), r.dy)) outcome.faults.push_back("dy was changed");
  outputs.clear();
  leaves.clear();
  inputs.clear();
  context.tape.clear();
  for (std::string& line : device.guard().overruns()) outcome.faults.push_back(std::move(line));
  return outcome;
}

}  // namespace

CallRunner device_runner(Device device, const RunnerOptions& options) {
  ROUNDOFF_CHECK(!options.sanitize || device == Device::sim, "check",
                 "the sanitizer sees kernels on sim only");
  if (device == Device::cpu)
    return [options](const CallRequest& request) {
      GuardedContext guarded(nullptr, options);
      return run(guarded, request);
    };
  if (device == Device::cuda)
    return [options, runtime = simt::open(device)](const CallRequest& request) {
      GuardedContext guarded(runtime, options);
      return run(guarded, request);
    };
  simt::Config config;
  config.sanitize = options.sanitize;
  if (options.accumulator == Accumulator::v100) config.tensor_core = simt::TensorCoreModel::v100;
  if (options.accumulator == Accumulator::a100) config.tensor_core = simt::TensorCoreModel::a100;
  if (options.accumulator == Accumulator::h100) config.tensor_core = simt::TensorCoreModel::h100;
  simt::SimOptions sim;
  sim.emulator = config;
  return [options, config, runtime = simt::open_sim(sim)](const CallRequest& request) {
    simt::emulator(*runtime).config = simt::with_schedule(config, request.schedule);
    GuardedContext guarded(runtime, options);
    return run(guarded, request);
  };
}

}  // namespace roundoff
