#include "engine/data/corruption.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/data/glyphs.h"

using namespace roundoff;

namespace {

// Grey ramps of 12 x 10, two channels, one value a pixel and channel.
Split ramps(std::int64_t n, ElementType type) {
  Split split;
  split.images = HostArray(type, {n, 12, 10, 2});
  for (std::int64_t i = 0; i < split.images.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t value = (i * 37) % 200 + 20;
    if (type == ElementType::u8) {
      split.images.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(value);
    } else {
      split.images.as<float>()[at] = static_cast<float>(value) / 50 - 2;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) split.labels.push_back(i % 3);
  return split;
}

double distance(const Split& a, const Split& b, Corruption kind) {
  const std::int64_t size = a.images.numel() / a.size();
  double sum = 0;
  for (std::int64_t i = 0; i < a.images.numel(); ++i) {
    if (corruption_of(i / size) != kind) continue;
    const auto at = static_cast<std::size_t>(i);
    sum += std::abs(static_cast<double>(a.images.as<std::uint8_t>()[at]) -
                    static_cast<double>(b.images.as<std::uint8_t>()[at]));
  }
  return sum;
}

}  // namespace

TEST_CASE("corruptions are a pure function of image, severity, seed and place") {
  const Split clean = ramps(20, ElementType::u8);
  const Split a = corrupt(clean, 3, 1);
  CHECK(a.images.bytes == corrupt(clean, 3, 1).images.bytes);
  CHECK(a.images.bytes != corrupt(clean, 3, 2).images.bytes);
  CHECK(a.labels == clean.labels);
  // A shorter split has the same first samples.
  Split part = clean;
  part.images = HostArray(ElementType::u8, {7, 12, 10, 2});
  std::copy_n(clean.images.bytes.begin(), part.images.bytes.size(), part.images.bytes.begin());
  part.labels.resize(7);
  const Split spoilt_part = corrupt(part, 3, 1);
  CHECK(std::equal(spoilt_part.images.bytes.begin(), spoilt_part.images.bytes.end(),
                   a.images.bytes.begin()));
  CHECK_THROWS_AS(corrupt(clean, 0, 1), UsageError);
  CHECK_THROWS_AS(corrupt(clean, 6, 1), UsageError);
}

TEST_CASE("every kind changes its images, and more so at a higher severity") {
  const Split clean =
      make_glyphs(1, {.train_scenes = 1, .validation_scenes = 1, .test_scenes = 4}).test;
  const Split mild = corrupt(clean, 1, 1);
  const Split bad = corrupt(clean, 5, 1);
  for (int k = 0; k < kCorruptions; ++k) {
    const auto kind = static_cast<Corruption>(k);
    CAPTURE(name(kind));
    CHECK(distance(clean, mild, kind) > 0);
    CHECK(distance(clean, bad, kind) > distance(clean, mild, kind));
  }
}

TEST_CASE("a shift moves the image and repeats its edge, contrast keeps the mean") {
  const Split clean = ramps(5, ElementType::u8);
  const Split spoilt = corrupt(clean, 2, 4);
  const std::int64_t size = 12 * 10 * 2;
  const auto pixel = [&](const Split& s, std::int64_t image, std::int64_t y, std::int64_t x) {
    y = std::clamp<std::int64_t>(y, 0, 11);
    x = std::clamp<std::int64_t>(x, 0, 9);
    return s.images.as<std::uint8_t>()[static_cast<std::size_t>(image * size + (y * 10 + x) * 2)];
  };
  int fitting = 0;
  for (int dy = -2; dy <= 2; dy += 2)
    for (int dx = -2; dx <= 2; dx += 2) {
      bool same = dy != 0 || dx != 0;
      for (std::int64_t y = 0; y < 12; ++y)
        for (std::int64_t x = 0; x < 10; ++x)
          same = same && pixel(spoilt, 4, y, x) == pixel(clean, 4, y - dy, x - dx);
      fitting += same;
    }
  CHECK(fitting == 1);
  double before = 0;
  double after = 0;
  for (std::int64_t i = 2 * size; i < 3 * size; ++i) {
    before += clean.images.as<std::uint8_t>()[static_cast<std::size_t>(i)];
    after += spoilt.images.as<std::uint8_t>()[static_cast<std::size_t>(i)];
  }
  // Each of them was rounded to a whole number.
  CHECK(std::abs(before - after) <= 0.5 * static_cast<double>(size));
}

TEST_CASE("fp32 images stay in the range of the split's values") {
  const Split clean = ramps(10, ElementType::fp32);
  const Split spoilt = corrupt(clean, 5, 1);
  const auto values = clean.images.as<float>();
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  bool inside = true;
  // One rounding of the way to [0, 1] and back.
  const float slack = (*high - *low) * 0x1p-22F;
  for (const float v : spoilt.images.as<float>())
    inside = inside && v >= *low - slack && v <= *high + slack;
  CHECK(inside);
  CHECK(spoilt.images.bytes != clean.images.bytes);
}
