#include <array>

#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/sum_tree.h"

namespace roundoff {

std::string_view name(Binary op) {
  switch (op) {
    case Binary::add:
      return "add";
    case Binary::sub:
      return "sub";
    case Binary::mul:
      return "mul";
    case Binary::div:
      return "div";
  }
  return "binary";
}

Shape broadcast_shape(const Shape& a, const Shape& b, std::string_view operation) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    const std::int64_t p = longer[-i];
    const std::int64_t q = shorter[-i];
    ROUNDOFF_CHECK(p == q || p == 1 || q == 1, operation, "shapes ", a, " and ", b,
                   " do not broadcast: axis ", -i, " has extents ", a[-i], " and ", b[-i]);
    out.set(-i, p == 1 ? q : p);
  }
  // The product of the extents must fit, and Shape checks that on construction.
  return Shape(out.extents());
}

namespace {

using detail::Broadcast;

// n elements of an operand, as T; one element n times where it is repeated.
template <class T>
const T* load_repeated(const ConstView& v, std::int64_t offset, bool repeat, std::int64_t n,
                       T* buffer) {
  if (!repeat) return detail::load(v, offset, n, buffer);
  T value;
  const T* x = detail::load(v, offset, 1, &value);
  std::fill_n(buffer, n, *x);
  return buffer;
}

// f over runs of the result within its innermost axis: f(offset, offset in a, offset in b, n).
template <class F>
void for_each_run(const Broadcast& plan, std::int64_t numel, F f) {
  const std::int64_t extent = plan.inner().extent;
  for (std::int64_t row = 0; row < numel; row += extent) {
    std::int64_t a = 0;
    std::int64_t b = 0;
    plan.locate(row, a, b);
    for (std::int64_t i = 0; i < extent; i += detail::kChunk)
      f(row + i, a + i * plan.inner().a, b + i * plan.inner().b,
        std::min(detail::kChunk, extent - i));
  }
}

template <class T, class F>
void broadcast_map(const Broadcast& plan, const ConstView& a, const ConstView& b, const Out& y,
                   F f) {
  T in_a[detail::kChunk];
  T in_b[detail::kChunk];
  T out[detail::kChunk];
  const bool repeat_a = plan.inner().a == 0;
  const bool repeat_b = plan.inner().b == 0;
  const bool direct = y.view.dtype == dtype_of<T> && y.write == Write::overwrite;
  for_each_run(plan, y.view.numel(),
               [&](std::int64_t at, std::int64_t ia, std::int64_t ib, std::int64_t n) {
                 const T* as = load_repeated(a, ia, repeat_a, n, in_a);
                 const T* bs = load_repeated(b, ib, repeat_b, n, in_b);
                 T* ys = direct ? y.view.as<T>() + at : out;
                 for (std::int64_t i = 0; i < n; ++i) ys[i] = f(as[i], bs[i]);
                 if (!direct) narrow(out, n, y, at);
               });
}

// A row of a few elements over many rows: the row is widened once and repeated to the length of a
// chunk. f(element of the other operand, element of the row).
template <class T, class F>
void row_map(const ConstView& rows, const ConstView& row, const Out& y, F f) {
  const std::int64_t columns = row.numel();
  const std::int64_t step = detail::kChunk / columns * columns;
  T tiled[detail::kChunk];
  widen(row, 0, columns, tiled);
  for (std::int64_t j = columns; j < step; ++j) tiled[j] = tiled[j - columns];
  T in[detail::kChunk];
  T out[detail::kChunk];
  const bool direct = y.view.dtype == dtype_of<T> && y.write == Write::overwrite;
  for (std::int64_t i = 0; i < y.view.numel(); i += step) {
    const std::int64_t n = std::min(step, y.view.numel() - i);
    const T* xs = detail::load(rows, i, n, in);
    T* ys = direct ? y.view.as<T>() + i : out;
    for (std::int64_t j = 0; j < n; ++j) ys[j] = f(xs[j], tiled[j]);
    if (!direct) narrow(out, n, y, i);
  }
}

template <class T, class F>
void forward(const ConstView& a, const ConstView& b, const Out& y, F f) {
  if (a.shape == b.shape) return detail::map<T>(a, b, y, f);
  if (y.view.numel() == 0) return;
  const Broadcast plan(a.shape, b.shape, y.view.shape);
  const bool short_rows = plan.rank == 2 && plan.inner().a != 0 && plan.inner().b != 0 &&
                          plan.inner().extent <= detail::kChunk / 4;
  if (short_rows && plan.axes[1].b == 0) return row_map<T>(a, b, y, f);
  if (short_rows && plan.axes[1].a == 0)
    return row_map<T>(b, a, y, [f](T p, T q) { return f(q, p); });
  broadcast_map<T>(plan, a, b, y, f);
}

using detail::repeated_axes;

enum class Reads { neither, a, b, both };

// grad = sum over the repeated axes of f(dy, a, b). An operand that f does not read may be without
// data.
template <class T, Reads kReads, class F>
void gradient(const Broadcast& plan, const ConstView& a, const ConstView& b, const ConstView& dy,
              const Out& grad, F f) {
  if (!grad.wanted) return;
  T in_a[detail::kChunk];
  T in_b[detail::kChunk];
  const bool repeat_a = plan.inner().a == 0;
  const bool repeat_b = plan.inner().b == 0;
  const auto load = [&](std::int64_t at, std::int64_t n, T* buffer) -> const T* {
    const T* g = detail::load(dy, at, n, buffer);
    if constexpr (kReads != Reads::neither) {
      // A run of the reduction may cross the plan's innermost axis.
      std::int64_t m = 0;
      for (std::int64_t done = 0; done < n; done += m) {
        const std::int64_t extent = plan.inner().extent;
        m = std::min(n - done, extent - (at + done) % extent);
        std::int64_t ia = 0;
        std::int64_t ib = 0;
        plan.locate(at + done, ia, ib);
        const T* as = g;
        const T* bs = g;
        if constexpr (kReads != Reads::b) as = load_repeated(a, ia, repeat_a, m, in_a);
        if constexpr (kReads != Reads::a) bs = load_repeated(b, ib, repeat_b, m, in_b);
        for (std::int64_t i = 0; i < m; ++i) buffer[done + i] = f(g[done + i], as[i], bs[i]);
      }
    } else {
      for (std::int64_t i = 0; i < n; ++i) buffer[i] = f(g[i], T(0), T(0));
    }
    return buffer;
  };
  const std::uint32_t axes = repeated_axes(grad.view.shape, dy.shape);
  if (axes == 0) {
    T buffer[detail::kChunk];
    for_each_run(plan, dy.numel(),
                 [&](std::int64_t at, std::int64_t, std::int64_t, std::int64_t n) {
                   narrow(load(at, n, buffer), n, grad, at);
                 });
    return;
  }
  detail::reduce_sum<T>(
      detail::ReduceGeometry(dy.shape, axes), load,
      [&](const T* sums, std::int64_t n, std::int64_t at) { narrow(sums, n, grad, at); });
}

template <class T>
void backward(Binary op, const ConstView& a, const ConstView& b, const ConstView& dy, const Out& da,
              const Out& db) {
  const Broadcast plan(a.shape, b.shape, dy.shape);
  const auto pass = [](T g, T, T) { return g; };
  switch (op) {
    case Binary::add:
      gradient<T, Reads::neither>(plan, a, b, dy, da, pass);
      gradient<T, Reads::neither>(plan, a, b, dy, db, pass);
      return;
    case Binary::sub:
      gradient<T, Reads::neither>(plan, a, b, dy, da, pass);
      gradient<T, Reads::neither>(plan, a, b, dy, db, [](T g, T, T) { return -g; });
      return;
    case Binary::mul:
      gradient<T, Reads::b>(plan, a, b, dy, da, [](T g, T, T y) { return g * y; });
      gradient<T, Reads::a>(plan, a, b, dy, db, [](T g, T x, T) { return g * x; });
      return;
    case Binary::div:
      gradient<T, Reads::b>(plan, a, b, dy, da, [](T g, T, T y) { return g / y; });
      gradient<T, Reads::both>(plan, a, b, dy, db, [](T g, T x, T y) { return -g * (x / y) / y; });
      return;
  }
}

}  // namespace

void detail::check_binary_forward(const BinaryParams& params, const ConstView& a,
                                  const ConstView& b, const Out& y) {
  const std::string_view op = name(params.op);
  check_floating(a, op, "a");
  check_floating(b, op, "b");
  check_out(y, broadcast_shape(a.shape, b.shape, op), op, "y");
}

void detail::check_binary_backward(const BinaryParams& params, const ConstView& a,
                                   const ConstView& b, const ConstView& dy, const Out& da,
                                   const Out& db) {
  const std::string_view op = name(params.op);
  check_floating(a, op, "a");
  check_floating(b, op, "b");
  check_floating(dy, op, "dy");
  const Shape shape = broadcast_shape(a.shape, b.shape, op);
  ROUNDOFF_CHECK(dy.shape == shape, op, "dy has shape ", dy.shape, ", expected ", shape);
  check_out(da, a.shape, op, "da");
  check_out(db, b.shape, op, "db");
}

void binary_forward(Ref, const BinaryParams& params, const ConstView& a, const ConstView& b,
                    const Out& y) {
  if (!y.wanted) return;
  detail::check_binary_forward(params, a, b, y);
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, a, b), [&]<class T>(T) {
    switch (params.op) {
      case Binary::add:
        return forward<T>(a, b, y, [](T p, T q) { return p + q; });
      case Binary::sub:
        return forward<T>(a, b, y, [](T p, T q) { return p - q; });
      case Binary::mul:
        return forward<T>(a, b, y, [](T p, T q) { return p * q; });
      case Binary::div:
        return forward<T>(a, b, y, [](T p, T q) { return p / q; });
    }
  });
}

void binary_backward(Ref, const BinaryParams& params, const ConstView& a, const ConstView& b,
                     const ConstView& dy, const Out& da, const Out& db) {
  detail::check_binary_backward(params, a, b, dy, da, db);
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, a, b, dy),
                          [&]<class T>(T) { backward<T>(params.op, a, b, dy, da, db); });
}

}  // namespace roundoff
