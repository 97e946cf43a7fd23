// Softmax and log-softmax on devices.
//
// y = exp(x - max) (1 / s) or (x - max) - log s, s = sum exp(x - max); fp32 (fp64 where x or the
// accumulator is), one rounding on the way out. A tensor is [outer, n, inner] around the axis.
//
// inner = 1, everything of one type: a row stays in registers, so it is read once and written once,
//   in 16-byte accesses where its place allows them: up to kResident elements in 8 to 256 threads
//   (fp64: kResidentPair), and on sm_90 up to 131072 in a cluster of 2 to 8 blocks.
// inner = 1, longer: a block a row, in two reads: the maximum and s together (online.cuh), then y.
// other axes: 32 neighbouring lines a block, 8 threads a line, three reads.
// types that differ, or an output that is added to: a block a line, element by element.
// Sums: a thread's own elements in order, then the tree of kernels/reduce/block.cuh, or a cluster's
// (kernels/reduce/row.cuh). A row that is a cluster's on sm_90 and a block's elsewhere is summed in
// another order there, within the same bounds.
#include "kernels/softmax/lines.cuh"
#include "kernels/softmax/online.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using reduce::Max;
  using reduce::RowMap;
  using reduce::RowPlace;
  using reduce::RowTotal;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;
  using softmax::Lines;

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, reduce::BlocksFor<Shape, T, 1>::value)
      softmax_rows(const T* __restrict__ x, T* __restrict__ y, std::int64_t rows, int n, bool log) {
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
    map.load(x + at, -kInfinity<A>, v);
    A max = -kInfinity<A>;
    v.all([&](A& value) { max = Max{}(value, max); });
    max = total(max, Max{});
    A sum = A(0);
    if (log) {
      v.all([&](A& value) {
        value -= max;
        sum += exponential(value);
      });
      sum = logarithm(total(sum, Sum{}));
      v.all([&](A& value) { value -= sum; });
    } else {
      v.all([&](A& value) {
        value = exponential(value - max);
        sum += value;
      });
      const A inverse = A(1) / total(sum, Sum{});
      v.all([&](A& value) { value *= inverse; });
    }
    map.store(y + at, v);
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

  template <class A, class In, class To>
  void launch_lines(Target target, const Lines& lines, In x, To y, bool log) {
    softmax::with_team<A, In>(lines, [&]<class Team>() {
      launch(target, softmax::line_launch<Team>("softmax_lines", lines),
             softmax_lines<A, Team, In, To>, x, y, lines, log);
    });
  }

  template <class T>
  void launch_rows(Target target, const Lines& lines, const T* x, T* y, bool log) {
    constexpr bool kWide = sizeof(T) == 8;
    constexpr std::int64_t kMost = kWide ? reduce::kResidentPair : reduce::kResident;
    const auto run = [&]<class Shape>(Shape) {
      launch(target, reduce::row_launch<Shape>("softmax_rows", lines.count, lines.n),
             softmax_rows<T, Shape>, x, y, lines.count, static_cast<int>(lines.n), log);
    };
    if constexpr (kWide) {
      if (lines.n <= kMost) return reduce::with_pair_shape(lines.n, run);
    } else {
      if (lines.n <= kMost) return reduce::with_row_shape(lines.n, run);
      if (reduce::takes_cluster(target, lines.n, kMost)) return run(reduce::LongRow{});
    }
    launch(target,
           {.name = "softmax_long",
            .grid = {reduce::grid_of("softmax_long", lines.count)},
            .block = {256}},
           softmax_long<T>, x, y, lines.n, log);
  }

  void forward(Target target, const SoftmaxParams& params, const ConstView& x, const Out& y,
               bool log) {
    if (!y.wanted) return;
    const std::string_view name = log ? "log_softmax" : "softmax";
    detail::check_floating(x, name, "x");
    const Lines lines = softmax::lines_of(x.shape, x.shape.normalize_axis(params.axis, name));
    detail::check_out(y, x.shape, name, "y");
    if (x.numel() == 0) return;
    const bool fp64 = detail::wants_fp64(params.accumulator, x);
    const bool same = y.view.dtype == x.dtype && y.write == Write::overwrite;
    const bool done = softmax::with_one_type(fp64, x.dtype, same, [&]<class T>() {
      if (lines.inner != 1)
        return launch_lines<ArithmeticOf<T>>(target, lines, TypedIn<T>{x.as<T>()},
                                             TypedOut<T>{y.view.as<T>()}, log);
      launch_rows(target, lines, x.as<T>(), y.view.as<T>(), log);
    });
    if (done) return;
    detail::with_arithmetic(fp64, [&]<class A>(A) {
      launch_lines<A>(target, lines, AnyOperand(x), AnyResult(y), log);
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
void log_softmax_forward(T target, const SoftmaxParams& params, const ConstView& x, const Out& y) {
  forward(target, params, x, y, true);
}

template void softmax_forward(Target, const SoftmaxParams&, const ConstView&, const Out&, Scratch&);
template void log_softmax_forward(Target, const SoftmaxParams&, const ConstView&, const Out&);

}  // namespace roundoff
