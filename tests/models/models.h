// What tests of models and runs share.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "engine/loss_scaler.h"
#include "engine/optimizer.h"
#include "models/model.h"
#include "models/train_step.h"
#include "models/trainer.h"

namespace roundoff::test {

inline std::vector<double> normal_values(std::int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& v : values) v = normal(generator);
  return values;
}

inline std::vector<double> random_labels(std::int64_t n, std::int64_t classes, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int64_t> label(0, classes - 1);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& v : values) v = static_cast<double>(label(generator));
  return values;
}

// A small labelled data set of fp32 images [n, 8, 8, 1] whose class shows in their brightness.
inline Dataset small_dataset(std::int64_t n = 60, std::int64_t classes = 3, std::int64_t side = 8) {
  LabelledImages train;
  LabelledImages test;
  const auto fill = [&](LabelledImages& part, std::int64_t count, unsigned seed) {
    part.images = HostArray(ElementType::fp32, {count, side, side, 1});
    const std::vector<double> noise = normal_values(count * side * side, seed);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = i % classes;
      part.labels.push_back(label);
      for (std::int64_t p = 0; p < side * side; ++p) {
        const auto at = static_cast<std::size_t>(i * side * side + p);
        const double signal = p % classes == label ? 1.5 : 0.0;
        part.images.as<float>()[at] = static_cast<float>(signal + 0.5 * noise[at]);
      }
    }
  };
  fill(train, n, 1);
  fill(test, n / 2, 2);
  return make_dataset("small", std::move(train), std::move(test), classes);
}

// A folder of its own that goes away at the end.
class TestFolder {
 public:
  explicit TestFolder(const char* name)
      : path(std::filesystem::temp_directory_path() / concat("roundoff-", name, "-", ::getpid())) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~TestFolder() { std::filesystem::remove_all(path); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::filesystem::path operator/(const char* file) const { return path / file; }

  const std::filesystem::path path;
};

// A model with its context and optimizer, without a trainer around them.
struct Net {
  Context context;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;

  Net(const ModelSettings& settings, Precision precision,
      const OptimizerSettings& optimizer_settings, std::uint64_t seed = 1)
      : model(make_model(settings)) {
    apply_precision(context, precision);
    model->parameters().allocate(context.allocator, arena_settings(precision, seed));
    optimizer = std::make_unique<Optimizer>(context, model->parameters(), optimizer_settings);
  }
  MicroBatch batch(std::int64_t begin, std::int64_t n, const std::vector<double>& x,
                   const std::vector<double>& labels, const Shape& sample) {
    const std::int64_t size = sample.numel();
    std::vector<std::int64_t> extents{n};
    extents.insert(extents.end(), sample.extents().begin(), sample.extents().end());
    return {Tensor::from(context.allocator,
                         std::span(x).subspan(static_cast<std::size_t>(begin * size),
                                              static_cast<std::size_t>(n * size)),
                         Shape(std::span<const std::int64_t>(extents)), DType::fp32),
            Tensor::from(context.allocator,
                         std::span(labels).subspan(static_cast<std::size_t>(begin),
                                                   static_cast<std::size_t>(n)),
                         {n}, DType::i64),
            static_cast<std::uint64_t>(begin)};
  }
  std::vector<double> gradient() {
    std::vector<double> values;
    for (const ParameterEntry& e : model->parameters().entries()) {
      const std::vector<double> part = e.tensor.leaf()->grad.to_vector();
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }
  // All bytes that an update may change.
  std::vector<std::byte> state() const {
    std::vector<std::byte> bytes;
    const auto add = [&](const Tensor& t) {
      if (t.defined())
        bytes.insert(bytes.end(), t.data<std::byte>(), t.data<std::byte>() + t.bytes());
    };
    add(model->parameters().flat_master());
    add(model->parameters().flat_compute());
    add(optimizer->first_moment());
    add(optimizer->second_moment());
    for (const ParameterEntry& e : model->parameters().entries()) {
      const auto* p = reinterpret_cast<const std::byte*>(&e.steps);
      bytes.insert(bytes.end(), p, p + sizeof(e.steps));
    }
    for (const Buffer& b : model->parameters().buffers()) {
      add(b.value);
      add(b.staged);
    }
    return bytes;
  }
};

inline ModelSettings tiny_mlp() {
  return {.model = "tiny-mlp", .input = {24, 24, 1}, .classes = 3};
}

}  // namespace roundoff::test
