#include "kernels/softmax/softmax.h"

#include <cmath>
#include <limits>

#include "kernels/elementwise/exponential.h"
#include "kernels/softmax/row.h"

namespace roundoff {

namespace {

using detail::kChunk;
using detail::kLeafRows;
using detail::kTile;
using detail::load;

// A tensor as [outer, n, inner] around the axis.
struct Extents {
  std::int64_t outer = 1;
  std::int64_t n = 1;
  std::int64_t inner = 1;

  Extents(const Shape& shape, int axis) : n(shape[axis]) {
    for (int a = 0; a < shape.rank(); ++a)
      if (a != axis) (a < axis ? outer : inner) *= shape[a];
  }
};

// Rows are contiguous. The exponentials of a row wait in `row` for their sum.
template <class T, bool kLog>
void forward_rows(const Extents& e, const ConstView& x, const Out& y, T* row) {
  T in[kChunk];
  T out[kChunk];
  for (std::int64_t o = 0; o < e.outer; ++o) {
    const std::int64_t base = o * e.n;
    const T max = detail::row_maximum<T>(x, base, e.n);
    T sum = detail::sum_contiguous<T>(e.n, [&](std::int64_t i, std::int64_t m, T* buffer) {
      const T* xs = load(x, base + i, m, buffer);
      T* exponentials = kLog ? buffer : row + i;
      for (std::int64_t j = 0; j < m; ++j) exponentials[j] = detail::exponential(xs[j] - max);
      return static_cast<const T*>(exponentials);
    });
    if constexpr (kLog) sum = std::log(sum);
    for (std::int64_t i = 0; i < e.n; i += kChunk) {
      const std::int64_t m = std::min(kChunk, e.n - i);
      if constexpr (kLog) {
        const T* xs = load(x, base + i, m, in);
        for (std::int64_t j = 0; j < m; ++j) out[j] = (xs[j] - max) - sum;
      } else {
        for (std::int64_t j = 0; j < m; ++j) out[j] = row[i + j] / sum;
      }
      narrow(out, m, y, base + i);
    }
  }
}

// Sums along the axis for `width` neighbouring columns: load_row(i, buffer) gives row i's terms.
template <class T, class LoadRow>
const T* sum_columns(std::int64_t n, std::int64_t width, detail::RowCascade<T>& cascade,
                     LoadRow load_row) {
  cascade.reset(width);
  T buffer[kTile];
  for (std::int64_t r = 0; r < n; r += kLeafRows) {
    T* leaf = cascade.begin();
    for (std::int64_t i = r; i < std::min(n, r + kLeafRows); ++i) {
      const T* terms = load_row(i, buffer);
      for (std::int64_t c = 0; c < width; ++c) leaf[c] += terms[c];
    }
    cascade.push();
  }
  return cascade.total();
}

// f(offset of the tile's first row, width) over tiles of neighbouring columns.
template <class F>
void for_each_tile(const Extents& e, F f) {
  for (std::int64_t o = 0; o < e.outer; ++o)
    for (std::int64_t j = 0; j < e.inner; j += kTile)
      f(o * e.n * e.inner + j, std::min(kTile, e.inner - j));
}

template <class T, bool kLog>
void forward_columns(const Extents& e, const ConstView& x, const Out& y, T* tile) {
  T in[kTile];
  T out[kTile];
  T max[kTile];
  T sum[kTile];
  detail::RowCascade<T> cascade;
  for_each_tile(e, [&](std::int64_t base, std::int64_t width) {
    std::fill_n(max, width, -std::numeric_limits<T>::infinity());
    for (std::int64_t i = 0; i < e.n; ++i) {
      const T* xs = load(x, base + i * e.inner, width, in);
      for (std::int64_t c = 0; c < width; ++c) max[c] = xs[c] > max[c] ? xs[c] : max[c];
    }
    const T* total = sum_columns(e.n, width, cascade, [&](std::int64_t i, T* buffer) {
      const T* xs = load(x, base + i * e.inner, width, in);
      T* exponentials = kLog ? buffer : tile + i * width;
      for (std::int64_t c = 0; c < width; ++c)
        exponentials[c] = detail::exponential(xs[c] - max[c]);
      return static_cast<const T*>(exponentials);
    });
    for (std::int64_t c = 0; c < width; ++c) sum[c] = kLog ? std::log(total[c]) : total[c];
    for (std::int64_t i = 0; i < e.n; ++i) {
      if constexpr (kLog) {
        const T* xs = load(x, base + i * e.inner, width, in);
        for (std::int64_t c = 0; c < width; ++c) out[c] = (xs[c] - max[c]) - sum[c];
      } else {
        for (std::int64_t c = 0; c < width; ++c) out[c] = tile[i * width + c] / sum[c];
      }
      narrow(out, width, y, base + i * e.inner);
    }
  });
}

// A row's sum takes dy y (softmax) or dy (log-softmax).
template <class T, bool kLog>
T gradient_of(T y, T dy, T sum) {
  if constexpr (kLog) return dy - detail::exponential(y) * sum;
  return y * (dy - sum);
}

template <class T, bool kLog>
void backward(const Extents& e, const ConstView& y, const ConstView& dy, const Out& dx) {
  T y_buffer[kChunk];
  T dy_buffer[kChunk];
  T out[kChunk];
  const auto terms = [&](std::int64_t at, std::int64_t n, T* buffer) {
    const T* gradient = load(dy, at, n, buffer);
    if constexpr (kLog) return gradient;
    const T* ys = load(y, at, n, y_buffer);
    for (std::int64_t i = 0; i < n; ++i) buffer[i] = gradient[i] * ys[i];
    return static_cast<const T*>(buffer);
  };
  if (e.inner == 1) {
    for (std::int64_t o = 0; o < e.outer; ++o) {
      const std::int64_t base = o * e.n;
      const T sum = detail::sum_contiguous<T>(e.n, [&](std::int64_t i, std::int64_t m, T* buffer) {
        return terms(base + i, m, buffer);
      });
      for (std::int64_t i = 0; i < e.n; i += kChunk) {
        const std::int64_t m = std::min(kChunk, e.n - i);
        const T* ys = load(y, base + i, m, y_buffer);
        const T* gradient = load(dy, base + i, m, dy_buffer);
        for (std::int64_t j = 0; j < m; ++j) out[j] = gradient_of<T, kLog>(ys[j], gradient[j], sum);
        narrow(out, m, dx, base + i);
      }
    }
    return;
  }
  detail::RowCascade<T> cascade;
  for_each_tile(e, [&](std::int64_t base, std::int64_t width) {
    const T* sums = sum_columns(e.n, width, cascade, [&](std::int64_t i, T* buffer) {
      return terms(base + i * e.inner, width, buffer);
    });
    for (std::int64_t i = 0; i < e.n; ++i) {
      const std::int64_t at = base + i * e.inner;
      const T* ys = load(y, at, width, y_buffer);
      const T* gradient = load(dy, at, width, dy_buffer);
      for (std::int64_t c = 0; c < width; ++c)
        out[c] = gradient_of<T, kLog>(ys[c], gradient[c], sums[c]);
      narrow(out, width, dx, at);
    }
  });
}

constexpr std::string_view name_of(bool log) { return log ? "log_softmax" : "softmax"; }

template <bool kLog>
void run_forward(const SoftmaxParams& params, const ConstView& x, const Out& y, Scratch* scratch) {
  if (!y.wanted) return;
  constexpr std::string_view kName = name_of(kLog);
  detail::check_floating(x, kName, "x");
  const Extents e(x.shape, x.shape.normalize_axis(params.axis, kName));
  detail::check_out(y, x.shape, kName, "y");
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, x), [&]<class T>(T) {
    const auto run = [&](T* exponentials) {
      if (e.inner == 1)
        forward_rows<T, kLog>(e, x, y, exponentials);
      else
        forward_columns<T, kLog>(e, x, y, exponentials);
    };
    if constexpr (kLog) {
      run(nullptr);
    } else {
      const Scratch::Frame frame(*scratch);
      run(scratch->template get<T>(e.n * std::min(e.inner, kTile)));
    }
  });
}

template <bool kLog>
void run_backward(const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                  const Out& dx) {
  if (!dx.wanted) return;
  constexpr std::string_view kName = name_of(kLog);
  detail::check_floating(y, kName, "y");
  detail::check_floating(dy, kName, "dy");
  const Extents e(y.shape, y.shape.normalize_axis(params.axis, kName));
  ROUNDOFF_CHECK(dy.shape == y.shape, kName, "dy has shape ", dy.shape, ", expected ", y.shape);
  detail::check_out(dx, y.shape, kName, "dx");
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, y, dy),
                          [&]<class T>(T) { backward<T, kLog>(e, y, dy, dx); });
}

}  // namespace

void softmax_forward(Ref, const SoftmaxParams& params, const ConstView& x, const Out& y,
                     Scratch& scratch) {
  run_forward<false>(params, x, y, &scratch);
}
void softmax_backward(Ref, const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                      const Out& dx) {
  run_backward<false>(params, y, dy, dx);
}
void log_softmax_forward(Ref, const SoftmaxParams& params, const ConstView& x, const Out& y) {
  run_forward<true>(params, x, y, nullptr);
}
void log_softmax_backward(Ref, const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                          const Out& dx) {
  run_backward<true>(params, y, dy, dx);
}

}  // namespace roundoff
