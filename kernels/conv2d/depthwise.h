// Convolution with a kernel of its own for every channel: no product of matrices, but loops over
// pixels and taps with all channels side by side. Internal to the reference path.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/conv2d/conv2d.h"

namespace roundoff {

inline bool is_depthwise(const Conv2dShape& z, const Conv2dParams& p) {
  return p.groups > 1 && z.c == p.groups && z.k == p.groups;
}

// Calls f(output pixel, input pixel, tap) for every tap inside the image of one sample, output rows
// in order. Offsets in pixels; tap = r * S + s.
template <class F>
void each_tap(const Conv2dShape& z, const Conv2dParams& p, F&& f) {
  for (std::int64_t row = 0; row < z.p; ++row) {
    for (std::int64_t q = 0; q < z.q; ++q) {
      for (std::int64_t r = 0; r < z.r; ++r) {
        const std::int64_t h = row * p.stride[0] + r * p.dilation[0] - p.padding[0];
        if (h < 0 || h >= z.h) continue;
        for (std::int64_t s = 0; s < z.s; ++s) {
          const std::int64_t w = q * p.stride[1] + s * p.dilation[1] - p.padding[1];
          if (w >= 0 && w < z.w) f(row * z.q + q, h * z.w + w, r * z.s + s);
        }
      }
    }
  }
}

// The same, input pixels in order, and each one's taps in the order of the weights.
template <class F>
void each_tap_of_input(const Conv2dShape& z, const Conv2dParams& p, F&& f) {
  const auto output = [](std::int64_t at, std::int64_t stride, std::int64_t extent) {
    return at < 0 || at % stride != 0 || at / stride >= extent ? -1 : at / stride;
  };
  for (std::int64_t h = 0; h < z.h; ++h) {
    for (std::int64_t w = 0; w < z.w; ++w) {
      for (std::int64_t r = 0; r < z.r; ++r) {
        const std::int64_t row = output(h + p.padding[0] - r * p.dilation[0], p.stride[0], z.p);
        if (row < 0) continue;
        for (std::int64_t s = 0; s < z.s; ++s) {
          const std::int64_t q = output(w + p.padding[1] - s * p.dilation[1], p.stride[1], z.q);
          if (q >= 0) f(row * z.q + q, h * z.w + w, r * z.s + s);
        }
      }
    }
  }
}

// to[c] += a[c] * b[c]; in order by fused multiply-adds.
template <class T>
void add_products(bool in_order, const T* a, const T* b, std::int64_t channels, T* to) {
  if (in_order)
    for (std::int64_t c = 0; c < channels; ++c) to[c] = std::fma(a[c], b[c], to[c]);
  else
    for (std::int64_t c = 0; c < channels; ++c) to[c] += a[c] * b[c];
}

// Weights [C, taps] as [taps, C], and back.
template <class T>
void transpose(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

// One sample each; they add to y, dx and dw. Weights and their gradient are [taps, C].
template <class T>
void depthwise_forward(const Conv2dShape& z, const Conv2dParams& p, const T* x, const T* weights,
                       T* y) {
  each_tap(z, p, [&](std::int64_t out, std::int64_t in, std::int64_t tap) {
    add_products(p.in_order, x + in * z.c, weights + tap * z.c, z.c, y + out * z.c);
  });
}
template <class T>
void depthwise_grad_input(const Conv2dShape& z, const Conv2dParams& p, const T* dy,
                          const T* weights, T* dx) {
  const auto add = [&](std::int64_t out, std::int64_t in, std::int64_t tap) {
    add_products(p.in_order, dy + out * z.c, weights + tap * z.c, z.c, dx + in * z.c);
  };
  p.in_order ? each_tap_of_input(z, p, add) : each_tap(z, p, add);
}
template <class T>
void depthwise_grad_weight(const Conv2dShape& z, const Conv2dParams& p, const T* x, const T* dy,
                           T* dw) {
  each_tap(z, p, [&](std::int64_t out, std::int64_t in, std::int64_t tap) {
    add_products(p.in_order, dy + out * z.c, x + in * z.c, z.c, dw + tap * z.c);
  });
}

}  // namespace roundoff
