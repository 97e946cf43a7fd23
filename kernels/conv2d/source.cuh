// The operands of convolutions as matrices, gathered where they lie (kernels/gemm/source.cuh). A
// group of channels is a matrix of a batch.
//
#pragma once

#include <cstdint>

#include "kernels/conv2d/window.h"
#include "kernels/gemm/source.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Rows of pixels, each with [taps down, taps across, channels] values of an image under its
  // window, 0 outside; or the same transposed. Chunks: a place is kept as what it adds to a pixel's
  // or a tap's position, so that a step costs additions and two comparisons.
  struct WindowSource {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    bool depth_contiguous = true;    // the sum runs over taps; else over pixels
    bool aligned = false;            // runs of lanes
    bool runs = false;               // a run of lanes never leaves its tap
    bool chunked = false;            // nor does a chunk, and it is aligned
    unsigned pixels = 0, taps = 0;   // taps: with their channels
    FastDivide by_width, by_height;  // of the pixels that have windows
    FastDivide by_channels, by_across;
    WindowAxis down, across;
    std::int64_t pixel_stride = 0;  // elements of the image
    std::int64_t stride = 0;        // channels of a group
    std::int64_t offset = 0;

    // A pixel's window begins at (n, row, column).
    struct Pixel {
      unsigned n;
      int row, column;
    };
    struct Tap {
      int r, s;
      unsigned channel;
    };
    ROUNDOFF_DEVICE Pixel pixel_at(unsigned index) const {
      const unsigned line = divide(index, by_width);
      const unsigned n = divide(line, by_height);
      return {n, static_cast<int>(line - n * by_height.divisor) * down.stride + down.start,
              static_cast<int>(index - line * by_width.divisor) * across.stride + across.start};
    }
    ROUNDOFF_DEVICE Tap tap_at(unsigned index) const {
      const unsigned tap = divide(index, by_channels);
      const unsigned r = divide(tap, by_across);
      return {static_cast<int>(r), static_cast<int>(tap - r * by_across.divisor),
              index - tap * by_channels.divisor};
    }
    ROUNDOFF_DEVICE void next(Tap& tap) const {
      if (++tap.channel != by_channels.divisor) return;
      tap.channel = 0;
      if (++tap.s != across.taps) return;
      tap.s = 0;
      ++tap.r;
    }
    // The image's pixel that a tap falls on, or negative.
    ROUNDOFF_DEVICE std::int64_t position(const Pixel& at, const Tap& tap) const {
      const int h = at.row + tap.r * down.step, w = at.column + tap.s * across.step;
      if (h < 0 || h >= down.image || w < 0 || w >= across.image) return -1;
      return (static_cast<std::int64_t>(at.n) * down.image + h) * across.image + w;
    }

    ROUNDOFF_DEVICE bool contiguous_depth() const { return depth_contiguous; }
    ROUNDOFF_DEVICE void select(unsigned i) { offset = static_cast<std::int64_t>(i) * stride; }

    template <class C>
    ROUNDOFF_DEVICE void load(unsigned row, unsigned at, Bits<C> (&v)[kLanes<C>]) const {
      const unsigned index = depth_contiguous ? row : at, first = depth_contiguous ? at : row;
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) v[i] = 0;
      if (index >= pixels || first >= taps) return;
      const Pixel pixel = pixel_at(index);
      Tap tap = tap_at(first);
      if (runs) {
        const std::int64_t from = position(pixel, tap);
        if (from >= 0)
          load_bits<C>(data, dtype, offset + from * pixel_stride + tap.channel, kLanes<C>, aligned,
                       v);
        return;
      }
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kLanes<C>; ++i) {
        if (first + i < taps) {
          const std::int64_t from = position(pixel, tap);
          if (from >= 0)
            v[i] = load_pattern<C>(data, dtype, offset + from * pixel_stride + tap.channel);
          next(tap);
        }
      }
    }

    ROUNDOFF_DEVICE float value(unsigned row, unsigned at) const {
      const Tap tap = tap_at(depth_contiguous ? at : row);
      const std::int64_t from = position(pixel_at(depth_contiguous ? row : at), tap);
      if (from < 0) return 0;
      return load_one<float>(data, dtype, offset + from * pixel_stride + tap.channel, tf32);
    }

    // A pixel or a tap: elements from the image's begin, and its part of a position. `index`: the
    // pixel, or the channel.
    struct Place {
      std::int64_t at;
      int h, w;
      unsigned index;
    };
    using Row = Place;
    using Depth = Place;
    // Of what lies beyond the matrix: no position that it is part of is inside the image.
    static constexpr int kFar = -2147483647 - 1;

    ROUNDOFF_DEVICE std::int64_t elements(std::int64_t line, int w) const {
      return (line * across.image + w) * pixel_stride;
    }
    ROUNDOFF_DEVICE Place pixel_place(unsigned index) const {
      const Pixel p = pixel_at(index);
      return {elements(static_cast<std::int64_t>(p.n) * down.image + p.row, p.column),
              index < pixels ? p.row : kFar, p.column, index};
    }
    ROUNDOFF_DEVICE Place tap_place(unsigned index) const {
      const Tap tap = tap_at(index);
      const int h = tap.r * down.step, w = tap.s * across.step;
      return {elements(h, w) + tap.channel, h, index < taps ? w : kFar, tap.channel};
    }
    ROUNDOFF_DEVICE Row row_at(unsigned row) const {
      return depth_contiguous ? pixel_place(row) : tap_place(row);
    }
    ROUNDOFF_DEVICE Depth depth_at(unsigned at) const {
      return depth_contiguous ? tap_place(at) : pixel_place(at);
    }
    ROUNDOFF_DEVICE void advance(Depth& at, unsigned by) const {
      if (!depth_contiguous) {
        at = pixel_place(at.index + by);
        return;
      }
      at.index += by;
      at.at += by;
      while (at.index >= by_channels.divisor && at.w != kFar) {
        at.index -= by_channels.divisor;
        at.at += elements(0, across.step) - by_channels.divisor;
        at.w += across.step;
        if (at.w != across.taps * across.step) continue;
        at.w = 0;
        at.h += down.step;
        at.at += elements(down.step, -across.taps * across.step);
        if (at.h == down.taps * down.step) at.w = kFar;
      }
    }
    template <class T>
    ROUNDOFF_DEVICE Chunk chunk(const Row& row, const Depth& depth) const {
      const auto h = static_cast<unsigned>(row.h) + static_cast<unsigned>(depth.h);
      const auto w = static_cast<unsigned>(row.w) + static_cast<unsigned>(depth.w);
      const bool inside =
          h < static_cast<unsigned>(down.image) && w < static_cast<unsigned>(across.image);
      return {static_cast<const T*>(data) + (inside ? offset + row.at + depth.at : 0),
              inside ? 16 : 0};
    }
  };

  // The weights [K, R, S, C] with the sum over [taps down, taps across, K]: rows are input
  // channels.
  struct FilterSource {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    bool aligned = false;
    bool chunked = false;
    unsigned rows = 0, depth = 0;      // C of a group, and its sum's length
    FastDivide by_filters, by_across;  // K of a group, taps across
    TapAxis down, across;
    unsigned width = 1, size = 1;  // S and R S
    std::int64_t stride = 0;       // elements of a group
    std::int64_t offset = 0;

    ROUNDOFF_DEVICE bool contiguous_depth() const { return false; }
    ROUNDOFF_DEVICE void select(unsigned i) { offset = static_cast<std::int64_t>(i) * stride; }
    ROUNDOFF_DEVICE std::int64_t place(unsigned at) const {
      const unsigned tap = divide(at, by_filters);
      const unsigned filter = at - tap * by_filters.divisor;
      const unsigned i = divide(tap, by_across), j = tap - i * by_across.divisor;
      const unsigned r = down.first + i * down.step, s = across.first + j * across.step;
      return offset + (static_cast<std::int64_t>(filter) * size + r * width + s) * rows;
    }
    template <class C>
    ROUNDOFF_DEVICE void load(unsigned row, unsigned at, Bits<C> (&v)[kLanes<C>]) const {
      int count = 0;
      if (row < rows && at < depth)
        count = static_cast<int>(rows - row < kLanes<C> ? rows - row : kLanes<C>);
      load_bits<C>(data, dtype, count == 0 ? 0 : place(at) + row, count, aligned, v);
    }
    ROUNDOFF_DEVICE float value(unsigned row, unsigned at) const {
      return load_one<float>(data, dtype, place(at) + row, tf32);
    }

    using Row = unsigned;
    using Depth = unsigned;
    ROUNDOFF_DEVICE Row row_at(unsigned row) const { return row; }
    ROUNDOFF_DEVICE Row further_row(Row row, unsigned by) const { return row + by; }
    ROUNDOFF_DEVICE Depth depth_at(unsigned at) const { return at; }
    ROUNDOFF_DEVICE Depth further_depth(Depth at, unsigned by) const { return at + by; }
    ROUNDOFF_DEVICE void advance(Depth& at, unsigned by) const { at += by; }
    template <class T>
    ROUNDOFF_DEVICE Chunk chunk(Row row, Depth at) const {
      const bool inside = row < rows && at < depth;
      return {static_cast<const T*>(data) + (inside ? place(at) + row : 0), inside ? 16 : 0};
    }
  };

}  // namespace

}  // namespace roundoff
