// LayerNorm on devices: the formulas of layer_norm.h, in its two passes with the corrected mean.
//
// Rows of one type stay in registers, one read and one write: up to kResident elements in 8 to 256
// threads of a block, on sm_90 up to 131072 in a cluster of 2 to 8 blocks. Longer rows and mixed
// types: a block a row, three reads. gamma and beta are widened once, into the workspace, where
// they are not of the arithmetic's type already; every row reads them, from a cache. fp32 (fp64
// where an operand or the accumulator is), one rounding on the way out. A row that is a cluster's
// on sm_90 and a block's elsewhere is summed in another order there, within the bounds.
#include "kernels/norm/layer_norm.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using norms::Moments;
  using reduce::RowMap;
  using reduce::RowPlace;
  using reduce::RowTotal;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;

  template <class A>
  using Two = reduce::Values<A, 2>;

  // Whether some row of those that meet at one barrier says so; all its threads agree.
  template <class Shape>
  ROUNDOFF_DEVICE bool any_row(bool says) {
    if constexpr (Shape::rows == 1) {
      return says;
    } else if constexpr (Shape::threads <= 32) {
      return __any_sync(0xFFFFFFFFU, says) != 0;
    } else {
      return __syncthreads_or(says ? 1 : 0) != 0;
    }
  }

  template <class A>
  struct Affine {
    const A* gamma;
    const A* beta;
  };

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, reduce::BlocksFor<Shape, T, 1>::value)
      layer_norm_rows(const T* __restrict__ x, Affine<ArithmeticOf<T>> p, T* __restrict__ y,
                      AnyResult mean, AnyResult rstd, std::int64_t rows, int n, double eps) {
    if (!Shape::here) return;
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(Two<A>, memory, [Shape::shared]);
    ROUNDOFF_SHARED(A, memory_sum, [Shape::shared]);
    RowPlace<Shape> place;
    RowTotal<Shape, Two<A>> total(place, memory);
    RowTotal<Shape, A> total_sum(place, memory_sum);
    const std::int64_t row = place.row;
    const bool inside = row < rows;
    const std::int64_t at = inside ? row * n : 0;
    const RowMap<kPacks, kPack> map(inside ? n : 0, place.rank, place.threads);
    const auto count = static_cast<A>(n);
    RowValues<A, kPacks, kPack> v;
    map.load(x + at, A(0), v);
    A sum = A(0);
    v.all([&](A& value) { sum += value; });
    const A first = total_sum(sum, Sum{}) / count;
    Two<A> sums{{A(0), A(0)}};
    map.each(v, [&](A& value) {
      const A d = value - first;
      sums.at[0] += d;
      sums.at[1] += d * d;
    });
    sums = total(sums, Sum{});
    Moments<A> m = norms::moments(first, sums.at[0] / count, sums.at[1] / count, eps);
    {
      // All threads of a row agree; rows of one block may not.
      ROUNDOFF_SHARED(double, wide, [Shape::shared]);
      RowTotal<Shape, double> total_wide(place, wide);
      const bool again = inside && norms::left_range(m);
      if (any_row<Shape>(again)) {
        const Moments<A> wider = norms::moments_in_fp64<A>(
            map.n, place.rank, place.threads, eps,
            [&](std::int64_t i) { return widen_value<double>(x[at + i]); },
            [&](double value) { return total_wide(value, Sum{}); });
        if (again) m = wider;
      }
    }
    if (inside && place.rank == 0) {
      if (mean.wanted()) mean.put(row, m.mean);
      if (rstd.wanted()) rstd.put(row, m.rstd);
    }
    if (y == nullptr) return;
    v.all([&](A& value) { value = (value - m.mean) * m.rstd; });
    if (p.gamma != nullptr) norms::combine(map, v, p.gamma, [](A& value, A g) { value *= g; });
    if (p.beta != nullptr) norms::combine(map, v, p.beta, [](A& value, A b) { value += b; });
    map.store(y + at, v);
  }

  template <class A>
  __global__ void __launch_bounds__(256, 2)
      layer_norm_lines(AnyOperand x, Affine<A> p, AnyResult y, AnyResult mean, AnyResult rstd,
                       std::int64_t n, double eps) {
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(256)]);
    Shared<A> shared(partial);
    const auto team = [&](A value) { return reduce::row<256>(value, Sum{}, shared); };
    const std::int64_t row = blockIdx.x;
    const std::int64_t at = row * n;
    const int rank = static_cast<int>(threadIdx.x);
    const auto count = static_cast<A>(n);
    A sum = A(0);
    for (std::int64_t i = rank; i < n; i += 256) sum += x.get<A>(at + i);
    const A first = n == 0 ? A(0) : team(sum) / count;
    A rest = A(0);
    A squares = A(0);
    for (std::int64_t i = rank; i < n; i += 256) {
      const A d = x.get<A>(at + i) - first;
      rest += d;
      squares += d * d;
    }
    rest = n == 0 ? A(0) : team(rest) / count;
    squares = n == 0 ? A(0) : team(squares) / count;
    Moments<A> m = norms::moments(first, rest, squares, eps);
    if constexpr (std::is_same_v<A, float>) {
      ROUNDOFF_SHARED(double, wide, [reduce::shared_size(256)]);
      Shared<double> shared_wide(wide);
      if (n > 0 && norms::left_range(m))
        m = norms::moments_in_fp64<A>(
            n, rank, 256, eps, [&](std::int64_t i) { return x.get<double>(at + i); },
            [&](double value) { return reduce::row<256>(value, Sum{}, shared_wide); });
    }
    if (rank == 0) {
      if (mean.wanted()) mean.put(row, m.mean);
      if (rstd.wanted()) rstd.put(row, m.rstd);
    }
    if (!y.wanted()) return;
    for (std::int64_t i = rank; i < n; i += 256) {
      A value = (x.get<A>(at + i) - m.mean) * m.rstd;
      if (p.gamma != nullptr) value *= p.gamma[i];
      if (p.beta != nullptr) value += p.beta[i];
      y.put(at + i, value);
    }
  }

  template <class A>
  void forward(Target device, const LayerNormParams& params, const NormMatrix& m,
               const ConstView& x, const ConstView& gamma, const ConstView& beta, const Out& y,
               const Out& mean, const Out& rstd, Scratch& scratch) {
    if (m.outer == 0) return;
    const Scratch::Frame frame(scratch);
    const Affine<A> p{norms::widened_on_device<A>(device, gamma, scratch),
                      norms::widened_on_device<A>(device, beta, scratch)};
    const std::int64_t n = m.channels;
    const bool cluster = reduce::takes_cluster(device, n, reduce::kResident);
    if (n == 0 || !(n <= reduce::kResident || cluster) || !norms::stays<A>(x.dtype) ||
        !norms::overwrites(y, x.dtype))
      return launch(device,
                    {.name = "layer_norm_lines",
                     .grid = {reduce::grid_of("layer_norm", m.outer)},
                     .block = {256}},
                    layer_norm_lines<A>, AnyOperand(x), p, AnyResult(y), AnyResult(mean),
                    AnyResult(rstd), n, params.eps);
    if constexpr (std::is_same_v<A, float>)
      norms::visit_resident(x.dtype, [&]<class T>() {
        const auto run = [&]<class Shape>(Shape) {
          launch(device, reduce::row_launch<Shape>("layer_norm_rows", m.outer, n),
                 layer_norm_rows<T, Shape>, x.as<T>(), p, y.wanted ? y.view.as<T>() : nullptr,
                 AnyResult(mean), AnyResult(rstd), m.outer, static_cast<int>(n), params.eps);
        };
        if (cluster) return run(reduce::LongRow{});
        reduce::with_row_shape(n, run);
      });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void layer_norm_forward(T device, const LayerNormParams& params, const ConstView& x,
                        const ConstView& gamma, const ConstView& beta, const Out& y,
                        const Out& mean, const Out& rstd, Scratch& scratch) {
  const NormMatrix m = check_layer_norm(params, x, gamma, beta, y, mean, rstd);
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype}, [&]<class A>() {
    forward<A>(device, params, m, x, gamma, beta, y, mean, rstd, scratch);
  });
}

template void layer_norm_forward(Target, const LayerNormParams&, const ConstView&, const ConstView&,
                                 const ConstView&, const Out&, const Out&, const Out&, Scratch&);

}  // namespace roundoff
