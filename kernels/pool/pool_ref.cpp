#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/base/convert.h"
#include "kernels/gemm/operand.h"
#include "kernels/pool/geometry.h"
#include "kernels/pool/pool.h"

namespace roundoff {

namespace {

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
bool tiles(const Pool2dGeometry& g) {
  const Pool2dParams& p = g.params;
  return p.kernel == p.stride && p.padding[0] == 0 && p.padding[1] == 0 &&
         g.p * p.stride[0] == g.h && g.q * p.stride[1] == g.w;
}

// Calls f(output pixel, rows, columns) for every window.
template <class F>
void each_window(const Pool2dGeometry& g, F&& f) {
  for (std::int64_t p = 0; p < g.p; ++p) {
    const PoolRange rows = pool_window(p, 0, g.h, g.params);
    for (std::int64_t q = 0; q < g.q; ++q) f(p * g.q + q, rows, pool_window(q, 1, g.w, g.params));
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
void max_of_window(const T* in, std::int64_t width, std::int64_t channels, PoolRange rows,
                   PoolRange columns, T* out, std::int32_t* winners) {
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
void max_forward(const Pool2dGeometry& g, const ConstView& x, const Out& y, const Out& argmax,
                 Scratch& scratch) {
  const auto sample = [&](std::int64_t n, const T* in, T* out) {
    std::int32_t* winners =
        argmax.wanted ? argmax.view.as<std::int32_t>() + n * g.result() : nullptr;
    each_window(g, [&](std::int64_t pixel, PoolRange rows, PoolRange columns) {
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
                  std::int64_t channels, PoolRange rows, PoolRange columns, T* dx) {
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
void max_backward(const Pool2dGeometry& g, const ConstView& argmax, const ConstView& dy,
                  const Out& dx, Scratch& scratch) {
  const bool once = tiles(g) && dx.write == Write::overwrite;
  const auto sample = [&](std::int64_t n, const T* in, T* out) {
    const std::int32_t* winners = argmax.as<std::int32_t>() + n * g.result();
    each_window(g, [&](std::int64_t pixel, PoolRange rows, PoolRange columns) {
      each_channels(g.c, [&]<int kWidth>(std::int64_t c) {
        const std::int64_t at = pixel * g.c + c;
        const auto write = once ? max_gradient<T, kWidth, true> : max_gradient<T, kWidth, false>;
        write(winners + at, in + at, g.w, g.c, rows, columns, out + c);
      });
    });
  };
  each_sample<T>(dy, g.n, g.result(), dx, g.image(), !once, scratch, sample);
}

template <class T>
void avg_forward(const Pool2dGeometry& g, bool in_half, const ConstView& x, const Out& y,
                 Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* sum = scratch.get<T>(g.c);
  const auto sample = [&](std::int64_t, const T* in, T* out) {
    each_window(g, [&](std::int64_t pixel, PoolRange rows, PoolRange columns) {
      std::fill_n(sum, g.c, T{0});
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        for (std::int64_t w = columns.begin; w < columns.end; ++w) {
          const T* value = in + (h * g.w + w) * g.c;
          for (std::int64_t c = 0; c < g.c; ++c) sum[c] += value[c];
          if (in_half)
            for (std::int64_t c = 0; c < g.c; ++c) sum[c] = static_cast<T>(Half(sum[c]));
        }
      }
      const auto area = static_cast<T>(pool_divisor(g.params, rows, columns));
      T* to = out + pixel * g.c;
      for (std::int64_t c = 0; c < g.c; ++c) to[c] = sum[c] / area;
    });
  };
  each_sample<T>(x, g.n, g.image(), y, g.result(), false, scratch, sample);
}

template <class T>
void avg_backward(const Pool2dGeometry& g, const ConstView& dy, const Out& dx, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  T* share = scratch.get<T>(g.c);
  const auto sample = [&](std::int64_t, const T* in, T* out) {
    each_window(g, [&](std::int64_t pixel, PoolRange rows, PoolRange columns) {
      const auto area = static_cast<T>(pool_divisor(g.params, rows, columns));
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

void max_pool2d_forward(Ref, const Pool2dParams& params, const ConstView& x, const Out& y,
                        const Out& argmax, Scratch& scratch) {
  const Pool2dGeometry g = check_max_pool2d(params, x, y, argmax);
  dispatch(x.dtype == DType::fp64, [&]<class T>() { max_forward<T>(g, x, y, argmax, scratch); });
}

void max_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& argmax,
                         const ConstView& dy, const Out& dx, Scratch& scratch) {
  if (!dx.wanted) return;
  const Pool2dGeometry g = check_max_pool2d_backward(params, argmax, dy, dx);
  dispatch(dy.dtype == DType::fp64,
           [&]<class T>() { max_backward<T>(g, argmax, dy, dx, scratch); });
}

void avg_pool2d_forward(Ref, const Pool2dParams& params, Accumulator accumulator,
                        const ConstView& x, const Out& y, Scratch& scratch) {
  if (!y.wanted) {
    (void)pool2d_geometry(kAvgPool2d, x.shape, params);
    return;
  }
  const Pool2dGeometry g = check_avg_pool2d(params, x, y);
  // fp16 sums run in fp64, where each sum of an fp16 and an fp32 number is exact or far from a tie.
  const bool in_half = accumulator == Accumulator::fp16 && x.dtype != DType::fp64;
  dispatch(x.dtype == DType::fp64 || accumulator == Accumulator::fp64 || in_half,
           [&]<class T>() { avg_forward<T>(g, in_half, x, y, scratch); });
}

void avg_pool2d_backward(Ref, const Pool2dParams& params, const ConstView& dy, const Out& dx,
                         Scratch& scratch) {
  if (!dx.wanted) return;
  const Pool2dGeometry g = check_avg_pool2d_backward(params, dy, dx);
  dispatch(dy.dtype == DType::fp64, [&]<class T>() { avg_backward<T>(g, dy, dx, scratch); });
}

}  // namespace roundoff
