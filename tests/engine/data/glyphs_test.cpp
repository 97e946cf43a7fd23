#include "engine/data/glyphs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace roundoff;

namespace {

constexpr GlyphSettings kSmall{
    .train_scenes = 6, .validation_scenes = 2, .test_scenes = 3, .images_per_scene = 10};

double mean_of(const Split& split, std::int64_t from, std::int64_t to) {
  double sum = 0;
  for (std::int64_t i = from * 576; i < to * 576; ++i)
    sum += split.images.as<std::uint8_t>()[static_cast<std::size_t>(i)];
  return sum / static_cast<double>((to - from) * 576);
}

}  // namespace

TEST_CASE("glyphs: shapes, labels, whole scenes a split, and a corrupted test set") {
  const Dataset data = make_glyphs(1, kSmall);
  CHECK(data.classes == 3);
  CHECK(data.image == Shape{24, 24, 1});
  CHECK(data.train.images.shape == Shape{60, 24, 24, 1});
  CHECK(data.validation.size() == 20);
  CHECK(data.test.size() == 30);
  REQUIRE(data.corrupted.has_value());
  CHECK(data.corrupted->labels == data.test.labels);
  CHECK(data.normalization == measure_normalization(data.train.images));
  std::vector<int> counts(3);
  for (const auto label : data.train.labels) {
    REQUIRE(label >= 0);
    REQUIRE(label < 3);
    ++counts[static_cast<std::size_t>(label)];
  }
  for (const int n : counts) CHECK(n > 0);
  // Every image is spoilt.
  for (std::int64_t i = 0; i < 30; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i * 576);
    CHECK_FALSE(std::equal(data.test.images.bytes.begin() + at,
                           data.test.images.bytes.begin() + at + 576,
                           data.corrupted->images.bytes.begin() + at));
  }
}

TEST_CASE("glyphs: a pure function of the seed, image by image") {
  const Dataset a = make_glyphs(1, kSmall);
  const Dataset b = make_glyphs(1, kSmall);
  const Dataset c = make_glyphs(2, kSmall);
  CHECK(a.sources.at(0).sha256 == b.sources.at(0).sha256);
  CHECK(a.train.images.bytes == b.train.images.bytes);
  CHECK(a.corrupted->images.bytes == b.corrupted->images.bytes);
  CHECK(a.sources.at(0).sha256 != c.sources.at(0).sha256);
  // More images a scene, or more scenes behind it, leave an image as it is.
  GlyphSettings more = kSmall;
  more.images_per_scene = 12;
  more.train_scenes = 8;
  const Dataset d = make_glyphs(1, more);
  CHECK(std::equal(a.train.images.bytes.begin(), a.train.images.bytes.begin() + 10 * 576,
                   d.train.images.bytes.begin()));
}

TEST_CASE("glyphs: the images of a scene share its light, scenes differ") {
  const Dataset data = make_glyphs(3, kSmall);
  // Between images of one scene the mean brightness varies less than between scenes.
  double within = 0;
  std::vector<double> scenes;
  for (std::int64_t s = 0; s < 6; ++s) {
    const double mean = mean_of(data.train, s * 10, s * 10 + 10);
    scenes.push_back(mean);
    for (std::int64_t i = 0; i < 10; ++i) {
      const double difference = mean_of(data.train, s * 10 + i, s * 10 + i + 1) - mean;
      within += difference * difference / 60;
    }
  }
  double all = 0;
  for (const double mean : scenes) all += mean / 6;
  double between = 0;
  for (const double mean : scenes) between += (mean - all) * (mean - all) / 6;
  CHECK(between > 4 * within);
}

TEST_CASE("glyphs: the default size, through load_dataset") {
  const Dataset data = load_dataset("glyphs", 1);
  CHECK(data.train.size() == 4000);
  CHECK(data.validation.size() == 1000);
  CHECK(data.test.size() == 1000);
  // 1,333 of each class expected; five deviations of the binomial distribution.
  std::vector<int> counts(3);
  for (const auto label : data.train.labels) ++counts[static_cast<std::size_t>(label)];
  for (const int n : counts) CHECK(std::abs(n - 4000 / 3.0) < 5 * 29.9);
  GlyphSettings none = kSmall;
  none.test_scenes = 0;
  CHECK_THROWS_AS(make_glyphs(1, none), Error);
  none.test_scenes = std::int64_t{1} << 40;
  CHECK_THROWS_AS(make_glyphs(1, none), Error);
}
