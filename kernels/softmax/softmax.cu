// Softmax and log-softmax on devices.
//
// y = exp(x - max) (1 / s) or (x - max) - log s, s = sum exp(x - max); dx = y (dy - sum(dy y)) or
// dy - exp(y) sum(dy). fp32 (fp64 where x or the accumulator is), one rounding on the way out.
// A tensor is [outer, n, inner] around the axis.
//
// inner = 1, everything of one type, rows up to kResident: a row stays in the registers of 16 to
//   256 threads, so it is read once and written once, in 16-byte accesses where its place allows
//   them.
// inner = 1, longer: a block a row, in two reads: the maximum and s together (online.cuh), then y.
// other axes: 32 neighbouring lines a block, 8 threads a line, three reads (two backward).
// types that differ, or an output that is added to: a block a line, element by element.
// Sums: a thread's own elements in order, then the tree of kernels/reduce/block.cuh.
#include "kernels/elementwise/chunks.h"
#include "kernels/reduce/row.cuh"
#include "kernels/simt/operand.cuh"
#include "kernels/softmax/online.cuh"
#include "kernels/softmax/softmax.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using reduce::Max;
  using reduce::RowMap;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;

  // A block's rows of its shape; the index of this thread's one.
  template <class Shape>
  ROUNDOFF_DEVICE std::int64_t own_row() {
    return static_cast<std::int64_t>(blockIdx.x) * Shape::rows + threadIdx.x / Shape::threads;
  }

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, sizeof(T) == 8 ? 1 : Shape::blocks)
      softmax_rows(const T* __restrict__ x, T* __restrict__ y, std::int64_t rows, int n, bool log) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(Shape::block)]);
    Shared<A> shared(partial);
    const std::int64_t row = own_row<Shape>();
    const std::int64_t at = row < rows ? row * n : 0;
    const RowMap<Shape::threads, kPacks, kPack> map(row < rows ? n : 0,
                                                    static_cast<int>(threadIdx.x) % Shape::threads);
    RowValues<A, kPacks, kPack> v;
    map.load(x + at, -kInfinity<A>, v);
    A max = -kInfinity<A>;
    v.all([&](A& value) { max = Max{}(value, max); });
    max = reduce::row<Shape::threads>(max, Max{}, shared);
    A sum = A(0);
    if (log) {
      v.all([&](A& value) {
        value -= max;
        sum += exponential(value);
      });
      sum = logarithm(reduce::row<Shape::threads>(sum, Sum{}, shared));
      v.all([&](A& value) { value -= sum; });
    } else {
      v.all([&](A& value) {
        value = exponential(value - max);
        sum += value;
      });
      const A inverse = A(1) / reduce::row<Shape::threads>(sum, Sum{}, shared);
      v.all([&](A& value) { value *= inverse; });
    }
    map.store(y + at, v);
  }

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, Shape::blocks / 2)
      softmax_rows_backward(const T* __restrict__ y, const T* __restrict__ dy, T* dx,
                            std::int64_t rows, int n, bool log) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(Shape::block)]);
    Shared<A> shared(partial);
    const std::int64_t row = own_row<Shape>();
    const std::int64_t at = row < rows ? row * n : 0;
    const RowMap<Shape::threads, kPacks, kPack> map(row < rows ? n : 0,
                                                    static_cast<int>(threadIdx.x) % Shape::threads);
    RowValues<A, kPacks, kPack> v;
    RowValues<A, kPacks, kPack> g;
    map.load(y + at, A(0), v);
    map.load(dy + at, A(0), g);
    A sum = A(0);
    g.all(v, [&](A& gradient, A value) { sum += log ? gradient : gradient * value; });
    sum = reduce::row<Shape::threads>(sum, Sum{}, shared);
    g.all(v, [&](A& gradient, A value) {
      gradient = log ? gradient - exponential(value) * sum : value * (gradient - sum);
    });
    map.store(dx + at, g);
  }

  template <class A>
  ROUNDOFF_DEVICE A result(A x, A max, A factor, bool log) {
    return log ? (x - max) - factor : exponential(x - max) * factor;
  }

  template <class T>
  __global__ void __launch_bounds__(256, 4)
      softmax_long(const T* __restrict__ x, T* __restrict__ y, std::int64_t n, bool log) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    ROUNDOFF_SHARED(ExponentialSum<A>, partial, [reduce::shared_size(256)]);
    Shared<ExponentialSum<A>> shared(partial);
    x += static_cast<std::int64_t>(blockIdx.x) * n;
    y += static_cast<std::int64_t>(blockIdx.x) * n;
    const auto thread = static_cast<std::int64_t>(threadIdx.x);
    ExponentialSum<A> s = no_exponentials<A>();
    reduce::walk_row<256, kPack>(
        n, static_cast<int>(threadIdx.x),
        [&](std::int64_t i) {
          A v[kPack];
          load_values(x + i, v);
          add_exponentials(s, v);
        },
        [&](std::int64_t i) {
          const A v[1] = {widen_value<A>(x[i])};
          add_exponentials(s, v);
        });
    s = reduce::row<256>(s, MergeExponentials{}, shared);
    const A max = s.at[0];
    const A factor = log ? logarithm(s.at[1]) : A(1) / s.at[1];
    for_each_pack<kPack>(
        n, pack_head<kPack>(x, y), thread, 256,
        [&](std::int64_t i) {
          A v[kPack];
          load_pack(x + i, v);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) v[j] = result(v[j], max, factor, log);
          store_pack(y + i, v);
        },
        [&](std::int64_t i) {
          y[i] = narrow_value<T>(result(widen_value<A>(x[i]), max, factor, log));
        });
  }

  template <class T>
  __global__ void __launch_bounds__(256)
      softmax_long_backward(const T* __restrict__ y, const T* __restrict__ dy, T* dx,
                            std::int64_t n, bool log) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(256)]);
    Shared<A> shared(partial);
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * n;
    y += at;
    dy += at;
    dx += at;
    const auto thread = static_cast<std::int64_t>(threadIdx.x);
    A sum = A(0);
    reduce::walk_row<256, kPack>(
        n, static_cast<int>(threadIdx.x),
        [&](std::int64_t i) {
          A v[kPack];
          A g[kPack];
          load_values(y + i, v);
          load_values(dy + i, g);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) sum += log ? g[j] : g[j] * v[j];
        },
        [&](std::int64_t i) {
          const A g = widen_value<A>(dy[i]);
          sum += log ? g : g * widen_value<A>(y[i]);
        });
    sum = reduce::row<256>(sum, Sum{}, shared);
    const auto gradient = [&](A v, A g) { return log ? g - exponential(v) * sum : v * (g - sum); };
    for_each_pack<kPack>(
        n, pack_head<kPack>(y, dy, dx), thread, 256,
        [&](std::int64_t i) {
          A v[kPack];
          A g[kPack];
          load_pack(y + i, v);
          load_pack(dy + i, g);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) g[j] = gradient(v[j], g[j]);
          store_pack(dx + i, g);
        },
        [&](std::int64_t i) {
          dx[i] = narrow_value<T>(gradient(widen_value<A>(y[i]), widen_value<A>(dy[i])));
        });
  }

  struct Lines {
    std::int64_t count;
    std::int64_t n;
    std::int64_t inner;
  };

  template <class A, class Team, class In, class To>
  __global__ void __launch_bounds__(256) softmax_lines(In x, To y, Lines lines, bool log) {
    ROUNDOFF_SHARED(A, partial, [Team::shared]);
    Team team(partial);
    const reduce::Line line(team.line, lines.count, lines.n, lines.inner);
    A max = -kInfinity<A>;
    for (std::int64_t i = team.rank; i < line.n; i += Team::size)
      max = Max{}(x.template get<A>(line.base + i * lines.inner), max);
    max = team(max, Max{});
    A sum = A(0);
    for (std::int64_t i = team.rank; i < line.n; i += Team::size)
      sum += exponential(x.template get<A>(line.base + i * lines.inner) - max);
    sum = team(sum, Sum{});
    const A factor = log ? logarithm(sum) : A(1) / sum;
    for (std::int64_t i = team.rank; i < line.n; i += Team::size) {
      const std::int64_t at = line.base + i * lines.inner;
      y.put(at, result(x.template get<A>(at), max, factor, log));
    }
  }

  template <class A, class Team, class In, class To>
  __global__ void __launch_bounds__(256)
      softmax_lines_backward(In y, In dy, To dx, Lines lines, bool log) {
    ROUNDOFF_SHARED(A, partial, [Team::shared]);
    Team team(partial);
    const reduce::Line line(team.line, lines.count, lines.n, lines.inner);
    A sum = A(0);
    for (std::int64_t i = team.rank; i < line.n; i += Team::size) {
      const std::int64_t at = line.base + i * lines.inner;
      const A g = dy.template get<A>(at);
      sum += log ? g : g * y.template get<A>(at);
    }
    sum = team(sum, Sum{});
    for (std::int64_t i = team.rank; i < line.n; i += Team::size) {
      const std::int64_t at = line.base + i * lines.inner;
      const A g = dy.template get<A>(at);
      const A v = y.template get<A>(at);
      dx.put(at, log ? g - exponential(v) * sum : v * (g - sum));
    }
  }

  unsigned blocks_of(std::int64_t lines, std::int64_t lines_a_block) {
    const std::int64_t blocks = (lines + lines_a_block - 1) / lines_a_block;
    ROUNDOFF_CHECK(blocks < (std::int64_t{1} << 31), "softmax", lines, " rows are too many");
    return static_cast<unsigned>(blocks);
  }

  Lines lines_of(const Shape& shape, int axis) {
    Lines lines{1, shape[axis], 1};
    for (int a = 0; a < shape.rank(); ++a) {
      if (a != axis) lines.count *= shape[a];
      if (a > axis) lines.inner *= shape[a];
    }
    return lines;
  }

  // f.template operator()<T>() where everything is of one type and its own arithmetic will do;
  // false otherwise.
  template <class F>
  bool with_one_type(bool fp64, DType dtype, bool same, F&& f) {
    if (!same || (fp64 && dtype != DType::fp64)) return false;
    visit_floating(dtype, "softmax", f);
    return true;
  }

  template <class A, class In, class To>
  void launch_lines(Target target, const Lines& lines, In x, To y, bool log) {
    const auto run = [&]<class Team>() {
      launch(target,
             {.name = "softmax_lines",
              .grid = {blocks_of(lines.count, Team::lines)},
              .block = Team::block},
             softmax_lines<A, Team, In, To>, x, y, lines, log);
    };
    if constexpr (std::is_same_v<In, AnyOperand>) {
      if (lines.inner == 1) return run.template operator()<reduce::RowTeam<A>>();
    }
    run.template operator()<reduce::ColumnTeam<A>>();
  }

  template <class A, class In, class To>
  void launch_lines_backward(Target target, const Lines& lines, In y, In dy, To dx, bool log) {
    const auto run = [&]<class Team>() {
      launch(target,
             {.name = "softmax_lines_backward",
              .grid = {blocks_of(lines.count, Team::lines)},
              .block = Team::block},
             softmax_lines_backward<A, Team, In, To>, y, dy, dx, lines, log);
    };
    if constexpr (std::is_same_v<In, AnyOperand>) {
      if (lines.inner == 1) return run.template operator()<reduce::RowTeam<A>>();
    }
    run.template operator()<reduce::ColumnTeam<A>>();
  }

  void forward(Target target, const SoftmaxParams& params, const ConstView& x, const Out& y,
               bool log) {
    if (!y.wanted) return;
    const std::string_view name = log ? "log_softmax" : "softmax";
    detail::check_floating(x, name, "x");
    const Lines lines = lines_of(x.shape, x.shape.normalize_axis(params.axis, name));
    detail::check_out(y, x.shape, name, "y");
    if (x.numel() == 0) return;
    const bool fp64 = detail::wants_fp64(params.accumulator, x);
    const bool same = y.view.dtype == x.dtype && y.write == Write::overwrite;
    const bool done = with_one_type(fp64, x.dtype, same, [&]<class T>() {
      const T* from = x.as<T>();
      T* to = y.view.as<T>();
      if (lines.inner != 1)
        return launch_lines<ArithmeticOf<T>>(target, lines, TypedIn<T>{from}, TypedOut<T>{to}, log);
      if (lines.n > reduce::kResident)
        return launch(target,
                      {.name = "softmax_long", .grid = {blocks_of(lines.count, 1)}, .block = {256}},
                      softmax_long<T>, from, to, lines.n, log);
      reduce::with_row_shape(lines.n, [&]<class Shape>(Shape) {
        launch(target,
               {.name = "softmax_rows",
                .grid = {blocks_of(lines.count, Shape::rows)},
                .block = {Shape::block}},
               softmax_rows<T, Shape>, from, to, lines.count, static_cast<int>(lines.n), log);
      });
    });
    if (done) return;
    detail::with_arithmetic(fp64, [&]<class A>(A) {
      launch_lines<A>(target, lines, AnyOperand(x), AnyResult(y), log);
    });
  }

  void backward(Target target, const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                const Out& dx, bool log) {
    if (!dx.wanted) return;
    const std::string_view name = log ? "log_softmax" : "softmax";
    detail::check_floating(y, name, "y");
    detail::check_floating(dy, name, "dy");
    const Lines lines = lines_of(y.shape, y.shape.normalize_axis(params.axis, name));
    ROUNDOFF_CHECK(dy.shape == y.shape, name, "dy has shape ", dy.shape, ", expected ", y.shape);
    detail::check_out(dx, y.shape, name, "dx");
    if (y.numel() == 0) return;
    const bool fp64 = detail::wants_fp64(params.accumulator, y, dy);
    const bool same =
        dy.dtype == y.dtype && dx.view.dtype == y.dtype && dx.write == Write::overwrite;
    const bool done = with_one_type(fp64, y.dtype, same, [&]<class T>() {
      const T* values = y.as<T>();
      const T* gradients = dy.as<T>();
      T* to = dx.view.as<T>();
      if (lines.inner != 1)
        return launch_lines_backward<ArithmeticOf<T>>(target, lines, TypedIn<T>{values},
                                                      TypedIn<T>{gradients}, TypedOut<T>{to}, log);
      if (lines.n > reduce::kResident)
        return launch(
            target,
            {.name = "softmax_long_backward", .grid = {blocks_of(lines.count, 1)}, .block = {256}},
            softmax_long_backward<T>, values, gradients, to, lines.n, log);
      reduce::with_row_shape(lines.n, [&]<class Shape>(Shape) {
        launch(target,
               {.name = "softmax_rows_backward",
                .grid = {blocks_of(lines.count, Shape::rows)},
                .block = {Shape::block}},
               softmax_rows_backward<T, Shape>, values, gradients, to, lines.count,
               static_cast<int>(lines.n), log);
      });
    });
    if (done) return;
    detail::with_arithmetic(fp64, [&]<class A>(A) {
      launch_lines_backward<A>(target, lines, AnyOperand(y), AnyOperand(dy), AnyResult(dx), log);
    });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void softmax_forward(T target, const SoftmaxParams& params, const ConstView& x, const Out& y,
                     Scratch&) {
  forward(target, params, x, y, false);
}
template <DeviceTarget T>
void softmax_backward(T target, const SoftmaxParams& params, const ConstView& y,
                      const ConstView& dy, const Out& dx) {
  backward(target, params, y, dy, dx, false);
}
template <DeviceTarget T>
void log_softmax_forward(T target, const SoftmaxParams& params, const ConstView& x, const Out& y) {
  forward(target, params, x, y, true);
}
template <DeviceTarget T>
void log_softmax_backward(T target, const SoftmaxParams& params, const ConstView& y,
                          const ConstView& dy, const Out& dx) {
  backward(target, params, y, dy, dx, true);
}

template void softmax_forward(Target, const SoftmaxParams&, const ConstView&, const Out&, Scratch&);
template void softmax_backward(Target, const SoftmaxParams&, const ConstView&, const ConstView&,
                               const Out&);
template void log_softmax_forward(Target, const SoftmaxParams&, const ConstView&, const Out&);
template void log_softmax_backward(Target, const SoftmaxParams&, const ConstView&, const ConstView&,
                                   const Out&);

}  // namespace roundoff
