#include <algorithm>

#include "kernels/base/convert.h"
#include "kernels/gemm/operand.h"
#include "kernels/pool/pool.h"

namespace roundoff {

namespace {

constexpr std::string_view kMax = "max_pool2d";
constexpr std::string_view kAvg = "avg_pool2d";

struct Geometry {
  std::int64_t n = 0, h = 0, w = 0, c = 0, p = 0, q = 0;
  Pool2dParams params;
  std::int64_t image() const { return h * w * c; }
  std::int64_t result() const { return p * q * c; }
};

// Image rows or columns [begin, end) of window `index` along one axis.
struct Range {
  std::int64_t begin, end;
};
Range window(std::int64_t index, std::size_t axis, std::int64_t extent, const Pool2dParams& p) {
  const std::int64_t start = index * p.stride[axis] - p.padding[axis];
  return {std::max<std::int64_t>(start, 0), std::min(start + p.kernel[axis], extent)};
}

Geometry geometry(std::string_view operation, const Shape& x, const Pool2dParams& params) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  ROUNDOFF_CHECK(x.rank() == 4, operation, "x of shape ", x, ", [N, H, W, C] expected");
  Geometry g{.n = x[0], .h = x[1], .w = x[2], .c = x[3], .params = params};
  const auto extent = [&](const char* axis, std::size_t i, std::int64_t image) {
    const std::int64_t kernel = params.kernel[i], stride = params.stride[i],
                       padding = params.padding[i];
    ROUNDOFF_CHECK(kernel >= 1 && kernel <= kLargest, operation, axis, " kernel ", kernel,
                   ", at least 1 expected");
    ROUNDOFF_CHECK(stride >= 1 && stride <= kLargest, operation, axis, " stride ", stride,
                   ", at least 1 expected");
    ROUNDOFF_CHECK(padding >= 0 && padding <= kernel / 2, operation, axis, " padding ", padding,
                   " of kernel ", kernel, ", between 0 and half the kernel expected");
    ROUNDOFF_CHECK(image >= 1 && image < kLargest, operation, axis, " image ", image,
                   ", at least 1 expected");
    ROUNDOFF_CHECK(kernel <= image + 2 * padding, operation, axis, " kernel ", kernel,
                   " exceeds the padded image ", image + 2 * padding);
    return (image + 2 * padding - kernel) / stride + 1;
  };
  g.p = extent("vertical", 0, g.h);
  g.q = extent("horizontal", 1, g.w);
  return g;
}

void check(std::string_view operation, const Geometry& g, const ConstView& x, const Out& y,
           bool forward) {
  const Shape small{g.n, g.p, g.q, g.c};
  const Shape large{g.n, g.h, g.w, g.c};
  const Shape& in = forward ? large : small;
  const Shape& out = forward ? small : large;
  ROUNDOFF_CHECK(is_floating(x.dtype) && is_floating(y.view.dtype), operation, "takes ",
                 name(x.dtype), " to ", name(y.view.dtype), ", floating types expected");
  ROUNDOFF_CHECK(x.shape == in, operation, forward ? "x" : "dy", " of shape ", x.shape, ", ", in,
                 " expected");
  ROUNDOFF_CHECK(y.view.shape == out, operation, forward ? "y" : "dx", " of shape ", y.view.shape,
                 ", ", out, " expected");
  ROUNDOFF_CHECK(y.write == Write::overwrite || !is_16bit(y.view.dtype), operation,
                 "cannot accumulate into ", name(y.view.dtype), "; fp32 or fp64 expected");
}

// Calls f(n, in, out) for every sample, with its input in T and its output, zeroed unless it holds
// what is accumulated into, in T; writes the output where it is held in another type.
template <class T, class F>
void each_sample(const ConstView& x, std::int64_t n, std::int64_t in_size, const Out& y,
                 std::int64_t out_size, Scratch& scratch, F&& f) {
  const bool direct = y.view.dtype == dtype_of<T>;
  for (std::int64_t i = 0; i < n; ++i) {
    Scratch::Frame frame(scratch);
    const T* in = operand<T>(x, i * in_size, in_size, false, scratch);
    T* out = direct ? y.view.as<T>() + i * out_size : scratch.get<T>(out_size);
    if (!direct || y.write == Write::overwrite) std::fill_n(out, out_size, T{0});
    f(i, in, out);
    if (!direct) narrow(out, out_size, y, i * out_size);
  }
}

// Calls f(output pixel, rows, columns) for every window.
template <class F>
void each_window(const Geometry& g, F&& f) {
  for (std::int64_t p = 0; p < g.p; ++p) {
    const Range rows = window(p, 0, g.h, g.params);
    for (std::int64_t q = 0; q < g.q; ++q) f(p * g.q + q, rows, window(q, 1, g.w, g.params));
  }
}

template <class T>
void max_forward(const Geometry& g, const ConstView& x, const Out& y, const Out& argmax,
                 Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* best = scratch.get<T>(g.c);
  auto* spare = argmax.wanted ? nullptr : scratch.get<std::int32_t>(g.c);
  each_sample<T>(
      x, g.n, g.image(), y, g.result(), scratch, [&](std::int64_t n, const T* in, T* out) {
        each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
          std::int32_t* at = argmax.wanted
                                 ? argmax.view.as<std::int32_t>() + (n * g.p * g.q + pixel) * g.c
                                 : spare;
          bool first = true;
          for (std::int64_t h = rows.begin; h < rows.end; ++h) {
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
              const auto position = static_cast<std::int32_t>(h * g.w + w);
              const T* value = in + (h * g.w + w) * g.c;
              if (first) {
                std::copy_n(value, g.c, best);
                std::fill_n(at, g.c, position);
                first = false;
                continue;
              }
              for (std::int64_t c = 0; c < g.c; ++c) {
                const T v = value[c];
                const T b = best[c];
                const bool wins = (v > b) | ((v != v) & (b == b));
                best[c] = wins ? v : b;
                at[c] = wins ? position : at[c];
              }
            }
          }
          T* to = out + pixel * g.c;
          for (std::int64_t c = 0; c < g.c; ++c) to[c] = best[c];
        });
      });
}

template <class T>
void max_backward(const Geometry& g, const ConstView& argmax, const ConstView& dy, const Out& dx,
                  Scratch& scratch) {
  each_sample<T>(
      dy, g.n, g.result(), dx, g.image(), scratch, [&](std::int64_t n, const T* in, T* out) {
        each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
          const std::int32_t* at = argmax.as<std::int32_t>() + (n * g.p * g.q + pixel) * g.c;
          const T* grad = in + pixel * g.c;
          for (std::int64_t h = rows.begin; h < rows.end; ++h) {
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
              const auto position = static_cast<std::int32_t>(h * g.w + w);
              T* to = out + (h * g.w + w) * g.c;
              for (std::int64_t c = 0; c < g.c; ++c) to[c] += at[c] == position ? grad[c] : T{0};
            }
          }
        });
      });
}

std::int64_t divisor(const Pool2dParams& p, Range rows, Range columns) {
  return p.count_include_pad ? p.kernel[0] * p.kernel[1]
                             : (rows.end - rows.begin) * (columns.end - columns.begin);
}

template <class T>
void avg_forward(const Geometry& g, const ConstView& x, const Out& y, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* sum = scratch.get<T>(g.c);
  each_sample<T>(x, g.n, g.image(), y, g.result(), scratch, [&](std::int64_t, const T* in, T* out) {
    each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
      std::fill_n(sum, g.c, T{0});
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        for (std::int64_t w = columns.begin; w < columns.end; ++w) {
          const T* value = in + (h * g.w + w) * g.c;
          for (std::int64_t c = 0; c < g.c; ++c) sum[c] += value[c];
        }
      }
      const auto area = static_cast<T>(divisor(g.params, rows, columns));
      T* to = out + pixel * g.c;
      for (std::int64_t c = 0; c < g.c; ++c) to[c] += sum[c] / area;
    });
  });
}

template <class T>
void avg_backward(const Geometry& g, const ConstView& dy, const Out& dx, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* share = scratch.get<T>(g.c);
  each_sample<T>(dy, g.n, g.result(), dx, g.image(), scratch,
                 [&](std::int64_t, const T* in, T* out) {
                   each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
                     const auto area = static_cast<T>(divisor(g.params, rows, columns));
                     const T* grad = in + pixel * g.c;
                     for (std::int64_t c = 0; c < g.c; ++c) share[c] = grad[c] / area;
                     for (std::int64_t h = rows.begin; h < rows.end; ++h) {
                       for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                         T* to = out + (h * g.w + w) * g.c;
                         for (std::int64_t c = 0; c < g.c; ++c) to[c] += share[c];
                       }
                     }
                   });
                 });
}

template <class F>
void dispatch(bool wide, F&& f) {
  if (wide) {
    f.template operator()<double>();
  } else {
    f.template operator()<float>();
  }
}

}  // namespace

Shape pool2d_shape(const Shape& x, const Pool2dParams& params) {
  const Geometry g = geometry("pool2d", x, params);
  return {g.n, g.p, g.q, g.c};
}

void max_pool2d_forward(Ref, const Pool2dParams& params, const ConstView& x, const Out& y,
                        const Out& argmax, Scratch& scratch) {
  const Geometry g = geometry(kMax, x.shape, params);
  check(kMax, g, x, y, true);
  ROUNDOFF_CHECK(g.h <= 0x7FFFFFFF / g.w, kMax, "image of ", g.h, " x ", g.w,
                 " pixels, fewer than 2^31 expected");
  if (argmax.wanted)
    ROUNDOFF_CHECK(argmax.view.dtype == DType::i32 && argmax.view.shape == y.view.shape, kMax,
                   "argmax is ", name(argmax.view.dtype), " of shape ", argmax.view.shape,
                   ", int32 of shape ", y.view.shape, " expected");
  dispatch(x.dtype == DType::fp64, [&]<class T>() { max_forward<T>(g, x, y, argmax, scratch); });
}

void max_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& argmax,
                         const ConstView& dy, const Out& dx, Scratch& scratch) {
  if (!dx.wanted) return;
  const Geometry g = geometry(kMax, dx.view.shape, params);
  check(kMax, g, dy, dx, false);
  ROUNDOFF_CHECK(argmax.dtype == DType::i32 && argmax.shape == dy.shape, kMax, "argmax is ",
                 name(argmax.dtype), " of shape ", argmax.shape, ", int32 of shape ", dy.shape,
                 " expected");
  dispatch(dy.dtype == DType::fp64,
           [&]<class T>() { max_backward<T>(g, argmax, dy, dx, scratch); });
}

void avg_pool2d_forward(Ref, const Pool2dParams& params, Accumulator accumulator,
                        const ConstView& x, const Out& y, Scratch& scratch) {
  const Geometry g = geometry(kAvg, x.shape, params);
  if (!y.wanted) return;
  check(kAvg, g, x, y, true);
  dispatch(x.dtype == DType::fp64 || accumulator == Accumulator::fp64,
           [&]<class T>() { avg_forward<T>(g, x, y, scratch); });
}

void avg_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& dy, const Out& dx,
                         Scratch& scratch) {
  if (!dx.wanted) return;
  const Geometry g = geometry(kAvg, dx.view.shape, params);
  check(kAvg, g, dy, dx, false);
  dispatch(dy.dtype == DType::fp64, [&]<class T>() { avg_backward<T>(g, dy, dx, scratch); });
}

}  // namespace roundoff
