// Gradients of softmax and log-softmax on devices.
//
// dx = y (dy - sum(dy y)) or dy - exp(y) sum(dy), from the output y; fp32 (fp64 where y or the
// accumulator is), one rounding on the way out. A tensor is [outer, n, inner] around the axis.
//
// Layouts as in softmax.cu. y and dy both stay in registers, up to kResidentPair elements in a
// block and on sm_90 up to 131072 in a cluster: two reads, one write. Longer rows and other axes
// are read twice.
#include "kernels/softmax/lines.cuh"
#include "kernels/softmax/online.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using reduce::RowMap;
  using reduce::RowPlace;
  using reduce::RowTotal;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;
  using softmax::Lines;

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, reduce::BlocksFor<Shape, T, 2>::value)
      softmax_rows_backward(const T* __restrict__ y, const T* __restrict__ dy, T* dx,
                            std::int64_t rows, int n, bool log) {
    if (!Shape::here) return;
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(A, memory, [Shape::shared]);
    RowPlace<Shape> place;
    RowTotal<Shape, A> total(place, memory);
    const bool inside = place.row < rows;
    const std::int64_t at = inside ? place.row * n : 0;
    const RowMap<kPacks, kPack> map(inside ? n : 0, place.rank, place.threads);
    RowValues<A, kPacks, kPack> v;
    RowValues<A, kPacks, kPack> g;
    map.load(y + at, A(0), v);
    map.load(dy + at, A(0), g);
    A sum = A(0);
    g.all(v, [&](A& gradient, A value) { sum += log ? gradient : gradient * value; });
    sum = total(sum, Sum{});
    g.all(v, [&](A& gradient, A value) {
      gradient = log ? gradient - exponential(value) * sum : value * (gradient - sum);
    });
    map.store(dx + at, g);
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

  template <class A, class In, class To>
  void launch_lines(Target target, const Lines& lines, In y, In dy, To dx, bool log) {
    softmax::with_team<A, In>(lines, [&]<class Team>() {
      launch(target, softmax::line_launch<Team>("softmax_lines_backward", lines),
             softmax_lines_backward<A, Team, In, To>, y, dy, dx, lines, log);
    });
  }

  template <class T>
  void launch_rows(Target target, const Lines& lines, const T* y, const T* dy, T* dx, bool log) {
    const auto run = [&]<class Shape>(Shape) {
      launch(target, reduce::row_launch<Shape>("softmax_rows_backward", lines.count, lines.n),
             softmax_rows_backward<T, Shape>, y, dy, dx, lines.count, static_cast<int>(lines.n),
             log);
    };
    if (lines.n <= reduce::kResidentPair) return reduce::with_pair_shape(lines.n, run);
    if constexpr (sizeof(T) < 8) {
      if (reduce::takes_cluster(target, lines.n, reduce::kResidentPair))
        return run(reduce::LongRow{});
    }
    launch(target,
           {.name = "softmax_long_backward",
            .grid = {reduce::grid_of("softmax_long_backward", lines.count)},
            .block = {256}},
           softmax_long_backward<T>, y, dy, dx, lines.n, log);
  }

  void backward(Target target, const SoftmaxParams& params, const ConstView& y, const ConstView& dy,
                const Out& dx, bool log) {
    if (!dx.wanted) return;
    const std::string_view name = log ? "log_softmax" : "softmax";
    detail::check_floating(y, name, "y");
    detail::check_floating(dy, name, "dy");
    const Lines lines = softmax::lines_of(y.shape, y.shape.normalize_axis(params.axis, name));
    ROUNDOFF_CHECK(dy.shape == y.shape, name, "dy has shape ", dy.shape, ", expected ", y.shape);
    detail::check_out(dx, y.shape, name, "dx");
    if (y.numel() == 0) return;
    const bool fp64 = detail::wants_fp64(params.accumulator, y, dy);
    const bool same =
        dy.dtype == y.dtype && dx.view.dtype == y.dtype && dx.write == Write::overwrite;
    const bool done = softmax::with_one_type(fp64, y.dtype, same, [&]<class T>() {
      if (lines.inner != 1)
        return launch_lines<ArithmeticOf<T>>(target, lines, TypedIn<T>{y.as<T>()},
                                             TypedIn<T>{dy.as<T>()}, TypedOut<T>{dx.view.as<T>()},
                                             log);
      launch_rows(target, lines, y.as<T>(), dy.as<T>(), dx.view.as<T>(), log);
    });
    if (done) return;
    detail::with_arithmetic(fp64, [&]<class A>(A) {
      launch_lines<A>(target, lines, AnyOperand(y), AnyOperand(dy), AnyResult(dx), log);
    });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void softmax_backward(T target, const SoftmaxParams& params, const ConstView& y,
                      const ConstView& dy, const Out& dx) {
  backward(target, params, y, dy, dx, false);
}
template <DeviceTarget T>
void log_softmax_backward(T target, const SoftmaxParams& params, const ConstView& y,
                          const ConstView& dy, const Out& dx) {
  backward(target, params, y, dy, dx, true);
}

template void softmax_backward(Target, const SoftmaxParams&, const ConstView&, const ConstView&,
                               const Out&);
template void log_softmax_backward(Target, const SoftmaxParams&, const ConstView&, const ConstView&,
                                   const Out&);

}  // namespace roundoff
