// Data sets of labelled images, in memory: NHWC, with a training, validation and test split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/array.h"

namespace roundoff {

struct Split {
  HostArray images;                  // [N, H, W, C], uint8 or fp32
  std::vector<std::int64_t> labels;  // [N], each in [0, classes)

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

// How images become a network's input: x' = (x - mean[c]) / deviation[c], where a uint8 pixel
// counts as x / 255. One value a channel, from the training split alone; a deviation is never 0.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> deviation;

  friend bool operator==(const Normalization&, const Normalization&) = default;
};

struct SourceFile {
  std::string name;    // without its folder
  std::string sha256;  // of the file as it lies on disk
};

struct Dataset {
  std::string name;
  Split train;
  Split validation;
  Split test;
  std::optional<Split> corrupted;  // the test split, or one like it, with its images spoilt
  std::int64_t classes = 0;
  Shape image;  // [H, W, C]
  Normalization normalization;
  std::vector<SourceFile> sources;
};

// Mean and population deviation a channel, exactly rounded sums for uint8; where all values of a
// channel are equal its deviation is 1.
Normalization measure_normalization(const HostArray& images);

// How many training images are set aside for validation: 5,000 of 50,000 or more, else a tenth, at
// least one.
std::int64_t validation_size(std::int64_t training_images);

// Arrays as files hold them. Images [N, H, W] (one channel), [N, H, W, C] or [N, F] (read as
// [N, 1, F, 1]), uint8 or fp32; labels [N].
struct LabelledImages {
  HostArray images;
  std::vector<std::int64_t> labels;
  std::string images_origin;
  std::string labels_origin;
};

// Takes the last validation_size() training images for validation and measures the normalisation.
// classes = 0 takes the largest training label + 1. Throws FileError where shapes, counts or labels
// contradict each other, before anything is copied.
Dataset make_dataset(std::string name, LabelledImages train, LabelledImages test,
                     std::int64_t classes = 0);

// One of fashion-mnist[:FOLDER], idx:FOLDER, cifar10:FOLDER, npy:FOLDER, glyphs. The seed matters
// to generated data only. Throws UsageError for another specification, AbsentError for files that
// are not there (with how to get them), FileError for files that contradict themselves.
Dataset load_dataset(std::string_view specification, std::uint64_t seed = 0);

// The loaders behind it; make_glyphs() is in glyphs.h. Images in .npy of other types than uint8
// become fp32; labels are of any integer type.
Dataset load_idx(const std::filesystem::path& folder, std::string name, std::int64_t classes = 0);
Dataset load_npy(const std::filesystem::path& folder, std::string name);
Dataset load_cifar10(const std::filesystem::path& folder);

inline constexpr std::string_view kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

}  // namespace roundoff
