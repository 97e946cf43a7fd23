// Gradient accumulation: what a window of micro-batches computes, against the whole batch.
#include <doctest/doctest.h>

#include <cmath>

#include "models.h"
#include "models/self_test.h"
#include "ops/arithmetic.h"
#include "ops/loss.h"
#include "ops/matmul.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

// The gradient of mean (w x - y)^2 at w, over the pairs (x, y) from `begin` on, times `weight`.
double line_gradient(double w, const std::vector<double>& x, const std::vector<double>& y,
                     std::size_t begin, std::size_t n, double weight) {
  Context context;
  const Shape shape{static_cast<std::int64_t>(n)};
  const Tensor weight_tensor =
      make_leaf(context.allocator, Tensor::from(context.allocator, {&w, 1}, {1}, DType::fp32), "w");
  const Tensor inputs =
      Tensor::from(context.allocator, std::span(x).subspan(begin, n), shape, DType::fp32);
  const Tensor targets =
      Tensor::from(context.allocator, std::span(y).subspan(begin, n), shape, DType::fp32);
  const Tensor loss = mse(context, mul(context, weight_tensor, inputs), targets);
  context.tape.backward(context, loss, weight);
  return weight_tensor.leaf()->grad.item();
}

const Shape kSample{24, 24, 1};

// gamma-style agreement of two orders of summation, as the field states it for this network.
bool close(double a, double b) { return std::abs(a - b) <= 1e-6 + 1e-5 * std::abs(b); }

}  // namespace

TEST_CASE("textbook: w = 0.5 on four points gives -22.5 whole and -7.5, -37.5 halved") {
  const std::vector<double> x{1, 2, 3, 4};
  const std::vector<double> y{2, 4, 6, 8};
  CHECK(line_gradient(0.5, x, y, 0, 4, 1) == -22.5);
  CHECK(line_gradient(0.5, x, y, 0, 2, 1) == -7.5);
  CHECK(line_gradient(0.5, x, y, 2, 2, 1) == -37.5);
  CHECK(line_gradient(0.5, x, y, 0, 2, 0.5) + line_gradient(0.5, x, y, 2, 2, 0.5) == -22.5);
}

TEST_CASE("textbook: n = 6 as 4 + 2 needs the weights 4/6 and 2/6") {
  const std::vector<double> x{1, 2, 3, 4, 5, 6};
  const std::vector<double> y{2, 4, 6, 8, 10, 12};
  const double whole = line_gradient(0.5, x, y, 0, 6, 1);
  const double a = line_gradient(0.5, x, y, 0, 4, 1);
  const double b = line_gradient(0.5, x, y, 4, 2, 1);
  CHECK(whole == doctest::Approx(4.0 / 6 * a + 2.0 / 6 * b).epsilon(1e-6));
  CHECK(std::abs(whole - (a + b) / 2) > 1);  // the naive mean of means is far off
}

TEST_CASE("TinyMLP has 9283 parameters, and 4 x 4 agrees with the batch of 16") {
  Net net(tiny_mlp(), Precision::fp32, {});
  CHECK(net.model->parameters().numel() == 9283);
  const auto x = normal_values(16 * 576, 3);
  const auto labels = random_labels(16, 3, 4);
  const std::vector<MicroBatch> whole{net.batch(0, 16, x, labels, kSample)};
  accumulate_window(net.context, *net.model, whole, 1.0, {});
  const std::vector<double> reference = net.gradient();
  net.model->parameters().zero_grad();
  std::vector<MicroBatch> cut;
  for (std::int64_t i = 0; i < 4; ++i) cut.push_back(net.batch(4 * i, 4, x, labels, kSample));
  const StepResult result = accumulate_window(net.context, *net.model, cut, 1.0, {});
  CHECK(result.valid == 16);
  const std::vector<double> accumulated = net.gradient();
  double norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    CHECK_MESSAGE(close(accumulated[i], reference[i]), i);
    norm += reference[i] * reference[i];
  }
  CHECK(norm > 0);
}

TEST_CASE("windows of 8, 8, 8, 2 weigh 8/26, 8/26, 8/26, 2/26") {
  Net net(tiny_mlp(), Precision::fp32, {});
  const auto x = normal_values(26 * 576, 5);
  const auto labels = random_labels(26, 3, 6);
  const auto gradient_of = [&](std::vector<std::array<std::int64_t, 2>> parts) {
    std::vector<MicroBatch> window;
    for (const auto& [begin, n] : parts) window.push_back(net.batch(begin, n, x, labels, kSample));
    net.model->parameters().zero_grad();
    accumulate_window(net.context, *net.model, window, 1.0, {});
    return net.gradient();
  };
  const auto whole = gradient_of({{0, 26}});
  const auto cut = gradient_of({{0, 8}, {8, 8}, {16, 8}, {24, 2}});
  const auto a = gradient_of({{0, 8}});
  const auto b = gradient_of({{8, 8}});
  const auto c = gradient_of({{16, 8}});
  const auto d = gradient_of({{24, 2}});
  bool naive_differs = false;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(close(cut[i], whole[i]));
    CHECK(close((8 * a[i] + 8 * b[i] + 8 * c[i] + 2 * d[i]) / 26, whole[i]));
    naive_differs = naive_differs || !close((a[i] + b[i] + c[i] + d[i]) / 4, whole[i]);
  }
  CHECK(naive_differs);
}

TEST_CASE("case 106 [ACCUM] token-weighted normalisation") {
  // Micro-batch A has one valid target, B three; ignored rows carry garbage.
  Net net(tiny_mlp(), Precision::fp32, {});
  const auto x = normal_values(8 * 576, 7);
  std::vector<double> labels{0, -100, -100, -100, 1, 2, 0, -100};
  const std::vector<MicroBatch> window{net.batch(0, 4, x, labels, kSample),
                                       net.batch(4, 4, x, labels, kSample)};
  const StepResult cut = accumulate_window(net.context, *net.model, window, 1.0, {});
  CHECK(cut.valid == 4);
  const auto accumulated = net.gradient();
  net.model->parameters().zero_grad();
  const std::vector<MicroBatch> whole{net.batch(0, 8, x, labels, kSample)};
  const StepResult one = accumulate_window(net.context, *net.model, whole, 1.0, {});
  CHECK(cut.loss == doctest::Approx(one.loss).epsilon(1e-6));
  const auto reference = net.gradient();
  for (std::size_t i = 0; i < reference.size(); ++i) CHECK(close(accumulated[i], reference[i]));
}

TEST_CASE(
    "case 108 [ACCUM] K equal micro-batches move the weights as one does, not K times as far") {
  const auto x = normal_values(4 * 576, 20);
  const auto labels = random_labels(4, 3, 21);
  const auto moved = [&](int k) {
    Net net(tiny_mlp(), Precision::fp32, {.kind = OptimizerSettings::Kind::sgd});
    const std::vector<double> before = net.model->parameters().flat_master().to_vector();
    LossScaler off(ScalerConfig{.enabled = false});
    const std::vector<MicroBatch> window(static_cast<std::size_t>(k),
                                         net.batch(0, 4, x, labels, kSample));
    const StepResult result =
        train_step(net.context, *net.model, *net.optimizer, off, window, {.lr = 0.1});
    CHECK(result.did_step);
    CHECK(result.clip == 1);  // clipping would hide the difference
    std::vector<double> distance = net.model->parameters().flat_master().to_vector();
    for (std::size_t i = 0; i < distance.size(); ++i) distance[i] -= before[i];
    return distance;
  };
  const auto one = moved(1);
  const auto eight = moved(8);
  double norm = 0;
  for (std::size_t i = 0; i < one.size(); ++i) norm = std::max(norm, std::abs(one[i]));
  CHECK(norm > 0);
  // Weights are below 1, so an update is rounded to within u; seven additions of the gradient, each
  // within u of its sum. With the sum in place of the mean the difference would be 7 norm.
  for (std::size_t i = 0; i < one.size(); ++i)
    CHECK(std::abs(eight[i] - one[i]) <= 2 * 0x1p-24 + 8 * 0x1p-24 * norm);
}

TEST_CASE("class weights count in the window's mean") {
  Net net(tiny_mlp(), Precision::fp32, {});
  const auto x = normal_values(6 * 576, 8);
  const auto labels = random_labels(6, 3, 9);
  LossSettings loss;
  loss.class_weights =
      Tensor::from(net.context.allocator, std::vector<double>{1, 2, 4}, {3}, DType::fp32);
  const std::vector<MicroBatch> whole{net.batch(0, 6, x, labels, kSample)};
  const StepResult one = accumulate_window(net.context, *net.model, whole, 1.0, loss);
  const auto reference = net.gradient();
  net.model->parameters().zero_grad();
  const std::vector<MicroBatch> cut{net.batch(0, 4, x, labels, kSample),
                                    net.batch(4, 2, x, labels, kSample)};
  const StepResult two = accumulate_window(net.context, *net.model, cut, 1.0, loss);
  double expected = 0;
  for (const double label : labels) expected += label == 0 ? 1 : label == 1 ? 2 : 4;
  CHECK(one.valid == expected);
  CHECK(two.valid == expected);
  const auto accumulated = net.gradient();
  for (std::size_t i = 0; i < reference.size(); ++i) CHECK(close(accumulated[i], reference[i]));
}

TEST_CASE("accumulate_gradients: the largest difference to the whole batch, and its errors") {
  Net net(tiny_mlp(), Precision::fp32, {});
  const auto x = normal_values(10 * 576, 10);
  const auto labels = random_labels(10, 3, 11);
  const MicroBatch batch = net.batch(0, 10, x, labels, kSample);
  CHECK(accumulate_gradients(net.context, *net.model, batch.x, batch.labels, 1) == 0);
  for (const std::int64_t parts : {2, 3, 10}) {
    const double difference =
        accumulate_gradients(net.context, *net.model, batch.x, batch.labels, parts);
    CHECK(difference < 1e-6);
  }
  for (const ParameterEntry& e : net.model->parameters().entries())
    CHECK_FALSE(e.tensor.leaf()->has_grad);
  // Case 110 [ACCUM] invalid K.
  for (const std::int64_t parts : {0, -1, 11})
    CHECK_THROWS_AS(accumulate_gradients(net.context, *net.model, batch.x, batch.labels, parts),
                    UsageError);
}

TEST_CASE("BatchNorm: a window is not the large batch") {
  Net net({.model = "bn-mlp", .input = {8, 8, 1}, .classes = 3, .hidden = {16}}, Precision::fp32,
          {});
  const auto x = normal_values(16 * 64, 12);
  const auto labels = random_labels(16, 3, 13);
  const MicroBatch batch = net.batch(0, 16, x, labels, {8, 8, 1});
  const auto buffers = net.state();
  const double difference = accumulate_gradients(net.context, *net.model, batch.x, batch.labels, 4);
  CHECK(difference > 1e-3);
  CHECK(net.state() == buffers);  // running statistics as before
}

TEST_CASE("dropout with masks by sample: a window is the large batch") {
  Net net({.model = "convnet", .input = {8, 8, 1}, .classes = 3, .dropout = 0.5}, Precision::fp32,
          {});
  const auto x = normal_values(12 * 64, 14);
  const auto labels = random_labels(12, 3, 15);
  const MicroBatch batch = net.batch(0, 12, x, labels, {8, 8, 1});
  CHECK(accumulate_gradients(net.context, *net.model, batch.x, batch.labels, 4) < 1e-6);
}

TEST_CASE("case 110 [ACCUM] invalid K is refused at configuration") {
  for (const std::int64_t k : {0, -1}) {
    TrainConfig config;
    config.accumulate = k;
    CHECK_THROWS_AS(validate(config), UsageError);
  }
}
