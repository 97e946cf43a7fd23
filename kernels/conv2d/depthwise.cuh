// Convolution with a kernel of its own for every channel: no product of matrices. Channels lie side
// by side, a thread takes a run of them (16 bytes of the arithmetic type where they allow, else
// one); each sum is one chain over the taps, as that of the products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv2d/source.cuh"
#include "kernels/gemm/product.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Weights [channels, taps].
  struct DepthwiseFilters {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    unsigned channels = 0, taps = 0;
  };

  // Each pixel's sum over its taps of value * weight: y from x, or dx from dy. `by_runs` divides by
  // the runs of `lanes` channels.
  template <class C, class Source>
  __global__ void __launch_bounds__(128) depthwise_pixels(
      Source source, DepthwiseFilters w, FastDivide by_runs, unsigned lanes, ProductOutput out) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned row = divide(index, by_runs);
    if (row >= source.pixels) return;
    const unsigned channel = (index - row * by_runs.divisor) * lanes;
    const auto pixel = source.pixel_at(row);
    C sums[kLanes<C>];
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kLanes<C>; ++i)
      sums[i] = i < lanes ? begin_sum<C>(out, 0, row, channel + i) : C(0);
    Tap tap = source.order.at(0);
    ROUNDOFF_NO_UNROLL
    for (unsigned t = 0; t < w.taps; ++t, source.order.next(tap)) {
      const std::int64_t from = source.position(pixel, tap);
      if (from < 0) continue;
      Bits<C> bits[kLanes<C>];
      load_bits<C>(source.data, source.dtype, from * source.pixel_stride + channel,
                   static_cast<int>(lanes), source.aligned, bits);
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kLanes<C>; ++i) {
        if (i >= lanes) continue;
        const C weight = load_one<C>(w.data, w.dtype,
                                     static_cast<std::int64_t>(channel + i) * w.taps + t, w.tf32);
        sums[i] = multiply_add(widen_bits<C>(bits[i], source.dtype, source.tf32), weight, sums[i]);
      }
    }
    if (lanes == kLanes<C> && writes_runs<C>(out)) return write_run(out, 0, row, channel, sums);
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kLanes<C>; ++i)
      if (i < lanes) write_element(out, 0, row, channel + i, sums[i]);
  }

  // partial[part, channel, tap] = the sum over a part of the output's pixels of dy * x.
  template <class C>
  __global__ void __launch_bounds__(128)
      depthwise_filters(PatchSource x, MatrixSource dy, unsigned channels, unsigned pixels_a_part,
                        unsigned parts, C* partial) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned channel = index % channels, rest = index / channels;
    const unsigned t = rest % x.taps, part = rest / x.taps;
    if (part >= parts) return;
    const Tap tap = x.order.at(t);
    const unsigned first = part * pixels_a_part;
    const unsigned last = x.pixels - first < pixels_a_part ? x.pixels : first + pixels_a_part;
    C sum(0);
    ROUNDOFF_NO_UNROLL
    for (unsigned pixel = first; pixel < last; ++pixel) {
      const std::int64_t from = x.position(x.pixel_at(pixel), tap);
      if (from < 0) continue;
      sum =
          multiply_add(load_one<C>(dy.data, dy.dtype,
                                   static_cast<std::int64_t>(pixel) * channels + channel, dy.tf32),
                       load_one<C>(x.data, x.dtype, from * x.pixel_stride + channel, x.tf32), sum);
    }
    partial[(static_cast<std::int64_t>(part) * channels + channel) * x.taps + t] = sum;
  }

}  // namespace

template <class T, class Source>
void launch_depthwise(T target, const ProductProblem& p, const Source& source,
                      const DepthwiseFilters& w, ProductOutput out) {
  // All channels are one result, in runs across the groups.
  out.aligned = lanes_aligned(out.y, out.dtype, 4, w.channels, 0);
  out.stride = 0;
  out.c_stride = 0;
  const auto run = [&]<class C>(C) {
    Source from = source;
    constexpr unsigned kRun = 16 / sizeof(C);
    from.aligned = lanes_aligned(source.data, source.dtype, kRun, w.channels, 0);
    const unsigned lanes = from.aligned ? kRun : 1;
    const std::int64_t runs = w.channels / lanes;
    const unsigned threads = device_extent(p.name, "the number of elements", source.pixels * runs);
    launch(target, {.name = p.name, .grid = {(threads + 127) / 128}, .block = {128}},
           depthwise_pixels<C, Source>, from, w, FastDivide(runs), lanes, out);
  };
  p.wide ? run(double{}) : run(float{});
}

template <class T>
void launch_depthwise_filters(T target, const ProductProblem& p, const PatchSource& x,
                              const MatrixSource& dy, unsigned channels, const ProductOutput& out,
                              Scratch& scratch) {
  const auto run = [&]<class C>(C) {
    constexpr unsigned kPixelsAPart = 256, kParts = 512;
    ProductGrid g;
    g.size = {.m = channels, .n = x.taps, .depth = x.pixels, .terms = 1, .results = 1};
    g.cut.parts = std::clamp((x.pixels + kPixelsAPart - 1) / kPixelsAPart, 1U, kParts);
    const unsigned pixels = std::max(1U, (x.pixels + g.cut.parts - 1) / g.cut.parts);
    g.cut.parts = (x.pixels + pixels - 1) / pixels;
    const std::int64_t size = static_cast<std::int64_t>(channels) * x.taps;
    Scratch::Frame frame(scratch);
    C* partial = scratch.get<C>(size * g.cut.parts);
    const unsigned threads = device_extent(p.name, "the number of elements", size * g.cut.parts);
    if (threads != 0)
      launch(target, {.name = p.name, .grid = {(threads + 127) / 128}, .block = {128}},
             depthwise_filters<C>, x, dy, channels, pixels, g.cut.parts, partial);
    launch(target,
           {.name = p.name,
            .grid = {device_extent(p.name, "the number of blocks", (size + 127) / 128)},
            .block = {128}},
           add_parts<C>, g, out, static_cast<const C*>(partial));
  };
  p.wide ? run(double{}) : run(float{});
}

}  // namespace roundoff
