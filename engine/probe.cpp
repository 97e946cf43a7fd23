#include "engine/probe.h"

#include <algorithm>
#include <cmath>

#include "kernels/step/scaler_transition.h"

namespace roundoff {

namespace {

// "fc1.weight, fc1.bias": the leaves among a node's inputs.
std::string leaf_names(std::span<const Tensor> inputs) {
  std::string names;
  for (const Tensor& input : inputs) {
    if (input.leaf() == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += input.leaf()->name;
  }
  return names;
}

double power_of_two_at_most(double value) { return std::ldexp(1.0, std::ilogb(value)); }

}  // namespace

std::string_view name(ProbedTensor::Kind kind) {
  switch (kind) {
    case ProbedTensor::Kind::output:
      return "output";
    case ProbedTensor::Kind::gradient:
      return "gradient";
    case ProbedTensor::Kind::parameter:
      return "parameter_gradient";
  }
  return "?";
}

std::string_view name(NonFinite::Pass pass) {
  switch (pass) {
    case NonFinite::Pass::none:
      return "none";
    case NonFinite::Pass::forward:
      return "forward";
    case NonFinite::Pass::backward:
      return "backward";
    case NonFinite::Pass::unscale:
      return "unscale";
  }
  return "?";
}

std::string NonFinite::text() const {
  if (pass == Pass::none) return {};
  if (pass == Pass::unscale)
    return concat("unscaling: ", tensor, " (", name(dtype), ") is not finite");
  const std::string at =
      node < 0 ? std::string()
               : concat(" of node ", node, " (", operation,
                        node_name.empty() ? std::string() : concat(": ", node_name), ")");
  return concat(pass == Pass::forward ? "forward: " : "backward: ", tensor, at, " in ", name(dtype),
                ", micro-batch ", micro_batch);
}

void Probe::begin(double scale) {
  scale_ = scale;
  micro_batch_ = 0;
  backward_began_ = false;
  forward_count_ = 0;
  nodes_.clear();
  node_of_tape_.clear();
  node_of_value_.clear();
  measured_.clear();
  parameters_.clear();
  first_ = {};
}

Probe::Seen* Probe::node_at(std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  if (index < 0 || i >= node_of_tape_.size() || node_of_tape_[i] < 0) return nullptr;
  return &nodes_[static_cast<std::size_t>(node_of_tape_[i])];
}

void Probe::found(NonFinite::Pass pass, const Seen* seen, std::string tensor, DType dtype) {
  if (first_) return;
  first_.pass = pass;
  first_.tensor = std::move(tensor);
  first_.dtype = dtype;
  first_.micro_batch = micro_batch_;
  if (seen == nullptr) return;
  first_.node = seen->output.index;
  first_.operation = seen->output.operation;
  first_.node_name = seen->output.name;
}

void Probe::ran_forward(std::int64_t index, const Operation& operation,
                        std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  if (backward_began_) {
    backward_began_ = false;
    forward_count_ = 0;
    ++micro_batch_;
    node_of_tape_.clear();
    node_of_value_.clear();
  }
  const std::size_t at = forward_count_++;
  if (at == nodes_.size()) {
    Seen& seen = nodes_.emplace_back();
    for (ProbedTensor* t : {&seen.output, &seen.gradient}) {
      t->index = static_cast<int>(at);
      t->operation = operation.name;
      t->name = leaf_names(inputs);
    }
    seen.gradient.kind = ProbedTensor::Kind::gradient;
    measured_.push_back(0);
  }
  measured_[at] = 0;
  Seen& seen = nodes_[at];
  if (index >= 0) {
    node_of_tape_.resize(static_cast<std::size_t>(index) + 1, -1);
    node_of_tape_.back() = static_cast<int>(at);
    const std::int32_t value = context_.tape.nodes()[static_cast<std::size_t>(index)].output[0];
    if (value >= 0) {
      node_of_value_.resize(static_cast<std::size_t>(value) + 1, -1);
      node_of_value_.back() = static_cast<int>(at);
    }
  }
  if (outputs.empty() || !outputs[0].defined() || !is_floating(outputs[0].dtype())) return;
  const TensorStats stats = tensor_stats(outputs[0]);
  seen.output.stats.dtype = stats.dtype;
  seen.output.stats.add(stats);
  if (stats.finite() || first_) return;
  // A weight, or the data, may have brought it along.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !is_floating(inputs[i].dtype()) || all_finite(inputs[i])) continue;
    const auto& leaf = inputs[i].leaf();
    return found(NonFinite::Pass::forward, &seen,
                 leaf != nullptr ? leaf->name : concat("input ", i), inputs[i].dtype());
  }
  found(NonFinite::Pass::forward, &seen, "output", stats.dtype);
}

void Probe::note_gradient(Seen& seen, const Tensor& gradient) {
  const TensorStats stats = tensor_stats(gradient);
  seen.gradient.stats.dtype = stats.dtype;
  seen.gradient.stats.add(stats);
  measured_[static_cast<std::size_t>(seen.gradient.index)] = 1;
}

void Probe::runs_backward(std::int64_t index, const Node&, const Tensor& gradient) {
  backward_began_ = true;
  Seen* seen = node_at(index);
  // ran_backward of the node that wrote it has read most gradients: what is left is the seed, and
  // sums over several uses, which are complete and rounded only now.
  if (seen == nullptr || measured_[static_cast<std::size_t>(seen->gradient.index)] != 0) return;
  note_gradient(*seen, gradient);
  if (!first_ && !all_finite(gradient))
    found(NonFinite::Pass::backward, seen, "the gradient of the output", gradient.dtype());
}

void Probe::ran_backward(std::int64_t index, const Node& node) {
  const Seen* seen = node_at(index);
  for (std::size_t i = 0; i < static_cast<std::size_t>(node.inputs); ++i) {
    if (node.input[i] < 0) continue;
    const Value& value = context_.tape.value(node.input[i]);
    if (value.leaf != nullptr) {
      if (!first_ && value.leaf->has_grad && !all_finite(value.leaf->grad))
        found(NonFinite::Pass::backward, seen, "the gradient of " + value.leaf->name,
              value.leaf->grad.dtype());
      continue;
    }
    if (!value.has_grad) continue;
    const auto v = static_cast<std::size_t>(node.input[i]);
    const int maker = v < node_of_value_.size() ? node_of_value_[v] : -1;
    bool finite = true;
    if (maker >= 0 && value.uses == 1 && value.grad.dtype() == value.dtype) {
      Seen& made = nodes_[static_cast<std::size_t>(maker)];
      const std::int64_t before = made.gradient.stats.infinities + made.gradient.stats.nans;
      note_gradient(made, value.grad);
      finite = made.gradient.stats.infinities + made.gradient.stats.nans == before;
    } else if (!first_) {
      finite = all_finite(value.grad);
    }
    if (!finite)
      found(NonFinite::Pass::backward, seen, concat("the gradient of input ", i),
            value.grad.dtype());
  }
}

void Probe::has_gradients(const ParameterArena& parameters) {
  const auto inverse = static_cast<float>(1.0 / scale_);
  int index = -1;
  for (const ParameterEntry& entry : parameters.entries()) {
    ++index;
    const Leaf& leaf = *entry.tensor.leaf();
    if (!leaf.has_grad) continue;
    ProbedTensor& t = parameters_.emplace_back();
    t.kind = ProbedTensor::Kind::parameter;
    t.index = index;
    t.name = entry.name;
    t.stats = tensor_stats(leaf.grad);
    t.unscaled = tensor_stats(leaf.grad, inverse);
    if (!t.stats.finite())
      found(NonFinite::Pass::backward, nullptr, "the gradient of " + entry.name, t.stats.dtype);
    else if (!t.unscaled.finite())
      found(NonFinite::Pass::unscale, nullptr, "the gradient of " + entry.name, t.stats.dtype);
  }
}

std::vector<const ProbedTensor*> Probe::tensors() const {
  std::vector<const ProbedTensor*> all;
  for (const Seen& seen : nodes_)
    if (seen.output.stats.elements > 0) all.push_back(&seen.output);
  for (auto seen = nodes_.rbegin(); seen != nodes_.rend(); ++seen)
    if (seen->gradient.stats.elements > 0) all.push_back(&seen->gradient);
  for (const ProbedTensor& t : parameters_) all.push_back(&t);
  return all;
}

FittedScale Probe::fitted_scale(double kept) const {
  ROUNDOFF_CHECK(kept > 0 && kept <= 1, "probe", "share to keep is ", kept,
                 "; a number in (0, 1] expected");
  FittedScale fitted;
  fitted.kept = kept;
  bool finite = true;
  std::int64_t small_elements = 0;
  std::vector<const TensorStats*> small;
  for (const ProbedTensor* t : tensors()) {
    if (t->kind == ProbedTensor::Kind::output) continue;
    const TensorStats& s = t->stats;
    finite = finite && s.finite();
    if (is_16bit(s.dtype)) {
      small.push_back(&s);
      small_elements += s.nonzero();
    }
    if (s.amax == 0) continue;
    const Format format = format_of(s.dtype);
    // The power of two next to scale * max / amax, and from there to the one that just fits. fp64
    // may have none that is a double.
    double largest =
        std::ldexp(1.0, std::min(format.emax - std::ilogb(s.amax) + std::ilogb(scale_), 1000));
    while (fits(s.amax / scale_ * (2 * largest), format)) largest *= 2;
    while (!fits(s.amax / scale_ * largest, format)) largest /= 2;
    if (fitted.largest == 0 || largest < fitted.largest) {
      fitted.largest = largest;
      fitted.limit = concat(name(t->kind), " ", t->index, " ",
                            t->operation.empty() ? std::string_view(t->name) : t->operation);
    }
  }
  if (fitted.largest > kMaxLossScale) {
    fitted.largest = kMaxLossScale;
    fitted.limit = "no gradient: no loss scale is larger";
  }
  if (!finite) {
    fitted.largest = 0;
    fitted.limit.clear();
  }
  if (small_elements == 0) return fitted;
  // With 2^k times this scale an element is lost where its exponent is below that of the smallest
  // subnormal less k.
  const auto lost = [&](int k) {
    std::int64_t count = 0;
    for (const TensorStats* s : small)
      count += s->below_exponent(format_of(s->dtype).min_subnormal_exponent() - k);
    return static_cast<double>(count) / static_cast<double>(small_elements);
  };
  int k = TensorStats::kLowest;
  while (k < -TensorStats::kLowest && lost(k) > 1 - kept + 1e-12) ++k;
  const double power = power_of_two_at_most(scale_);
  fitted.smallest = std::ldexp(power < scale_ ? 2 * power : power, k);
  return fitted;
}

}  // namespace roundoff
