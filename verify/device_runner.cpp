// Runs named calls in a context of a device, with sentinels around every buffer.
#include <cstring>

#include "ops/shape.h"
#include "verify/check.h"
#include "verify/guard.h"

namespace roundoff {

namespace {

// One device, one context, guarded.
class GuardedContext {
 public:
  explicit GuardedContext(Accumulator accumulator) : access_(host_memory()), guard_(access_) {
    context_.allocator.observe(&guard_);
    context_.accumulator = accumulator;
  }

  Context& context() { return context_; }
  MemoryGuard& guard() { return guard_; }

  Tensor to_device(const Tensor& t) {
    if (!t.defined()) return t;
    Tensor copy = Tensor::empty(context_.allocator, t.shape(), t.dtype());
    if (t.bytes() != 0) access_.to_device(copy.raw(), t.raw(), t.bytes());
    return copy;
  }
  void write(const Tensor& to, const Tensor& from) {
    if (from.bytes() != 0) access_.to_device(to.raw(), from.raw(), from.bytes());
  }
  Tensor to_host(Allocator& allocator, const Tensor& t) {
    Tensor copy = Tensor::empty(allocator, t.shape(), t.dtype());
    if (t.bytes() != 0) access_.to_host(copy.raw(), t.raw(), t.bytes());
    return copy;
  }

 private:
  MemoryAccess access_;
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
    Tensor copy = device.to_device(t);
    device.guard().name_buffer(copy.raw(), name);
    inputs[name] = copy;
    if (r.dy.defined() && input_role(signature, name) == InputRole::operand) {
      copy = make_leaf(context.allocator, copy, name);
      device.guard().name_buffer(copy.leaf()->grad.raw(), concat("d", name));
      if (const auto before = r.before.find(concat("d", name)); before != r.before.end()) {
        device.write(copy.leaf()->grad, before->second);
        copy.leaf()->has_grad = true;
      }
      leaves[name] = copy;
      // An activation's gradient has its dtype; one more node lies between it and the leaf.
      if (r.form == GradientForm::activation) copy = reshape(context, copy, copy.shape().extents());
    }
    inputs[name] = copy;
  }
  Tensor dy = device.to_device(r.dy);
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
  for (const auto& [name, t] : outputs) {
    device.guard().name_buffer(t.raw(), name);
    outcome.outputs[name] = device.to_host(host, t);
  }
  for (const auto& [name, t] : leaves) {
    const Leaf& leaf = *t.leaf();
    // An operand that nothing depends on (its factor is 0) has the gradient 0.
    outcome.gradients[concat("d", name)] = leaf.has_grad
                                               ? device.to_host(host, leaf.grad)
                                               : Tensor::zeros(host, t.shape(), leaf.grad.dtype());
    if (r.form == GradientForm::activation && leaf.has_grad && t.dtype() != leaf.grad.dtype())
      outcome.gradients[concat("d", name)] = Tensor::from(
          host, outcome.gradients[concat("d", name)].to_vector(), t.shape(), t.dtype());
  }
  for (const auto& [name, t] : r.inputs) {
    const auto found = inputs.find(name);
    const Tensor& now = leaves.count(name) != 0 ? leaves.find(name)->second : found->second;
    if (!same_bits(device.to_host(host, now), t)) outcome.faults.push_back(name + " was changed");
  }
  if (dy.defined() && !same_bits(device.to_host(host, dy), r.dy))
    outcome.faults.push_back("dy was changed");
  outputs.clear();
  leaves.clear();
  inputs.clear();
  context.tape.clear();
  for (std::string& line : device.guard().overruns()) outcome.faults.push_back(std::move(line));
  return outcome;
}

}  // namespace

CallRunner device_runner(Device device, Accumulator accumulator) {
  ROUNDOFF_CHECK(device == Device::cpu, "check", "this build runs on cpu only");
  return [accumulator](const CallRequest& request) {
    GuardedContext guarded(accumulator);
    return run(guarded, request);
  };
}

}  // namespace roundoff
