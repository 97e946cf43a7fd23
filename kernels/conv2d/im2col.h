// The image's patches as rows of a matrix, and the way back. Internal to the reference path.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/window.h"

namespace roundoff {

// One group's channels [first, first + channels) of samples that x points to; a patch is a row
// [R, S, channels].
struct Patches {
  Conv2dShape shape;
  Conv2dParams params;
  std::int64_t first = 0;
  std::int64_t channels = 0;
  std::int64_t columns() const { return shape.r * shape.s * channels; }
};

namespace detail {

// Calls f(line, column0, count) for the positions of output column q and kernel row r inside the
// image: kernel columns [column0, column0 + count), the others lie in the padding.
struct Span {
  std::int64_t begin, end;  // kernel columns inside the image
  std::int64_t at;          // image column of kernel column `begin`
};
inline Span columns_inside(const Patches& p, std::int64_t q) {
  const std::int64_t start = q * p.params.stride[1] - p.params.padding[1];
  const std::int64_t d = p.params.dilation[1];
  const std::int64_t begin = start >= 0 ? 0 : std::min(p.shape.s, (-start + d - 1) / d);
  const std::int64_t room = p.shape.w - start;  // columns of the image from `start` on
  const std::int64_t end =
      room <= 0 ? begin : std::max(begin, std::min(p.shape.s, (room + d - 1) / d));
  return {begin, end, start + begin * d};
}

}  // namespace detail

// rows[i] = the patch of output pixel i, for the pixels of output rows [begin, end) counted through
// the samples: output row = sample * P + p.
template <class T>
void im2col(const Patches& patches, const T* x, std::int64_t begin, std::int64_t end, T* rows) {
  const Conv2dShape& z = patches.shape;
  const std::int64_t segment = z.s * patches.channels;
  const bool whole = patches.params.dilation[1] == 1 && patches.channels == z.c;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* image = x + (row / z.p) * z.h * z.w * z.c + patches.first;
    const std::int64_t top = (row % z.p) * patches.params.stride[0] - patches.params.padding[0];
    for (std::int64_t q = 0; q < z.q; ++q) {
      const detail::Span in = detail::columns_inside(patches, q);
      for (std::int64_t r = 0; r < z.r; ++r, rows += segment) {
        const std::int64_t line = top + r * patches.params.dilation[0];
        if (line < 0 || line >= z.h || in.begin == in.end) {
          std::fill_n(rows, segment, T{0});
          continue;
        }
        const T* from = image + (line * z.w + in.at) * z.c;
        std::fill_n(rows, in.begin * patches.channels, T{0});
        if (whole) {
          std::copy_n(from, (in.end - in.begin) * z.c, rows + in.begin * z.c);
        } else {
          for (std::int64_t s = in.begin; s < in.end; ++s, from += patches.params.dilation[1] * z.c)
            std::copy_n(from, patches.channels, rows + s * patches.channels);
        }
        std::fill_n(rows + in.end * patches.channels, (z.s - in.end) * patches.channels, T{0});
      }
    }
  }
}

// The same matrix transposed, [R, S] x pixels, for patches of one channel: runs along image rows
// are long where patches are short.
template <class T>
void im2col_planes(const Patches& patches, const T* x, std::int64_t begin, std::int64_t end,
                   T* planes) {
  const Conv2dShape& z = patches.shape;
  const std::int64_t stride = patches.params.stride[1];
  for (std::int64_t r = 0; r < z.r; ++r) {
    for (std::int64_t s = 0; s < z.s; ++s) {
      // Output columns [first, last) whose position s lies inside the image.
      const std::int64_t shift = s * patches.params.dilation[1] - patches.params.padding[1];
      const std::int64_t first = std::min(z.q, shift >= 0 ? 0 : (-shift + stride - 1) / stride);
      const std::int64_t last = std::clamp((z.w - shift + stride - 1) / stride, first, z.q);
      for (std::int64_t row = begin; row < end; ++row, planes += z.q) {
        const std::int64_t line = (row % z.p) * patches.params.stride[0] +
                                  r * patches.params.dilation[0] - patches.params.padding[0];
        if (line < 0 || line >= z.h || first == last) {
          std::fill_n(planes, z.q, T{0});
          continue;
        }
        const T* from =
            x + ((row / z.p * z.h + line) * z.w + first * stride + shift) * z.c + patches.first;
        std::fill_n(planes, first, T{0});
        if (stride * z.c == 1) {
          std::copy_n(from, last - first, planes + first);
        } else {
          for (std::int64_t q = first; q < last; ++q, from += stride * z.c) planes[q] = *from;
        }
        std::fill_n(planes + last, z.q - last, T{0});
      }
    }
  }
}

// The transpose: every patch is added to the pixels that it came from, in the rows' order.
template <class T>
void col2im(const Patches& patches, const T* rows, std::int64_t begin, std::int64_t end, T* dx) {
  const Conv2dShape& z = patches.shape;
  const std::int64_t segment = z.s * patches.channels;
  const bool whole = patches.params.dilation[1] == 1 && patches.channels == z.c;
  const auto add = [](const T* from, std::int64_t n, T* to) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
  };
  for (std::int64_t row = begin; row < end; ++row) {
    T* image = dx + (row / z.p) * z.h * z.w * z.c + patches.first;
    const std::int64_t top = (row % z.p) * patches.params.stride[0] - patches.params.padding[0];
    for (std::int64_t q = 0; q < z.q; ++q) {
      const detail::Span in = detail::columns_inside(patches, q);
      for (std::int64_t r = 0; r < z.r; ++r, rows += segment) {
        const std::int64_t line = top + r * patches.params.dilation[0];
        if (line < 0 || line >= z.h || in.begin == in.end) continue;
        T* to = image + (line * z.w + in.at) * z.c;
        if (whole) {
          add(rows + in.begin * z.c, (in.end - in.begin) * z.c, to);
        } else {
          for (std::int64_t s = in.begin; s < in.end; ++s, to += patches.params.dilation[1] * z.c)
            add(rows + s * patches.channels, patches.channels, to);
        }
      }
    }
  }
}

// rows[j] = the output gradients around pixel j of one line of a phase (window.h), [taps down, taps
// across, channels of dy], 0 outside; `line`: where the line's first tap falls, of sample dy.
// `patches` names the channels of dy [P, Q, K]. Times the weights of those taps that is dx.
template <class T>
void gather_gradients(const Patches& patches, const T* dy, std::int64_t line,
                      const GradientPhase& down, const GradientPhase& across, T* rows) {
  const Conv2dShape& z = patches.shape;
  for (std::int64_t j = 0; j < across.pixels; ++j) {
    for (std::int64_t r = 0; r < down.taps.count; ++r) {
      const std::int64_t p = line + r * down.window.step;
      for (std::int64_t s = 0; s < across.taps.count; ++s, rows += patches.channels) {
        const std::int64_t q = across.window.start + j + s * across.window.step;
        if (p < 0 || p >= z.p || q < 0 || q >= z.q) {
          std::fill_n(rows, patches.channels, T{0});
        } else {
          std::copy_n(dy + (p * z.q + q) * z.k + patches.first, patches.channels, rows);
        }
      }
    }
  }
}

}  // namespace roundoff
