// Spoilt copies of images, to see how a model does where the data is not what it was trained on.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/data/dataset.h"

namespace roundoff {

// Kinds after Hendrycks and Dietterich (2019), each at severity 1 to 5. The numbers are ours, for
// small images, with pixels counted from 0 to 1:
//   noise     adds a normal deviate of deviation 0.04, 0.08, 0.12, 0.16, 0.20 to every value
//   blur      Gaussian of 0.4, 0.7, 1.0, 1.3, 1.6 pixels, edges repeated
//   contrast  scales the distance from the image's mean by 0.75, 0.60, 0.45, 0.30, 0.20
//   light     moves all values by 0.1, 0.2, 0.3, 0.4, 0.5, away from the nearer end
//   shift     moves the image by 1 to 5 pixels in one of eight directions, edges repeated
enum class Corruption : unsigned char { noise, blur, contrast, light, shift };
inline constexpr int kCorruptions = 5;
std::string_view name(Corruption kind);

// The kind of sample i where a split has all of them in turn.
constexpr Corruption corruption_of(std::int64_t sample) {
  return static_cast<Corruption>(sample % kCorruptions);
}

// Every image of `split` spoilt, sample i in the way corruption_of(i), a pure function of (pixels,
// severity, seed, i). uint8 is rounded and clamped to 0..255; fp32 images are taken to span the
// range of the whole split's values, and are clamped to it. Labels stay. Throws UsageError for a
// severity outside 1..5.
Split corrupt(const Split& split, int severity, std::uint64_t seed);

}  // namespace roundoff
