// Reproducible training: a window's gradient, loss and update have the same bits however it is cut
// into micro-batches, on cpu and on sim; and without the setting they have not.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "kernels/simt/runtime_sim.h"
#include "models.h"
#include "models/checkpoint.h"
#include "models/layers.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/shape.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr std::int64_t kWindow = 13;
constexpr std::int64_t kClasses = 3;
constexpr std::int64_t kTokens = 4;
constexpr std::int64_t kVocabulary = 7;

// Tokens [N, 4]: embedding, LayerNorm, dropout, a linear layer for each token, one for all.
class TokenNet : public Model {
 public:
  TokenNet()
      : table_(parameters_.add("table", {kVocabulary, 12}, Init::uniform_fan_in, 12)),
        gamma_(parameters_.add("gamma", {12}, Init::ones)),
        beta_(parameters_.add("beta", {12}, Init::zeros)),
        mix_(parameters_.add("mix", {12, 9}, Init::uniform_fan_in, 12)),
        out_(parameters_, "out", kTokens * 9, kClasses) {}
  std::string_view name() const override { return "tokens"; }
  Tensor forward(Context& context, const Tensor& x) override {
    Tensor h = layer_norm(context, embedding(context, table_, x), gamma_, beta_);
    h = gelu(context, matmul(context, dropout(context, h, 0.3, 1), mix_));
    return out_(context, flatten(context, h, 1));
  }

 private:
  Parameter table_, gamma_, beta_, mix_;
  LinearLayer out_;
};

// Sizes of the micro-batches of a window.
using Sizes = std::vector<std::int64_t>;

Sizes random_cut(std::mt19937& random) {
  Sizes cut;
  const auto most = 1 + random() % kWindow;
  for (std::int64_t left = kWindow; left > 0; left -= cut.back())
    cut.push_back(std::min<std::int64_t>(left, static_cast<std::int64_t>(1 + random() % most)));
  return cut;
}

struct Settings {
  std::string model = "mlp";
  Precision precision = Precision::fp32;
  Device device = Device::cpu;
  bool reproducible = true;
  bool weighted = false;  // class weights, and targets that do not count
};

// A model in its context, and what goes in.
struct Run {
  Settings settings;
  Context context;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  LossSettings loss;
  std::vector<double> x, labels;
  Shape sample{8, 8, 1};
  DType input = DType::fp32;

  explicit Run(const Settings& s)
      : settings(s),
        context(s.device),
        scaler(
            {.init_scale = 1024, .growth_interval = 3, .enabled = s.precision == Precision::fp16}) {
    if (s.model == "tokens") {
      model = std::make_unique<TokenNet>();
      sample = {kTokens};
      input = DType::i64;
    } else {
      model = make_model({.model = s.model,
                          .input = sample,
                          .classes = kClasses,
                          .hidden = {11},
                          .dropout = s.model == "convnet" ? 0.25 : 0.0});
    }
    apply_precision(context, s.precision);
    context.reproducible = s.reproducible;
    context.rng.seed = 5;
    model->parameters().allocate(context.allocator, arena_settings(s.precision, 3));
    optimizer = std::make_unique<Optimizer>(
        context, model->parameters(),
        OptimizerSettings{.kind = OptimizerSettings::Kind::adamw, .weight_decay = 0.01});
    if (s.weighted) {
      const std::vector<double> weights{0.3, 1.7, 0.9};
      loss.class_weights = Tensor::from(context.allocator, weights, {kClasses}, DType::fp32);
    }
  }

  std::vector<MicroBatch> window(const Sizes& cut, unsigned step) {
    x = input == DType::i64 ? random_labels(kWindow * sample.numel(), kVocabulary, 50 + step)
                            : normal_values(kWindow * sample.numel(), 50 + step);
    labels = random_labels(kWindow, kClasses, 90 + step);
    // Several in a row, so that some cuts have micro-batches without any target.
    if (settings.weighted)
      for (const std::size_t i : {3U, 4U, 5U, 9U}) labels[i] = -100;
    std::vector<MicroBatch> result;
    std::int64_t begin = 0;
    for (const std::int64_t n : cut) {
      std::vector<std::int64_t> extents{n};
      extents.insert(extents.end(), sample.extents().begin(), sample.extents().end());
      const auto part = [&](const std::vector<double>& v, std::int64_t each) {
        return std::span(v).subspan(static_cast<std::size_t>(begin * each),
                                    static_cast<std::size_t>(n * each));
      };
      Tensor in = Tensor::from(context.allocator, part(x, sample.numel()),
                               Shape(std::span<const std::int64_t>(extents)), input);
      if (input == DType::fp32) in = model_input(context, *model, in);
      const Tensor target = Tensor::from(context.allocator, part(labels, 1), {n}, DType::i64);
      result.push_back(
          {in, target,
           static_cast<std::uint64_t>(kWindow * step) + static_cast<std::uint64_t>(begin)});
      begin += n;
    }
    return result;
  }

  static void add(const Tensor& t, std::vector<std::byte>& bytes) {
    if (!t.defined()) return;
    const std::size_t at = bytes.size();
    bytes.resize(at + t.bytes());
    t.read(bytes.data() + at);
  }
  static void add(double value, std::vector<std::byte>& bytes) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof(value));
  }

  // Of the first window: its gradients, its loss, its valid weight and its correct predictions.
  std::vector<std::byte> gradient(const Sizes& cut) {
    context.rng.step = 0;
    const StepResult r = accumulate_window(context, *model, window(cut, 0), scaler.scale(), loss);
    std::vector<std::byte> bytes;
    for (const ParameterEntry& e : model->parameters().entries()) {
      REQUIRE(e.tensor.leaf()->has_grad);
      add(e.tensor.leaf()->grad, bytes);
    }
    add(r.loss, bytes);
    add(r.valid, bytes);
    add(static_cast<double>(r.correct), bytes);
    model->parameters().zero_grad();
    return bytes;
  }

  // Of training steps, each window cut as the plan says: losses, norms, and all that they change.
  std::vector<std::byte> train(const std::vector<Sizes>& plan) {
    std::vector<std::byte> bytes;
    const auto note = [&](const StepResult& r) {
      for (const double v : {r.loss, r.grad_norm, r.clip, r.scale, r.valid}) add(v, bytes);
    };
    std::unique_ptr<DeviceStep> step;
    if (context.device() != Device::cpu)
      step = std::make_unique<DeviceStep>(context, *optimizer, scaler, ClipParams{.max_norm = 0.7},
                                          LearningRate{.lr = 1e-2});
    for (std::size_t i = 0; i < plan.size(); ++i) {
      context.rng.step = i;
      const std::vector<MicroBatch> micro = window(plan[i], static_cast<unsigned>(i));
      if (step != nullptr) {
        queue_window(context, *model, *step, micro, loss);
        note(step_result(*step->wait()));
      } else {
        note(train_step(context, *model, *optimizer, scaler, micro,
                        {.lr = 1e-2, .max_norm = 0.7, .loss = loss}));
      }
    }
    add(model->parameters().flat_master(), bytes);
    add(model->parameters().flat_compute(), bytes);
    add(optimizer->first_moment(), bytes);
    add(optimizer->second_moment(), bytes);
    return bytes;
  }
};

constexpr Precision kMixed[] = {Precision::fp32, Precision::bf16, Precision::fp16};

// Cuts of one window, and training with another cut in each window.
void check_cuts(const Settings& settings, int cuts, int runs) {
  CAPTURE(settings.model);
  CAPTURE(name(settings.precision));
  CAPTURE(settings.weighted);
  std::mt19937 random(41);
  Run run(settings);
  const std::vector<std::byte> whole = run.gradient({kWindow});
  const Sizes ones(kWindow, 1);
  CHECK(run.gradient(ones) == whole);
  for (int i = 1; i < cuts; ++i) {
    const Sizes cut = random_cut(random);
    CAPTURE(i);
    CHECK(run.gradient(cut) == whole);
  }
  const std::vector<std::byte> expected =
      Run(settings).train(std::vector<Sizes>(10, Sizes{kWindow}));
  for (int i = 0; i < runs; ++i) {
    CAPTURE(i);
    std::vector<Sizes> plan;
    for (int step = 0; step < 10; ++step) plan.push_back(i == 0 ? ones : random_cut(random));
    CHECK(Run(settings).train(plan) == expected);
  }
}

}  // namespace

TEST_CASE("cuts of a window give the same bits on cpu: gradients, losses and ten steps") {
  for (const char* model : {"mlp", "convnet", "tokens"})
    for (const Precision precision : kMixed)
      check_cuts({.model = model, .precision = precision}, 20, 2);
}

TEST_CASE("so they do where targets weigh differently or do not count") {
  for (const char* model : {"mlp", "tokens"})
    for (const Precision precision : {Precision::fp32, Precision::fp16})
      check_cuts({.model = model, .precision = precision, .weighted = true}, 20, 2);
}

TEST_CASE("and in tf32 and without masters") {
  for (const Precision precision : {Precision::tf32, Precision::pure_fp16, Precision::pure_bf16})
    check_cuts({.model = "convnet", .precision = precision}, 10, 1);
}

TEST_SUITE("full") {
  TEST_CASE("400 random cuts of a window on cpu") {
    for (const char* model : {"mlp", "convnet", "tokens"})
      for (const Precision precision : kMixed)
        check_cuts({.model = model, .precision = precision}, 400, 10);
    check_cuts({.model = "mlp", .precision = Precision::fp16, .weighted = true}, 400, 10);
  }
}

TEST_CASE("cuts of a window give the same bits on sim") {
  check_cuts({.model = "mlp", .precision = Precision::fp32, .device = Device::sim}, 16, 1);
  check_cuts(
      {.model = "mlp", .precision = Precision::fp16, .device = Device::sim, .weighted = true}, 4,
      1);
  check_cuts({.model = "convnet", .precision = Precision::bf16, .device = Device::sim}, 2, 0);
  check_cuts({.model = "tokens", .precision = Precision::fp16, .device = Device::sim}, 4, 0);
}

TEST_SUITE("full") {
  TEST_CASE("16 random cuts of a window on sim, every model and precision") {
    for (const char* model : {"mlp", "convnet", "tokens"})
      for (const Precision precision : kMixed)
        check_cuts({.model = model, .precision = precision, .device = Device::sim}, 16, 1);
  }
}

TEST_CASE("without the setting some cuts differ, in every model and precision") {
  std::mt19937 random(43);
  for (const char* model : {"mlp", "convnet", "tokens"}) {
    for (const Precision precision : kMixed) {
      CAPTURE(model);
      CAPTURE(name(precision));
      Run run({.model = model, .precision = precision, .reproducible = false});
      const std::vector<std::byte> whole = run.gradient({kWindow});
      int differ = 0;
      for (int i = 0; i < 10; ++i) differ += run.gradient(random_cut(random)) == whole ? 0 : 1;
      CHECK(differ > 0);
    }
  }
}

TEST_CASE("a run of reproducible windows goes on from a checkpoint in another cut") {
  const TestFolder folder("reproducible");
  const Dataset data = small_dataset(50);
  const auto config = [](std::int64_t micro_batch, std::int64_t accumulate) {
    TrainConfig c;
    c.data = "small";
    c.model = {.model = "convnet", .dropout = 0.2};
    c.precision = Precision::fp16;
    c.micro_batch = micro_batch;
    c.accumulate = accumulate;
    c.steps = 8;  // the fifth window of an epoch is short
    c.reproducible = true;
    return c;
  };
  const auto weights = [](Trainer& trainer) {
    std::vector<std::byte> bytes;
    Run::add(trainer.model().parameters().flat_master(), bytes);
    Run::add(trainer.optimizer().first_moment(), bytes);
    return bytes;
  };
  Trainer whole(config(12, 1), data);
  std::vector<double> losses;
  while (!whole.done()) losses.push_back(whole.step().loss);
  for (const std::int64_t micro_batch : {1, 4, 6}) {
    CAPTURE(micro_batch);
    Trainer first(config(micro_batch, 12 / micro_batch), data);
    for (int i = 0; i < 4; ++i) CHECK(first.step().loss == losses[static_cast<std::size_t>(i)]);
    save_checkpoint(folder / "half.safetensors", first, {});
    Trainer second(config(3, 4), data);
    load_checkpoint(folder / "half.safetensors", second);
    for (std::size_t i = 4; !second.done(); ++i) CHECK(second.step().loss == losses[i]);
    CHECK(weights(second) == weights(whole));
  }
  // Another window, and a run that is not reproducible, are other runs.
  Trainer larger(config(13, 1), data);
  CHECK_THROWS_WITH_AS(load_checkpoint(folder / "half.safetensors", larger),
                       doctest::Contains("window = 12, this run has 13"), Error);
  TrainConfig plain = config(6, 2);
  plain.reproducible = false;
  Trainer other(plain, data);
  CHECK_THROWS_WITH_AS(load_checkpoint(folder / "half.safetensors", other),
                       doctest::Contains("reproducible = true, this run has false"), Error);
}

TEST_CASE("what cannot be reproducible is refused, with the reason") {
  const Dataset data = small_dataset();
  TrainConfig c;
  c.data = "small";
  c.model = {.model = "mlp"};
  c.reproducible = true;
  const auto refuses = [&](const TrainConfig& config, const char* why) {
    CHECK_THROWS_WITH_AS(Trainer(config, data), doctest::Contains(why), UsageError);
  };
  for (const Accumulator a :
       {Accumulator::fp16, Accumulator::v100, Accumulator::a100, Accumulator::h100}) {
    TrainConfig other = c;
    other.accumulator = a;
    refuses(other, "reproducible does not go with acc");
  }
  TrainConfig rounded = c;
  rounded.weight_grad_16bit = true;
  refuses(rounded, "rounds once a micro-batch");
  TrainConfig normalised = c;
  normalised.model = {.model = "convnet", .batch_norm = true};
  refuses(normalised, "BatchNorm");

  Context context;
  context.reproducible = true;
  const auto parameter = [&](const char* name, const Shape& shape) {
    return make_leaf(context.allocator, Tensor::zeros(context.allocator, shape, DType::fp32), name);
  };
  const Tensor x = Tensor::zeros(context.allocator, {4, 3}, DType::fp32);
  const Tensor w = parameter("w", {3, 3}), b = parameter("b", {3});
  CHECK_THROWS_WITH_AS(add(context, x, b), doctest::Contains("'b' would come through"), Error);
  CHECK_THROWS_WITH_AS(reshape(context, w, {9}), doctest::Contains("'w' would come through"),
                       Error);
  CHECK_THROWS_WITH_AS(matmul(context, w, w), doctest::Contains("'w' is used twice"), Error);
  const Tensor h = linear(context, x, w);
  CHECK_THROWS_WITH_AS(linear(context, h, w), doctest::Contains("'w' is used twice"), Error);
  context.tape.clear();
  CHECK_THROWS_WITH_AS(batch_norm(context, x, b, parameter("beta", {3}), {}, {}),
                       doctest::Contains("mean and variance"), Error);
  context.tape.clear();
  const Tensor y = sum(context, matmul(context, x, w, {.alpha = 0.5}));
  CHECK_THROWS_WITH_AS(context.tape.backward(context, y), doctest::Contains("alpha is 0.5"), Error);
}
