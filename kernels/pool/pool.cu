// 2-d pooling: y[n,p,q,c] = the largest value, or the mean, of x[n,h,w,c] over a window.
//
// Layout: NHWC. A thread takes a run of channels of one pixel (16 bytes of the arithmetic type
// where channels and pointers allow, else one channel); a row of blocks takes a row of pixels.
// Numerics: in fp32 (fp64 where an operand or the accumulator is), windows in row-major order, one
// rounding. Gradients are gathered: a pixel adds what the windows that hold it bring, in the
// windows' order; no atomics. Every element has the bits of the reference.
#include "kernels/pool/pool.h"

#include "kernels/gemm/modelled.cuh"
#include "kernels/gemm/output.cuh"
#include "kernels/pool/geometry.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // What kernels know of a Pool2dGeometry. Extents are below 2^31.
  struct Windows {
    unsigned h = 0, w = 0, c = 0, p = 0, q = 0;
    std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
    bool count_include_pad = true;
    unsigned lanes = 1;  // channels of a thread
  };

  // Pixels [begin, end) of one axis, or windows.
  struct Extent {
    std::int64_t begin = 0, end = 0;
  };

  ROUNDOFF_DEVICE Extent window_at(std::int64_t index, std::int64_t kernel, std::int64_t stride,
                                   std::int64_t pad, unsigned extent) {
    const std::int64_t start = index * stride - pad;
    const std::int64_t end = start + kernel;
    return {start < 0 ? 0 : start, end < extent ? end : extent};
  }

  // The windows of `count` that hold pixel `at`.
  ROUNDOFF_DEVICE Extent windows_with(unsigned at, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t pad, unsigned count) {
    // At most 2^31 + 2^30.
    const unsigned place = at + static_cast<unsigned>(pad);
    const auto step = static_cast<unsigned>(stride), size = static_cast<unsigned>(kernel);
    const unsigned last = place / step;
    return {place < size ? 0 : (place - size) / step + 1, last < count ? last + 1 : count};
  }

  template <class C>
  ROUNDOFF_DEVICE C divisor_of(const Windows& g, const Extent& rows, const Extent& columns) {
    return static_cast<C>(g.count_include_pad
                              ? g.kernel_h * g.kernel_w
                              : (rows.end - rows.begin) * (columns.end - columns.begin));
  }

  // Values of one pixel's channels from `channel` on.
  template <class C>
  struct Pixels {
    const void* data;
    DType dtype;
    bool aligned;
    ROUNDOFF_DEVICE void load(const Windows& g, std::int64_t pixel, unsigned channel,
                              C (&v)[kLanes<C>]) const {
      Bits<C> bits[kLanes<C>];
      load_bits<C>(data, dtype, pixel * g.c + channel, static_cast<int>(g.lanes), aligned, bits);
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) v[i] = widen_bits<C>(bits[i], dtype, false);
    }
  };

  template <class C>
  ROUNDOFF_DEVICE void write_pixels(const Windows& g, const ProductOutput& out, std::int64_t pixel,
                                    unsigned channel, const C(&v)[kLanes<C>]) {
    const auto row = static_cast<unsigned>(pixel);
    if (g.lanes == kLanes<C> && writes_runs<C>(out)) return write_run(out, 0, row, channel, v);
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kLanes<C>; ++i)
      if (i < g.lanes) write_element(out, 0, row, channel + i, v[i]);
  }

  // Calls f(sample, row, column, channel) for this thread's pixels of images of height x width.
  template <class F>
  ROUNDOFF_DEVICE void each_pixel(const Windows& g, unsigned rows, unsigned height, unsigned width,
                                  F f) {
    const unsigned runs = g.c / g.lanes;
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= width * runs) return;
    const unsigned column = index / runs;
    const unsigned channel = index % runs * g.lanes;
    ROUNDOFF_NO_UNROLL
    for (unsigned row = blockIdx.y; row < rows; row += gridDim.y)
      f(static_cast<std::int64_t>(row / height), row % height, column, channel);
  }

  template <class C>
  __global__ void __launch_bounds__(128) max_of_windows(Windows g, unsigned rows, Pixels<C> x,
                                                        ProductOutput out, std::int32_t* argmax) {
    each_pixel(g, rows, g.p, g.q, [&](std::int64_t n, unsigned p, unsigned q, unsigned channel) {
      const Extent down = window_at(p, g.kernel_h, g.stride_h, g.pad_h, g.h);
      const Extent across = window_at(q, g.kernel_w, g.stride_w, g.pad_w, g.w);
      C best[kLanes<C>];
      std::int32_t at[kLanes<C>];
      const auto first = static_cast<std::int32_t>(down.begin * g.w + across.begin);
      x.load(g, n * g.h * g.w + first, channel, best);
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) at[i] = first;
      for (std::int64_t h = down.begin; h < down.end; ++h) {
        for (std::int64_t w = across.begin; w < across.end; ++w) {
          const std::int64_t position = h * g.w + w;
          C v[kLanes<C>];
          x.load(g, n * g.h * g.w + position, channel, v);
          ROUNDOFF_UNROLL
          for (int i = 0; i < kLanes<C>; ++i) {
            // A NaN wins, the first of equals stays.
            const bool wins = v[i] > best[i] || (v[i] != v[i] && best[i] == best[i]);
            best[i] = wins ? v[i] : best[i];
            at[i] = wins ? static_cast<std::int32_t>(position) : at[i];
          }
        }
      }
      const std::int64_t pixel = (n * g.p + p) * g.q + q;
      write_pixels(g, out, pixel, channel, best);
      if (argmax == nullptr) return;
      std::int32_t* to = argmax + pixel * g.c + channel;
      if (kLanes<C> == 4 && g.lanes == 4) {
        store_vector(to, int4{at[0], at[1], at[2 % kLanes<C>], at[3 % kLanes<C>]});
        return;
      }
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kLanes<C>; ++i)
        if (i < g.lanes) to[i] = at[i];
    });
  }

  // Calls add(output pixel) for the windows that hold a pixel and writes what the sums come to.
  template <class C, class Add>
  ROUNDOFF_DEVICE void gather_windows(const Windows& g, const ProductOutput& out, std::int64_t n,
                                      unsigned h, unsigned w, unsigned channel, Add add) {
    const Extent down = windows_with(h, g.kernel_h, g.stride_h, g.pad_h, g.p);
    const Extent across = windows_with(w, g.kernel_w, g.stride_w, g.pad_w, g.q);
    const std::int64_t pixel = (n * g.h + h) * g.w + w;
    C sums[kLanes<C>];
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kLanes<C>; ++i)
      sums[i] =
          i < g.lanes ? begin_sum<C>(out, 0, static_cast<unsigned>(pixel), channel + i) : C(0);
    for (std::int64_t p = down.begin; p < down.end; ++p)
      for (std::int64_t q = across.begin; q < across.end; ++q) add(p, q, sums);
    write_pixels(g, out, pixel, channel, sums);
  }

  template <class C>
  __global__ void __launch_bounds__(128) max_gradient_of_pixels(
      Windows g, unsigned rows, const std::int32_t* argmax, Pixels<C> dy, ProductOutput out) {
    each_pixel(g, rows, g.h, g.w, [&](std::int64_t n, unsigned h, unsigned w, unsigned channel) {
      const auto position = static_cast<std::int32_t>(static_cast<std::int64_t>(h) * g.w + w);
      gather_windows<C>(
          g, out, n, h, w, channel, [&](std::int64_t p, std::int64_t q, C(&sums)[kLanes<C>]) {
            const std::int64_t pixel = (n * g.p + p) * g.q + q;
            Bits<float> winners[4];
            const std::int32_t* from = argmax + pixel * g.c + channel;
            load_bits<float>(from, DType::i32, 0, static_cast<int>(g.lanes),
                             kLanes<C> == 4 && g.lanes == 4, winners);
            C v[kLanes<C>];
            dy.load(g, pixel, channel, v);
            ROUNDOFF_UNROLL
            for (int i = 0; i < kLanes<C>; ++i)
              sums[i] += static_cast<std::int32_t>(winners[i]) == position ? v[i] : C(0);
          });
    });
  }

  // `half`: every sum is rounded to fp16.
  template <class C>
  __global__ void __launch_bounds__(128)
      mean_of_windows(Windows g, unsigned rows, bool half, Pixels<C> x, ProductOutput out) {
    each_pixel(g, rows, g.p, g.q, [&](std::int64_t n, unsigned p, unsigned q, unsigned channel) {
      const Extent down = window_at(p, g.kernel_h, g.stride_h, g.pad_h, g.h);
      const Extent across = window_at(q, g.kernel_w, g.stride_w, g.pad_w, g.w);
      C sums[kLanes<C>] = {};
      for (std::int64_t h = down.begin; h < down.end; ++h) {
        for (std::int64_t w = across.begin; w < across.end; ++w) {
          C v[kLanes<C>];
          x.load(g, (n * g.h + h) * g.w + w, channel, v);
          ROUNDOFF_UNROLL
          for (int i = 0; i < kLanes<C>; ++i) {
            sums[i] += v[i];
            if constexpr (sizeof(C) == 8) {
              if (half) sums[i] = rounded_to_half(sums[i]);
            }
          }
        }
      }
      const C area = divisor_of<C>(g, down, across);
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) sums[i] /= area;
      write_pixels(g, out, (n * g.p + p) * g.q + q, channel, sums);
    });
  }

  template <class C>
  __global__ void __launch_bounds__(128)
      mean_gradient_of_pixels(Windows g, unsigned rows, Pixels<C> dy, ProductOutput out) {
    each_pixel(g, rows, g.h, g.w, [&](std::int64_t n, unsigned h, unsigned w, unsigned channel) {
      gather_windows<C>(
          g, out, n, h, w, channel, [&](std::int64_t p, std::int64_t q, C(&sums)[kLanes<C>]) {
            const C area = divisor_of<C>(g, window_at(p, g.kernel_h, g.stride_h, g.pad_h, g.h),
                                         window_at(q, g.kernel_w, g.stride_w, g.pad_w, g.w));
            C v[kLanes<C>];
            dy.load(g, (n * g.p + p) * g.q + q, channel, v);
            ROUNDOFF_UNROLL
            for (int i = 0; i < kLanes<C>; ++i) sums[i] += v[i] / area;
          });
    });
  }

  // A launch over the pixels of images of height x width.
  struct PoolLaunch {
    Windows windows;
    unsigned rows = 0;
    LaunchConfig config;
    ProductOutput out;
    bool aligned = false;  // of the input
  };

  // `winners`: null, or the argmax, which shares the runs.
  template <class C>
  PoolLaunch plan(std::string_view name, const Pool2dGeometry& g, const ConstView& in, const Out& y,
                  const void* winners, bool over_outputs) {
    const char* const operation = name.data();
    PoolLaunch l;
    l.windows = {.h = device_extent(operation, "height", g.h),
                 .w = device_extent(operation, "width", g.w),
                 .c = device_extent(operation, "channels", g.c),
                 .p = device_extent(operation, "height", g.p),
                 .q = device_extent(operation, "width", g.q),
                 .kernel_h = g.params.kernel[0],
                 .kernel_w = g.params.kernel[1],
                 .stride_h = g.params.stride[0],
                 .stride_w = g.params.stride[1],
                 .pad_h = g.params.padding[0],
                 .pad_w = g.params.padding[1],
                 .count_include_pad = g.params.count_include_pad};
    constexpr int kRun = static_cast<int>(16 / sizeof(C));
    l.aligned = lanes_aligned(in.data, in.dtype, kRun, g.c, 0);
    l.out.y = y.view.data;
    l.out.dtype = y.view.dtype;
    l.out.accumulate = y.write == Write::accumulate;
    l.out.aligned = lanes_aligned(l.out.y, l.out.dtype, kRun, g.c, 0);
    l.out.pitch = g.c;
    if (l.aligned && lanes_aligned(winners, DType::i32, kRun, g.c, 0)) l.windows.lanes = kRun;
    device_extent(operation, "the number of pixels", g.n * std::max(g.h * g.w, g.p * g.q));

    l.rows = static_cast<unsigned>(g.n * (over_outputs ? g.p : g.h));
    const std::int64_t runs = (over_outputs ? g.q : g.w) * (g.c / l.windows.lanes);
    device_extent(operation, "a row of an image", runs);
    const std::int64_t threads = std::clamp<std::int64_t>((runs + 31) / 32 * 32, 32, 128);
    l.config = {
        .name = operation,
        .grid = {static_cast<unsigned>((runs + threads - 1) / threads), std::min(l.rows, 65535U)},
        .block = {static_cast<unsigned>(threads)}};
    return l;
  }

}  // namespace

template <DeviceTarget T>
void max_pool2d_forward(T target, const Pool2dParams& params, const ConstView& x, const Out& y,
                        const Out& argmax, Scratch&) {
  const Pool2dGeometry g = check_max_pool2d(params, x, y, argmax);
  if (y.view.numel() == 0) return;
  auto* winners = argmax.wanted ? argmax.view.as<std::int32_t>() : nullptr;
  const auto run = [&]<class C>(C) {
    PoolLaunch l = plan<C>(kMaxPool2d, g, x, y, winners, true);
    l.out.late = l.out.accumulate;  // added to what the arithmetic gives
    launch(target, l.config, max_of_windows<C>, l.windows, l.rows,
           Pixels<C>{x.data, x.dtype, l.aligned}, l.out, winners);
  };
  x.dtype == DType::fp64 ? run(double{}) : run(float{});
}

template <DeviceTarget T>
void max_pool2d_backward(T target, const Pool2dParams& params, const ConstView& argmax,
                         const ConstView& dy, const Out& dx, Scratch&) {
  if (!dx.wanted) return;
  const Pool2dGeometry g = check_max_pool2d_backward(params, argmax, dy, dx);
  if (dx.view.numel() == 0) return;
  const auto run = [&]<class C>(C) {
    const PoolLaunch l = plan<C>(kMaxPool2d, g, dy, dx, argmax.data, false);
    launch(target, l.config, max_gradient_of_pixels<C>, l.windows, l.rows,
           argmax.as<std::int32_t>(), Pixels<C>{dy.data, dy.dtype, l.aligned}, l.out);
  };
  dy.dtype == DType::fp64 ? run(double{}) : run(float{});
}

template <DeviceTarget T>
void avg_pool2d_forward(T target, const Pool2dParams& params, Accumulator accumulator,
                        const ConstView& x, const Out& y, Scratch&) {
  if (!y.wanted) {
    (void)pool2d_geometry(kAvgPool2d, x.shape, params);
    return;
  }
  const Pool2dGeometry g = check_avg_pool2d(params, x, y);
  if (y.view.numel() == 0) return;
  const bool half = accumulator == Accumulator::fp16 && x.dtype != DType::fp64;
  const auto run = [&]<class C>(C) {
    PoolLaunch l = plan<C>(kAvgPool2d, g, x, y, nullptr, true);
    l.out.late = l.out.accumulate;
    launch(target, l.config, mean_of_windows<C>, l.windows, l.rows, half,
           Pixels<C>{x.data, x.dtype, l.aligned}, l.out);
  };
  x.dtype == DType::fp64 || accumulator == Accumulator::fp64 || half ? run(double{}) : run(float{});
}

template <DeviceTarget T>
void avg_pool2d_backward(T target, const Pool2dParams& params, const ConstView& dy, const Out& dx,
                         Scratch&) {
  if (!dx.wanted) return;
  const Pool2dGeometry g = check_avg_pool2d_backward(params, dy, dx);
  if (dx.view.numel() == 0) return;
  const auto run = [&]<class C>(C) {
    const PoolLaunch l = plan<C>(kAvgPool2d, g, dy, dx, nullptr, false);
    launch(target, l.config, mean_gradient_of_pixels<C>, l.windows, l.rows,
           Pixels<C>{dy.data, dy.dtype, l.aligned}, l.out);
  };
  dy.dtype == DType::fp64 ? run(double{}) : run(float{});
}

template void max_pool2d_forward(Target, const Pool2dParams&, const ConstView&, const Out&,
                                 const Out&, Scratch&);
template void max_pool2d_backward(Target, const Pool2dParams&, const ConstView&, const ConstView&,
                                  const Out&, Scratch&);
template void avg_pool2d_forward(Target, const Pool2dParams&, Accumulator, const ConstView&,
                                 const Out&, Scratch&);
template void avg_pool2d_backward(Target, const Pool2dParams&, const ConstView&, const Out&,
                                  Scratch&);

}  // namespace roundoff
