// A generated data set: 24 x 24 grey images of an outline, one of three classes (ring, square,
// triangle), in scenes. The images of a scene share its background, light, contrast and noise, so
// splits by scene ask for more than remembering a scene.
#pragma once

#include <cstdint>

#include "engine/data/dataset.h"

namespace roundoff {

struct GlyphSettings {
  std::int64_t train_scenes = 160;
  std::int64_t validation_scenes = 40;
  std::int64_t test_scenes = 40;
  std::int64_t images_per_scene = 25;
};

inline constexpr std::int64_t kGlyphSize = 24;
inline constexpr std::int64_t kGlyphClasses = 3;

// Images are uint8 [N, 24, 24, 1]; scene after scene. Every image is a pure function of (seed,
// scene, position in the scene). All three outlines enclose the same area, at any place, size and
// angle. `corrupted` holds the test images once more, in the same order, each spoilt in one of five
// ways in turn: noise, blur, low contrast, brightness, an occluding patch. `sources` holds the
// checksum of the pixels and labels of all four splits.
Dataset make_glyphs(std::uint64_t seed, const GlyphSettings& settings = {});

}  // namespace roundoff
