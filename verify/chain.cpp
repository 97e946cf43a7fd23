#include "verify/chain.h"

#include <algorithm>
#include <cmath>

#include "verify/guarded_context.h"

namespace roundoff {

namespace {

constexpr std::size_t kLeaf = ~std::size_t{0};
// The step whose result `source` names; kLeaf for a leaf.
std::size_t step_of(const std::string& source) {
  return source[0] == '#' ? std::stoul(source.substr(1)) : kLeaf;
}

// Keeps the gradient that each node of the tape gets.
class Gradients : public NodeObserver {
 public:
  void ran_forward(std::int64_t, const Operation&, std::span<const Tensor>,
                   std::span<const Tensor>) override {}
  void runs_backward(std::int64_t index, const Node&, const Tensor& gradient) override {
    of[index] = gradient.to(host_);
  }
  std::map<std::int64_t, Tensor> of;  // on the host

 private:
  Allocator host_;
};

struct Ran {
  NamedTensors inputs;  // on the host, as the step was fed
  Tensor y;
  std::int64_t node = -1;
};

class ChainRun {
 public:
  ChainRun(const Chain& chain, DType dtype, Device device, const RunnerOptions& options,
           std::uint64_t seed, std::uint64_t schedule)
      : chain_(chain),
        dtype_(dtype),
        options_(options),
        device_core_(device_tensor_core(device)),
        schedule_(schedule),
        random_(seed, RandomUse::checks, 77) {}

  CheckReport run(detail::GuardedContext& device,
                  const std::function<void(std::size_t, Tensor&)>& after_step) {
    Context& context = device.context();
    const Scoped<NodeObserver*> observed(context.observer, &gradients_);
    for (const CaseInput& leaf : chain_.leaves) {
      const bool whole = leaf.domain == Domain::label || leaf.domain == Domain::index;
      const Tensor t = Tensor::from(host_, fill_values(leaf, Fill::normal, dtype_, 0, random_),
                                    leaf.shape, whole ? DType::i64 : dtype_);
      leaves_[leaf.name] = t.to(context.allocator);
      if (!whole) leaves_[leaf.name] = make_leaf(context.allocator, leaves_[leaf.name], leaf.name);
      device.guard().name_buffer(leaves_[leaf.name].raw(), leaf.name);
    }
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < chain_.steps.size(); ++i) {
      const ChainStep& step = chain_.steps[i];
      NamedTensors inputs;
      Ran ran;
      for (const auto& [name, source] : step.inputs) {
        const std::size_t from = step_of(source);
        inputs[name] = from == kLeaf ? leaves_.find(source)->second : results[from];
        ran.inputs[name] = inputs[name].to(host_);
      }
      results.push_back(apply_op(context, parameters(i), inputs));
      if (after_step) after_step(i, results.back());
      ran.y = results.back().to(host_);
      ran.node = static_cast<std::int64_t>(context.tape.nodes().size()) - 1;
      ran_.push_back(std::move(ran));
      judge_forward(i);
    }
    const Tensor& last = results.back();
    const CaseInput seed{"dy", last.shape()};
    const DType seed_dtype = last.dtype();
    const Tensor dy = Tensor::from(host_, fill_values(seed, Fill::normal, seed_dtype, 0, random_),
                                   last.shape(), seed_dtype);
    context.tape.backward(context, last, dy.to(context.allocator));
    context.synchronize();
    for (std::size_t i = chain_.steps.size(); i-- > 0;) judge_backward(i);
    results.clear();
    leaves_.clear();
    context.tape.clear();
    for (const std::string& line : device.guard().overruns()) fail("", 0, line);
    for (CheckFailure& f : report_.failures) f.schedule = schedule_;
    report_.runs = 1;
    report_.schedules = 1;
    report_.rungs = 1U << static_cast<unsigned>(Rung::hard_bound);
    return std::move(report_);
  }

 private:
  OpParameters parameters(std::size_t i) const {
    return {op_signature(chain_.steps[i].operation), chain_.steps[i].parameters};
  }
  JudgedArithmetic judged(std::size_t i, DType output) const {
    return {.accumulator = options_.accumulator,
            .operands = dtype_,
            .output = output,
            .saved = ran_[i].y.dtype(),
            .libm_ulps = 4,
            .device_core = device_core_};
  }

  void judge_forward(std::size_t i) {
    const Ran& r = ran_[i];
    const NamedBounds bounds =
        op_bounds(parameters(i), r.inputs, {}, judged(i, r.y.dtype()), Pass::forward);
    judge(i, "y", r.y, bounds.find("y")->second, report_.ratio);
  }

  // The gradient that step i was given, and those that it made: of leaves, and of the results that
  // it used, as the steps before it got them.
  void judge_backward(std::size_t i) {
    const Ran& r = ran_[i];
    const auto given = gradients_.of.find(r.node);
    if (given == gradients_.of.end()) return;
    for (const auto& [name, source] : chain_.steps[i].inputs) {
      if (input_role(op_signature(chain_.steps[i].operation), name) != InputRole::operand) continue;
      Tensor made;
      if (const std::size_t from = step_of(source); from == kLeaf) {
        const Leaf& leaf = *leaves_.find(source)->second.leaf();
        if (leaf.has_grad) made = leaf.grad.to(host_);
      } else if (const auto found = gradients_.of.find(ran_[from].node);
                 found != gradients_.of.end()) {
        made = found->second;
      }
      if (!made.defined()) continue;
      const NamedBounds bounds = op_bounds(parameters(i), r.inputs, given->second,
                                           judged(i, made.dtype()), Pass::backward);
      const std::string array = concat("d", name);
      judge(i, array, made, bounds.find(array)->second, report_.gradient_ratio);
    }
  }

  void judge(std::size_t i, const std::string& array, const Tensor& actual, const Bound& bound,
             double& worst) {
    const Comparison c = compare(actual.const_view(), bound);
    worst = std::max(worst, c.bound_ratio);
    if (c.holds) return;
    const std::string step = concat("step ", i, " (", chain_.steps[i].operation, "), ",
                                    array[0] == 'd' ? "backward" : "forward");
    fail(array, c.bound_ratio,
         concat(step, ": ", array, element_text(c.worst, actual.shape()), ", ", describe(c)));
  }
  void fail(const std::string& array, double ratio, const std::string& text) {
    report_.failures.push_back({array, Rung::hard_bound, Fill::normal, 0, ratio, text});
  }

  const Chain& chain_;
  DType dtype_;
  const RunnerOptions& options_;
  std::optional<Accumulator> device_core_;
  std::uint64_t schedule_;
  RandomStream random_;
  Allocator host_;
  Gradients gradients_;
  NamedTensors leaves_;
  std::vector<Ran> ran_;
  CheckReport report_;
};

}  // namespace

std::vector<Chain> list_chains() {
  std::vector<Chain> all;
  all.push_back({"mlp",
                 {{"x", {17, 33}},
                  {"w0", {65, 33}},
                  {"b0", {65}},
                  {"w1", {10, 65}},
                  {"b1", {10}},
                  {"target", {17}, Domain::label, 10}},
                 {{"linear", {}, {{"x", "x"}, {"w", "w0"}, {"b", "b0"}}},
                  {"relu", {}, {{"x", "#0"}}},
                  {"linear", {}, {{"x", "#1"}, {"w", "w1"}, {"b", "b1"}}},
                  {"cross_entropy", {}, {{"logits", "#2"}, {"target", "target"}}}}});
  all.push_back({"conv",
                 {{"x", {3, 9, 7, 3}},
                  {"w", {8, 3, 3, 3}},
                  {"b", {8}},
                  {"gamma", {8}},
                  {"beta", {8}},
                  {"v", {5, 96}},
                  {"t", {3, 5}}},
                 {{"conv2d", {{"padding", "1"}}, {{"x", "x"}, {"w", "w"}, {"b", "b"}}},
                  {"batch_norm", {}, {{"x", "#0"}, {"gamma", "gamma"}, {"beta", "beta"}}},
                  {"relu", {}, {{"x", "#1"}}},
                  {"max_pool2d", {}, {{"x", "#2"}}},
                  {"flatten", {{"first", "1"}}, {{"x", "#3"}}},
                  {"linear", {}, {{"x", "#4"}, {"w", "v"}}},
                  {"mse", {}, {{"x", "#5"}, {"target", "t"}}}}});
  all.push_back({"attention",
                 {{"q", {2, 17, 16}},
                  {"k", {2, 17, 16}},
                  {"v", {2, 17, 16}},
                  {"gamma", {16}},
                  {"beta", {16}}},
                 {{"matmul", {{"trans_b", "true"}, {"alpha", "0.25"}}, {{"a", "q"}, {"b", "k"}}},
                  {"softmax", {}, {{"x", "#0"}}},
                  {"matmul", {}, {{"a", "#1"}, {"b", "v"}}},
                  {"layer_norm", {}, {{"x", "#2"}, {"gamma", "gamma"}, {"beta", "beta"}}}}});
  return all;
}

CheckReport check_chain(const Chain& chain, DType dtype, Device device,
                        const RunnerOptions& options, std::uint64_t seed, std::uint64_t schedule) {
  return check_chain(chain, dtype, device, options, seed, schedule, {});
}

CheckReport check_chain(const Chain& chain, DType dtype, Device device,
                        const RunnerOptions& options, std::uint64_t seed, std::uint64_t schedule,
                        const std::function<void(std::size_t, Tensor&)>& after_step) {
  const detail::OpenedDevice opened = detail::open_device(device, options);
  opened.set_schedule(schedule);
  detail::GuardedContext guarded(opened.runtime, options);
  ChainRun run(chain, dtype, device, options, seed, schedule);
  try {
    return run.run(guarded, after_step);
  } catch (const Error& error) {
    CheckReport report;
    report.failures.push_back({"", Rung::hard_bound, Fill::normal, schedule, 0, error.what()});
    return report;
  }
}

}  // namespace roundoff
