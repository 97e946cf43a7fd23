#include "engine/data/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/data/random.h"
#include "engine/io/file.h"

namespace roundoff {

namespace {

constexpr int kSize = static_cast<int>(kGlyphSize);
constexpr std::size_t kPixels = kSize * kSize;
constexpr double kTurn = 6.283185307179586;

using Image = std::array<double, kPixels>;  // brightness; [0, 1] is what a pixel can hold

// Close to a standard normal, from one draw and without a library's logarithm: four uniform bytes.
double near_normal(RandomStream& random) {
  const std::uint32_t bits = random.bits();
  const auto sum =
      static_cast<double>((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24));
  // Four times the mean and the variance of 0 .. 255.
  return (sum - 510) / std::sqrt(4 * 65535.0 / 12);
}

struct Scene {
  Image background{};
  double contrast = 0;  // of the outlines, with their sign
  double noise = 0;     // deviation
  double stroke = 0;    // width, pixels
};

Scene make_scene(std::uint64_t seed, std::uint64_t scene) {
  RandomStream random(seed, RandomUse::glyphs, scene);
  Scene result;
  const double level = random.uniform(0.3, 0.7);
  const double light = random.uniform(0.0, 0.3);  // from one side of the image to the other
  const double direction = random.uniform(0, kTurn);
  // Away from the nearer end of the range, so that both polarities occur and few pixels clip.
  const double sign = random.uniform() < (level > 0.5 ? 0.75 : 0.25) ? -1 : 1;
  result.contrast = sign * random.uniform(0.25, 0.5);
  result.noise = random.uniform(0.02, 0.07);
  result.stroke = random.uniform(1.2, 2.2);
  struct Wave {
    double x, y, phase, height;
  };
  std::array<Wave, 3> waves{};
  for (Wave& wave : waves) {
    const double angle = random.uniform(0, kTurn);
    const double frequency = random.uniform(0.15, 0.8);
    wave = {frequency * std::cos(angle), frequency * std::sin(angle), random.uniform(0, kTurn),
            random.uniform(0.01, 0.06)};
  }
  for (int y = 0; y < kSize; ++y)
    for (int x = 0; x < kSize; ++x) {
      double value =
          level +
          light * ((x - kSize / 2) * std::cos(direction) + (y - kSize / 2) * std::sin(direction)) /
              kSize;
      for (const Wave& wave : waves)
        value += wave.height * std::sin(wave.x * x + wave.y * y + wave.phase);
      result.background[static_cast<std::size_t>(y * kSize + x)] = value;
    }
  return result;
}

// Distance to the outline of a shape around the origin, negative inside (past a corner, the
// distance to the nearer edge's line). All shapes enclose the area of a circle of this radius.
double outline_distance(std::int64_t shape, double x, double y, double radius) {
  switch (shape) {
    case 0:
      return std::hypot(x, y) - radius;
    case 1:  // (2 h)^2 = pi r^2
      return std::max(std::abs(x), std::abs(y)) - 0.886226925 * radius;
    default:  // 3 sqrt(3) h^2 = pi r^2, h the radius of the inscribed circle
      return std::max({-y, 0.5 * y + 0.866025404 * x, 0.5 * y - 0.866025404 * x}) -
             0.777563199 * radius;
  }
}

// How much of a pixel a line of this width covers, at this distance from its middle.
double coverage(double distance, double width) {
  return std::clamp(width / 2 + 0.5 - std::abs(distance), 0.0, 1.0);
}

Image draw(const Scene& scene, std::int64_t shape, RandomStream& random) {
  const double radius = random.uniform(5, 7.5);
  const double reach = kSize / 2.0 - 1.3 * radius - 1;
  const double centre_x = kSize / 2.0 - 0.5 + random.uniform(-reach, reach);
  const double centre_y = kSize / 2.0 - 0.5 + random.uniform(-reach, reach);
  const double angle = random.uniform(-0.3, 0.3);
  const double stretch = random.uniform(0.9, 1.1);
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);
  // Two short strokes that mean nothing.
  struct Stroke {
    double x, y, along_x, along_y, half_length;
  };
  std::array<Stroke, 2> strokes{};
  for (Stroke& stroke : strokes) {
    const double heading = random.uniform(0, kTurn);
    stroke = {random.uniform(0, kSize), random.uniform(0, kSize), std::cos(heading),
              std::sin(heading), random.uniform(1, 3)};
  }
  Image image{};
  for (int row = 0; row < kSize; ++row)
    for (int column = 0; column < kSize; ++column) {
      const double dx = column - centre_x;
      const double dy = row - centre_y;
      const double x = (cosine * dx + sine * dy) * stretch;
      const double y = (cosine * dy - sine * dx) / stretch;
      double ink = coverage(outline_distance(shape, x, y, radius), scene.stroke);
      for (const Stroke& stroke : strokes) {
        const double sx = column - stroke.x;
        const double sy = row - stroke.y;
        const double along = std::clamp(sx * stroke.along_x + sy * stroke.along_y,
                                        -stroke.half_length, stroke.half_length);
        ink = std::max(
            ink, coverage(std::hypot(sx - along * stroke.along_x, sy - along * stroke.along_y),
                          scene.stroke));
      }
      const auto at = static_cast<std::size_t>(row * kSize + column);
      image[at] = scene.background[at] + scene.contrast * ink + scene.noise * near_normal(random);
    }
  return image;
}

// The corruptions of the corrupted test split, by index.
void corrupt(Image& image, std::int64_t kind, RandomStream& random) {
  double mean = 0;
  for (const double value : image) mean += value / static_cast<double>(kPixels);
  switch (kind) {
    case 0:  // noise
      for (double& value : image) value += 0.2 * near_normal(random);
      break;
    case 1: {  // blur: the mean of a pixel and its eight neighbours, edges repeated
      const Image before = image;
      for (int y = 0; y < kSize; ++y)
        for (int x = 0; x < kSize; ++x) {
          double sum = 0;
          for (int dy = -1; dy <= 1; ++dy)
            for (int dx = -1; dx <= 1; ++dx)
              sum += before[static_cast<std::size_t>(std::clamp(y + dy, 0, kSize - 1) * kSize +
                                                     std::clamp(x + dx, 0, kSize - 1))];
          image[static_cast<std::size_t>(y * kSize + x)] = sum / 9;
        }
      break;
    }
    case 2:  // low contrast
      for (double& value : image) value = mean + 0.25 * (value - mean);
      break;
    case 3: {  // brightness, away from the nearer end
      const double shift = mean > 0.5 ? -0.3 : 0.3;
      for (double& value : image) value += shift;
      break;
    }
    default: {  // an occluding patch of 8 x 8 pixels
      const auto left = static_cast<int>(random.below(kSize - 7));
      const auto top = static_cast<int>(random.below(kSize - 7));
      const double value = random.uniform();
      for (int y = top; y < top + 8; ++y)
        for (int x = left; x < left + 8; ++x)
          image[static_cast<std::size_t>(y * kSize + x)] = value;
    }
  }
}

void store(const Image& image, std::span<std::uint8_t> to) {
  for (std::size_t i = 0; i < kPixels; ++i)
    to[i] = static_cast<std::uint8_t>(std::clamp(std::floor(image[i] * 255 + 0.5), 0.0, 255.0));
}

Split empty_split(std::int64_t n) {
  Split split;
  split.images = HostArray(ElementType::u8, {n, kGlyphSize, kGlyphSize, 1});
  split.labels.resize(static_cast<std::size_t>(n));
  return split;
}

}  // namespace

Dataset make_glyphs(std::uint64_t seed, const GlyphSettings& settings) {
  ROUNDOFF_CHECK(settings.train_scenes >= 1 && settings.validation_scenes >= 1 &&
                     settings.test_scenes >= 1 && settings.images_per_scene >= 1,
                 "glyphs", "at least one scene a split and one image a scene expected");
  constexpr std::int64_t kMost = 1 << 20;
  ROUNDOFF_CHECK(settings.train_scenes <= kMost && settings.validation_scenes <= kMost &&
                     settings.test_scenes <= kMost && settings.images_per_scene <= kMost,
                 "glyphs", "at most ", kMost, " scenes a split and images a scene are made");
  Dataset data;
  data.name = "glyphs";
  data.classes = kGlyphClasses;
  data.image = {kGlyphSize, kGlyphSize, 1};
  std::uint64_t scene_number = 0;
  const auto fill = [&](std::int64_t scenes, Split& split, Split* corrupted) {
    split = empty_split(scenes * settings.images_per_scene);
    if (corrupted != nullptr) *corrupted = empty_split(split.size());
    std::size_t at = 0;
    for (std::int64_t s = 0; s < scenes; ++s, ++scene_number) {
      const Scene scene = make_scene(seed, scene_number);
      for (std::int64_t i = 0; i < settings.images_per_scene; ++i, ++at) {
        RandomStream random(seed, RandomUse::glyphs, scene_number,
                            static_cast<std::uint32_t>(i + 1));
        const auto label = static_cast<std::int64_t>(random.below(kGlyphClasses));
        Image image = draw(scene, label, random);
        store(image, split.images.as<std::uint8_t>().subspan(at * kPixels, kPixels));
        split.labels[at] = label;
        if (corrupted == nullptr) continue;
        corrupt(image, static_cast<std::int64_t>(at % 5), random);
        store(image, corrupted->images.as<std::uint8_t>().subspan(at * kPixels, kPixels));
        corrupted->labels[at] = label;
      }
    }
  };
  data.corrupted.emplace();
  fill(settings.train_scenes, data.train, nullptr);
  fill(settings.validation_scenes, data.validation, nullptr);
  fill(settings.test_scenes, data.test, &*data.corrupted);
  data.normalization = measure_normalization(data.train.images);
  Sha256 digest;
  for (const Split* split : {&data.train, &data.validation, &data.test, &*data.corrupted}) {
    digest.update(split->images.bytes);
    digest.update(std::as_bytes(std::span(split->labels)));
  }
  data.sources.push_back({concat("glyphs, seed ", seed), digest.hex()});
  return data;
}

}  // namespace roundoff
