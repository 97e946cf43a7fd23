// A training step allocates nothing after the first. This executable replaces the global operator
// new, so it holds nothing else. What Eigen or a BLAS take for a product comes from malloc and is
// theirs.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "tests/models/models.h"

namespace {
std::int64_t allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
constexpr std::size_t kPlain = alignof(std::max_align_t);
}  // namespace

// All other forms call these, by the standard's default definitions.
void* operator new(std::size_t bytes) { return allocate(bytes, kPlain); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, std::max(static_cast<std::size_t>(alignment), kPlain));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace roundoff::test {

namespace {

constexpr std::int64_t kSteps = 12;  // into the second epoch of the data below
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32,      Precision::fp16,
                                     Precision::bf16, Precision::pure_fp16, Precision::pure_bf16};

struct Counted {
  std::int64_t first = 0;
  std::int64_t later = 0;
};
template <class F>
Counted count(F&& step) {
  Counted counted;
  const std::int64_t before = allocations;
  step();
  const std::int64_t after_first = allocations;
  for (std::int64_t i = 0; i < kSteps; ++i) step();
  counted.first = after_first - before;
  counted.later = allocations - after_first;
  return counted;
}

std::vector<ModelSettings> models() {
  return {tiny_mlp(),
          {.model = "mlp", .input = {24, 24, 1}, .classes = 3, .hidden = {40, 30}},
          {.model = "bn-mlp", .input = {24, 24, 1}, .classes = 3, .hidden = {20}},
          {.model = "convnet", .input = {24, 24, 1}, .classes = 3},
          {.model = "convnet",
           .input = {24, 24, 1},
           .classes = 3,
           .batch_norm = true,
           .dropout = 0.25}};
}

}  // namespace

TEST_CASE("allocations are counted") {
  const std::int64_t before = allocations;
  const auto number = std::make_unique<int>(1);
  const std::vector<double> values(static_cast<std::size_t>(*number));
  Allocator allocator;
  const Tensor t = Tensor::zeros(allocator, {3}, DType::fp32);
  CHECK(allocations >= before + 4);
}

TEST_CASE("train_step allocates nothing after the first") {
  for (const ModelSettings& model : models()) {
    for (const Precision precision : kPrecisions) {
      CAPTURE(model.model);
      CAPTURE(model.batch_norm);
      CAPTURE(name(precision));
      Net net(model, precision, {});
      LossScaler scaler({.enabled = precision == Precision::fp16});
      const std::vector<double> x = normal_values(16 * 576, 3);
      const std::vector<double> labels = random_labels(16, 3, 4);
      // Two micro-batches of different sizes: a window.
      std::vector<MicroBatch> window{net.batch(0, 10, x, labels, {24, 24, 1}),
                                     net.batch(10, 6, x, labels, {24, 24, 1})};
      for (MicroBatch& micro : window) micro.x = model_input(net.context, *net.model, micro.x);
      const Counted counted = count([&] {
        train_step(net.context, *net.model, *net.optimizer, scaler, window,
                   {.lr = 1e-3, .max_norm = 1.0});
      });
      CHECK(counted.first > 0);
      CHECK(counted.later == 0);
    }
  }
}

TEST_CASE("a step that overflows and is skipped allocates nothing") {
  // Gradients of 16-bit activations overflow at this scale.
  for (const ModelSettings& model : models()) {
    CAPTURE(model.model);
    Net net(model, Precision::fp16, {});
    LossScaler scaler({.init_scale = 0x1p100, .max_scale = 0x1p126});
    const std::vector<double> x = normal_values(16 * 576, 3);
    const std::vector<double> labels = random_labels(16, 3, 4);
    const MicroBatch batch = net.batch(0, 16, x, labels, {24, 24, 1});
    bool stepped = false;
    const Counted counted = count([&] {
      stepped |=
          train_step(net.context, *net.model, *net.optimizer, scaler, {&batch, 1}, {}).did_step;
    });
    CHECK_FALSE(stepped);
    CHECK(counted.later == 0);
  }
}

TEST_CASE("Trainer::step allocates nothing after the first") {
  const Dataset data = small_dataset(120, 3, 24);
  for (const ModelSettings& model : models()) {
    for (const Precision precision : kPrecisions) {
      CAPTURE(model.model);
      CAPTURE(model.batch_norm);
      CAPTURE(name(precision));
      TrainConfig config;
      config.model = model;
      config.precision = precision;
      config.micro_batch = 6;
      config.accumulate = 2;
      config.epochs = 3;
      Trainer trainer(config, data);
      CHECK(count([&] { trainer.step(); }).later == 0);
    }
  }
}

}  // namespace roundoff::test
