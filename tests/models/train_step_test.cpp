// The training step: skips, windows, scales, and what they leave alone.
#include "models/train_step.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

const Shape kSample{8, 8, 1};
constexpr OptimizerSettings kSgd{.kind = OptimizerSettings::Kind::sgd};

ModelSettings small_mlp() {
  return {.model = "mlp", .input = kSample, .classes = 3, .hidden = {8}};
}

ScalerConfig dynamic(double scale, std::int32_t interval = 2000) {
  return {.init_scale = scale, .growth_interval = interval};
}

}  // namespace

TEST_CASE("case 86 [SCALER] a non-finite micro-batch skips the whole window, once") {
  for (const auto kind : {OptimizerSettings::Kind::sgd, OptimizerSettings::Kind::adamw}) {
    Net net({.model = "convnet", .input = kSample, .classes = 3, .batch_norm = true},
            Precision::fp16, {.kind = kind, .momentum = kind == kSgd.kind ? 0.9 : 0.0});
    LossScaler scaler(dynamic(1024));
    auto x = normal_values(12 * 64, 1);
    const auto labels = random_labels(12, 3, 2);
    x[5 * 64] = HUGE_VAL;  // in the second micro-batch
    const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample),
                                         net.batch(4, 4, x, labels, kSample),
                                         net.batch(8, 4, x, labels, kSample)};
    const auto before = net.state();
    const StepResult result =
        train_step(net.context, *net.model, *net.optimizer, scaler, window, {});
    CHECK_FALSE(result.did_step);
    CHECK(result.found_inf);
    CHECK(scaler.scale() == 512);
    CHECK(net.state() == before);  // masters, moments, counts, buffers
    for (const ParameterEntry& e : net.model->parameters().entries())
      CHECK_FALSE(e.tensor.leaf()->has_grad);
  }
}

TEST_CASE("case 86 [SCALER] a window without a valid target is neutral") {
  Net net(small_mlp(), Precision::fp16, {});
  LossScaler scaler(dynamic(1024, 2));
  const auto x = normal_values(4 * 64, 3);
  const std::vector<double> ignored(4, -100.0);
  const std::vector<double> labels{0, 1, 2, 0};
  const std::vector<MicroBatch> good{net.batch(0, 4, x, labels, kSample)};
  const std::vector<MicroBatch> empty{net.batch(0, 4, x, ignored, kSample)};
  CHECK(train_step(net.context, *net.model, *net.optimizer, scaler, good, {}).did_step);
  CHECK(scaler.growth_tracker() == 1);
  const auto before = net.state();
  const StepResult result = train_step(net.context, *net.model, *net.optimizer, scaler, empty, {});
  CHECK_FALSE(result.did_step);
  CHECK_FALSE(result.found_inf);
  CHECK(result.loss == 0);
  CHECK(result.valid == 0);
  CHECK(net.state() == before);
  CHECK(scaler.growth_tracker() == 1);
  CHECK(scaler.scale() == 1024);
  // A zero-token micro-batch among others changes nothing either, even with garbage in it.
  auto garbage = x;
  garbage[0] = std::nan("");
  Net other(small_mlp(), Precision::fp16, {});
  LossScaler other_scaler(dynamic(1024, 2));
  const std::vector<MicroBatch> mixed{other.batch(0, 4, garbage, ignored, kSample),
                                      other.batch(0, 4, x, labels, kSample)};
  CHECK(
      train_step(other.context, *other.model, *other.optimizer, other_scaler, mixed, {}).did_step);
  CHECK(other.state() == before);
}

TEST_CASE("case 40 [LOSS] and rule 4: ignored rows leave no trace in the weights") {
  Net net(small_mlp(), Precision::fp32, {});
  Net other(small_mlp(), Precision::fp32, {});
  LossScaler off(ScalerConfig{.enabled = false});
  auto x = normal_values(5 * 64, 4);
  const std::vector<double> labels{0, 1, 2, 0, -100};
  const std::vector<MicroBatch> with{net.batch(0, 5, x, labels, kSample)};
  const std::vector<MicroBatch> without{other.batch(0, 4, x, labels, kSample)};
  const StepResult a = train_step(net.context, *net.model, *net.optimizer, off, with, {});
  const StepResult b = train_step(other.context, *other.model, *other.optimizer, off, without, {});
  CHECK(a.valid == b.valid);
  CHECK(a.loss == doctest::Approx(b.loss).epsilon(1e-6));
}

TEST_CASE("case 118 [OPT] a power-of-two loss scale is invisible") {
  const auto weights = [](double scale) {
    Net net(small_mlp(), Precision::fp32, {.kind = OptimizerSettings::Kind::adamw});
    ScalerConfig config = dynamic(scale);
    config.dynamic = false;
    LossScaler scaler(config);
    const auto x = normal_values(6 * 64, 5);
    const auto labels = random_labels(6, 3, 6);
    for (int step = 0; step < 20; ++step) {
      const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample),
                                           net.batch(4, 2, x, labels, kSample)};
      train_step(net.context, *net.model, *net.optimizer, scaler, window, {.max_norm = 0.5});
    }
    return net.state();
  };
  const auto reference = weights(1);
  for (const double scale : {0x1p8, 0x1p12, 0x1p-6}) CHECK(weights(scale) == reference);
}

TEST_CASE("an initial scale of 1 with three infinite gradients goes 0.5, 0.25, 0.125") {
  Net net(small_mlp(), Precision::fp16, {});
  LossScaler scaler(dynamic(1));
  auto x = normal_values(4 * 64, 7);
  x[0] = HUGE_VAL;
  const std::vector<double> labels{0, 1, 2, 0};
  const auto before = net.state();
  for (const float scale : {0.5F, 0.25F, 0.125F}) {
    const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample)};
    train_step(net.context, *net.model, *net.optimizer, scaler, window, {});
    CHECK(scaler.scale() == scale);
  }
  CHECK(net.state() == before);
}

TEST_CASE("consecutive skips beyond the limit raise an error that names a parameter") {
  Net net(small_mlp(), Precision::fp16, {});
  LossScaler scaler(dynamic(8), 3);
  auto x = normal_values(4 * 64, 8);
  x[0] = std::nan("");
  const std::vector<double> labels{0, 1, 2, 0};
  const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample)};
  const auto step = [&] {
    train_step(net.context, *net.model, *net.optimizer, scaler, window, {});
  };
  step();
  step();
  bool named = false;
  try {
    step();
  } catch (const ScaleCollapse& e) {
    named = std::string(e.what()).find("fc1.weight") != std::string::npos;
  }
  CHECK(named);
}

TEST_CASE("clipping acts once a window, after unscaling") {
  const auto result = [](double max_norm, double scale) {
    Net net(small_mlp(), Precision::fp32, kSgd);
    ScalerConfig config = dynamic(scale);
    config.dynamic = false;
    LossScaler scaler(config);
    const auto x = normal_values(8 * 64, 9);
    const auto labels = random_labels(8, 3, 10);
    const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample),
                                         net.batch(4, 4, x, labels, kSample)};
    return train_step(net.context, *net.model, *net.optimizer, scaler, window,
                      {.lr = 0.1, .max_norm = max_norm});
  };
  const StepResult free = result(HUGE_VAL, 1);
  CHECK(free.clip == 1);
  const StepResult clipped = result(free.grad_norm / 4, 1024);
  CHECK(clipped.grad_norm == free.grad_norm);
  CHECK(clipped.clip == doctest::Approx(0.25).epsilon(1e-7));
}

TEST_CASE("a window uses the scale that it began with, in every micro-batch") {
  // Gradients of 16-bit weights at two scales agree exactly only if the whole window has one scale.
  Net net(small_mlp(), Precision::fp16, kSgd);
  LossScaler scaler(dynamic(1024, 1));
  const auto x = normal_values(4 * 64, 11);
  const std::vector<double> labels{0, 1, 2, 0};
  const std::vector<MicroBatch> window{net.batch(0, 2, x, labels, kSample),
                                       net.batch(2, 2, x, labels, kSample)};
  CHECK(train_step(net.context, *net.model, *net.optimizer, scaler, window, {}).scale == 1024);
  CHECK(scaler.scale() == 2048);
  CHECK(train_step(net.context, *net.model, *net.optimizer, scaler, window, {}).scale == 2048);
}

TEST_CASE("our own code allocates nothing in a step after the first") {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    Net net({.model = "convnet", .input = kSample, .classes = 3}, precision, {});
    LossScaler scaler(dynamic(1024));
    const auto x = normal_values(8 * 64, 12);
    const auto labels = random_labels(8, 3, 13);
    const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample),
                                         net.batch(4, 4, x, labels, kSample)};
    const auto step = [&] {
      train_step(net.context, *net.model, *net.optimizer, scaler, window, {});
    };
    step();
    step();
    const std::int64_t blocks = net.context.allocator.stats().system_allocations;
    const std::size_t scratch = net.context.scratch.capacity();
    for (int i = 0; i < 3; ++i) step();
    CHECK(net.context.allocator.stats().system_allocations == blocks);
    CHECK(net.context.scratch.capacity() == scratch);
  }
}

TEST_CASE("activation memory halves in 16 bit and does not grow with the number of micro-batches") {
  const auto peak = [](Precision precision, int micro_batches) {
    Net net({.model = "convnet", .input = {16, 16, 1}, .classes = 3}, precision, {});
    LossScaler scaler(dynamic(256));
    const auto x = normal_values(8 * 256, 14);
    const auto labels = random_labels(8, 3, 15);
    std::vector<MicroBatch> window(static_cast<std::size_t>(micro_batches),
                                   net.batch(0, 8, x, labels, {16, 16, 1}));
    net.context.allocator.reset_peaks();
    train_step(net.context, *net.model, *net.optimizer, scaler, window, {});
    const MemoryStats& stats = net.context.allocator.stats();
    CHECK(stats.activation_peak_node != "");
    return static_cast<double>(stats.peak[static_cast<std::size_t>(MemoryCategory::activations)]);
  };
  const double fp32 = peak(Precision::fp32, 1);
  CHECK(peak(Precision::fp32, 5) == fp32);
  for (const Precision low : {Precision::fp16, Precision::bf16}) {
    const double ratio = peak(low, 1) / fp32;
    CHECK(ratio > 0.45);
    CHECK(ratio < 0.62);  // indices of the maximum pools keep their size
    CHECK(peak(low, 5) == peak(low, 1));
  }
}
