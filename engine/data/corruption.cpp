#include "engine/data/corruption.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "engine/data/random.h"

namespace roundoff {

namespace {

constexpr int kSeverities = 5;

// One image, values from 0 to 1, [H, W, C].
struct Pixels {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<double> value;

  double at(std::int64_t y, std::int64_t x, std::int64_t c) const {
    y = std::clamp<std::int64_t>(y, 0, height - 1);
    x = std::clamp<std::int64_t>(x, 0, width - 1);
    return value[static_cast<std::size_t>((y * width + x) * channels + c)];
  }
  // value(y, x, c) = f(y, x, c), f reading this image as it was.
  template <class F>
  void replace(F&& f) {
    std::vector<double> next(value.size());
    std::size_t i = 0;
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        for (std::int64_t c = 0; c < channels; ++c) next[i++] = f(y, x, c);
    value = std::move(next);
  }
};

void blur(Pixels& image, double sigma) {
  const auto reach = static_cast<std::int64_t>(std::ceil(3 * sigma));
  std::vector<double> weight;
  double sum = 0;
  for (std::int64_t d = -reach; d <= reach; ++d) {
    weight.push_back(std::exp(-0.5 * static_cast<double>(d * d) / (sigma * sigma)));
    sum += weight.back();
  }
  for (const bool rows : {true, false})
    image.replace([&](std::int64_t y, std::int64_t x, std::int64_t c) {
      double total = 0;
      for (std::int64_t d = -reach; d <= reach; ++d)
        total += weight[static_cast<std::size_t>(d + reach)] / sum *
                 (rows ? image.at(y + d, x, c) : image.at(y, x + d, c));
      return total;
    });
}

void spoil(Pixels& image, Corruption kind, int severity, RandomStream& random) {
  const auto s = static_cast<std::size_t>(severity - 1);
  double mean = 0;
  for (const double v : image.value) mean += v / static_cast<double>(image.value.size());
  switch (kind) {
    case Corruption::noise: {
      constexpr std::array kDeviation{0.04, 0.08, 0.12, 0.16, 0.20};
      for (double& v : image.value) v += kDeviation[s] * random.normal();
      break;
    }
    case Corruption::blur: {
      constexpr std::array kSigma{0.4, 0.7, 1.0, 1.3, 1.6};
      blur(image, kSigma[s]);
      break;
    }
    case Corruption::contrast: {
      constexpr std::array kFactor{0.75, 0.60, 0.45, 0.30, 0.20};
      for (double& v : image.value) v = mean + kFactor[s] * (v - mean);
      break;
    }
    case Corruption::light: {
      const double by = 0.1 * severity * (mean > 0.5 ? -1 : 1);
      for (double& v : image.value) v += by;
      break;
    }
    case Corruption::shift: {
      constexpr std::array<std::array<int, 2>, 8> kDirections{
          {{0, 1}, {1, 1}, {1, 0}, {1, -1}, {0, -1}, {-1, -1}, {-1, 0}, {-1, 1}}};
      const auto& [dy, dx] = kDirections[static_cast<std::size_t>(random.below(8))];
      const std::int64_t by_y = dy * severity;
      const std::int64_t by_x = dx * severity;
      image.replace([&](std::int64_t y, std::int64_t x, std::int64_t c) {
        return image.at(y - by_y, x - by_x, c);
      });
      break;
    }
  }
  for (double& v : image.value) v = std::clamp(v, 0.0, 1.0);
}

template <class T>
void spoil_all(std::span<T> values, const Shape& image, std::int64_t count, double low, double high,
               int severity, std::uint64_t seed) {
  Pixels pixels{image[0], image[1], image[2], {}};
  const std::int64_t size = image.numel();
  const double range = high > low ? high - low : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto one =
        values.subspan(static_cast<std::size_t>(i * size), static_cast<std::size_t>(size));
    pixels.value.assign(one.begin(), one.end());
    for (double& v : pixels.value) v = (v - low) / range;
    // A severity is a step of the generator, so that severities share no draws.
    RandomStream random(seed, RandomUse::corruption, static_cast<std::uint64_t>(severity),
                        static_cast<std::uint32_t>(i));
    spoil(pixels, corruption_of(i), severity, random);
    for (std::size_t p = 0; p < one.size(); ++p) {
      const double v = low + range * pixels.value[p];
      one[p] = static_cast<T>(std::is_integral_v<T> ? std::nearbyint(v) : v);
    }
  }
}

}  // namespace

std::string_view name(Corruption kind) {
  constexpr std::string_view kNames[kCorruptions] = {"noise", "blur", "contrast", "light", "shift"};
  return kNames[static_cast<int>(kind)];
}

Split corrupt(const Split& split, int severity, std::uint64_t seed) {
  if (severity < 1 || severity > kSeverities)
    throw UsageError(
        concat("[corrupt] severity is ", severity, "; 1 to ", kSeverities, " expected"));
  Split spoilt = split;
  if (split.size() == 0) return spoilt;
  const Shape& shape = split.images.shape;
  const Shape image{shape[1], shape[2], shape[3]};
  if (split.images.type == ElementType::u8) {
    spoil_all(spoilt.images.as<std::uint8_t>(), image, split.size(), 0.0, 255.0, severity, seed);
    return spoilt;
  }
  const std::span<const float> values = split.images.as<float>();
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const float v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min<double>(low, v);
    high = std::max<double>(high, v);
  }
  if (low <= high)
    spoil_all(spoilt.images.as<float>(), image, split.size(), low, high, severity, seed);
  return spoilt;
}

}  // namespace roundoff
