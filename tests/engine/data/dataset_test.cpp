#include "engine/data/dataset.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/io/file.h"
#include "engine/io/idx.h"
#include "engine/io/npy.h"
#include "tests/engine/io/bytes.h"
#include "tests/engine/io/temporary_folder.h"
#include "tests/skip.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

// n images of 2 x 3 pixels counting up, labels 0, 1, 2, 0, ...
LabelledImages counting(std::int64_t n, std::string origin) {
  LabelledImages part;
  part.images = HostArray(ElementType::u8, {n, 2, 3});
  for (std::size_t i = 0; i < part.images.bytes.size(); ++i)
    part.images.bytes[i] = static_cast<std::byte>(i % 256);
  for (std::int64_t i = 0; i < n; ++i) part.labels.push_back(i % 3);
  part.images_origin = origin + " images";
  part.labels_origin = origin + " labels";
  return part;
}

void write_idx_set(const TemporaryFolder& folder, bool compressed) {
  const auto put = [&](const std::string& name, const Bytes& bytes) {
    if (compressed)
      write_file_atomically(folder / (name + ".gz"), gzip_of(bytes));
    else
      write_file_atomically(folder / name, bytes);
  };
  put("train-images-idx3-ubyte", idx_file(kIdxImages, {20, 2, 3}, 120));
  put("train-labels-idx1-ubyte", idx_file(kIdxLabels, {20}, 20, 4));
  put("t10k-images-idx3-ubyte", idx_file(kIdxImages, {5, 2, 3}, 30));
  put("t10k-labels-idx1-ubyte", idx_file(kIdxLabels, {5}, 5, 4));
}

}  // namespace

TEST_CASE("validation takes the last 5,000 or tenth") {
  CHECK(validation_size(60000) == 5000);
  CHECK(validation_size(50000) == 5000);
  CHECK(validation_size(49999) == 4999);
  CHECK(validation_size(11) == 1);
  CHECK(validation_size(2) == 1);
}

TEST_CASE("splits are cut by position, and normalisation is the training split's") {
  const Dataset data = make_dataset("d", counting(20, "train"), counting(4, "test"));
  CHECK(data.train.size() == 18);
  CHECK(data.validation.size() == 2);
  CHECK(data.test.size() == 4);
  CHECK(data.classes == 3);
  CHECK(data.image == Shape{2, 3, 1});
  CHECK(data.train.images.shape == Shape{18, 2, 3, 1});
  CHECK(data.validation.images.shape == Shape{2, 2, 3, 1});
  CHECK(data.validation.images.as<std::uint8_t>()[0] == 18 * 6);
  CHECK(data.validation.labels == std::vector<std::int64_t>{0, 1});
  // Pixels 0 .. 107: mean 53.5, variance (108^2 - 1) / 12.
  REQUIRE(data.normalization.mean.size() == 1);
  CHECK(data.normalization.mean[0] == doctest::Approx(53.5 / 255).epsilon(1e-14));
  CHECK(data.normalization.deviation[0] ==
        doctest::Approx(std::sqrt((108.0 * 108 - 1) / 12) / 255).epsilon(1e-14));
}

TEST_CASE("fp32 images keep their scale, and a constant channel divides by 1") {
  LabelledImages train;
  train.images = HostArray(ElementType::fp32, {4, 1, 1, 2});
  const float values[] = {1, 5, 3, 5, 5, 5, 100, 100};  // the last image is for validation
  std::copy(std::begin(values), std::end(values), train.images.as<float>().begin());
  train.labels = {0, 1, 0, 1};
  LabelledImages test = train;
  const Dataset data = make_dataset("d", train, test);
  CHECK(data.normalization.mean == std::vector<double>{3, 5});
  CHECK(data.normalization.deviation[0] == doctest::Approx(std::sqrt(8.0 / 3)).epsilon(1e-14));
  CHECK(data.normalization.deviation[1] == 1);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    test.images.as<float>()[3] = bad;
    CHECK_THROWS_WITH_AS(make_dataset("d", train, test), doctest::Contains("image 1 holds"),
                         FileError);
  }
}

TEST_CASE("contradictions between arrays are refused") {
  const auto train = counting(20, "train");
  const auto test = counting(4, "test");
  auto bad = test;
  bad.labels.pop_back();
  CHECK_THROWS_WITH_AS(make_dataset("d", train, bad),
                       doctest::Contains("3 labels for the 4 images"), FileError);
  bad = test;
  bad.labels[2] = 3;
  CHECK_THROWS_WITH_AS(make_dataset("d", train, bad),
                       "[dataset] test labels: label 3 at position 2 is outside [0, 3)", FileError);
  bad.labels[2] = -1;
  CHECK_THROWS_WITH_AS(make_dataset("d", train, bad), doctest::Contains("label -1"), FileError);
  auto bad_train = train;
  bad_train.labels[19] = 10;
  CHECK_THROWS_WITH_AS(make_dataset("d", bad_train, test, 10), doctest::Contains("label 10"),
                       FileError);
  bad_train.labels[19] = std::int64_t{1} << 40;
  CHECK_THROWS_WITH_AS(make_dataset("d", bad_train, test), doctest::Contains("classes"), FileError);
  bad = test;
  bad.images.shape = {4, 3, 2};
  CHECK_THROWS_WITH_AS(make_dataset("d", train, bad), doctest::Contains("images of shape"),
                       FileError);
  bad.images.shape = {24};
  CHECK_THROWS_AS(make_dataset("d", train, bad), FileError);
  bad = test;
  bad.images.type = ElementType::i8;
  CHECK_THROWS_AS(make_dataset("d", train, bad), FileError);
  CHECK_THROWS_AS(make_dataset("d", counting(1, "train"), test), FileError);
  CHECK_THROWS_AS(make_dataset("d", counting(0, "train"), test), FileError);
}

TEST_CASE("idx: four files, gzip or not, with their checksums") {
  for (const bool compressed : {false, true}) {
    const TemporaryFolder folder;
    write_idx_set(folder, compressed);
    const Dataset data = load_dataset("idx:" + folder.path().string());
    CHECK(data.train.size() == 18);
    CHECK(data.validation.size() == 2);
    CHECK(data.test.size() == 5);
    CHECK(data.classes == 4);
    REQUIRE(data.sources.size() == 4);
    for (const auto& source : data.sources)
      CHECK(source.sha256 == sha256_of_file(folder / source.name));
    CHECK(data.train.images.as<std::uint8_t>()[107] == 107);
  }
  SUBCASE("names with a prefix, and test instead of t10k") {
    const TemporaryFolder folder;
    write_idx_set(folder, true);
    for (const char* role : {"train", "t10k"})
      for (const char* kind : {"-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz"})
        std::filesystem::rename(
            folder / (std::string(role) + kind),
            folder / ("emnist-letters-" + std::string(role[1] == 'r' ? "train" : "test") + kind));
    CHECK(load_dataset("idx:" + folder.path().string()).test.size() == 5);
  }
  SUBCASE("a file missing, twice there, or of another set") {
    const TemporaryFolder folder;
    write_idx_set(folder, false);
    const std::string spec = "idx:" + folder.path().string();
    write_file_atomically(folder / "t10k-labels-idx1-ubyte", idx_file(kIdxLabels, {6}, 6, 4));
    CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("6 labels for the 5 images"),
                         FileError);
    write_file_atomically(folder / "t10k-labels-idx1-ubyte", idx_file(kIdxLabels, {5}, 5, 5));
    CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("label 4 at position 4"), FileError);
    write_file_atomically(folder / "my-t10k-labels-idx1-ubyte", "x");
    CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("2 files end in"), FileError);
    std::filesystem::remove(folder / "my-t10k-labels-idx1-ubyte");
    std::filesystem::remove(folder / "t10k-labels-idx1-ubyte");
    CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("no file t10k-labels-idx1-ubyte"),
                         AbsentError);
  }
}

TEST_CASE("npy: four arrays, images of every type, [N, H, W] or [N, H, W, C] or [N, F]") {
  const TemporaryFolder folder;
  const std::string spec = "npy:" + folder.path().string();
  const auto put = [&](const std::string& name, ElementType type, const Shape& shape, auto value) {
    HostArray array(type, shape);
    for (std::size_t i = 0; i < static_cast<std::size_t>(array.numel()); ++i)
      array.as<decltype(value(i))>()[i] = value(i);
    write_npy(folder / (name + ".npy"), array);
  };
  const auto pixel = [](std::size_t i) { return static_cast<std::uint8_t>(i * 7); };
  const auto label = [](std::size_t i) { return static_cast<std::int64_t>(i % 3); };
  put("x_train", ElementType::u8, {20, 2, 3, 2}, pixel);
  put("y_train", ElementType::i64, {20}, label);
  put("x_test", ElementType::u8, {4, 2, 3, 2}, pixel);
  put("y_test", ElementType::u8, {4},
      [](std::size_t i) { return static_cast<std::uint8_t>(i % 3); });
  Dataset data = load_dataset(spec);
  CHECK(data.image == Shape{2, 3, 2});
  CHECK(data.classes == 3);
  CHECK(data.train.images.type == ElementType::u8);
  CHECK(data.normalization.mean.size() == 2);
  REQUIRE(data.sources.size() == 4);
  CHECK(data.sources[0].sha256 == sha256_of_file(folder / data.sources[0].name));

  const auto half = [](std::size_t i) { return Half(static_cast<float>(i) / 4); };
  put("x_train", ElementType::fp16, {20, 5}, half);
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("images of shape"), FileError);
  put("x_test", ElementType::fp64, {4, 5},
      [](std::size_t i) { return static_cast<double>(i) / 3; });
  data = load_dataset(spec);
  CHECK(data.image == Shape{1, 5, 1});
  CHECK(data.train.images.as<float>()[7] == 1.75F);
  CHECK(data.test.images.as<float>()[1] == 1.0F / 3);
  put("x_test", ElementType::u16, {4, 5},
      [](std::size_t i) { return static_cast<std::uint16_t>(60000 + i); });
  CHECK(load_dataset(spec).test.images.as<float>()[19] == 60019.0F);
  put("x_test", ElementType::fp64, {4, 5}, [](std::size_t i) { return i == 12 ? 1e300 : 1.0; });
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("image 2 holds inf"), FileError);
  put("x_test", ElementType::i8, {4, 5}, [](std::size_t) { return static_cast<std::int8_t>(-3); });
  CHECK(load_dataset(spec).test.images.as<float>()[0] == -3.0F);

  put("y_test", ElementType::u64, {4}, [](std::size_t) { return ~std::uint64_t{0}; });
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("label 18446744073709551615"),
                       FileError);
  put("y_test", ElementType::fp32, {4}, [](std::size_t) { return 1.0F; });
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("labels of fp32"), FileError);
  put("y_test", ElementType::i32, {4, 1}, [](std::size_t) { return std::int32_t{0}; });
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("labels of shape [4, 1]"), FileError);
  std::filesystem::remove(folder / "y_test.npy");
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("no file y_test.npy"), AbsentError);
}

TEST_CASE("cifar10: five batches and a test batch") {
  const TemporaryFolder folder;
  const std::string spec = "cifar10:" + folder.path().string();
  for (int i = 1; i <= 5; ++i) {
    Bytes file(2 * 3073, static_cast<std::byte>(i));
    write_file_atomically(folder / concat("data_batch_", i, ".bin"), file);
  }
  CHECK_THROWS_WITH_AS(load_dataset(spec), doctest::Contains("no file test_batch.bin"),
                       AbsentError);
  write_file_atomically(folder / "test_batch.bin", Bytes(3073));
  const Dataset data = load_dataset(spec);
  CHECK(data.train.labels == std::vector<std::int64_t>{1, 1, 2, 2, 3, 3, 4, 4, 5});
  CHECK(data.validation.labels == std::vector<std::int64_t>{5});
  CHECK(data.image == Shape{32, 32, 3});
  CHECK(data.classes == 10);
  CHECK(data.sources.size() == 6);
  CHECK(data.normalization.mean.size() == 3);
  CHECK(data.train.images.as<std::uint8_t>()[2 * 3072] == 2);
}

TEST_CASE("specifications that name no data set") {
  for (const char* spec :
       {"", "mnist", "idx", "idx:", "cifar10", "npy:", "glyphs:x", "fashion-mnist:"})
    CHECK_THROWS_AS(load_dataset(spec), UsageError);
  CHECK_THROWS_AS(load_dataset("idx:/no/such/folder"), AbsentError);
}

TEST_CASE("Fashion-MNIST as Debian packages it") {
  if (!std::filesystem::exists(kFashionMnistFolder)) {
    CHECK_THROWS_WITH_AS(load_dataset("fashion-mnist"),
                         doctest::Contains("apt-get install dataset-fashion-mnist"), AbsentError);
    skip_test("dataset-fashion-mnist is not installed");
    return;
  }
  const Dataset data = load_dataset("fashion-mnist");
  CHECK(data.name == "fashion-mnist");
  CHECK(data.train.size() == 55000);
  CHECK(data.validation.size() == 5000);
  CHECK(data.test.size() == 10000);
  CHECK(data.classes == 10);
  CHECK(data.image == Shape{28, 28, 1});
  // The set is balanced: 6,000 and 1,000 of each class.
  std::vector<int> counts(10);
  for (const auto* split : {&data.train, &data.validation, &data.test})
    for (const auto label : split->labels) ++counts[static_cast<std::size_t>(label)];
  for (const int n : counts) CHECK(n == 7000);
  CHECK(data.train.labels[0] == 9);
  // Published for all 60,000 images: mean 0.2860, deviation 0.3530.
  CHECK(data.normalization.mean[0] == doctest::Approx(0.2860).epsilon(0.005));
  CHECK(data.normalization.deviation[0] == doctest::Approx(0.3530).epsilon(0.005));
}
