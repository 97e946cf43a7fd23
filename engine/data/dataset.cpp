#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "engine/io/file.h"

namespace roundoff {

namespace {

constexpr std::int64_t kMostClasses = 65536;

// Reads images of any accepted rank as [N, H, W, C]; nothing moves in memory.
Shape as_nhwc(const Shape& shape, std::string_view origin) {
  switch (shape.rank()) {
    case 2:
      return {shape[0], 1, shape[1], 1};
    case 3:
      return {shape[0], shape[1], shape[2], 1};
    case 4:
      return shape;
    default:
      fail_file("dataset", origin, "images of shape ", shape,
                ", [N, F], [N, H, W] or [N, H, W, C] expected");
  }
}

void check_images(LabelledImages& part) {
  HostArray& images = part.images;
  if (images.type != ElementType::u8 && images.type != ElementType::fp32)
    fail_file("dataset", part.images_origin, "images of ", name(images.type),
              ", uint8 or fp32 expected");
  images.shape = as_nhwc(images.shape, part.images_origin);
  if (images.numel() == 0) fail_file("dataset", part.images_origin, "holds no images");
  if (images.shape[0] != static_cast<std::int64_t>(part.labels.size()))
    fail_file("dataset", part.labels_origin, part.labels.size(), " labels for the ",
              images.shape[0], " images of ", part.images_origin);
  if (images.type == ElementType::fp32) {
    const auto values = images.as<float>();
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad != values.end())
      fail_file("dataset", part.images_origin, "image ",
                (bad - values.begin()) / (images.numel() / images.shape[0]), " holds ", *bad);
  }
}

void check_labels(const LabelledImages& part, std::int64_t classes) {
  for (std::size_t i = 0; i < part.labels.size(); ++i)
    if (part.labels[i] < 0 || part.labels[i] >= classes)
      fail_file("dataset", part.labels_origin, "label ", part.labels[i], " at position ", i,
                " is outside [0, ", classes, ")");
}

// The images and labels [begin, end).
Split cut(const LabelledImages& part, std::int64_t begin, std::int64_t end) {
  const Shape& shape = part.images.shape;
  Split split;
  split.images.type = part.images.type;
  split.images.shape = {end - begin, shape[1], shape[2], shape[3]};
  const auto image = static_cast<std::ptrdiff_t>(part.images.bytes.size()) / shape[0];
  split.images.bytes.assign(part.images.bytes.begin() + begin * image,
                            part.images.bytes.begin() + end * image);
  split.labels.assign(part.labels.begin() + begin, part.labels.begin() + end);
  return split;
}

}  // namespace

Normalization measure_normalization(const HostArray& images) {
  const std::int64_t channels = images.shape[-1];
  const std::int64_t pixels = images.numel() / channels;
  const auto count = static_cast<double>(pixels);
  Normalization result;
  if (images.type == ElementType::u8) {
    const auto values = images.as<std::uint8_t>();
    for (std::int64_t c = 0; c < channels; ++c) {
      // Integer sums are exact: 2^63 / 255^2 pixels fit.
      std::uint64_t sum = 0;
      std::uint64_t squares = 0;
      for (auto i = static_cast<std::size_t>(c); i < values.size();
           i += static_cast<std::size_t>(channels)) {
        const std::uint64_t x = values[i];
        sum += x;
        squares += x * x;
      }
      const double mean = static_cast<double>(sum) / count;
      const double variance = static_cast<double>(squares) / count - mean * mean;
      result.mean.push_back(mean / 255);
      result.deviation.push_back(std::sqrt(std::max(variance, 0.0)) / 255);
    }
  } else {
    const auto values = images.as<float>();
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (auto i = static_cast<std::size_t>(c); i < values.size();
           i += static_cast<std::size_t>(channels))
        sum += values[i];
      const double mean = sum / count;
      double squares = 0;
      for (auto i = static_cast<std::size_t>(c); i < values.size();
           i += static_cast<std::size_t>(channels)) {
        const double difference = values[i] - mean;
        squares += difference * difference;
      }
      result.mean.push_back(mean);
      result.deviation.push_back(std::sqrt(squares / count));
    }
  }
  for (double& deviation : result.deviation)
    if (!(deviation > 0)) deviation = 1;
  return result;
}

std::int64_t validation_size(std::int64_t training_images) {
  if (training_images >= 50000) return 5000;
  return std::max<std::int64_t>(1, training_images / 10);
}

Dataset make_dataset(std::string name, LabelledImages train, LabelledImages test,
                     std::int64_t classes) {
  check_images(train);
  check_images(test);
  const std::int64_t n = train.images.shape[0];
  if (n < 2)
    fail_file("dataset", train.images_origin, n,
              " image, 2 or more are needed for training and validation");
  for (int axis = 1; axis < 4; ++axis)
    if (test.images.shape[axis] != train.images.shape[axis])
      fail_file("dataset", test.images_origin, "images of shape ", test.images.shape, ", ",
                train.images_origin, " has ", train.images.shape);
  if (test.images.type != train.images.type)
    fail_file("dataset", test.images_origin, roundoff::name(test.images.type), ", ",
              train.images_origin, " has ", roundoff::name(train.images.type));
  if (classes == 0) {
    const std::int64_t largest = *std::max_element(train.labels.begin(), train.labels.end());
    if (largest >= kMostClasses)
      fail_file("dataset", train.labels_origin, "label ", largest, ", at most ", kMostClasses,
                " classes are taken");
    classes = largest + 1;
  }
  check_labels(train, classes);
  check_labels(test, classes);

  Dataset data;
  data.name = std::move(name);
  data.classes = classes;
  data.image = {train.images.shape[1], train.images.shape[2], train.images.shape[3]};
  const std::int64_t kept = n - validation_size(n);
  data.validation = cut(train, kept, n);
  // The training part stays where it is: only its end is cut off.
  data.train.images = std::move(train.images);
  data.train.labels = std::move(train.labels);
  const auto image_bytes = data.train.images.bytes.size() / static_cast<std::size_t>(n);
  data.train.images.bytes.resize(image_bytes * static_cast<std::size_t>(kept));
  data.train.images.shape.set(0, kept);
  data.train.labels.resize(static_cast<std::size_t>(kept));
  data.test.images = std::move(test.images);
  data.test.labels = std::move(test.labels);
  data.normalization = measure_normalization(data.train.images);
  return data;
}

}  // namespace roundoff
