// Where data sets come from: IDX, CIFAR-10 and .npy files, and the generator.
#include <algorithm>
#include <string>

#include "engine/data/dataset.h"
#include "engine/data/glyphs.h"
#include "engine/io/cifar.h"
#include "engine/io/file.h"
#include "engine/io/idx.h"
#include "engine/io/npy.h"
#include "kernels/base/convert.h"

namespace roundoff {

namespace {

// The one file in `folder` whose name ends in `role` + ("-" or ".") + `kind`, with or without
// ".gz": train-images-idx3-ubyte, emnist-letters-train-images-idx3-ubyte.gz. An uncompressed file
// is preferred to its own compressed copy.
std::filesystem::path find_idx_file(const std::filesystem::path& folder, std::string_view role,
                                    std::string_view kind) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string file = entry.path().filename().string();
    const bool compressed = file.ends_with(".gz");
    if (compressed) file.resize(file.size() - 3);
    if (!file.ends_with(concat(role, "-", kind)) && !file.ends_with(concat(role, ".", kind)))
      continue;
    if (compressed && std::filesystem::exists(folder / file)) continue;
    found.push_back(entry.path());
  }
  const std::string wanted = concat(role, "-", kind);
  if (found.empty())
    throw AbsentError(
        concat("[dataset] ", folder.string(), ": no file ", wanted, " or ", wanted, ".gz"));
  if (found.size() > 1)
    fail_file("dataset", folder.string(), found.size(), " files end in ", wanted,
              ", one is expected");
  return found.front();
}

struct ReadFile {
  HostArray array;
  std::string origin;
};

ReadFile read_idx_file(const std::filesystem::path& path, std::uint32_t magic, Dataset& data) {
  const Bytes bytes = read_file(path);
  ReadFile read{parse_idx(bytes, magic, path.string()), path.string()};
  data.sources.push_back({path.filename().string(), sha256_of(bytes)});
  return read;
}

LabelledImages read_idx_pair(const std::filesystem::path& folder, std::string_view role,
                             Dataset& data) {
  const auto images_path = find_idx_file(folder, concat(role, "-images"), "idx3-ubyte");
  const auto labels_path = find_idx_file(folder, concat(role, "-labels"), "idx1-ubyte");
  // Labels first: they are small, and whatever is wrong shows before the images are unpacked.
  ReadFile labels = read_idx_file(labels_path, kIdxLabels, data);
  ReadFile images = read_idx_file(images_path, kIdxImages, data);
  LabelledImages part;
  const auto values = labels.array.as<std::uint8_t>();
  part.labels.assign(values.begin(), values.end());
  part.images = std::move(images.array);
  part.images_origin = std::move(images.origin);
  part.labels_origin = std::move(labels.origin);
  return part;
}

void require_folder(const std::filesystem::path& folder, std::string_view hint) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw AbsentError(concat("[dataset] ", folder.string(), ": no such folder", hint));
}

}  // namespace

Dataset load_idx(const std::filesystem::path& folder, std::string name, std::int64_t classes) {
  require_folder(folder, "");
  Dataset sources;
  LabelledImages train = read_idx_pair(folder, "train", sources);
  // MNIST and Fashion-MNIST call their test files t10k, EMNIST calls them test.
  bool t10k = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    t10k = t10k || entry.path().filename().string().find("t10k-") != std::string::npos;
  LabelledImages test = read_idx_pair(folder, t10k ? "t10k" : "test", sources);
  Dataset data = make_dataset(std::move(name), std::move(train), std::move(test), classes);
  data.sources = std::move(sources.sources);
  return data;
}

namespace {

// The one file of this name in `folder`, with its checksum noted.
std::filesystem::path require_file(const std::filesystem::path& folder, std::string_view file,
                                   Dataset& data) {
  const std::filesystem::path path = folder / file;
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw AbsentError(concat("[dataset] ", folder.string(), ": no file ", file));
  data.sources.push_back({std::string(file), sha256_of_file(path)});
  return path;
}

template <class T>
std::vector<std::int64_t> to_labels(const HostArray& array, std::string_view origin) {
  std::vector<std::int64_t> labels;
  labels.reserve(static_cast<std::size_t>(array.numel()));
  for (const T value : array.as<T>()) {
    if (!std::in_range<std::int64_t>(value))
      fail_file("dataset", origin, "label ", value, " at position ", labels.size());
    labels.push_back(static_cast<std::int64_t>(value));
  }
  return labels;
}

std::vector<std::int64_t> read_labels(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const HostArray array = read_npy(path);
  if (array.shape.rank() != 1)
    fail_file("dataset", origin, "labels of shape ", array.shape, ", [N] expected");
  switch (array.type) {
    case ElementType::i64:
      return to_labels<std::int64_t>(array, origin);
    case ElementType::i32:
      return to_labels<std::int32_t>(array, origin);
    case ElementType::i16:
      return to_labels<std::int16_t>(array, origin);
    case ElementType::i8:
      return to_labels<signed char>(array, origin);
    case ElementType::u64:
      return to_labels<std::uint64_t>(array, origin);
    case ElementType::u32:
      return to_labels<std::uint32_t>(array, origin);
    case ElementType::u16:
      return to_labels<std::uint16_t>(array, origin);
    case ElementType::u8:
      return to_labels<unsigned char>(array, origin);
    default:
      fail_file("dataset", origin, "labels of ", name(array.type), ", an integer type expected");
  }
}

template <class T>
void copy_to_float(const HostArray& from, HostArray& to) {
  const auto source = from.as<T>();
  std::transform(source.begin(), source.end(), to.as<float>().begin(),
                 [](T value) { return static_cast<float>(value); });
}

// uint8 stays as it is; every other type becomes fp32, rounded to nearest.
HostArray read_images(const std::filesystem::path& path) {
  HostArray array = read_npy(path);
  if (array.type == ElementType::u8 || array.type == ElementType::fp32) return array;
  HostArray images(ElementType::fp32, array.shape);
  switch (array.type) {
    case ElementType::u64:
      copy_to_float<std::uint64_t>(array, images);
      break;
    case ElementType::u32:
      copy_to_float<std::uint32_t>(array, images);
      break;
    case ElementType::u16:
      copy_to_float<std::uint16_t>(array, images);
      break;
    case ElementType::i16:
      copy_to_float<std::int16_t>(array, images);
      break;
    case ElementType::i8:
      copy_to_float<std::int8_t>(array, images);
      break;
    case ElementType::boolean:
      copy_to_float<std::uint8_t>(array, images);
      break;
    default:
      widen(array.view(), 0, array.numel(), images.as<float>().data());
  }
  return images;
}

}  // namespace

Dataset load_npy(const std::filesystem::path& folder, std::string name) {
  require_folder(folder, "");
  Dataset sources;
  const auto part = [&](const std::string& role) {
    const auto y = require_file(folder, "y_" + role + ".npy", sources);
    const auto x = require_file(folder, "x_" + role + ".npy", sources);
    LabelledImages result;
    result.labels = read_labels(y);
    result.images = read_images(x);
    result.labels_origin = y.string();
    result.images_origin = x.string();
    return result;
  };
  LabelledImages train = part("train");
  LabelledImages test = part("test");
  Dataset data = make_dataset(std::move(name), std::move(train), std::move(test));
  data.sources = std::move(sources.sources);
  return data;
}

Dataset load_cifar10(const std::filesystem::path& folder) {
  require_folder(folder, "");
  Dataset sources;
  const auto add = [&](const std::string& file, LabelledImages& to) {
    const auto path = require_file(folder, file, sources);
    Cifar10 batch = parse_cifar10(read_file(path), path.string());
    to.images_origin = to.labels_origin = folder.string();
    to.images.type = ElementType::u8;
    to.images.bytes.insert(to.images.bytes.end(), batch.images.bytes.begin(),
                           batch.images.bytes.end());
    to.labels.insert(to.labels.end(), batch.labels.begin(), batch.labels.end());
    to.images.shape = {static_cast<std::int64_t>(to.labels.size()), 32, 32, 3};
  };
  LabelledImages train;
  LabelledImages test;
  for (int i = 1; i <= 5; ++i) add(concat("data_batch_", i, ".bin"), train);
  add("test_batch.bin", test);
  Dataset data = make_dataset("cifar10", std::move(train), std::move(test), 10);
  data.sources = std::move(sources.sources);
  return data;
}

Dataset load_dataset(std::string_view specification, std::uint64_t seed) {
  const auto colon = specification.find(':');
  const std::string_view kind = specification.substr(0, colon);
  const bool has_folder = colon != std::string_view::npos;
  const std::filesystem::path folder(has_folder ? specification.substr(colon + 1) : "");
  if (!has_folder && kind == "glyphs") return make_glyphs(seed);
  if (!has_folder && kind == "fashion-mnist") {
    require_folder(kFashionMnistFolder, "; get it with: apt-get install dataset-fashion-mnist");
    return load_idx(kFashionMnistFolder, "fashion-mnist", 10);
  }
  if (!folder.empty()) {
    if (kind == "fashion-mnist") return load_idx(folder, "fashion-mnist", 10);
    if (kind == "idx") return load_idx(folder, std::string(specification));
    if (kind == "cifar10") return load_cifar10(folder);
    if (kind == "npy") return load_npy(folder, std::string(specification));
  }
  throw UsageError(concat("[dataset] ", in_quotes(specification),
                          ": one of fashion-mnist, fashion-mnist:FOLDER, idx:FOLDER, "
                          "cifar10:FOLDER, npy:FOLDER, glyphs expected"));
}

}  // namespace roundoff
