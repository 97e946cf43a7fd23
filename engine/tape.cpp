#include "engine/tape.h"

#include <algorithm>
#include <atomic>

#include "engine/cast.h"
#include "engine/context.h"
#include "kernels/base/convert.h"

namespace roundoff {

namespace {

// Generations are unique in the process, so that a tensor of one tape is foreign to every other.
std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> counter{0};
  return ++counter;
}

}  // namespace

Tape::Tape() : generation_(next_generation()) {}

void Tape::clear() {
  for (std::size_t i = 0; i < node_count_; ++i) nodes_[i].saved = {};
  forget_gradients();
  for (std::size_t i = 0; i < value_count_; ++i) values_[i].leaf.reset();
  node_count_ = 0;
  value_count_ = 0;
  consumed_ = false;
  generation_ = next_generation();
}

std::int32_t Tape::new_value(const Shape& shape, DType dtype) {
  if (value_count_ == values_.size()) values_.emplace_back();
  Value& v = values_[value_count_];
  v.shape = shape;
  v.dtype = dtype;
  v.uses = 0;
  v.has_grad = false;
  v.seeded = false;
  return static_cast<std::int32_t>(value_count_++);
}

Node& Tape::new_node() {
  if (node_count_ == nodes_.size()) nodes_.emplace_back();
  return nodes_[node_count_++];
}

std::int32_t Tape::index_of(const Tensor& tensor, std::string_view operation) {
  if (const auto& leaf = tensor.leaf()) {
    // A leaf that has changed is another value, so that nodes that used the old one can tell.
    if (leaf->value.generation != generation_ ||
        values_[static_cast<std::size_t>(leaf->value.index)].leaf_version != leaf->version) {
      leaf->value = {generation_, new_value(tensor.shape(), leaf->grad.dtype())};
      Value& value = values_[static_cast<std::size_t>(leaf->value.index)];
      value.leaf = leaf;
      value.leaf_version = leaf->version;
    }
    return leaf->value.index;
  }
  if (tensor.value().index < 0) return -1;
  ROUNDOFF_CHECK(tensor.value().generation == generation_, operation, "an input of shape ",
                 tensor.shape(),
                 " belongs to a recording that was cleared; detach it to use it as a constant");
  return tensor.value().index;
}

void Tape::backward(Context& context, const Tensor& root, double seed, bool retain) {
  ROUNDOFF_CHECK(root.defined() && root.numel() == 1, "backward",
                 "a number as seed needs a root of one element, shape is ", root.shape());
  const DType dtype = root.dtype() == DType::fp64 ? DType::fp64 : DType::fp32;
  backward(context, root, Tensor::from(context.allocator, {&seed, 1}, root.shape(), dtype), retain);
}

void Tape::backward(Context& context, const Tensor& root, const Tensor& seed, bool retain) {
  ROUNDOFF_CHECK(
      !consumed_, "backward",
      "what the forward pass saved was freed by an earlier pass; pass retain to keep it");
  ROUNDOFF_CHECK(root.defined() && seed.defined() && root.shape() == seed.shape(), "backward",
                 "root has shape ", root.shape(), ", seed has shape ", seed.shape());
  ROUNDOFF_CHECK(is_floating(seed.dtype()), "backward", "the seed is ", name(seed.dtype()),
                 "; a floating type expected");
  const std::int32_t index = index_of(root, "backward");
  ROUNDOFF_CHECK(index >= 0, "backward", "the root depends on nothing that wants a gradient");
  Value& value = values_[static_cast<std::size_t>(index)];
  if (value.leaf != nullptr) {
    const Write write = value.leaf->has_grad ? Write::accumulate : Write::overwrite;
    const Out grad(value.leaf->grad.view(), write);
    visit_target(context, [&](auto target) { convert(target, seed.view(), grad); });
    value.leaf->has_grad = true;
    return;
  }
  check_versions(index);
  value.grad = seed.detached();
  value.has_grad = true;
  value.seeded = true;
  consumed_ = !retain;
  try {
    run_backward(context, retain);
  } catch (...) {
    forget_gradients();
    throw;
  }
}

void Tape::check_versions(std::int32_t root) {
  for (std::size_t i = 0; i < value_count_; ++i) values_[i].needed = false;
  values_[static_cast<std::size_t>(root)].needed = true;
  for (std::size_t i = node_count_; i-- > 0;) {
    const Node& node = nodes_[i];
    bool needed = false;
    for (const std::int32_t out : node.output)
      needed = needed || (out >= 0 && values_[static_cast<std::size_t>(out)].needed);
    if (!needed) continue;
    for (const std::int32_t in : node.input) {
      if (in < 0) continue;
      Value& value = values_[static_cast<std::size_t>(in)];
      value.needed = true;
      ROUNDOFF_CHECK(value.leaf == nullptr || value.leaf->version == value.leaf_version, "backward",
                     "'", value.leaf->name, "' was changed after ", node.operation->name,
                     " had used it; run the forward pass again");
    }
  }
}

void Tape::forget_gradients() {
  for (std::size_t i = 0; i < value_count_; ++i) {
    values_[i].grad = Tensor();
    values_[i].has_grad = false;
    values_[i].seeded = false;
  }
}

void Tape::run_backward(Context& context, bool retain) {
  const Scoped<bool> no_recording(context.grad_enabled, false);
  for (std::size_t i = node_count_; i-- > 0;) {
    Node& node = nodes_[i];
    bool reached = false;
    for (int j = 0; j < node.outputs; ++j) {
      const std::int32_t out = node.output[static_cast<std::size_t>(j)];
      reached = reached || (out >= 0 && values_[static_cast<std::size_t>(out)].has_grad);
    }
    if (reached) {
      context.allocator.set_node(node.operation->name);
      BackwardFrame frame(context, *this, node);
      if (context.observer == nullptr) {
        node.operation->backward(frame);
      } else {
        const auto index = static_cast<std::int64_t>(i);
        if (frame.has_grad_out(0)) context.observer->runs_backward(index, node, frame.grad_out(0));
        node.operation->backward(frame);
        context.observer->ran_backward(index, node);
      }
    }
    for (int j = 0; j < node.outputs; ++j) {
      const std::int32_t out = node.output[static_cast<std::size_t>(j)];
      if (out < 0) continue;
      values_[static_cast<std::size_t>(out)].grad = Tensor();
      values_[static_cast<std::size_t>(out)].has_grad = false;
      values_[static_cast<std::size_t>(out)].seeded = false;
    }
    if (!retain) node.saved = {};
  }
}

Tensor& ForwardFrame::out(int i, const Shape& shape, DType dtype) {
  Tensor& t = out_[static_cast<std::size_t>(i)];
  const DType held = i == 0 ? context_.output_dtype.value_or(dtype) : dtype;
  t = Tensor::empty(context_.allocator, shape, held, MemoryCategory::activations);
  if (i >= outputs_) outputs_ = i + 1;
  return t;
}

void ForwardFrame::out_alias(int i, const Tensor& tensor) {
  out_[static_cast<std::size_t>(i)] = tensor.detached();
  if (i >= outputs_) outputs_ = i + 1;
}

void ForwardFrame::save(int i, const Tensor& tensor) {
  if (recording_) saved_[static_cast<std::size_t>(i)] = tensor.detached();
}

bool BackwardFrame::has_grad_out(int i) const {
  const std::int32_t index = node_.output[static_cast<std::size_t>(i)];
  return index >= 0 && tape_.values_[static_cast<std::size_t>(index)].has_grad;
}

const Tensor& BackwardFrame::grad_out(int i) {
  ROUNDOFF_CHECK(has_grad_out(i), node_.operation->name, "output ", i, " has no gradient");
  const std::int32_t index = node_.output[static_cast<std::size_t>(i)];
  const Value& value = tape_.values_[static_cast<std::size_t>(index)];
  if (value.seeded || value.grad.dtype() == value.dtype) return value.grad;
  Tensor& rounded = rounded_[static_cast<std::size_t>(i)];
  if (!rounded.defined()) {
    rounded =
        Tensor::empty(context_.allocator, value.shape, value.dtype, MemoryCategory::activations);
    run([&](auto target) { convert(target, value.grad.view(), rounded.view()); });
  }
  return rounded;
}

bool BackwardFrame::is_leaf(int i) const {
  const std::int32_t index = node_.input[static_cast<std::size_t>(i)];
  return index >= 0 && tape_.values_[static_cast<std::size_t>(index)].leaf != nullptr;
}

Out BackwardFrame::grad_in(int i) {
  const std::int32_t index = node_.input[static_cast<std::size_t>(i)];
  if (index < 0) return {};
  Value& value = tape_.values_[static_cast<std::size_t>(index)];
  if (value.leaf != nullptr) {
    const Write write = value.leaf->has_grad ? Write::accumulate : Write::overwrite;
    value.leaf->has_grad = true;
    return {value.leaf->grad.view(), write};
  }
  if (value.has_grad) return {value.grad.view(), Write::accumulate};
  const DType dtype = value.uses > 1 && is_16bit(value.dtype) ? DType::fp32 : value.dtype;
  value.grad = Tensor::empty(context_.allocator, value.shape, dtype, MemoryCategory::activations);
  value.has_grad = true;
  return {value.grad.view(), Write::overwrite};
}

const Shape& BackwardFrame::input_shape(int i) const {
  const std::int32_t index = node_.input[static_cast<std::size_t>(i)];
  return tape_.values_[static_cast<std::size_t>(index)].shape;
}

namespace {

// Whether a parameter's gradient can be one sum in the order of the samples.
void check_reproducible(const Operation& operation, std::size_t input, std::string_view parameter,
                        bool used) {
  ROUNDOFF_CHECK(((operation.in_order_inputs >> input) & 1U) != 0, operation.name,
                 "reproducible: the gradient of '", parameter,
                 "' would come through this operation, which does not add it in the order of the "
                 "samples");
  ROUNDOFF_CHECK(!used, operation.name, "reproducible: '", parameter,
                 "' is used twice, so that the order of its gradient's sum would depend on how the "
                 "window is cut");
}

}  // namespace

std::array<Tensor, kMaxOutputs> apply(Context& context, const Operation& operation,
                                      std::span<const Tensor* const> inputs, const void* params,
                                      std::size_t params_size) {
  ROUNDOFF_CHECK(inputs.size() <= static_cast<std::size_t>(kMaxInputs), operation.name,
                 "too many inputs");
  ForwardFrame frame(context);
  frame.inputs_ = static_cast<int>(inputs.size());
  frame.index_.fill(-1);
  const auto target = context.autocast.target(operation.name, operation.cast_class);
  Tape& tape = context.tape;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor& in = frame.in_[i];
    if (!inputs[i]->defined()) continue;
    const bool cast = target && ((operation.cast_inputs >> i) & 1U) != 0;
    in = cast ? autocast_input(context, *inputs[i], *target) : *inputs[i];
    if (!context.grad_enabled || !is_floating(in.dtype())) continue;
    frame.index_[i] = tape.index_of(in, operation.name);
    frame.recording_ = frame.recording_ || frame.index_[i] >= 0;
    if (context.reproducible && frame.index_[i] >= 0 && in.leaf() != nullptr) {
      const auto earlier = frame.index_.begin() + static_cast<std::ptrdiff_t>(i);
      const bool used = tape.values_[static_cast<std::size_t>(frame.index_[i])].uses != 0 ||
                        std::find(frame.index_.begin(), earlier, frame.index_[i]) != earlier;
      check_reproducible(operation, i, in.leaf()->name, used);
    }
  }
  alignas(std::max_align_t) std::array<std::byte, kMaxParams> copy;
  if (params_size != 0) std::memcpy(copy.data(), params, params_size);
  frame.params_ = copy.data();
  ROUNDOFF_CHECK(!frame.recording_ || !tape.consumed_, operation.name,
                 "the tape has been used by a backward pass; clear it before recording again");
  context.allocator.set_node(operation.name);
  operation.forward(frame);

  if (frame.recording_) {
    Node& node = tape.new_node();
    node.operation = &operation;
    node.inputs = frame.inputs_;
    node.outputs = frame.outputs_;
    node.input = frame.index_;
    node.saved = std::move(frame.saved_);
    node.accumulator = context.accumulator;
    node.tf32 = context.tf32;
    node.reproducible = context.reproducible;
    node.params = copy;
    node.input_dtype = frame.in_[0].dtype();
    node.output_dtype = frame.out_[0].dtype();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (node.input[i] >= 0) ++tape.values_[static_cast<std::size_t>(node.input[i])].uses;
    node.output.fill(-1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(frame.outputs_); ++i) {
      Tensor& out = frame.out_[i];
      if (!out.defined() || !is_floating(out.dtype())) continue;
      node.output[i] = tape.new_value(out.shape(), out.dtype());
      out.set_value({tape.generation_, node.output[i]});
    }
  }
  if (context.observer != nullptr) {
    const std::int64_t index =
        frame.recording_ ? static_cast<std::int64_t>(tape.node_count_) - 1 : -1;
    context.observer->ran_forward(index, operation, {frame.in_.data(), inputs.size()},
                                  {frame.out_.data(), static_cast<std::size_t>(frame.outputs_)});
  }
  return std::move(frame.out_);
}

}  // namespace roundoff
