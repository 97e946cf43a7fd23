#include <algorithm>
#include <cstring>
#include <type_traits>

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

// Calls f(n, in, out) for every sample, its input and its output in T. `sums`: f adds to its
// output, which is zeroed first unless it holds what is accumulated into; otherwise f writes all of
// it.
template <class T, class F>
void each_sample(const ConstView& x, std::int64_t n, std::int64_t in_size, const Out& y,
                 std::int64_t out_size, bool sums, Scratch& scratch, F&& f) {
  const bool accumulate = y.write == Write::accumulate;
  const bool direct = y.view.dtype == dtype_of<T> && (sums || !accumulate);
  for (std::int64_t i = 0; i < n; ++i) {
    Scratch::Frame frame(scratch);
    const T* in = operand<T>(x, i * in_size, in_size, false, scratch);
    T* out = direct ? y.view.as<T>() + i * out_size : scratch.get<T>(out_size);
    if (sums && !(direct && accumulate)) std::fill_n(out, out_size, T{0});
    f(i, in, out);
    if (!direct) narrow(out, out_size, y, i * out_size);
  }
}

// Whether every pixel lies in exactly one window.
bool tiles(const Geometry& g) {
  const Pool2dParams& p = g.params;
  return p.kernel == p.stride && p.padding[0] == 0 && p.padding[1] == 0 &&
         g.p * p.stride[0] == g.h && g.q * p.stride[1] == g.w;
}

// Calls f(output pixel, rows, columns) for every window.
template <class F>
void each_window(const Geometry& g, F&& f) {
  for (std::int64_t p = 0; p < g.p; ++p) {
    const Range rows = window(p, 0, g.h, g.params);
    for (std::int64_t q = 0; q < g.q; ++q) f(p * g.q + q, rows, window(q, 1, g.w, g.params));
  }
}

// Calls f.operator()<width>(first channel) over all channels. A width that the compiler knows lets
// it keep a window's values in registers.
template <class F>
void each_channels(std::int64_t channels, F&& f) {
  std::int64_t c = 0;
  for (; c + 16 <= channels; c += 16) f.template operator()<16>(c);
  for (; c < channels; ++c) f.template operator()<1>(c);
}

// kWidth values that stay in registers (the vector extension of g++ and clang), or one.
template <class T, int kWidth>
struct Lanes {
  using Index = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  using Values [[gnu::vector_size(kWidth * sizeof(T))]] = T;
  using Indices [[gnu::vector_size(kWidth * sizeof(T))]] = Index;
};
template <class T>
struct Lanes<T, 1> {
  using Index = std::int32_t;
  using Values = T;
  using Indices = std::int32_t;
};

template <class T, int kWidth>
void max_of_window(const T* in, std::int64_t width, std::int64_t channels, Range rows,
                   Range columns, T* out, std::int32_t* winners) {
  using Lane = Lanes<T, kWidth>;
  using Index = typename Lane::Index;
  typename Lane::Values best;
  typename Lane::Indices at =
      typename Lane::Indices{} + static_cast<Index>(rows.begin * width + columns.begin);
  std::memcpy(&best, in + (rows.begin * width + columns.begin) * channels, sizeof(best));
  for (std::int64_t h = rows.begin; h < rows.end; ++h) {
    for (std::int64_t w = columns.begin; w < columns.end; ++w) {
      typename Lane::Values v;
      std::memcpy(&v, in + (h * width + w) * channels, sizeof(v));
      const auto wins = (v > best) | ((v != v) & (best == best));
      best = wins ? v : best;
      at = wins ? typename Lane::Indices{} + static_cast<Index>(h * width + w) : at;
    }
  }
  std::memcpy(out, &best, sizeof(best));
  if (winners == nullptr) return;
  if constexpr (kWidth == 1) {
    *winners = at;
  } else {
    for (int c = 0; c < kWidth; ++c) winners[c] = static_cast<std::int32_t>(at[c]);
  }
}

template <class T>
void max_forward(const Geometry& g, const ConstView& x, const Out& y, const Out& argmax,
                 Scratch& scratch) {
  const auto sample = [&](std::int64_t n, const T* in, T* out) {
    std::int32_t* winners =
        argmax.wanted ? argmax.view.as<std::int32_t>() + n * g.result() : nullptr;
    each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
      each_channels(g.c, [&]<int kWidth>(std::int64_t c) {
        const std::int64_t at = pixel * g.c + c;
        max_of_window<T, kWidth>(in + c, g.w, g.c, rows, columns, out + at,
                                 winners == nullptr ? nullptr : winners + at);
      });
    });
  };
  each_sample<T>(x, g.n, g.image(), y, g.result(), false, scratch, sample);
}

// dx (= or +=) dy where the pixel won.
template <class T, int kWidth, bool kOnce>
void max_gradient(const std::int32_t* winners, const T* dy, std::int64_t width,
                  std::int64_t channels, Range rows, Range columns, T* dx) {
  std::int32_t at[kWidth];
  T grad[kWidth];
  for (int c = 0; c < kWidth; ++c) {
    at[c] = winners[c];
    grad[c] = dy[c];
  }
  for (std::int64_t h = rows.begin; h < rows.end; ++h) {
    for (std::int64_t w = columns.begin; w < columns.end; ++w) {
      const auto position = static_cast<std::int32_t>(h * width + w);
      T* to = dx + (h * width + w) * channels;
      for (int c = 0; c < kWidth; ++c) {
        const T term = at[c] == position ? grad[c] : T{0};
        to[c] = kOnce ? term : to[c] + term;
      }
    }
  }
}

template <class T>
void max_backward(const Geometry& g, const ConstView& argmax, const ConstView& dy, const Out& dx,
                  Scratch& scratch) {
  const bool once = tiles(g) && dx.write == Write::overwrite;
  const auto sample = [&](std::int64_t n, const T* in, T* out) {
    const std::int32_t* winners = argmax.as<std::int32_t>() + n * g.result();
    each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
      each_channels(g.c, [&]<int kWidth>(std::int64_t c) {
        const std::int64_t at = pixel * g.c + c;
        const auto write = once ? max_gradient<T, kWidth, true> : max_gradient<T, kWidth, false>;
        write(winners + at, in + at, g.w, g.c, rows, columns, out + c);
      });
    });
  };
  each_sample<T>(dy, g.n, g.result(), dx, g.image(), !once, scratch, sample);
}

std::int64_t divisor(const Pool2dParams& p, Range rows, Range columns) {
  return p.count_include_pad ? p.kernel[0] * p.kernel[1]
                             : (rows.end - rows.begin) * (columns.end - columns.begin);
}

template <class T>
void avg_forward(const Geometry& g, bool in_half, const ConstView& x, const Out& y,
                 Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* sum = scratch.get<T>(g.c);
  const auto sample = [&](std::int64_t, const T* in, T* out) {
    each_window(g, [&](std::int64_t pixel, Range rows, Range columns) {
      std::fill_n(sum, g.c, T{0});
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        for (std::int64_t w = columns.begin; w < columns.end; ++w) {
          const T* value = in + (h * g.w + w) * g.c;
          for (std::int64_t c = 0; c < g.c; ++c) sum[c] += value[c];
          if (in_half)
            for (std::int64_t c = 0; c < g.c; ++c) sum[c] = static_cast<T>(Half(sum[c]));
        }
      }
      const auto area = static_cast<T>(divisor(g.params, rows, columns));
      T* to = out + pixel * g.c;
      for (std::int64_t c = 0; c < g.c; ++c) to[c] = sum[c] / area;
    });
  };
  each_sample<T>(x, g.n, g.image(), y, g.result(), false, scratch, sample);
}

template <class T>
void avg_backward(const Geometry& g, const ConstView& dy, const Out& dx, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* share = scratch.get<T>(g.c);
  const auto sample = [&](std::int64_t, const T* in, T* out) {
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
  };
  each_sample<T>(dy, g.n, g.result(), dx, g.image(), true, scratch, sample);
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
  // fp16 sums run in fp64, where each sum of an fp16 and an fp32 number is exact or far from a tie.
  const bool in_half = accumulator == Accumulator::fp16 && x.dtype != DType::fp64;
  dispatch(x.dtype == DType::fp64 || accumulator == Accumulator::fp64 || in_half,
           [&]<class T>() { avg_forward<T>(g, in_half, x, y, scratch); });
}

void avg_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& dy, const Out& dx,
                         Scratch& scratch) {
  if (!dx.wanted) return;
  const Geometry g = geometry(kAvg, dx.view.shape, params);
  check(kAvg, g, dy, dx, false);
  dispatch(dy.dtype == DType::fp64, [&]<class T>() { avg_backward<T>(g, dy, dx, scratch); });
}

}  // namespace roundoff
