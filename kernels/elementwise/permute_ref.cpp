#include "kernels/elementwise/permute.h"

#include "kernels/elementwise/chunks.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "transpose";

void check_axes(const PermuteParams& params, int rank) {
  unsigned seen = 0;
  for (int i = 0; i < rank; ++i) {
    const int axis = params.axes[static_cast<std::size_t>(i)];
    ROUNDOFF_CHECK(axis >= 0 && axis < rank && ((seen >> axis) & 1U) == 0, kName, "axis ", axis,
                   " at place ", i, ": every axis of rank ", rank, " is expected once");
    seen |= 1U << axis;
  }
}

// f(offset in y, offset in x, stride in x, n): runs along the innermost axis of y.
template <class F>
void for_each_run(const PermuteParams& params, const Shape& shape, F f) {
  if (shape.numel() == 0) return;
  const detail::PermuteGeometry g(params, shape);
  const auto& extent = g.extent;
  const auto& stride = g.stride;
  const auto axes = static_cast<std::size_t>(g.axes);
  if (axes == 0) return f(0, 0, 1, 1);
  std::array<std::int64_t, kMaxRank> index{};
  std::int64_t from = 0;
  for (std::int64_t to = 0; to < shape.numel(); to += extent[0]) {
    for (std::int64_t i = 0; i < extent[0]; i += detail::kChunk)
      f(to + i, from + i * stride[0], stride[0], std::min(detail::kChunk, extent[0] - i));
    for (std::size_t a = 1; a < axes; ++a) {
      from += stride[a];
      if (++index[a] < extent[a]) break;
      from -= extent[a] * stride[a];
      index[a] = 0;
    }
  }
}

template <class Word>
void copy_words(const PermuteParams& params, const ConstView& x, const View& y) {
  const auto* xs = x.as<Word>();
  auto* ys = y.as<Word>();
  for_each_run(params, x.shape,
               [&](std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t n) {
                 for (std::int64_t i = 0; i < n; ++i) ys[to + i] = xs[from + i * stride];
               });
}

template <class T>
void copy_rounded(const PermuteParams& params, const ConstView& x, const Out& y) {
  T buffer[detail::kChunk];
  for_each_run(params, x.shape,
               [&](std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t n) {
                 if (stride == 1) {
                   narrow(detail::load(x, from, n, buffer), n, y, to);
                   return;
                 }
                 for (std::int64_t i = 0; i < n; ++i) widen(x, from + i * stride, 1, buffer + i);
                 narrow(buffer, n, y, to);
               });
}

}  // namespace

Shape permuted_shape(const Shape& shape, const PermuteParams& params) {
  check_axes(params, shape.rank());
  Shape out = shape;
  for (int i = 0; i < shape.rank(); ++i)
    out.set(i, shape[params.axes[static_cast<std::size_t>(i)]]);
  return out;
}

PermuteParams inverse(const PermuteParams& params, int rank) {
  PermuteParams out;
  for (int i = 0; i < rank; ++i)
    out.axes[static_cast<std::size_t>(params.axes[static_cast<std::size_t>(i)])] =
        static_cast<signed char>(i);
  return out;
}

detail::PermuteGeometry::PermuteGeometry(const PermuteParams& params, const Shape& x) {
  const int rank = x.rank();
  std::array<std::int64_t, kMaxRank> stride_of{};  // of x's axes
  std::int64_t step = 1;
  for (int a = rank - 1; a >= 0; --a) {
    stride_of[static_cast<std::size_t>(a)] = step;
    step *= x[a];
  }
  for (int i = rank - 1; i >= 0; --i) {
    const int a = params.axes[static_cast<std::size_t>(i)];
    const std::int64_t s = stride_of[static_cast<std::size_t>(a)];
    if (x[a] == 1) continue;
    const auto n = static_cast<std::size_t>(axes);
    if (n != 0 && s == stride[n - 1] * extent[n - 1]) {
      extent[n - 1] *= x[a];
    } else {
      extent[n] = x[a];
      stride[n] = s;
      ++axes;
    }
  }
}

void detail::check_permute(const PermuteParams& params, const ConstView& x, const Out& y) {
  const Shape expected = permuted_shape(x.shape, params);
  if (x.dtype == y.view.dtype && y.write == Write::overwrite) {
    ROUNDOFF_CHECK(y.view.shape == expected, kName, "y has shape ", y.view.shape, ", expected ",
                   expected);
    return;
  }
  check_floating(x, kName, "x");
  check_out(y, expected, kName, "y");
}

void permute(Ref, const PermuteParams& params, const ConstView& x, const Out& y) {
  if (!y.wanted) return;
  detail::check_permute(params, x, y);
  if (x.dtype == y.view.dtype && y.write == Write::overwrite) {
    switch (size_of(x.dtype)) {
      case 8:
        return copy_words<std::uint64_t>(params, x, y.view);
      case 4:
        return copy_words<std::uint32_t>(params, x, y.view);
      case 2:
        return copy_words<std::uint16_t>(params, x, y.view);
      default:
        return copy_words<std::uint8_t>(params, x, y.view);
    }
  }
  detail::with_arithmetic(x.dtype == DType::fp64 || y.view.dtype == DType::fp64,
                          [&]<class T>(T) { copy_rounded<T>(params, x, y); });
}

}  // namespace roundoff
