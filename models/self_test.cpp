#include "models/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/base/architecture.h"
#include "kernels/base/tensor_core.h"
#include "models/evaluate.h"
#include "models/train_step.h"

namespace roundoff {

namespace {

Tensor rows(const Tensor& x, std::int64_t begin, std::int64_t n) {
  Shape shape = x.shape();
  const std::int64_t stride = shape[0] == 0 ? 0 : x.numel() / shape[0];
  shape.set(0, n);
  return x.slice(begin * stride, shape);
}

// Adds up |gradient| (u |value| + eta) over the outputs of operations that round to 16 bit; for
// products on tensor cores also the error of their sums.
class RoundingObserver : public NodeObserver {
 public:
  RoundingObserver(double u, double eta, const Autocast& autocast, std::optional<Accumulator> gpu)
      : u_(u), eta_(eta), autocast_(autocast), gpu_(gpu) {}

  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    if (index < 0) return;
    outputs_.resize(static_cast<std::size_t>(index) + 1);
    sums_.resize(outputs_.size());
    const auto target = autocast_.target(operation.name, operation.cast_class);
    const bool rounds = !target || is_16bit(*target);
    outputs_.back() = rounds ? outputs[0] : Tensor();
    sums_.back().clear();
    if (rounds && gpu_ && (operation.name == "linear" || operation.name == "conv2d"))
      sums_.back() = product_errors(*gpu_, autocast_.low, inputs);
  }
  void runs_backward(std::int64_t index, const Node&, const Tensor& gradient) override {
    const Tensor& value = outputs_[static_cast<std::size_t>(index)];
    if (!value.defined()) return;
    add(value, gradient);
    const std::vector<double>& errors = sums_[static_cast<std::size_t>(index)];
    if (errors.empty()) return;
    const Tensor g = on_host(gradient);
    for (std::int64_t i = 0; i < g.numel(); ++i)
      sum_ += std::abs(g.at(i)) * errors[static_cast<std::size_t>(i) % errors.size()];
  }
  void add(const Tensor& value, const Tensor& gradient) {
    const Tensor v = on_host(value);
    const Tensor g = on_host(gradient);
    for (std::int64_t i = 0; i < v.numel(); ++i)
      sum_ += std::abs(g.at(i)) * (u_ * std::abs(v.at(i)) + eta_);
  }
  double take() { return std::exchange(sum_, 0.0); }
  void forget() {
    outputs_.clear();
    sums_.clear();
  }

 private:
  double u_;
  double eta_;
  const Autocast& autocast_;
  std::optional<Accumulator> gpu_;
  std::vector<Tensor> outputs_;
  std::vector<std::vector<double>> sums_;  // of each output channel, where it is a product's
  double sum_ = 0;
};

}  // namespace

std::vector<double> product_errors(Accumulator gpu, DType operands,
                                   std::span<const Tensor> inputs) {
  const TensorCore core = tensor_core(gpu, operands);
  const std::vector<double> x = inputs[0].to_vector(), w = inputs[1].to_vector();
  const auto channels = static_cast<std::size_t>(inputs[1].shape()[0]);
  const std::size_t terms = channels == 0 ? 0 : w.size() / channels;
  double largest = 0;
  for (const double v : x) largest = std::max(largest, std::abs(v));
  // A kernel may fill up its last block of every filter position.
  const std::int64_t run = inputs[1].shape()[-1];
  const double runs = run == 0 ? 0 : static_cast<double>(terms) / static_cast<double>(run);
  const double g = runs * tensor_core_error(core, run);
  std::vector<double> errors;
  for (std::size_t k = 0; k < channels; ++k) {
    double sum = 0;
    for (std::size_t i = 0; i < terms; ++i) sum += std::abs(w[k * terms + i]);
    errors.push_back(g * largest * sum);
  }
  if (inputs.size() > 2 && inputs[2].defined()) {
    const std::vector<double> bias = inputs[2].to_vector();
    for (std::size_t k = 0; k < channels; ++k) errors[k] += g * std::abs(bias[k]);
  }
  return errors;
}

std::string AmpCheckResult::text() const {
  return concat(
      holds ? "16-bit predictions agree with fp32" : "16-bit predictions differ from fp32",
      ": logit ", logit, " of sample ", sample, " is ", value, ", fp32 gives ", reference,
      ", bound ", bound, " (derived; ", samples, " samples, largest difference ", worst_ratio,
      " of its bound)");
}

AmpCheckResult amp_check(Context& context, Model& model, const Tensor& x, std::int64_t samples) {
  const DType low = context.autocast.low;
  ROUNDOFF_CHECK(is_16bit(low), "amp-check", "the context computes in fp32; nothing to compare");
  const Scoped<bool> evaluation(context.training, false);
  const double u = low == DType::fp16 ? 0x1p-11 : 0x1p-8;
  const double eta = low == DType::fp16 ? 0x1p-25 : 0x1p-134;
  const Autocast mixed = context.autocast;
  AmpCheckResult result;
  result.samples = std::min(samples, x.shape().rank() == 0 ? 0 : x.shape()[0]);
  std::optional<Accumulator> gpu;
  if (context.device() == Device::cuda && context.accumulator == Accumulator::fp32)
    gpu = tensor_core_of(context.queue()->runtime().description().capability);
  RoundingObserver observer(u, eta, mixed, gpu);
  for (std::int64_t s = 0; s < result.samples; ++s) {
    const Tensor sample = rows(x, s, 1);
    std::vector<double> low_logits;
    {
      const NoGrad no_grad(context);
      low_logits = model.forward(context, sample).to_vector();
    }
    const AutocastScope off(context, DType::fp32);
    const Scoped<NodeObserver*> observed(context.observer, &observer);
    // It asks for the gradient at the input, which no sum over samples goes into.
    const Scoped<bool> any_order(context.reproducible, false);
    const Tensor input = make_leaf(context.allocator, sample, "input");
    const Tensor logits = model.forward(context, input);
    const std::vector<double> references = logits.to_vector();
    for (std::int64_t j = 0; j < logits.numel(); ++j) {
      std::vector<double> one_hot(static_cast<std::size_t>(logits.numel()));
      one_hot[static_cast<std::size_t>(j)] = 1;
      context.tape.backward(context, logits,
                            Tensor::from(context.allocator, one_hot, logits.shape(), DType::fp32),
                            /*retain=*/true);
      observer.add(input, input.leaf()->grad);
      for (const ParameterEntry& entry : model.parameters().entries())
        if (entry.tensor.leaf()->has_grad) observer.add(entry.tensor, entry.tensor.leaf()->grad);
      model.parameters().zero_grad();
      input.leaf()->zero_grad();
      const double bound = 2 * observer.take();
      const double reference = references[static_cast<std::size_t>(j)];
      const double value = low_logits[static_cast<std::size_t>(j)];
      const double difference = std::abs(value - reference);
      const bool broken = std::isfinite(reference) && !std::isfinite(value);
      const double ratio = broken                                     ? HUGE_VAL
                           : difference == 0 || std::isnan(reference) ? 0
                                                                      : difference / bound;
      if (ratio > result.worst_ratio || (s == 0 && j == 0)) {
        result.worst_ratio = ratio;
        result.sample = s;
        result.logit = j;
        result.reference = reference;
        result.value = value;
        result.bound = bound;
      }
    }
    context.tape.clear();
    observer.forget();
  }
  result.holds = result.worst_ratio <= 1;
  return result;
}

AccumulationCheck compare_accumulated(Context& context, Model& model, const Tensor& x,
                                      const Tensor& labels, std::int64_t micro_batches,
                                      const LossSettings& loss) {
  const std::int64_t n = labels.numel();
  if (micro_batches < 1 || micro_batches > n)
    throw UsageError(concat("[accumulate] ", micro_batches, " micro-batches of ", n,
                            " samples; between 1 and the number of samples expected"));
  ParameterArena& parameters = model.parameters();
  const auto gradient = [&](std::int64_t parts) {
    std::vector<MicroBatch> window;
    std::int64_t begin = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t size = n / parts + (part < n % parts ? 1 : 0);
      window.push_back({rows(x, begin, size), rows(labels, begin, size),
                        context.rng.sample0 + static_cast<std::uint64_t>(begin)});
      begin += size;
    }
    const Scoped<RngKey> rng(context.rng, context.rng);
    parameters.zero_grad();
    accumulate_window(context, model, window, 1.0, loss);
    parameters.discard_buffers();
    std::vector<double> values;
    for (const ParameterEntry& entry : parameters.entries()) {
      const Leaf& leaf = *entry.tensor.leaf();
      const std::vector<double> part =
          leaf.has_grad ? leaf.grad.to_vector()
                        : std::vector<double>(static_cast<std::size_t>(entry.shape.numel()));
      values.insert(values.end(), part.begin(), part.end());
    }
    parameters.zero_grad();
    return values;
  };
  const std::vector<double> whole = gradient(1);
  const std::vector<double> cut = gradient(micro_batches);
  AccumulationCheck check;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double difference = std::abs(whole[i] - cut[i]);
    check.largest_gradient = std::max(check.largest_gradient, std::abs(whole[i]));
    if (std::isnan(difference)) {
      check.largest_difference = difference;
      break;
    }
    check.largest_difference = std::max(check.largest_difference, difference);
  }
  return check;
}

double accumulate_gradients(Context& context, Model& model, const Tensor& x, const Tensor& labels,
                            std::int64_t micro_batches) {
  return compare_accumulated(context, model, x, labels, micro_batches).largest_difference;
}

}  // namespace roundoff
