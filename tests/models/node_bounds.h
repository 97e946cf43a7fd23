// Watches every node of a step and judges it by itself: its outputs, and the gradients of its
// inputs, against the bounds of the operation fed with exactly what the node was fed.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/context.h"
#include "kernels/base/format.h"
#include "verify/compare.h"
#include "verify/reference.h"

namespace roundoff::test {

// For models in which every intermediate value has one use: the gradient that arrives at a node is
// then the one that the node after it made.
class NodeBounds : public NodeObserver {
 public:
  // Parameters of operations where they differ from their defaults.
  using Parameters = std::map<std::string, std::map<std::string, std::string>, std::less<>>;
  explicit NodeBounds(Parameters parameters) : parameters_(std::move(parameters)) {}

  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    if (index < 0) return;
    nodes_.resize(static_cast<std::size_t>(index) + 1);
    Seen& s = nodes_.back();
    s = {};
    s.operation = operation.name;
    for (const Tensor& t : inputs) {
      s.inputs.push_back(on_host(t));
      s.leaves.push_back(t.defined() ? t.leaf() : nullptr);
    }
    s.y = on_host(outputs[0]);
  }
  void runs_backward(std::int64_t index, const Node&, const Tensor& gradient) override {
    nodes_[static_cast<std::size_t>(index)].dy = on_host(gradient);
  }

  // After the step: leaves hold the gradients of its one micro-batch.
  void check() {
    REQUIRE(!nodes_.empty());
    for (std::size_t i = 0; i < nodes_.size(); ++i) check(i);
    nodes_.clear();
  }
  std::int64_t judged() const { return judged_; }

 private:
  struct Seen {
    std::string_view operation;
    std::vector<Tensor> inputs;
    std::vector<std::shared_ptr<Leaf>> leaves;
    Tensor y, dy;
  };

  void judge(const char* what, std::size_t node, const Tensor& actual, const Bound& bound) {
    const Comparison c = compare(actual.const_view(), bound);
    INFO("node ", node, " ", nodes_[node].operation, ", ", what, ": ", describe(c));
    CHECK(c.holds);
    ++judged_;
  }

  // The gradient of input j of node i, where there is one.
  Tensor gradient(std::size_t i, std::size_t j) const {
    const Seen& s = nodes_[i];
    if (s.leaves[j] != nullptr) return on_host(s.leaves[j]->grad);
    return j == 0 && i > 0 ? nodes_[i - 1].dy : Tensor();
  }

  void check(std::size_t i) {
    const Seen& s = nodes_[i];
    REQUIRE(s.dy.defined());
    if (s.operation == "cast") {
      judge("y", i, s.y, rounded(s.inputs[0], s.y.dtype()));
      if (i > 0) judge("dx", i, nodes_[i - 1].dy, rounded(s.dy, nodes_[i - 1].dy.dtype()));
      return;
    }
    const OpSignature& signature = op_signature(s.operation);
    const auto given = parameters_.find(s.operation);
    const OpParameters parameters(signature, given == parameters_.end()
                                                 ? std::map<std::string, std::string>{}
                                                 : given->second);
    NamedTensors inputs;
    for (std::size_t j = 0; j < s.inputs.size(); ++j)
      if (s.inputs[j].defined()) inputs.emplace(std::string(signature.inputs[j].name), s.inputs[j]);
    JudgedArithmetic judged{
        .operands = s.inputs[0].dtype(), .output = s.y.dtype(), .saved = s.y.dtype()};
    judge("y", i, s.y, op_bounds(parameters, inputs, {}, judged, Pass::forward).at("y"));
    for (std::size_t j = 0; j < s.inputs.size(); ++j) {
      if (signature.inputs[j].role != InputRole::operand) continue;
      const Tensor actual = gradient(i, j);
      if (!actual.defined()) continue;
      judged.output = actual.dtype();
      const NamedBounds bounds = op_bounds(parameters, inputs, s.dy, judged, Pass::backward);
      const std::string name = concat("d", signature.inputs[j].name);
      judge(name.c_str(), i, actual, bounds.at(name));
    }
  }

  static Bound rounded(const Tensor& x, DType dtype) {
    Bound bound;
    for (const double v : x.to_vector())
      bound.reference.push_back(round_to_format(v, format_of(dtype)).value);
    bound.tolerance.assign(bound.reference.size(), 0.0);
    return bound;
  }

  Parameters parameters_;
  std::vector<Seen> nodes_;
  std::int64_t judged_ = 0;
};

}  // namespace roundoff::test
