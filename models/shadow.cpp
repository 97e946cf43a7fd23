#include "models/shadow.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "kernels/base/format.h"

namespace roundoff {

namespace {

using Values = std::vector<double>;

constexpr std::string_view kCast = "cast";

// A node of the run that is in fp64 from the start.
struct Exact {
  std::string_view operation;
  Values output;
  std::vector<Values> inputs;           // leaves only: what a weight's copy is compared with
  Values output_gradient;               // complete
  std::vector<Values> input_gradients;  // as far as they had come when the node had run
};

Values read(const Tensor& tensor) {
  return tensor.defined() && is_floating(tensor.dtype()) ? tensor.to_vector() : Values();
}

// The gradient of input i as it stands; empty where there is none.
Values input_gradient(const Tape& tape, const Node& node, std::size_t i) {
  if (node.input[i] < 0) return {};
  const Value& value = tape.value(node.input[i]);
  if (value.leaf != nullptr) return value.leaf->has_grad ? value.leaf->grad.to_vector() : Values();
  return value.has_grad ? value.grad.to_vector() : Values();
}

class ExactRun : public NodeObserver {
 public:
  explicit ExactRun(Context& context) : context_(context) {}

  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    Exact& e = nodes.emplace_back();
    e.operation = operation.name;
    e.output = read(outputs[0]);
    for (const Tensor& input : inputs)
      e.inputs.push_back(input.leaf() != nullptr ? read(input) : Values());
    if (index < 0) return;
    of_tape_.resize(static_cast<std::size_t>(index) + 1, nullptr);
    of_tape_.back() = &e;
  }
  void runs_backward(std::int64_t index, const Node&, const Tensor& gradient) override {
    of_tape_[static_cast<std::size_t>(index)]->output_gradient = gradient.to_vector();
  }
  void ran_backward(std::int64_t index, const Node& node) override {
    Exact& e = *of_tape_[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < static_cast<std::size_t>(node.inputs); ++i)
      e.input_gradients.push_back(input_gradient(context_.tape, node, i));
  }

  std::deque<Exact> nodes;

 private:
  Context& context_;
  std::vector<Exact*> of_tape_;
};

// The low-precision run. Every node that it sees runs again in fp64, in a context of its own, on
// exactly what the node read.
class LowRun : public NodeObserver {
 public:
  LowRun(Context& context, const std::deque<Exact>& exact, std::vector<ShadowRow>& rows)
      : context_(context), exact_(exact), rows_(rows) {
    again_.accumulator = Accumulator::fp64;
    again_.training = context.training;
    again_.rng = context.rng;
    again_.rng.device = nullptr;
  }

  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    Ran ran;
    ran.number = number_++;
    for (const Tensor& input : inputs)
      if (input.leaf() != nullptr) ran.name += (ran.name.empty() ? "" : ", ") + input.leaf()->name;
    ran.cast = operation.name == kCast;
    if (ran.cast) {
      // It stands for its input, which is what fp64 has there.
      ran.exact = maker(inputs[0]);
      compare_cast(ran, inputs[0], outputs[0]);
    } else {
      ROUNDOFF_CHECK(next_ < exact_.size() && exact_[next_].operation == operation.name, "shadow",
                     "node ", ran.number, " is ", operation.name,
                     "; the run in fp64 has another operation in its place");
      ran.exact = &exact_[next_++];
      compare_copies(ran, inputs);
      run_again(ran, index, operation, inputs);
      if (!ran.exact->output.empty())
        add(ran, ShadowRow::Pass::forward, operation.name, "output", outputs[0].dtype(),
            read(outputs[0]), ran.again.defined() ? ran.again.to_vector() : ran.exact->output,
            ran.exact->output);
    }
    if (index < 0) return;
    const Node& node = context_.tape.nodes()[static_cast<std::size_t>(index)];
    if (node.output[0] >= 0) {
      of_value_.resize(static_cast<std::size_t>(node.output[0]) + 1, nullptr);
      of_value_.back() = ran.exact;
    }
    of_tape_.resize(static_cast<std::size_t>(index) + 1);
    of_tape_.back() = std::move(ran);
  }

  void runs_backward(std::int64_t index, const Node& node, const Tensor& gradient) override {
    Ran& ran = of_tape_[static_cast<std::size_t>(index)];
    ran.gradient = gradient.to_vector();
    ran.before.clear();
    for (std::size_t i = 0; i < static_cast<std::size_t>(node.inputs); ++i)
      ran.before.push_back(input_gradient(context_.tape, node, i));
  }

  void ran_backward(std::int64_t index, const Node& node) override {
    Ran& ran = of_tape_[static_cast<std::size_t>(index)];
    if (ran.gradient.empty()) return;  // reached through another output alone
    if (!ran.cast)
      again_.tape.backward(
          again_, ran.again,
          Tensor::from(again_.allocator, ran.gradient, ran.again.shape(), DType::fp64),
          /*retain=*/true);
    for (std::size_t i = 0; i < static_cast<std::size_t>(node.inputs); ++i) {
      const Values actual = input_gradient(context_.tape, node, i);
      if (actual.empty()) continue;
      const Value& value = context_.tape.value(node.input[i]);
      Values local = ran.cast                         ? ran.gradient
                     : ran.inputs[i].leaf()->has_grad ? ran.inputs[i].leaf()->grad.to_vector()
                                                      : Values(actual.size());
      // A gradient that several nodes add to: what was there is not this node's.
      for (std::size_t j = 0; j < ran.before[i].size(); ++j) local[j] += ran.before[i][j];
      const Values* total = &local;
      if (ran.exact != nullptr && ran.cast) total = &ran.exact->output_gradient;
      if (ran.exact != nullptr && !ran.cast && i < ran.exact->input_gradients.size())
        total = &ran.exact->input_gradients[i];
      const bool leaf = value.leaf != nullptr;
      add(ran, ShadowRow::Pass::backward, node.operation->name,
          leaf ? "gradient of " + value.leaf->name : concat("gradient of input ", i),
          leaf ? value.leaf->grad.dtype() : value.grad.dtype(), actual, local,
          total->size() == actual.size() ? *total : local);
    }
    ran.again = Tensor();
    ran.inputs.clear();
  }

 private:
  struct Ran {
    int number = 0;
    std::string name;
    bool cast = false;
    const Exact* exact = nullptr;
    Tensor again;                // the output in fp64; undefined where there is no node
    std::vector<Tensor> inputs;  // of that
    Values gradient;             // of the output, as the node was given it
    std::vector<Values> before;  // gradients of inputs that others had added to
  };

  // The fp64 node that made this value; null for what no node made.
  const Exact* maker(const Tensor& tensor) const {
    const std::int32_t value = tensor.leaf() != nullptr ? -1 : tensor.value().index;
    const auto i = static_cast<std::size_t>(value);
    return value >= 0 && i < of_value_.size() ? of_value_[i] : nullptr;
  }

  void compare_cast(const Ran& ran, const Tensor& input, const Tensor& output) {
    const Values reference = read(input);
    add(ran, ShadowRow::Pass::forward, kCast, "output", output.dtype(), read(output), reference,
        ran.exact != nullptr ? ran.exact->output : reference);
  }

  // Weights that were rounded without a node.
  void compare_copies(const Ran& ran, std::span<const Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].leaf() == nullptr || !is_16bit(inputs[i].dtype())) continue;
      const Values& master = ran.exact->inputs[i];
      const Values copy = read(inputs[i]);
      if (copy == master) continue;
      add(ran, ShadowRow::Pass::forward, "copy", inputs[i].leaf()->name, inputs[i].dtype(), copy,
          master, master);
    }
  }

  void run_again(Ran& ran, std::int64_t index, const Operation& operation,
                 std::span<const Tensor> inputs) {
    if (index < 0) return;  // the settings of a node that was not recorded are gone
    const Node& node = context_.tape.nodes()[static_cast<std::size_t>(index)];
    std::array<const Tensor*, kMaxInputs> pointers{};
    ran.inputs.resize(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor& in = ran.inputs[i];
      if (inputs[i].defined()) {
        in = is_floating(inputs[i].dtype()) ? Tensor::from(again_.allocator, inputs[i].to_vector(),
                                                           inputs[i].shape(), DType::fp64)
                                            : inputs[i].to(again_.allocator);
        if (node.input[i] >= 0) in = make_leaf(again_.allocator, in, "input");
      }
      pointers[i] = &in;
    }
    ran.again = apply(again_, operation, {pointers.data(), inputs.size()}, node.params.data(),
                      kMaxParams)[0];
  }

  void add(const Ran& ran, ShadowRow::Pass pass, std::string_view operation, std::string tensor,
           DType dtype, const Values& actual, const Values& local, const Values& total) {
    rows_.push_back({.pass = pass,
                     .node = ran.number,
                     .operation = std::string(operation),
                     .name = ran.name,
                     .tensor = std::move(tensor),
                     .dtype = dtype,
                     .elements = static_cast<std::int64_t>(actual.size()),
                     .local = shadow_error(actual, local, dtype),
                     .total = shadow_error(actual, total, dtype)});
  }

  Context& context_;
  const std::deque<Exact>& exact_;
  std::vector<ShadowRow>& rows_;
  Context again_;
  int number_ = 0;
  std::size_t next_ = 0;
  std::vector<Ran> of_tape_;
  std::vector<const Exact*> of_value_;
};

// Weights and buffers of one model in another's types, on cpu.
void copy_state(const ParameterArena& from, ParameterArena& to) {
  ROUNDOFF_CHECK(
      from.entries().size() == to.entries().size() && from.buffers().size() == to.buffers().size(),
      "shadow", "the two models do not have the same parameters");
  const auto copy = [](const Tensor& a, const Tensor& b) {
    Allocator allocator;
    b.copy_from(Tensor::from(allocator, a.to_vector(), b.shape(), b.dtype()));
  };
  for (std::size_t i = 0; i < from.entries().size(); ++i)
    copy(from.entries()[i].tensor, to.entries()[i].tensor);
  for (std::size_t i = 0; i < from.buffers().size(); ++i)
    copy(from.buffers()[i].value, to.buffers()[i].value);
  to.discard_buffers();
  to.changed(/*copies_written=*/false);
}

}  // namespace

double ShadowError::bits() const {
  return relative == 0 ? HUGE_VAL : std::max(0.0, -std::log2(relative));
}

double ShadowRow::bits_lost() const {
  return std::max(0.0, format_of(dtype).precision - local.bits());
}

ShadowError shadow_error(std::span<const double> actual, std::span<const double> reference,
                         DType dtype) {
  const Format format = format_of(dtype);
  ShadowError error;
  double difference = 0, norm = 0, ulps = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], r = reference[i];
    if (a == r || (std::isnan(a) && std::isnan(r))) {
      if (std::isfinite(r)) norm += r * r;
      continue;
    }
    if (!std::isfinite(a) || !std::isfinite(r)) {
      error.relative = error.max_ulp = error.rms_ulp = HUGE_VAL;
      return error;
    }
    const int e = r == 0 ? format.emin : std::clamp(std::ilogb(r), format.emin, format.emax);
    const double off = std::abs(a - r);
    const double ulp = std::ldexp(off, format.precision - 1 - e);
    difference += off * off;
    norm += r * r;
    ulps += ulp * ulp;
    error.max_ulp = std::max(error.max_ulp, ulp);
  }
  if (difference == 0) return error;
  error.relative = norm == 0 ? HUGE_VAL : std::sqrt(difference / norm);
  error.rms_ulp = std::sqrt(ulps / static_cast<double>(actual.size()));
  return error;
}

ShadowReport shadow_step(Context& context, Model& model, Model& twin, const MicroBatch& micro,
                         double seed, const LossSettings& loss) {
  ShadowReport report;
  report.samples = micro.labels.numel();
  report.scale = seed;

  Context exact_context;
  exact_context.accumulator = Accumulator::fp64;
  exact_context.training = context.training;
  exact_context.rng = context.rng;
  exact_context.rng.device = nullptr;
  twin.parameters().allocate(exact_context.allocator, {.master = DType::fp64});
  copy_state(model.parameters(), twin.parameters());
  MicroBatch exact_micro;
  exact_micro.x =
      Tensor::from(exact_context.allocator, micro.x.to_vector(), micro.x.shape(), DType::fp64);
  exact_micro.labels =
      (micro.host_labels.defined() ? micro.host_labels : micro.labels).to(exact_context.allocator);
  exact_micro.sample0 = micro.sample0;
  LossSettings exact_loss = loss;
  if (loss.class_weights.defined())
    exact_loss.class_weights = Tensor::from(exact_context.allocator, loss.class_weights.to_vector(),
                                            loss.class_weights.shape(), DType::fp64);
  ExactRun exact(exact_context);
  exact_context.observer = &exact;
  report.fp64_loss =
      accumulate_window(exact_context, twin, {&exact_micro, 1}, seed, exact_loss).loss;

  const Scoped<RngKey> rng(context.rng, context.rng);
  // Its sums are in the plain order, and its operations those of the run in fp64.
  const Scoped<bool> plain(context.reproducible, false);
  LowRun low(context, exact.nodes, report.rows);
  const Scoped<NodeObserver*> observed(context.observer, &low);
  model.parameters().zero_grad();
  report.loss = accumulate_window(context, model, {&micro, 1}, seed, loss).loss;
  model.parameters().zero_grad();
  model.parameters().discard_buffers();
  std::stable_sort(
      report.rows.begin(), report.rows.end(),
      [](const ShadowRow& a, const ShadowRow& b) { return a.local.relative > b.local.relative; });
  return report;
}

ShadowReport shadow_step(Trainer& trainer) {
  Sampler& sampler = trainer.sampler();
  const SamplerState before = sampler.state();
  const std::vector<MicroBatch> window = trainer.cut(sampler.next(), trainer.config().micro_batch);
  sampler.restore(before);
  ModelSettings settings = trainer.config().model;
  settings.input = trainer.data().image;
  settings.classes = trainer.data().classes;
  const std::unique_ptr<Model> twin = make_model(settings);
  Context& context = trainer.context();
  const Scoped<RngKey> rng(context.rng, context.rng);
  context.rng.step = static_cast<std::uint64_t>(trainer.steps_done());
  ShadowReport report =
      shadow_step(context, trainer.model(), *twin, window.front(), trainer.scaler().scale(),
                  {.label_smoothing = trainer.config().label_smoothing});
  report.step = trainer.steps_done() + 1;
  return report;
}

}  // namespace roundoff
