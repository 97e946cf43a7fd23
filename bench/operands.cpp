#include "bench/operands.h"

#include <algorithm>
#include <cstring>

#include "ops/shape.h"

namespace roundoff::bench {

namespace {

constexpr std::int64_t kPeriod = 65521;

Tensor filled(Allocator& host, const CaseInput& input, DType dtype, RandomStream& random) {
  CaseInput few = input;
  if (few.domain == Domain::label) few.domain = Domain::index;
  const std::int64_t n = input.shape.numel();
  few.shape = Shape{std::min(n, kPeriod)};
  const Tensor base =
      Tensor::from(host, fill_values(few, Fill::normal, dtype, 1, random), few.shape, dtype);
  if (n <= kPeriod) return base.with_shape(input.shape);
  Tensor all = Tensor::empty(host, input.shape, dtype);
  auto* to = static_cast<std::byte*>(all.raw());
  for (std::size_t at = 0; at < all.bytes(); at += base.bytes())
    std::memcpy(to + at, base.raw(), std::min(base.bytes(), all.bytes() - at));
  return all;
}

DType dtype_of(const Problem& p, const CaseInput& input) {
  if (input.domain == Domain::label || input.domain == Domain::index) return DType::i64;
  const InputRole role = input_role(op_signature(p.operation()), input.name);
  if (role != InputRole::statistic) return p.dtype;
  return p.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
}

// Tells when the backward pass of the benchmarked operation begins and ends.
class Watch final : public NodeObserver {
 public:
  Watch(std::string_view operation, const PassRun::Marks& marks)
      : operation_(operation), marks_(marks) {}
  void ran_forward(std::int64_t, const Operation&, std::span<const Tensor>,
                   std::span<const Tensor>) override {}
  void runs_backward(std::int64_t, const Node& node, const Tensor&) override {
    if (node.operation->name == operation_) {
      if (marks_.begin) marks_.begin();
      inside_ = true;
    } else {
      finish();
    }
  }
  void finish() {
    if (inside_ && marks_.end) marks_.end();
    inside_ = false;
  }

 private:
  std::string_view operation_;
  const PassRun::Marks& marks_;
  bool inside_ = false;
};

}  // namespace

Operands make_operands(const Problem& p, std::uint64_t seed) {
  Allocator host;
  Operands all;
  std::uint32_t number = 0;
  const auto stream = [&] { return RandomStream(seed, RandomUse::checks, 0xBE9C4, number++); };
  for (const CaseInput& input : p.c.inputs) {
    RandomStream random = stream();
    all.inputs[input.name] = filled(host, input, dtype_of(p, input), random);
  }
  if (p.pass == BenchPass::forward) return all;
  const bool loss = op_signature(p.operation()).loss;
  const DType wide = p.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  RandomStream random = stream();
  all.dy = filled(host, {"dy", p.c.y}, loss ? wide : p.dtype, random);
  return all;
}

PassRun::PassRun(Context& context, const Problem& problem, const Operands& operands)
    : context_(context),
      problem_(problem),
      parameters_(op_signature(problem.operation()), problem.c.parameters) {
  const bool forward = problem.pass == BenchPass::forward;
  const OpSignature& signature = op_signature(problem.operation());
  std::size_t place = 0;
  for (const CaseInput& input : problem.c.inputs) {
    const Tensor copy = operands.inputs.find(input.name)->second.to(context.allocator);
    const bool wanted = problem.pass == BenchPass::backward ||
                        place == (problem.pass == BenchPass::dgrad ? 0U : 1U);
    ++place;
    inputs_[input.name] = copy;
    if (forward || !wanted || input_role(signature, input.name) != InputRole::operand) continue;
    const Tensor leaf = make_leaf(context.allocator, copy, input.name);
    leaves_[concat("d", input.name)] = leaf;
    inputs_[input.name] = leaf;
  }
  if (operands.dy.defined()) dy_ = operands.dy.to(context.allocator);
  if (!forward) record();
}

// A gradient in the operands' own type is that of a value that one more node stands before.
void PassRun::record() {
  const bool activation = problem_.out_dtype == problem_.dtype && is_16bit(problem_.dtype);
  NamedTensors inputs = inputs_;
  if (activation)
    for (const auto& [name, leaf] : leaves_) {
      Tensor& input = inputs.find(std::string_view(name).substr(1))->second;
      input = reshape(context_, leaf, leaf.shape().extents());
    }
  y_ = apply_op(context_, parameters_, inputs, &outputs_);
  outputs_.clear();
}

void PassRun::operator()(const Marks& marks) {
  if (problem_.pass != BenchPass::forward) {
    for (const auto& [name, leaf] : leaves_) leaf.leaf()->zero_grad();
    Watch watch(problem_.operation(), marks);
    const Scoped<NodeObserver*> watched(context_.observer, &watch);
    context_.tape.backward(context_, y_, dy_, true);
    watch.finish();
    return;
  }
  const NoGrad constants(context_);
  const Scoped<std::optional<DType>> output(context_.output_dtype, problem_.out_dtype);
  outputs_.clear();
  if (marks.begin) marks.begin();
  if (parameters_.signature().numbered()) {
    outputs_ = run_op(context_, parameters_, inputs_).outputs;
  } else {
    const Tensor y = apply_op(context_, parameters_, inputs_, &outputs_);
    outputs_["y"] = y.detached();
  }
  if (marks.end) marks.end();
}

NamedTensors PassRun::results() {
  context_.synchronize();
  if (problem_.pass == BenchPass::forward) return outputs_;
  NamedTensors gradients;
  for (const auto& [name, leaf] : leaves_) {
    Tensor grad = leaf.leaf()->grad.to(context_.allocator);
    gradients[name] = grad;
  }
  return gradients;
}

}  // namespace roundoff::bench
