#include "kernels/reduce/reduce.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/tensor_core.h"
#include "kernels/elementwise/chunks.h"
#include "kernels/reduce/sum_tree.h"

namespace roundoff {

std::string_view name(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return "sum";
    case Reduce::mean:
      return "mean";
    case Reduce::max:
      return "max";
    case Reduce::norm:
      return "norm";
  }
  return "reduce";
}

Shape reduced_shape(const Shape& shape, std::uint32_t axes, bool keepdim) {
  std::array<std::int64_t, kMaxRank> extents{};
  std::size_t rank = 0;
  for (int a = 0; a < shape.rank(); ++a) {
    const bool reduced = ((axes >> a) & 1U) != 0;
    if (reduced && !keepdim) continue;
    extents[rank++] = reduced ? 1 : shape[a];
  }
  return Shape(std::span<const std::int64_t>(extents.data(), rank));
}

namespace {

using detail::load;
using detail::Odometer;
using detail::ReduceGeometry;

void check_reduced(const ConstView& y, const Shape& x, std::uint32_t axes,
                   std::string_view operation, std::string_view operand) {
  ROUNDOFF_CHECK((axes & ~all_axes(x.rank())) == 0, operation, "an axis is out of range for shape ",
                 x);
  const Shape dropped = reduced_shape(x, axes, false);
  ROUNDOFF_CHECK(y.shape == dropped || y.shape == reduced_shape(x, axes, true), operation, operand,
                 " has shape ", y.shape, ", expected ", dropped);
}

// f(output, offset, n): runs of n contiguous elements of the input, and the output that the first
// of them goes to. In a run of a kept axis element i goes to output + i; else all go to one.
template <class F>
void for_each_run(const ReduceGeometry& g, F f) {
  if (g.outputs == 0 || g.terms == 0) return;
  const int skip = g.inner_kept ? 1 : 0;
  const std::int64_t run =
      g.inner_kept ? g.kept[0].extent : (g.reduced_rank == 0 ? 1 : g.reduced[0].extent);
  const std::int64_t step = g.inner_kept ? run : 1;
  std::int64_t output = 0;
  Odometer outer(g.kept, skip, g.kept_rank);
  do {
    Odometer blocks(g.reduced, 1 - skip, g.reduced_rank);
    do {
      for (std::int64_t i = 0; i < run; i += detail::kChunk)
        f(g.inner_kept ? output + i : output, outer.offset() + blocks.offset() + i,
          std::min(detail::kChunk, run - i));
    } while (blocks.next());
    output += step;
  } while (outer.next());
}

// The geometry of one output's terms, as rows of one column where the innermost axis is kept.
ReduceGeometry one_output(const ReduceGeometry& g) {
  ReduceGeometry one = g;
  one.outputs = 1;
  one.kept_rank = g.inner_kept ? 1 : 0;
  one.kept[0] = {1, 1};
  return one;
}

std::int64_t first_term(const ReduceGeometry& g, std::int64_t output) {
  std::int64_t offset = 0;
  for (int a = 0; a < g.kept_rank; ++a) {
    offset += output % g.kept[a].extent * g.kept[a].stride;
    output /= g.kept[a].extent;
  }
  return offset;
}

// How a sum is formed: by the tree, or term after term in modelled arithmetic.
enum class Order : unsigned char { tree, fp16, tensor_core };

Order order_of(Reduce op, Accumulator accumulator, DType x) {
  if (op == Reduce::norm || x == DType::fp64) return Order::tree;
  switch (accumulator) {
    case Accumulator::fp32:
    case Accumulator::fp64:
      return Order::tree;
    case Accumulator::fp16:
      return Order::fp16;
    default:
      break;
  }
  if (!is_16bit(x)) return Order::tree;
  ROUNDOFF_CHECK(has_tensor_core(accumulator, x), name(op),
                 "accumulator v100 takes fp16 operands, ", name(x), " given");
  return Order::tensor_core;
}

// The terms of one output in index order, kChunk at a time: take(values, n).
template <class T, class Take>
void for_each_chunk(const ReduceGeometry& g, const ConstView& x, std::int64_t output, Take take) {
  T buffer[detail::kChunk];
  std::int64_t held = 0;
  const std::int64_t base = first_term(g, output);
  for_each_run(one_output(g), [&](std::int64_t, std::int64_t at, std::int64_t n) {
    for (std::int64_t i = 0; i < n;) {
      const std::int64_t m = std::min(n - i, detail::kChunk - held);
      widen(x, base + at + i, m, buffer + held);
      i += m;
      held += m;
      if (held == detail::kChunk) {
        take(static_cast<const T*>(buffer), held);
        held = 0;
      }
    }
  });
  if (held != 0) take(static_cast<const T*>(buffer), held);
}

// Each addition rounded to fp16; from double, where the sum of an fp16 and an fp32 number is exact
// or far from a tie.
float sum_in_fp16(const ReduceGeometry& g, const ConstView& x, std::int64_t output) {
  Half sum(0.0F);
  for_each_chunk<double>(g, x, output, [&](const double* terms, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) sum = Half(static_cast<double>(sum) + terms[i]);
  });
  return static_cast<float>(sum);
}

// Products with 1 on tensor cores, chained; a chunk is a whole number of their blocks.
float sum_on_tensor_cores(const TensorCore& core, const ReduceGeometry& g, const ConstView& x,
                          std::int64_t output) {
  static_assert(detail::kChunk % 16 == 0);
  float one[detail::kChunk];
  std::fill_n(one, detail::kChunk, 1.0F);
  float sum = 0;
  for_each_chunk<float>(g, x, output, [&](const float* terms, std::int64_t n) {
    sum = tensor_core_dot(core, terms, one, n, sum);
  });
  return sum;
}

// A mean's terms may fit where their sum does not: scaled by a power of two of at most 1 / n it
// does, and a NaN or an infinity among the terms stays one.
template <class T>
T mean_by_scaling(const ReduceGeometry& g, const ConstView& x, std::int64_t output) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(g.terms)));
  const T scale = std::ldexp(T(1), -bits);
  const std::int64_t base = first_term(g, output);
  T sum = T(0);
  detail::reduce_sum<T>(
      one_output(g),
      [&](std::int64_t at, std::int64_t n, T* buffer) -> const T* {
        const T* xs = load(x, base + at, n, buffer);
        for (std::int64_t i = 0; i < n; ++i) buffer[i] = xs[i] * scale;
        return buffer;
      },
      [&](const T* values, std::int64_t, std::int64_t) { sum = values[0]; });
  return sum / (static_cast<T>(g.terms) * scale);
}

template <class T>
void sum_or_mean(Reduce op, Order order, const ReduceParams& params, const ConstView& x,
                 const Out& y) {
  const ReduceGeometry g(x.shape, params.axes);
  const auto count = static_cast<double>(g.terms);
  const auto put = [&](const T* values, std::int64_t n, std::int64_t at) {
    if (op == Reduce::sum) return narrow(values, n, y, at);
    T means[detail::kTile];
    for (std::int64_t i = 0; i < n; ++i) {
      means[i] = static_cast<T>(static_cast<double>(values[i]) / count);
      if (order == Order::tree && g.terms != 0 && !std::isfinite(means[i]))
        means[i] = mean_by_scaling<T>(g, x, at + i);
    }
    narrow(means, n, y, at);
  };
  if (order == Order::tree) {
    detail::reduce_sum<T>(
        g, [&](std::int64_t at, std::int64_t n, T* buffer) { return load(x, at, n, buffer); }, put);
    return;
  }
  for (std::int64_t output = 0; output < g.outputs; ++output) {
    const T sum = order == Order::fp16
                      ? sum_in_fp16(g, x, output)
                      : sum_on_tensor_cores(tensor_core(params.accumulator, x.dtype), g, x, output);
    put(&sum, 1, output);
  }
}

// Squares of numbers up to fp32 neither overflow nor underflow in double. Those of fp64 may: below
// this sum their rounding errors would show, and an infinite sum has to be formed again as well.
constexpr double kSafeSquares = 0x1p-900;

double norm_by_scaling(const ReduceGeometry& g, const ConstView& x, std::int64_t output) {
  const ReduceGeometry one = one_output(g);
  const std::int64_t base = first_term(g, output);
  double max = 0;
  double buffer[detail::kChunk];
  for_each_run(one, [&](std::int64_t, std::int64_t at, std::int64_t n) {
    const double* xs = load(x, base + at, n, buffer);
    for (std::int64_t i = 0; i < n; ++i)
      if (std::abs(xs[i]) > max || std::isnan(xs[i])) max = std::isnan(max) ? max : std::abs(xs[i]);
  });
  if (max == 0 || !std::isfinite(max)) return max;
  const int exponent = std::ilogb(max);
  double squares = 0;
  detail::reduce_sum<double>(
      one,
      [&](std::int64_t at, std::int64_t n, double* terms) -> const double* {
        const double* xs = load(x, base + at, n, terms);
        for (std::int64_t i = 0; i < n; ++i) {
          const double scaled = std::scalbn(xs[i], -exponent);
          terms[i] = scaled * scaled;
        }
        return terms;
      },
      [&](const double* values, std::int64_t, std::int64_t) { squares = values[0]; });
  return std::scalbn(std::sqrt(squares), exponent);
}

// put(norms, n, output) takes up to kTile norms at a time.
template <class Put>
void norms(const ReduceGeometry& g, const ConstView& x, Put put) {
  detail::reduce_sum<double>(
      g,
      [&](std::int64_t at, std::int64_t n, double* buffer) -> const double* {
        const double* xs = load(x, at, n, buffer);
        for (std::int64_t i = 0; i < n; ++i) buffer[i] = xs[i] * xs[i];
        return buffer;
      },
      [&](const double* squares, std::int64_t n, std::int64_t at) {
        double out[detail::kTile];
        for (std::int64_t i = 0; i < n; ++i) {
          const bool safe = squares[i] >= kSafeSquares && std::isfinite(squares[i]);
          out[i] = safe || x.dtype != DType::fp64 || g.terms == 0 ? std::sqrt(squares[i])
                                                                  : norm_by_scaling(g, x, at + i);
        }
        put(static_cast<const double*>(out), n, at);
      });
}

// dx = dy / divisor, repeated along the reduced axes.
template <class T>
void repeat(const ReduceGeometry& g, const ConstView& dy, T divisor, const Out& dx) {
  T in[detail::kChunk];
  T out[detail::kChunk];
  for_each_run(g, [&](std::int64_t output, std::int64_t at, std::int64_t n) {
    if (g.inner_kept) {
      const T* gradient = load(dy, output, n, in);
      for (std::int64_t i = 0; i < n; ++i) out[i] = gradient[i] / divisor;
    } else {
      std::fill_n(out, n, *load(dy, output, 1, in) / divisor);
    }
    narrow(out, n, dx, at);
  });
}

void norm_backward(const ReduceGeometry& g, const ConstView& x, const ConstView& dy, const Out& dx,
                   Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  auto* norm = scratch.get<double>(g.outputs);
  norms(g, x, [&](const double* values, std::int64_t n, std::int64_t at) {
    std::copy_n(values, n, norm + at);
  });
  double x_buffer[detail::kChunk];
  double dy_buffer[detail::kChunk];
  double out[detail::kChunk];
  const std::int64_t step = g.inner_kept ? 1 : 0;
  for_each_run(g, [&](std::int64_t output, std::int64_t at, std::int64_t n) {
    const double* xs = load(x, at, n, x_buffer);
    const double* gradient = load(dy, output, step != 0 ? n : 1, dy_buffer);
    for (std::int64_t i = 0; i < n; ++i) {
      const double y = norm[output + i * step];
      out[i] = y == 0 ? 0 : gradient[i * step] * (xs[i] / y);
    }
    narrow(out, n, dx, at);
  });
}

template <class T>
void max_of(const ReduceGeometry& g, const ConstView& x, const Out& y, const Out& index) {
  T buffer[detail::kTile];
  T best[detail::kTile];
  std::int64_t where[detail::kTile];
  // Takes n terms from offset `at` on, for n outputs or all for one.
  const auto take = [&](std::int64_t at, std::int64_t n, std::int64_t step) {
    const T* xs = load(x, at, n, buffer);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t o = i * step;
      const bool wins = xs[i] > best[o] || (std::isnan(xs[i]) && !std::isnan(best[o]));
      if (wins || where[o] < 0) {
        best[o] = xs[i];
        where[o] = at + i;
      }
    }
  };
  const auto put = [&](std::int64_t n, std::int64_t at) {
    if (y.wanted) narrow(best, n, y, at);
    if (index.wanted) std::copy_n(where, n, index.view.as<std::int64_t>() + at);
  };
  const int skip = g.inner_kept ? 1 : 0;
  const std::int64_t columns = g.inner_kept ? g.kept[0].extent : 1;
  std::int64_t output = 0;
  Odometer outer(g.kept, skip, g.kept_rank);
  do {
    for (std::int64_t j = 0; j < columns; j += detail::kTile) {
      const std::int64_t width = std::min(detail::kTile, columns - j);
      std::fill_n(where, width, std::int64_t{-1});
      std::fill_n(best, width, T(0));
      Odometer blocks(g.reduced, 1 - skip, g.reduced_rank);
      do {
        const std::int64_t base = outer.offset() + blocks.offset() + j;
        if (g.inner_kept) {
          take(base, width, 1);
        } else {
          const std::int64_t run = g.reduced_rank == 0 ? 1 : g.reduced[0].extent;
          for (std::int64_t i = 0; i < run; i += detail::kTile)
            take(base + i, std::min(detail::kTile, run - i), 0);
        }
      } while (blocks.next());
      put(width, output);
      output += width;
    }
  } while (outer.next());
}

}  // namespace

void detail::check_reduce_forward(Reduce op, const ReduceParams& params, const ConstView& x,
                                  const Out& y) {
  const std::string_view operation = name(op);
  ROUNDOFF_CHECK(op != Reduce::max, operation, "a maximum is max_forward's");
  check_floating(x, operation, "x");
  check_reduced(y.view, x.shape, params.axes, operation, "y");
  check_out(y, y.view.shape, operation, "y");
}

void detail::check_reduce_backward(Reduce op, const ReduceParams& params, const ConstView& x,
                                   const ConstView& dy, const Out& dx) {
  const std::string_view operation = name(op);
  ROUNDOFF_CHECK(op != Reduce::max, operation, "a maximum's gradient is max_backward's");
  check_floating(x, operation, "x");
  check_floating(dy, operation, "dy");
  check_reduced(dy, x.shape, params.axes, operation, "dy");
  check_out(dx, x.shape, operation, "dx");
}

void detail::check_max_forward(const ReduceParams& params, const ConstView& x, const Out& y,
                               const Out& index) {
  const std::string_view operation = name(Reduce::max);
  check_floating(x, operation, "x");
  if (y.wanted) {
    check_reduced(y.view, x.shape, params.axes, operation, "y");
    check_out(y, y.view.shape, operation, "y");
  }
  if (index.wanted) {
    check_reduced(index.view, x.shape, params.axes, operation, "index");
    ROUNDOFF_CHECK(index.view.dtype == DType::i64, operation, "index is ", name(index.view.dtype),
                   ", int64 expected");
  }
  const ReduceGeometry g(x.shape, params.axes);
  ROUNDOFF_CHECK(g.outputs == 0 || g.terms != 0, operation, "of no elements: shape ", x.shape);
}

void detail::check_max_backward(const ReduceParams& params, const ConstView& index,
                                const ConstView& dy, const Out& dx) {
  const std::string_view operation = name(Reduce::max);
  const Shape& shape = dx.view.shape;
  check_floating(dy, operation, "dy");
  check_reduced(dy, shape, params.axes, operation, "dy");
  ROUNDOFF_CHECK(index.dtype == DType::i64 && index.shape == dy.shape, operation, "index is ",
                 name(index.dtype), " of shape ", index.shape, ", expected int64 ", dy.shape);
  check_out(dx, shape, operation, "dx");
}

void reduce_forward(Ref, Reduce op, const ReduceParams& params, const ConstView& x, const Out& y) {
  if (!y.wanted) return;
  detail::check_reduce_forward(op, params, x, y);
  const Order order = order_of(op, params.accumulator, x.dtype);
  if (op == Reduce::norm) {
    norms(ReduceGeometry(x.shape, params.axes), x,
          [&](const double* values, std::int64_t n, std::int64_t at) { narrow(values, n, y, at); });
    return;
  }
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, x),
                          [&]<class T>(T) { sum_or_mean<T>(op, order, params, x, y); });
}

void reduce_backward(Ref, Reduce op, const ReduceParams& params, const ConstView& x,
                     const ConstView& dy, const Out& dx, Scratch& scratch) {
  if (!dx.wanted) return;
  detail::check_reduce_backward(op, params, x, dy, dx);
  const ReduceGeometry g(x.shape, params.axes);
  if (op == Reduce::norm) return norm_backward(g, x, dy, dx, scratch);
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, x, dy), [&]<class T>(T) {
    repeat<T>(g, dy, op == Reduce::mean ? static_cast<T>(g.terms) : T(1), dx);
  });
}

void max_forward(Ref, const ReduceParams& params, const ConstView& x, const Out& y,
                 const Out& index) {
  if (!y.wanted && !index.wanted) return;
  detail::check_max_forward(params, x, y, index);
  const ReduceGeometry g(x.shape, params.axes);
  if (g.outputs == 0) return;
  detail::with_arithmetic(x.dtype == DType::fp64, [&]<class T>(T) { max_of<T>(g, x, y, index); });
}

void max_backward(Ref, const ReduceParams& params, const ConstView& index, const ConstView& dy,
                  const Out& dx) {
  if (!dx.wanted) return;
  detail::check_max_backward(params, index, dy, dx);
  const Shape& shape = dx.view.shape;
  const auto* where = index.as<std::int64_t>();
  for (std::int64_t o = 0; o < dy.numel(); ++o)
    ROUNDOFF_CHECK(where[o] >= 0 && where[o] < shape.numel(), name(Reduce::max), "index ", where[o],
                   " is out of range for shape ", shape);
  if (dx.write == Write::overwrite && shape.numel() != 0)
    std::memset(dx.view.data, 0, static_cast<std::size_t>(shape.numel()) * size_of(dx.view.dtype));
  for (std::int64_t o = 0; o < dy.numel(); ++o) {
    double value = 0;
    widen(dy, o, 1, &value);
    narrow(&value, 1, dx, where[o]);
  }
}

}  // namespace roundoff
