// Convolution with a kernel of its own for every channel: no product of matrices. Channels lie side
// by side, a thread takes a run of them, 16 bytes of what is stored where they allow, else one;
// each sum is one chain over the taps, as that of the products. A block keeps the weights of its
// channels in shared memory, tap after tap, in the parts of 16 bytes that neighbouring threads read
// at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv2d/source.cuh"
#include "kernels/gemm/product.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Weights [channels, R, S], and which taps of them a sum runs over.
  struct DepthwiseFilters {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    unsigned channels = 0;
    unsigned width = 1, size = 1;  // S and R S
    TapAxis down, across;
  };

  // Values of a run, as they are stored.
  template <class C, int kRun>
  struct DepthwiseRun {
    Bits<C> bits[kRun];

    ROUNDOFF_DEVICE void load(const void* data, DType dtype, std::int64_t at) {
      if constexpr (kRun == 1) {
        bits[0] = load_pattern<C>(data, dtype, at);
      } else if constexpr (kRun == kLanes<C>) {
        load_bits<C>(data, dtype, at, kRun, true, bits);
      } else {
        static_assert(kRun == 8);  // of 16 bit
        const auto lanes =
            load_lanes<std::uint16_t, 8>(static_cast<const std::uint16_t*>(data) + at);
        ROUNDOFF_UNROLL
        for (int i = 0; i < kRun; ++i) bits[i] = lanes.lane[i];
      }
    }
  };

  // How a launch is cut: blocks of `across` runs of channels by kPixels * 128 / across pixels.
  struct DepthwiseGrid {
    static constexpr unsigned kThreads = 128, kPixels = 4;
    unsigned across = 1, tiles = 1;  // tiles: of runs
    bool staged = true;              // weights in shared memory
    unsigned pixels() const { return kThreads / across * kPixels; }
  };

  // Each pixel's sum over its taps of value * weight: y from x, or dx from dy.
  template <class C, int kRun>
  __global__ void __launch_bounds__(DepthwiseGrid::kThreads) depthwise_pixels(
      DepthwiseGrid g, WindowSource source, DepthwiseFilters w, ProductOutput out) {
    ROUNDOFF_DYNAMIC_SHARED(memory);
    constexpr int kPart = kRun < kLanes<C> ? kRun : kLanes<C>;
    C* const weights = reinterpret_cast<C*>(memory);
    const unsigned run0 = blockIdx.x % g.tiles * g.across, own = threadIdx.x % g.across;
    const unsigned line = g.across * kRun;  // weights of a tap
    const auto place_of_tap = [&](const WindowSource::Tap& tap) {
      return (w.down.first + static_cast<unsigned>(tap.r) * w.down.step) * w.width +
             w.across.first + static_cast<unsigned>(tap.s) * w.across.step;
    };
    const auto weight = [&](unsigned channel, unsigned place) {
      return load_one<C>(w.data, w.dtype, static_cast<std::int64_t>(channel) * w.size + place,
                         w.tf32);
    };
    if (g.staged) {
      ROUNDOFF_NO_UNROLL
      for (unsigned i = threadIdx.x; i < source.taps * line; i += DepthwiseGrid::kThreads) {
        const unsigned in_line = i % line, part = in_line / (g.across * kPart);
        const unsigned channel =
            (run0 + in_line / kPart % g.across) * kRun + part * kPart + in_line % kPart;
        weights[i] =
            channel < w.channels ? weight(channel, place_of_tap(source.tap_at(i / line))) : C(0);
      }
      __syncthreads();
    }
    const unsigned channel = (run0 + own) * kRun;
    if (channel >= w.channels) return;
    constexpr bool kEndRuns = sizeof(C) == 4 && kRun > 1;
    const bool runs = kRun > 1 && out.aligned && (kRun < 8 || out.aligned8);
    const unsigned rows = DepthwiseGrid::kThreads / g.across;
    unsigned row = blockIdx.x / g.tiles * rows * DepthwiseGrid::kPixels + threadIdx.x / g.across;
    ROUNDOFF_NO_UNROLL
    for (unsigned n = 0; n < DepthwiseGrid::kPixels && row < source.pixels; ++n, row += rows) {
      const auto pixel = source.pixel_at(row);
      C sums[kRun];
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kRun; ++i) sums[i] = begin_sum<C>(out, 0, row, channel + i);
      WindowSource::Tap tap{0, 0, 0};
      ROUNDOFF_NO_UNROLL
      for (unsigned t = 0; t < source.taps; ++t, source.next(tap)) {
        const std::int64_t from = source.position(pixel, tap);
        if (from < 0) continue;
        DepthwiseRun<C, kRun> v;
        v.load(source.data, source.dtype, from * source.pixel_stride + channel);
        C own_weights[kRun];
        if (g.staged) {
          const C* at = weights + t * line + own * kPart;
          ROUNDOFF_UNROLL
          for (int part = 0; part < kRun / kPart; ++part) {
            if constexpr (kPart == 1) {
              own_weights[part] = at[0];
            } else {
              const auto lanes = std::bit_cast<Lanes<C>>(
                  load_vector<Access<C>>(at + static_cast<unsigned>(part) * g.across * kPart));
              ROUNDOFF_UNROLL
              for (int i = 0; i < kPart; ++i) own_weights[part * kPart + i] = lanes.lane[i];
            }
          }
        } else {
          const unsigned place = place_of_tap(tap);
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kRun; ++i) own_weights[i] = weight(channel + i, place);
        }
        ROUNDOFF_UNROLL
        for (int i = 0; i < kRun; ++i)
          sums[i] = multiply_add(widen_bits<C>(v.bits[i], source.dtype, source.tf32),
                                 own_weights[i], sums[i]);
      }
      if constexpr (kEndRuns) {
        if (runs) {
          end_run(out, 0, row, channel, sums);
          continue;
        }
      }
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kRun; ++i) write_element(out, 0, row, channel + i, sums[i]);
    }
  }

  // partial[part, channel, tap] = the sum over a part of the output's pixels of dy * x; or, without
  // `partial`, the sums of one part that is all of them, into `out`.
  template <class C, int kRun>
  __global__ void __launch_bounds__(DepthwiseGrid::kThreads)
      depthwise_filters(WindowSource x, MatrixSource dy, unsigned channels, unsigned pixels_a_part,
                        unsigned parts, ProductOutput out, C* partial) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x, runs = channels / kRun;
    const unsigned channel = index % runs * kRun, rest = index / runs;
    const unsigned t = rest % x.taps, part = rest / x.taps;
    if (part >= parts) return;
    const WindowSource::Tap tap = x.tap_at(t);
    const unsigned first = part * pixels_a_part;
    const unsigned last = x.pixels - first < pixels_a_part ? x.pixels : first + pixels_a_part;
    C sums[kRun];
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kRun; ++i)
      sums[i] = partial == nullptr ? begin_sum<C>(out, 0, channel + i, t) : C(0);
    ROUNDOFF_NO_UNROLL
    for (unsigned pixel = first; pixel < last; ++pixel) {
      const std::int64_t from = x.position(x.pixel_at(pixel), tap);
      if (from < 0) continue;
      DepthwiseRun<C, kRun> left, right;
      left.load(dy.data, dy.dtype, static_cast<std::int64_t>(pixel) * channels + channel);
      right.load(x.data, x.dtype, from * x.pixel_stride + channel);
      ROUNDOFF_UNROLL
      for (int i = 0; i < kRun; ++i)
        sums[i] = multiply_add(widen_bits<C>(left.bits[i], dy.dtype, dy.tf32),
                               widen_bits<C>(right.bits[i], x.dtype, x.tf32), sums[i]);
    }
    if (partial == nullptr) {
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kRun; ++i) write_element(out, 0, channel + i, t, sums[i]);
      return;
    }
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kRun; ++i)
      partial[(static_cast<std::int64_t>(part) * channels + channel + i) * x.taps + t] = sums[i];
  }

}  // namespace

// Calls f(C, run): the arithmetic type and the longest run of channels that every operand has.
template <class F>
void with_depthwise_run(bool wide, std::int64_t channels, const ConstView& a, const ConstView& b,
                        F&& f) {
  const auto runs_of = [&](int n) {
    return lanes_aligned(a.data, a.dtype, n, channels, 0) &&
           (!b.present || lanes_aligned(b.data, b.dtype, n, channels, 0));
  };
  const bool narrow = is_16bit(a.dtype) && (!b.present || is_16bit(b.dtype));
  if (wide) {
    if (runs_of(2)) return f(double{}, std::integral_constant<int, 2>{});
    return f(double{}, std::integral_constant<int, 1>{});
  }
  if (narrow && runs_of(8)) return f(float{}, std::integral_constant<int, 8>{});
  if (runs_of(4)) return f(float{}, std::integral_constant<int, 4>{});
  f(float{}, std::integral_constant<int, 1>{});
}

template <class T>
void launch_depthwise(T target, const ProductProblem& p, const WindowSource& source,
                      const DepthwiseFilters& w, ProductOutput out) {
  // All channels are one result, in runs across the groups.
  out.stride = 0;
  out.c_stride = 0;
  align_runs(out);
  const ConstView values{source.data, source.dtype, {w.channels}};
  with_depthwise_run(p.wide, w.channels, values, ConstView::absent(), [&]<class C, class R>(C, R) {
    constexpr int kRun = R::value;
    constexpr std::uint64_t kShared = 48 * 1024;
    const unsigned runs = w.channels / kRun;
    const std::uint64_t a_run = std::uint64_t{source.taps} * kRun * sizeof(C);
    DepthwiseGrid g;
    while (g.across < 32 && g.across < runs && 2 * g.across * a_run <= kShared) g.across *= 2;
    g.tiles = (runs + g.across - 1) / g.across;
    g.staged = g.across * a_run <= kShared;
    const std::int64_t blocks =
        std::int64_t{g.tiles} * ((source.pixels + g.pixels() - 1) / g.pixels());
    launch(target,
           {.name = p.name,
            .grid = {device_extent(p.name, "the number of blocks", blocks)},
            .block = {DepthwiseGrid::kThreads},
            .shared = g.staged ? static_cast<unsigned>(g.across * a_run) : 0},
           depthwise_pixels<C, kRun>, g, source, w, out);
  });
}

template <class T>
void launch_depthwise_filters(T target, const ProductProblem& p, const WindowSource& x,
                              const MatrixSource& dy, unsigned channels, const ProductOutput& out,
                              Scratch& scratch) {
  const ConstView left{dy.data, dy.dtype, {channels}}, right{x.data, x.dtype, {channels}};
  with_depthwise_run(p.wide, channels, left, right, [&]<class C, class R>(C, R) {
    constexpr int kRun = R::value;
    constexpr unsigned kPixelsAPart = 256, kParts = 512;
    ProductGrid g;
    g.size = {.m = channels, .n = x.taps, .depth = x.pixels, .terms = 1, .results = 1};
    g.cut.parts = std::clamp((x.pixels + kPixelsAPart - 1) / kPixelsAPart, 1U, kParts);
    unsigned pixels = std::max(1U, (x.pixels + g.cut.parts - 1) / g.cut.parts);
    if (p.order == SumOrder::by_matrix) pixels = x.by_width.divisor * x.by_height.divisor;
    g.cut.parts = std::max(1U, (x.pixels + pixels - 1) / pixels);
    const std::int64_t size = static_cast<std::int64_t>(channels) * x.taps;
    const auto launch_sums = [&](unsigned pixels_a_part, unsigned parts, C* partial) {
      const unsigned threads = device_extent(p.name, "the number of elements", size * parts / kRun);
      if (threads != 0)
        launch(target, {.name = p.name, .grid = {(threads + 127) / 128}, .block = {128}},
               depthwise_filters<C, kRun>, x, dy, channels, pixels_a_part, parts, out, partial);
    };
    if (p.order == SumOrder::in_order) return launch_sums(x.pixels, 1, nullptr);
    Scratch::Frame frame(scratch);
    C* partial = scratch.get<C>(size * g.cut.parts);
    launch_sums(pixels, g.cut.parts, partial);
    launch(target,
           {.name = p.name,
            .grid = {device_extent(p.name, "the number of blocks", (size + 127) / 128)},
            .block = {128}},
           add_parts<C>, g, out, static_cast<const C*>(partial));
  });
}

}  // namespace roundoff
