// Cross-entropy on devices: the formulas of cross_entropy.h, and here its forward.
//
// A row of logits: its maximum and s = sum exp(x - max), from registers (one read) up to kResident
// classes in a block and on sm_90 up to 131072 in a cluster of 2 to 8 blocks; in one pass beyond
// (kernels/softmax/online.cuh). Smoothing and probabilities take a second walk over the row, which
// is in a cache then. Each row leaves its loss and its weight in fp64; kernels/loss/terms.cuh adds
// them. fp32 (fp64 where logits or the accumulator are), one rounding on the way out. A row that is
// a cluster's on sm_90 and a block's elsewhere is summed in another order there, within the bounds.
#include "kernels/loss/cross_entropy.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using namespace cross_entropy;
  using reduce::Max;
  using reduce::RowMap;
  using reduce::RowPlace;
  using reduce::RowTotal;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, reduce::BlocksFor<Shape, T, 1>::value)
      cross_entropy_rows(const T* __restrict__ x, Problem p, ForwardOut out) {
    if (!Shape::here) return;
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(A, memory, [Shape::shared]);
    RowPlace<Shape> place;
    RowTotal<Shape, A> total(place, memory);
    const std::int64_t row = place.row;
    const int rank = place.rank;
    const std::int64_t label = row < p.rows ? p.label(row, rank == 0) : -1;
    const std::int64_t at = label >= 0 ? row * p.classes : 0;
    const RowMap<kPacks, kPack> map(label >= 0 ? static_cast<int>(p.classes) : 0, rank,
                                    place.threads);
    RowValues<A, kPacks, kPack> v;
    map.load(x + at, -kInfinity<A>, v);
    A max = -kInfinity<A>;
    v.all([&](A& value) { max = Max{}(value, max); });
    max = total(max, Max{});
    A sum = A(0);
    v.all([&](A& value) { sum += exponential(value - max); });
    sum = checked_sum(total(sum, Sum{}), max, p.classes);
    const A x_label = !p.soft && label >= 0 && rank == 0 ? widen_value<A>(x[at + label]) : A(0);
    finish_row(
        p, out, row, label, rank == 0, max, sum, x_label,
        [&](auto f) {
          // From a cache: unrolled over registers, this rare part would be most of the kernel.
          ROUNDOFF_NO_UNROLL
          for (int c = rank; c < map.n; c += place.threads) f(widen_value<A>(x[at + c]), c);
        },
        [&](A terms) { return total(terms, Sum{}); });
  }

  template <class T>
  __global__ void __launch_bounds__(256, 2)
      cross_entropy_long(const T* __restrict__ x, Problem p, ForwardOut out) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    ROUNDOFF_SHARED(ExponentialSum<A>, partial, [reduce::shared_size(256)]);
    ROUNDOFF_SHARED(A, partial_terms, [reduce::shared_size(256)]);
    Shared<ExponentialSum<A>> shared(partial);
    Shared<A> shared_terms(partial_terms);
    const std::int64_t row = blockIdx.x;
    const std::int64_t label = p.label(row, threadIdx.x == 0);
    const std::int64_t n = label >= 0 ? p.classes : 0;
    const auto thread = static_cast<std::int64_t>(threadIdx.x);
    x += row * p.classes;
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
    const A x_label = !p.soft && label >= 0 && threadIdx.x == 0 ? widen_value<A>(x[label]) : A(0);
    finish_row(
        p, out, row, label, threadIdx.x == 0, s.at[0], checked_sum(s.at[1], s.at[0], p.classes),
        x_label,
        [&](auto f) {
          ROUNDOFF_NO_UNROLL
          for (std::int64_t c = thread; c < n; c += 256) f(widen_value<A>(x[c]), c);
        },
        [&](A terms) { return reduce::row<256>(terms, Sum{}, shared_terms); });
  }

  // fp64 arithmetic on logits of another type.
  __global__ void __launch_bounds__(256, 2)
      cross_entropy_any(AnyOperand x, Problem p, ForwardOut out) {
    using A = double;
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(256)]);
    Shared<A> shared(partial);
    const std::int64_t row = blockIdx.x;
    const std::int64_t label = p.label(row, threadIdx.x == 0);
    const std::int64_t n = label >= 0 ? p.classes : 0;
    const std::int64_t at = row * p.classes;
    const auto thread = static_cast<std::int64_t>(threadIdx.x);
    A max = -kInfinity<A>;
    for (std::int64_t c = thread; c < n; c += 256) max = Max{}(x.get<A>(at + c), max);
    max = reduce::row<256>(max, Max{}, shared);
    A sum = A(0);
    for (std::int64_t c = thread; c < n; c += 256) sum += exponential(x.get<A>(at + c) - max);
    sum = checked_sum(reduce::row<256>(sum, Sum{}, shared), max, p.classes);
    const A x_label = !p.soft && label >= 0 && threadIdx.x == 0 ? x.get<A>(at + label) : A(0);
    finish_row(
        p, out, row, label, threadIdx.x == 0, max, sum, x_label,
        [&](auto f) {
          ROUNDOFF_NO_UNROLL
          for (std::int64_t c = thread; c < n; c += 256) f(x.get<A>(at + c), c);
        },
        [&](A terms) { return reduce::row<256>(terms, Sum{}, shared); });
  }

  void launch_rows(Target device, const ConstView& logits, const Problem& p, const ForwardOut& out,
                   bool fp64) {
    const unsigned blocks = reduce::grid_of("cross_entropy", p.rows);
    if (fp64 && logits.dtype != DType::fp64)
      return launch(device, {.name = "cross_entropy_any", .grid = {blocks}, .block = {256}},
                    cross_entropy_any, AnyOperand(logits), p, out);
    visit_floating(logits.dtype, "cross_entropy", [&]<class T>() {
      const auto run = [&]<class Shape>(Shape) {
        launch(device, reduce::row_launch<Shape>("cross_entropy_rows", p.rows, p.classes),
               cross_entropy_rows<T, Shape>, logits.as<T>(), p, out);
      };
      if constexpr (sizeof(T) == 8) {
        if (p.classes <= reduce::kResidentPair) return reduce::with_pair_shape(p.classes, run);
      } else {
        if (p.classes <= reduce::kResident) return reduce::with_row_shape(p.classes, run);
        if (reduce::takes_cluster(device, p.classes, reduce::kResident))
          return run(reduce::LongRow{});
      }
      launch(device, {.name = "cross_entropy_long", .grid = {blocks}, .block = {256}},
             cross_entropy_long<T>, logits.as<T>(), p, out);
    });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void cross_entropy_forward(T device, const CrossEntropyParams& params, const ConstView& logits,
                           const ConstView& target, const ConstView& weight, const Out& loss,
                           const Out& valid, const Out& row_stats, Scratch& scratch) {
  const Problem p = problem_of(
      device, check_cross_entropy_forward(params, logits, target, weight, loss, valid, row_stats),
      params, target, weight);
  check_weights(device, p);
  const Scratch::Frame frame(scratch);
  const ForwardOut out{AnyResult(loss), AnyResult(row_stats), scratch.get<LossTerm>(p.rows)};
  if (p.rows > 0)
    launch_rows(device, logits, p, out,
                row_stats_dtype(params.accumulator, logits.dtype) == DType::fp64);
  const bool total = loss.wanted && params.reduction != Reduction::none;
  if (total || valid.wanted)
    launch_loss_total(device, out.terms, p.rows, params.reduction, out.loss, AnyResult(valid),
                      scratch);
}

template void cross_entropy_forward(Target, const CrossEntropyParams&, const ConstView&,
                                    const ConstView&, const ConstView&, const Out&, const Out&,
                                    const Out&, Scratch&);

}  // namespace roundoff
