// Where the taps of a filter fall, along one axis. Tap i of pixel j falls on position
// start + j stride + i step of an image: the image's patch under a window (start = -padding,
// step = dilation), and also the output gradients around an input pixel. Pixels a stride apart have
// gradients from the same taps, every (stride / g)-th for g = gcd(stride, dilation), and those are
// neighbours, each dilation / g before the last: a phase. So no tap is walked that the stride
// passes by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace roundoff {

// Along one axis; magnitudes are below 2^31, and below 2^30 where chunks are fetched.
struct WindowAxis {
  int image = 0;  // positions
  int start = 0, stride = 1, step = 1;
  int taps = 1;
};

// The taps of a filter that a sum runs over: every `step`-th from `first` on.
struct TapAxis {
  unsigned first = 0, step = 1, count = 1;
};

// Input pixels first, first + stride, ... along an axis, and the taps that they have gradients
// from.
struct GradientPhase {
  std::int64_t first = 0, pixels = 0;
  TapAxis taps;
  WindowAxis window;  // over the output gradients
};

// Phase `first` of min(stride, image): `image`, `output`, `kernel` are extents of x, y and w.
inline GradientPhase gradient_phase(std::int64_t first, std::int64_t image, std::int64_t output,
                                    std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                                    std::int64_t dilation) {
  const std::int64_t common = std::gcd(stride, dilation), every = stride / common;
  GradientPhase phase;
  phase.first = first;
  phase.pixels = (image - first + stride - 1) / stride;
  std::int64_t tap = 0;
  const std::int64_t most = std::min(kernel, every);
  while (tap < most && (first + padding - tap * dilation) % stride != 0) ++tap;
  phase.taps.count = tap == most ? 0 : static_cast<unsigned>((kernel - tap + every - 1) / every);
  phase.taps.first = static_cast<unsigned>(tap == most ? 0 : tap);
  phase.taps.step = static_cast<unsigned>(std::min(every, kernel));
  phase.window.image = static_cast<int>(output);
  phase.window.start = static_cast<int>((first + padding - phase.taps.first * dilation) / stride);
  phase.window.step = -static_cast<int>(std::min(dilation / common, output + padding + image));
  phase.window.taps = static_cast<int>(phase.taps.count);
  return phase;
}

}  // namespace roundoff
