// The operands of convolutions as matrices, gathered where they lie (kernels/gemm/source.cuh). A
// group of channels is a matrix of a batch.
#pragma once

#include <cstdint>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/source.cuh"

namespace roundoff {

// Along one axis: image position = output * stride + tap * dilation - padding. All below 2^31.
struct ConvAxis {
  int image = 0, output = 0;
  int stride = 1, padding = 0, dilation = 1;
  FastDivide by_stride;
};

ROUNDOFF_DEVICE_NAMESPACE {
  // Where a tap of a kernel and a channel stand: index = (r * S + s) * channels + c.
  struct Tap {
    int r, s;
    unsigned channel;
  };
  struct TapOrder {
    FastDivide by_channels, by_s;
    ROUNDOFF_DEVICE Tap at(unsigned index) const {
      const unsigned tap = divide(index, by_channels);
      const unsigned r = divide(tap, by_s);
      return {static_cast<int>(r), static_cast<int>(tap - r * by_s.divisor),
              index - tap * by_channels.divisor};
    }
    ROUNDOFF_DEVICE void next(Tap& tap) const {
      if (++tap.channel != by_channels.divisor) return;
      tap.channel = 0;
      if (++tap.s != static_cast<int>(by_s.divisor)) return;
      tap.s = 0;
      ++tap.r;
    }
  };

  // What PatchSource and GradientSource share: rows of pixels, one row of [R, S, channels] each.
  // Self::position(n, row, column, tap) is the pixel that a tap falls on, or negative.
  template <class Self>
  struct PixelSource {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    bool depth_contiguous = true;  // the sum runs over taps; else over pixels
    bool aligned = false;          // runs of lanes
    bool runs = false;             // a run of lanes never leaves its tap
    unsigned pixels = 0, taps = 0;
    FastDivide by_width, by_height;  // of the images whose pixels these are
    TapOrder order;
    ConvAxis down, across;
    std::int64_t pixel_stride = 0;  // elements
    std::int64_t stride = 0;        // channels of a group
    std::int64_t offset = 0;

    struct Pixel {
      unsigned n;
      int row, column;
    };
    ROUNDOFF_DEVICE Pixel pixel_at(unsigned index) const {
      const unsigned line = divide(index, by_width);
      const unsigned n = divide(line, by_height);
      return {n, static_cast<int>(line - n * by_height.divisor),
              static_cast<int>(index - line * by_width.divisor)};
    }

    ROUNDOFF_DEVICE bool contiguous_depth() const { return depth_contiguous; }
    ROUNDOFF_DEVICE void select(unsigned i) { offset = static_cast<std::int64_t>(i) * stride; }

    template <class C>
    ROUNDOFF_DEVICE void load(unsigned row, unsigned at, Bits<C> (&v)[kLanes<C>]) const {
      const unsigned index = depth_contiguous ? row : at, first = depth_contiguous ? at : row;
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) v[i] = 0;
      if (index >= pixels || first >= taps) return;
      const auto& self = static_cast<const Self&>(*this);
      const Pixel pixel = pixel_at(index);
      Tap tap = order.at(first);
      if (runs) {
        const std::int64_t from = self.position(pixel, tap);
        if (from >= 0)
          load_bits<C>(data, dtype, offset + from * pixel_stride + tap.channel, kLanes<C>, aligned,
                       v);
        return;
      }
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kLanes<C>; ++i) {
        if (first + i < taps) {
          const std::int64_t from = self.position(pixel, tap);
          if (from >= 0)
            v[i] = load_pattern<C>(data, dtype, offset + from * pixel_stride + tap.channel);
          order.next(tap);
        }
      }
    }

    ROUNDOFF_DEVICE float value(unsigned row, unsigned at) const {
      const Tap tap = order.at(depth_contiguous ? at : row);
      const std::int64_t from =
          static_cast<const Self&>(*this).position(pixel_at(depth_contiguous ? row : at), tap);
      if (from < 0) return 0;
      return load_one<float>(data, dtype, offset + from * pixel_stride + tap.channel, tf32);
    }
  };

  // The image's patches: for output pixel (n, p, q) the values of x under each tap.
  struct PatchSource : PixelSource<PatchSource> {
    ROUNDOFF_DEVICE std::int64_t position(const Pixel& at, const Tap& tap) const {
      const int h = at.row * down.stride + tap.r * down.dilation - down.padding;
      const int w = at.column * across.stride + tap.s * across.dilation - across.padding;
      if (h < 0 || h >= down.image || w < 0 || w >= across.image) return -1;
      return (static_cast<std::int64_t>(at.n) * down.image + h) * across.image + w;
    }
  };

  // The gradients that an image's pixel (n, h, w) has a part in: for each tap the value of dy whose
  // window has that tap there; none where the stride passes it by.
  struct GradientSource : PixelSource<GradientSource> {
    ROUNDOFF_DEVICE std::int64_t position(const Pixel& at, const Tap& tap) const {
      const int h = at.row + down.padding - tap.r * down.dilation;
      const int w = at.column + across.padding - tap.s * across.dilation;
      if (h < 0 || w < 0) return -1;
      const auto p = static_cast<int>(divide(static_cast<unsigned>(h), down.by_stride));
      const auto q = static_cast<int>(divide(static_cast<unsigned>(w), across.by_stride));
      if (p * down.stride != h || q * across.stride != w || p >= down.output || q >= across.output)
        return -1;
      return (static_cast<std::int64_t>(at.n) * down.output + p) * across.output + q;
    }
  };

  // The weights [K, R, S, C] with the sum over [R, S, K]: rows are input channels.
  struct FilterSource {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    bool aligned = false;
    unsigned rows = 0, depth = 0;  // C and R S K of a group
    unsigned taps = 0;             // R S
    FastDivide by_filters;         // K of a group
    std::int64_t stride = 0;       // elements of a group
    std::int64_t offset = 0;

    ROUNDOFF_DEVICE bool contiguous_depth() const { return false; }
    ROUNDOFF_DEVICE void select(unsigned i) { offset = static_cast<std::int64_t>(i) * stride; }
    ROUNDOFF_DEVICE std::int64_t place(unsigned at) const {
      const unsigned tap = divide(at, by_filters);
      const unsigned filter = at - tap * by_filters.divisor;
      return offset + (static_cast<std::int64_t>(filter) * taps + tap) * rows;
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
  };

}  // namespace

}  // namespace roundoff
