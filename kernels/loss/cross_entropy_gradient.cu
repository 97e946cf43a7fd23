// Cross-entropy and its gradient at once on devices: the formulas of cross_entropy.h.
//
// Labels without smoothing, one type, rows that stay in registers (up to kResident classes in a
// block, on sm_90 up to 131072 in a cluster): a row is read once and its gradient written once, in
// place where that is asked for. A first launch adds the weights of the labels, which the mean
// divides by, before any row is done. Everything else: the forward, then the backward, which is one
// more read. The same formulas and order either way: the same bits as forward and backward.
// fp32, one rounding on the way out.
#include "kernels/base/convert.h"
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
  using reduce::Sum;

  // Weights of the labels of kTermsPerBlock rows, in the order of terms.cuh.
  __global__ void __launch_bounds__(256) label_weights(Problem p, LossTerm* sums) {
    ROUNDOFF_SHARED(LossTerm, partial, [reduce::shared_size(256)]);
    reduce::Shared<LossTerm> shared(partial);
    const std::int64_t first = blockIdx.x * kTermsPerBlock;
    const std::int64_t end = first + kTermsPerBlock < p.rows ? first + kTermsPerBlock : p.rows;
    LossTerm sum{{0, 0}};
    for (std::int64_t row = first + threadIdx.x; row < end; row += 256) {
      const std::int64_t label = p.label(row, false);
      if (label >= 0) sum.at[1] += static_cast<double>(p.weight_of<float>(label));
    }
    sum = reduce::row<256>(sum, Sum{}, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }

  // The mean's divisor, in the workspace.
  const double* launch_divisor(Target device, const Problem& p, Scratch& scratch) {
    std::int64_t n = (p.rows + kTermsPerBlock - 1) / kTermsPerBlock;
    auto* sums = scratch.get<LossTerm>(n);
    launch(device,
           {.name = "label_weights", .grid = {reduce::grid_of("cross_entropy", n)}, .block = {256}},
           label_weights, p, sums);
    while (n > 1) {
      const LossTerm* terms = sums;
      const std::int64_t blocks = (n + kTermsPerBlock - 1) / kTermsPerBlock;
      sums = scratch.get<LossTerm>(blocks);
      launch(device,
             {.name = "loss_terms", .grid = {static_cast<unsigned>(blocks)}, .block = {256}},
             loss_terms, terms, n, sums);
      n = blocks;
    }
    return &sums->at[1];
  }

  // dx may be x. divisor: null where there is none.
  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, reduce::BlocksFor<Shape, T, 1>::value)
      cross_entropy_gradient(const T* x, T* dx, Problem p, ForwardOut out, AnyOperand dloss,
                             const double* divisor) {
    if (!Shape::here) return;
    using A = float;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(A, memory, [Shape::shared]);
    RowPlace<Shape> place;
    RowTotal<Shape, A> total(place, memory);
    const std::int64_t row = place.row;
    const bool inside = row < p.rows;
    const std::int64_t label = inside ? p.label(row, place.rank == 0) : -1;
    const std::int64_t at = inside ? row * p.classes : 0;
    const auto classes = static_cast<int>(p.classes);
    bool counts = label >= 0;
    const RowMap<kPacks, kPack> map(counts ? classes : 0, place.rank, place.threads);
    RowValues<A, kPacks, kPack> v;
    map.load(x + at, -kInfinity<A>, v);
    // The label's logit is another thread's, who will write there.
    const A x_label = counts && place.rank == 0 ? widen_value<A>(x[at + label]) : A(0);
    __syncwarp();
    A max = -kInfinity<A>;
    v.all([&](A& value) { max = Max{}(value, max); });
    max = total(max, Max{});
    A sum = A(0);
    v.all([&](A& value) {
      value = exponential(value - max);
      sum += value;
    });
    sum = checked_sum(total(sum, Sum{}), max, p.classes);
    finish_row(
        p, out, row, label, place.rank == 0, max, sum, x_label, [](auto) {},
        [](A terms) { return terms; });
    A seed = A(0);
    A factor = A(0);
    if (counts) {
      seed = dloss.get<A>(p.reduction == Reduction::none ? row : 0);
      factor = static_cast<A>(p.keep) * p.weight_of<A>(label);
      if (divisor != nullptr) {
        const auto count = static_cast<A>(*divisor);
        counts = count != A(0);
        seed /= count;
      }
    }
    const A inverse = A(1) / sum;
    const RowMap<kPacks, kPack> whole(inside ? classes : 0, place.rank, place.threads);
    const auto target = static_cast<int>(label);
    ROUNDOFF_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kPack; ++j) {
        A g = factor * (v.at[k][j] * inverse);
        if (whole.index(k, j) == target) g -= factor;
        v.at[k][j] = counts ? g * seed : A(0);
      }
    }
    whole.store(dx + at, v);
  }

  void launch_gradient(Target device, const ConstView& logits, const Problem& p,
                       const ForwardOut& out, const ConstView& dloss, const double* divisor,
                       const Out& dlogits) {
    visit_floating(logits.dtype, "cross_entropy", [&]<class T>() {
      if constexpr (sizeof(T) < 8) {
        const auto run = [&]<class Shape>(Shape) {
          launch(device, reduce::row_launch<Shape>("cross_entropy_gradient", p.rows, p.classes),
                 cross_entropy_gradient<T, Shape>, logits.as<T>(), dlogits.view.as<T>(), p, out,
                 AnyOperand(dloss), divisor);
        };
        if (p.classes > reduce::kResident) return run(reduce::LongRow{});
        reduce::with_row_shape(p.classes, run);
      }
    });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void cross_entropy_with_gradient(T device, const CrossEntropyParams& params,
                                 const ConstView& logits, const ConstView& target,
                                 const ConstView& weight, const ConstView& dloss, const Out& loss,
                                 const Out& valid, const Out& dlogits, Scratch& scratch) {
  const CrossEntropyShape shape = check_cross_entropy_with_gradient(params, logits, target, weight,
                                                                    dloss, loss, valid, dlogits);
  const Problem p = problem_of(device, shape, params, target, weight);
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  const bool mean = params.reduction == Reduction::mean;
  const Scratch::Frame frame(scratch);
  const bool plain = dlogits.wanted && !p.soft && p.uniform == 0 && stats == DType::fp32 &&
                     dlogits.view.dtype == logits.dtype && dlogits.write == Write::overwrite &&
                     p.rows > 0 && p.classes > 0 &&
                     (p.classes <= reduce::kResident ||
                      reduce::takes_cluster(device, p.classes, reduce::kResident));
  if (!plain) {
    const View row_stats{stats == DType::fp64 ? static_cast<void*>(scratch.get<double>(2 * p.rows))
                                              : scratch.get<float>(2 * p.rows),
                         stats, Shape{p.rows, 2}};
    const View divisor{scratch.get<double>(1), DType::fp64, Shape{}};
    cross_entropy_forward(device, params, logits, target, weight, loss, divisor, row_stats,
                          scratch);
    if (valid.wanted) convert(device, divisor, valid);
    cross_entropy_backward(device, params, logits, target, weight, divisor, row_stats, dloss,
                           dlogits);
    return;
  }
  check_weights(device, p);
  const double* divisor = mean ? launch_divisor(device, p, scratch) : nullptr;
  const ForwardOut out{AnyResult(loss), AnyResult(), scratch.get<LossTerm>(p.rows)};
  launch_gradient(device, logits, p, out, dloss, divisor, dlogits);
  const bool total = loss.wanted && params.reduction != Reduction::none;
  if (total || valid.wanted)
    launch_loss_total(device, out.terms, p.rows, params.reduction, out.loss, AnyResult(valid),
                      scratch);
}

template void cross_entropy_with_gradient(Target, const CrossEntropyParams&, const ConstView&,
                                          const ConstView&, const ConstView&, const ConstView&,
                                          const Out&, const Out&, const Out&, Scratch&);

}  // namespace roundoff
