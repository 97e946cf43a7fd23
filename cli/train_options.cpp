#include "cli/train_options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "bench/table.h"
#include "cli/environment.h"
#include "ops/list.h"

namespace roundoff::cli {

namespace {

// dynamic, off, or the value of a fixed scale.
void set_scale(const std::string& text, TrainConfig& config) {
  if (text.empty()) return;
  if (text == "dynamic" || text == "off") {
    config.scale = text == "off" ? ScaleMode::off : ScaleMode::dynamic;
    return;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(concat("[train] --scale is '", text, "'; dynamic, off or a number expected"));
  config.scale = ScaleMode::fixed;
  config.scaler.init_scale = value;
}

}  // namespace

Accumulator parse_accumulator(std::string_view command, std::string_view flag,
                              const std::string& text) {
  for (const Accumulator accumulator : kAccumulators)
    if (text == name(accumulator)) return accumulator;
  throw UsageError(concat("[", command, "] ", flag, " is '", text,
                          "'; fp32, fp64, fp16, v100, a100 or h100 expected"));
}

void add_train_options(CLI::App& command, TrainOptions& o) {
  const auto add = [&](const char* name, auto& variable, const char* description) {
    CLI::Option* option = command.add_option(name, variable, description)->capture_default_str();
    // CLI11 shows six digits, and resolved settings have to read back to the same value.
    if constexpr (std::is_same_v<std::decay_t<decltype(variable)>, double>)
      option->default_str(shortest(variable));
    return option;
  };
  add("--model", o.model, "mlp, tiny-mlp, convnet or bn-mlp");
  add("--hidden", o.hidden, "Widths of an mlp's hidden layers")->delimiter(',')->default_str("128");
  command.add_flag("--batch-norm", o.batch_norm, "convnet: BatchNorm after each convolution");
  add("--dropout", o.dropout, "convnet: probability of dropping before the last layer");
  add("--data", o.data, "fashion-mnist[:DIR], idx:DIR, cifar10:DIR, npy:DIR or glyphs");
  add("--precision", o.precision, "fp32, tf32, fp16, bf16, pure-fp16 or pure-bf16");
  add("--device", o.device, "cpu, sim or cuda");
  add("--epochs", o.epochs, "Passes over the training images");
  add("--steps", o.steps, "Windows from the run's start, skipped ones included; 0: epochs decide");
  add("--micro-batch", o.micro_batch, "Samples of one backward pass");
  add("--accumulate", o.accumulate, "Micro-batches of one update");
  add("--optimizer", o.optimizer, "sgd, adam or adamw");
  add("--lr", o.lr, "Learning rate");
  add("--momentum", o.momentum, "sgd: momentum");
  command.add_flag("--nesterov", o.nesterov, "sgd: Nesterov's momentum");
  add("--weight-decay", o.weight_decay, "Weight decay (decoupled with adamw)");
  add("--schedule", o.schedule,
      "constant, cosine or step; ends with --epochs, or with --steps "
      "where those are more");
  add("--warmup", o.warmup, "Updates of linear warm-up");
  add("--clip", o.clip, "Largest norm of the gradient; inf: no clipping");
  add("--seed", o.seed, "Of initial weights, order of samples and dropout");
  command.add_option("--scale", o.scale,
                     "Loss scale: dynamic, off or a number; by default dynamic for fp16, else off");
  add("--init-scale", o.init_scale, "First dynamic scale");
  add("--growth", o.growth, "Factor by which a dynamic scale grows");
  add("--backoff", o.backoff, "Factor by which it shrinks after a skipped step");
  add("--interval", o.interval, "Good steps in a row before it grows");
  add("--min-scale", o.min_scale, "It never falls below this");
  add("--max-scale", o.max_scale, "It never grows past this");
  add("--max-skips", o.max_skips, "Stop after so many skipped steps in a row; 0: never");
  add("--acc", o.accumulator,
      "Accumulator of products and sums: fp32, fp64, fp16, v100, a100, h100");
  command.add_flag("--reproducible", o.reproducible,
                   "The same bits for every way to cut a window into micro-batches");
  command.add_flag("--stochastic-rounding", o.stochastic_rounding,
                   "pure-fp16 and pure-bf16: round updates of the weights stochastically");
  add("--weight-grad", o.weight_grad,
      "Weight gradients: fp32 (the accumulator's value), or 16bit (rounded first, as PyTorch)");
  command.add_option("--autocast", o.autocast, "Dtypes of single operations: op=dtype,...");
  add("--label-smoothing", o.label_smoothing, "Share of the target spread over all classes");
  add("--graph", o.graph,
      "Whether a device runs each step as one captured graph: on, off, or auto (on cuda)");
}

TrainConfig train_config(const TrainOptions& o) {
  TrainConfig c;
  c.data = o.data;
  c.model = {
      .model = o.model, .hidden = o.hidden, .batch_norm = o.batch_norm, .dropout = o.dropout};
  c.precision = parse_precision(o.precision);
  c.device = parse_device(o.device);
  c.epochs = o.epochs;
  c.steps = o.steps;
  c.micro_batch = o.micro_batch;
  c.accumulate = o.accumulate;
  c.optimizer.kind = parse_optimizer(o.optimizer);
  const bool sgd = c.optimizer.kind == OptimizerSettings::Kind::sgd;
  c.optimizer.momentum = sgd ? o.momentum : 0;
  c.optimizer.nesterov = o.nesterov;
  c.optimizer.weight_decay = o.weight_decay;
  if (o.nesterov && !sgd) throw UsageError("[train] --nesterov is an option of --optimizer sgd");
  c.schedule = {.kind = parse_schedule(o.schedule), .lr = o.lr, .warmup = o.warmup};
  c.clip = o.clip;
  c.seed = o.seed;
  c.scaler = {.init_scale = o.init_scale,
              .growth_factor = o.growth,
              .backoff_factor = o.backoff,
              .growth_interval = o.interval,
              .min_scale = o.min_scale,
              .max_scale = o.max_scale};
  set_scale(o.scale, c);
  if (is_pure(c.precision) && c.scale == ScaleMode::dynamic)
    throw UsageError(concat("[train] --precision ", o.precision,
                            " trains without loss scaling; --scale dynamic does not go with it"));
  c.max_skips = o.max_skips;
  c.accumulator = parse_accumulator("train", "--acc", o.accumulator);
  c.reproducible = o.reproducible;
  if (o.stochastic_rounding && !is_pure(c.precision))
    throw UsageError(
        concat("[train] --stochastic-rounding is for weights in 16 bit, pure-fp16 and "
               "pure-bf16; --precision ",
               o.precision, " keeps them in fp32"));
  c.optimizer.stochastic_rounding = o.stochastic_rounding;
  c.optimizer.rounding_seed = o.seed;
  if (o.weight_grad != "fp32" && o.weight_grad != "16bit")
    throw UsageError(
        concat("[train] --weight-grad is '", o.weight_grad, "'; fp32 or 16bit expected"));
  c.weight_grad_16bit = o.weight_grad == "16bit";
  c.autocast = parse_overrides(o.autocast);
  for (const auto& choice : c.autocast)
    if (std::none_of(std::begin(kOps), std::end(kOps),
                     [&](const OpInfo& info) { return info.name == choice.first; }))
      throw UsageError(
          concat("[train] --autocast names '", choice.first, "', which is no operation"));
  c.label_smoothing = o.label_smoothing;
  if (o.graph != "auto" && o.graph != "on" && o.graph != "off")
    throw UsageError(concat("[train] --graph is '", o.graph, "'; auto, on or off expected"));
  if (o.graph == "on" && c.device == Device::cpu)
    throw UsageError("[train] --graph on goes with --device sim or cuda: cpu has no graphs");
  c.graph = o.graph == "on"    ? TrainConfig::Graph::on
            : o.graph == "off" ? TrainConfig::Graph::off
                               : TrainConfig::Graph::by_device;
  validate(c);
  return c;
}

}  // namespace roundoff::cli
