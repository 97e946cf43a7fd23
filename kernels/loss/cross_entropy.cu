// Cross-entropy on devices: the formulas of cross_entropy.h.
//
// Forward, a row of logits: its maximum and s = sum exp(x - max), from registers up to kResident
// classes (one read), in one pass beyond (kernels/softmax/online.cuh). Smoothing and probabilities
// take a second walk over the row, which is in a cache then.
// Each row leaves its loss and its weight in fp64; kernels/loss/terms.cuh adds them.
// Backward: one read and one write of every logit, in place where that is asked for. The seed and
// the mean's divisor are read from device memory.
// fp32 (fp64 where logits or the accumulator are), one rounding on the way out.
#include <cmath>

#include "kernels/elementwise/chunks.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/terms.cuh"
#include "kernels/reduce/row.cuh"
#include "kernels/simt/report.cuh"
#include "kernels/softmax/online.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr std::string_view kName = "cross_entropy";

  using reduce::Max;
  using reduce::RowMap;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;

  // The problem as kernels see it.
  struct Problem {
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    AnyOperand target;  // labels, or probabilities
    AnyOperand weight;
    std::int64_t ignore_index = 0;
    double keep = 1;     // 1 - e
    double uniform = 0;  // e / C
    bool soft = false;   // the targets are probabilities
    Reduction reduction = Reduction::mean;
    DeviceErrors* errors = nullptr;

    // The label of a row; -1 for one that does not count. `reporter`: says so of a bad label.
    ROUNDOFF_DEVICE std::int64_t label(std::int64_t row, bool reporter) const {
      if (soft) return 0;
      std::int64_t t = 0;
      if (target.dtype == DType::i64)
        t = static_cast<const std::int64_t*>(target.data)[row];
      else if (target.dtype == DType::i32)
        t = static_cast<const std::int32_t*>(target.data)[row];
      else
        t = static_cast<const std::uint8_t*>(target.data)[row];
      if (t == ignore_index) return -1;
      if (t >= 0 && t < classes) return t;
      if (reporter)
        report(errors, DeviceError::cross_entropy_label, row, t,
               static_cast<std::int32_t>(classes));
      return -1;
    }
    template <class A>
    ROUNDOFF_DEVICE A weight_of(std::int64_t c) const {
      return weight.get_or(c, A(1));
    }
    // (1 - e) q + e / C of probabilities that begin at `at`.
    template <class A>
    ROUNDOFF_DEVICE A share(std::int64_t at, std::int64_t c) const {
      return static_cast<A>(keep) * target.get<A>(at + c) + static_cast<A>(uniform);
    }
  };

  struct ForwardOut {
    AnyResult loss;  // of rows, for Reduction::none
    AnyResult stats;
    LossTerm* terms;
  };

  // What is left of a row when its maximum and sum are known. x_label: its logit at the label;
  // walk(f) calls f(x, class) for this thread's logits; sum(v) adds over the row's threads.
  template <class A, class Walk, class SumUp>
  ROUNDOFF_DEVICE void finish_row(const Problem& p, const ForwardOut& out, std::int64_t row,
                                  std::int64_t label, bool first, A max, A row_sum, A x_label,
                                  Walk walk, SumUp sum) {
    const bool counts = label >= 0;
    const A log_sum = logarithm(row_sum);
    A value = A(0);
    A divisor = A(1);
    if (!p.soft) {
      const A w = counts ? p.weight_of<A>(label) : A(0);
      const A factor = static_cast<A>(p.keep) * w;
      if (factor != A(0)) value = factor * (log_sum - (x_label - max));
      divisor = w;
    }
    const auto uniform = static_cast<A>(p.uniform);
    if (p.soft || uniform != A(0)) {
      A terms = A(0);
      walk([&](A x, std::int64_t c) {
        const A factor = p.weight_of<A>(c) * (p.soft ? p.share<A>(row * p.classes, c) : A(1));
        // A class of probability 0 counts as 0 even where log p is -inf.
        if (factor != A(0)) terms += factor * (log_sum - (x - max));
      });
      terms = sum(terms);
      value = p.soft ? terms : value + uniform * terms;
    }
    if (!first || row >= p.rows) return;
    if (!counts) {
      value = A(0);
      divisor = A(0);
    }
    if (out.stats.wanted()) {
      out.stats.put(2 * row, counts ? max : A(0));
      out.stats.put(2 * row + 1, counts ? row_sum : A(1));
    }
    if (p.reduction == Reduction::none && out.loss.wanted())
      out.loss.put(row, static_cast<double>(value));
    out.terms[row] = {{static_cast<double>(value), static_cast<double>(divisor)}};
  }

  // The sum of a row whose exponentials were summed without -inf rows in mind.
  template <class A>
  ROUNDOFF_DEVICE A checked_sum(A sum, A max, std::int64_t classes) {
    if (classes == 0) return A(0);
    return max == -kInfinity<A> ? max - max : sum;
  }

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, sizeof(T) == 8 ? 1 : Shape::blocks)
      cross_entropy_rows(const T* __restrict__ x, Problem p, ForwardOut out) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(Shape::block)]);
    Shared<A> shared(partial);
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * Shape::rows + threadIdx.x / Shape::threads;
    const int rank = static_cast<int>(threadIdx.x) % Shape::threads;
    const std::int64_t label = row < p.rows ? p.label(row, rank == 0) : -1;
    const std::int64_t at = label >= 0 ? row * p.classes : 0;
    const RowMap<Shape::threads, kPacks, kPack> map(label >= 0 ? static_cast<int>(p.classes) : 0,
                                                    rank);
    RowValues<A, kPacks, kPack> v;
    map.load(x + at, -kInfinity<A>, v);
    A max = -kInfinity<A>;
    v.all([&](A& value) { max = Max{}(value, max); });
    max = reduce::row<Shape::threads>(max, Max{}, shared);
    A sum = A(0);
    v.all([&](A& value) { sum += exponential(value - max); });
    sum = checked_sum(reduce::row<Shape::threads>(sum, Sum{}, shared), max, p.classes);
    const A x_label = !p.soft && label >= 0 && rank == 0 ? widen_value<A>(x[at + label]) : A(0);
    finish_row(
        p, out, row, label, rank == 0, max, sum, x_label,
        [&](auto f) {
          // From a cache: unrolled over registers, this rare part would be most of the kernel.
          ROUNDOFF_NO_UNROLL
          for (int c = rank; c < map.n; c += Shape::threads) f(widen_value<A>(x[at + c]), c);
        },
        [&](A terms) { return reduce::row<Shape::threads>(terms, Sum{}, shared); });
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

  __global__ void __launch_bounds__(256)
      check_weights(AnyOperand weight, std::int64_t classes, DeviceErrors* errors) {
    const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
    if (c >= classes) return;
    const auto w = weight.get<double>(c);
    if (!(w >= 0 && w < kInfinity<double>))
      report(errors, DeviceError::cross_entropy_weight, c, std::bit_cast<std::int64_t>(w), 0);
  }

  struct BackwardIn {
    AnyOperand valid;
    AnyOperand stats;
    AnyOperand dloss;
  };

  // What the gradient of one row is formed from, the same on all its threads.
  template <class A>
  struct Slope {
    const Problem& p;
    std::int64_t at;
    std::int64_t label;
    A max = A(0);
    A inverse = A(1);  // 1 / s
    A mass = A(0);     // what the softmax is multiplied by
    A on_target = A(0);
    A seed = A(0);
    bool counts = false;

    // Threads of a row walk over its classes as `rank` of `size`; sum(v) adds over them.
    template <class SumUp>
    ROUNDOFF_DEVICE Slope(const Problem& problem, const BackwardIn& in, std::int64_t row, int rank,
                          int size, SumUp sum)
        : p(problem), at(row < problem.rows ? row * problem.classes : 0), label(-1) {
      const bool inside = row < p.rows;
      if (inside) label = p.label(row, rank == 0);
      counts = label >= 0;
      const std::int64_t n = inside ? p.classes : 0;
      const auto uniform = static_cast<A>(p.uniform);
      if (p.soft) {
        A terms = A(0);
        ROUNDOFF_NO_UNROLL
        for (std::int64_t c = rank; c < n; c += size)
          terms += p.share<A>(at, c) * p.weight_of<A>(c);
        mass = sum(terms);
      } else if (uniform != A(0)) {
        A weights = static_cast<A>(p.classes);
        if (p.weight.present()) {
          weights = A(0);
          ROUNDOFF_NO_UNROLL
          for (std::int64_t c = rank; c < n; c += size) weights += p.weight_of<A>(c);
          weights = sum(weights);
        }
        mass = uniform * weights;
      }
      if (!inside) return;
      if (!p.soft && counts) {
        on_target = static_cast<A>(p.keep) * p.weight_of<A>(label);
        mass = on_target + mass;
      }
      max = in.stats.get<A>(2 * row);
      inverse = A(1) / in.stats.get<A>(2 * row + 1);
      seed = in.dloss.get<A>(p.reduction == Reduction::none ? row : 0);
      if (p.reduction == Reduction::mean) {
        const A divisor = in.valid.get<A>(0);
        counts = counts && divisor != A(0);
        seed /= divisor;
      }
    }

    ROUNDOFF_DEVICE A operator()(A x, std::int64_t c) const {
      if (!counts) return A(0);
      A g = mass * (exponential(x - max) * inverse);
      const auto uniform = static_cast<A>(p.uniform);
      if (p.soft) {
        g -= p.weight_of<A>(c) * p.share<A>(at, c);
      } else {
        if (uniform != A(0)) g -= uniform * p.weight_of<A>(c);
        if (c == label) g -= on_target;
      }
      return g * seed;
    }
  };

  // dx may be x.
  template <class T, int kThreads>
  __global__ void __launch_bounds__(256, 2)
      cross_entropy_backward_rows(const T* x, T* dx, Problem p, BackwardIn in) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(256)]);
    Shared<A> shared(partial);
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * (256 / kThreads) + threadIdx.x / kThreads;
    const int rank = static_cast<int>(threadIdx.x) % kThreads;
    const Slope<A> slope(p, in, row, rank, kThreads,
                         [&](A v) { return reduce::row<kThreads>(v, Sum{}, shared); });
    x += slope.at;
    dx += slope.at;
    for_each_pack<kPack>(
        row < p.rows ? p.classes : 0, pack_head<kPack>(x, dx), rank, kThreads,
        [&](std::int64_t c) {
          A v[kPack];
          load_pack(x + c, v);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) v[j] = slope(v[j], c + j);
          store_pack(dx + c, v);
        },
        [&](std::int64_t c) { dx[c] = narrow_value<T>(slope(widen_value<A>(x[c]), c)); });
  }

  template <class A>
  __global__ void __launch_bounds__(256, 2)
      cross_entropy_backward_any(AnyOperand x, AnyResult dx, Problem p, BackwardIn in) {
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(256)]);
    Shared<A> shared(partial);
    const int rank = static_cast<int>(threadIdx.x);
    const Slope<A> slope(p, in, blockIdx.x, rank, 256,
                         [&](A v) { return reduce::row<256>(v, Sum{}, shared); });
    for (std::int64_t c = rank; c < p.classes; c += 256)
      dx.put(slope.at + c, slope(x.get<A>(slope.at + c), c));
  }

  Shape leading(const Shape& shape) {
    return Shape(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
  }

  unsigned blocks_of(std::int64_t rows, std::int64_t rows_a_block) {
    const std::int64_t blocks = (rows + rows_a_block - 1) / rows_a_block;
    ROUNDOFF_CHECK(blocks < (std::int64_t{1} << 31), kName, rows, " rows are too many");
    return static_cast<unsigned>(blocks);
  }

  // What the reference checks, but for what stands in device memory.
  Problem check(Target device, const CrossEntropyParams& params, const ConstView& logits,
                const ConstView& target, const ConstView& weight) {
    detail::check_floating(logits, kName, "logits");
    ROUNDOFF_CHECK(logits.shape.rank() >= 1, kName,
                   "logits are a scalar, at least a class axis expected");
    ROUNDOFF_CHECK(params.label_smoothing >= 0 && params.label_smoothing <= 1, kName,
                   "label smoothing is ", params.label_smoothing, ", expected a value in [0, 1]");
    const Shape batch = leading(logits.shape);
    Problem p;
    p.rows = batch.numel();
    p.classes = logits.shape[-1];
    p.soft = is_floating(target.dtype);
    if (p.soft)
      ROUNDOFF_CHECK(target.shape == logits.shape, kName, "target probabilities have shape ",
                     target.shape, ", logits ", logits.shape);
    else
      ROUNDOFF_CHECK(target.shape == batch, kName, "labels have shape ", target.shape, ", logits ",
                     logits.shape, " expect ", batch);
    if (weight.present) {
      detail::check_floating(weight, kName, "weight");
      ROUNDOFF_CHECK(weight.shape == Shape{p.classes}, kName, "class weights have shape ",
                     weight.shape, ", ", p.classes, " classes expected");
    }
    p.target = AnyOperand(target);
    p.weight = AnyOperand(weight);
    p.ignore_index = params.ignore_index;
    p.keep = 1 - params.label_smoothing;
    p.uniform = p.classes == 0 ? 0 : params.label_smoothing / static_cast<double>(p.classes);
    p.reduction = params.reduction;
    p.errors = device.errors;
    return p;
  }

  void launch_rows(Target device, const ConstView& logits, const Problem& p, const ForwardOut& out,
                   bool fp64) {
    if (fp64 && logits.dtype != DType::fp64)
      return launch(device,
                    {.name = "cross_entropy_any", .grid = {blocks_of(p.rows, 1)}, .block = {256}},
                    cross_entropy_any, AnyOperand(logits), p, out);
    visit_floating(logits.dtype, kName, [&]<class T>() {
      const T* x = logits.as<T>();
      if (p.classes > reduce::kResident)
        return launch(
            device, {.name = "cross_entropy_long", .grid = {blocks_of(p.rows, 1)}, .block = {256}},
            cross_entropy_long<T>, x, p, out);
      reduce::with_row_shape(p.classes, [&]<class Shape>(Shape) {
        launch(device,
               {.name = "cross_entropy_rows",
                .grid = {blocks_of(p.rows, Shape::rows)},
                .block = {Shape::block}},
               cross_entropy_rows<T, Shape>, x, p, out);
      });
    });
  }

  void launch_backward(Target device, const ConstView& logits, const Out& dlogits, const Problem& p,
                       const BackwardIn& in, bool fp64) {
    if (dlogits.view.dtype != logits.dtype || dlogits.write == Write::accumulate ||
        fp64 != (logits.dtype == DType::fp64))
      return detail::with_arithmetic(fp64, [&]<class A>(A) {
        launch(
            device,
            {.name = "cross_entropy_backward_any", .grid = {blocks_of(p.rows, 1)}, .block = {256}},
            cross_entropy_backward_any<A>, AnyOperand(logits), AnyResult(dlogits), p, in);
      });
    visit_floating(logits.dtype, kName, [&]<class T>() {
      const auto run = [&]<int kThreads>() {
        launch(device,
               {.name = "cross_entropy_backward",
                .grid = {blocks_of(p.rows, 256 / kThreads)},
                .block = {256}},
               cross_entropy_backward_rows<T, kThreads>, logits.as<T>(), dlogits.view.as<T>(), p,
               in);
      };
      if (p.classes <= 256) return run.template operator()<16>();
      if (p.classes <= 2048) return run.template operator()<32>();
      return run.template operator()<256>();
    });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void cross_entropy_forward(T device, const CrossEntropyParams& params, const ConstView& logits,
                           const ConstView& target, const ConstView& weight, const Out& loss,
                           const Out& valid, const Out& row_stats, Scratch& scratch) {
  const Problem p = check(device, params, logits, target, weight);
  detail::check_out(loss, params.reduction == Reduction::none ? leading(logits.shape) : Shape{},
                    kName, "loss");
  detail::check_out(valid, Shape{}, kName, "valid");
  detail::check_out(row_stats, Shape{p.rows, 2}, kName, "row_stats");
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  ROUNDOFF_CHECK(!row_stats.wanted || row_stats.view.dtype == stats, kName, "row_stats is ",
                 name(row_stats.view.dtype), ", expected ", name(stats));
  if (weight.present && p.classes > 0 && device.errors != nullptr)
    launch(device,
           {.name = "cross_entropy_weights", .grid = {blocks_of(p.classes, 256)}, .block = {256}},
           check_weights, p.weight, p.classes, device.errors);
  const Scratch::Frame frame(scratch);
  const ForwardOut out{AnyResult(loss), AnyResult(row_stats), scratch.get<LossTerm>(p.rows)};
  if (p.rows > 0) launch_rows(device, logits, p, out, stats == DType::fp64);
  const bool total = loss.wanted && params.reduction != Reduction::none;
  if (total || valid.wanted)
    launch_loss_total(device, out.terms, p.rows, params.reduction, out.loss, AnyResult(valid),
                      scratch);
}

template <DeviceTarget T>
void cross_entropy_backward(T device, const CrossEntropyParams& params, const ConstView& logits,
                            const ConstView& target, const ConstView& weight,
                            const ConstView& valid, const ConstView& row_stats,
                            const ConstView& dloss, const Out& dlogits) {
  if (!dlogits.wanted) return;
  const Problem p = check(device, params, logits, target, weight);
  const Shape expected = params.reduction == Reduction::none ? leading(logits.shape) : Shape{};
  detail::check_floating(dloss, kName, "dloss");
  ROUNDOFF_CHECK(dloss.shape == expected, kName, "dloss has shape ", dloss.shape, ", expected ",
                 expected);
  ROUNDOFF_CHECK(params.reduction != Reduction::mean || valid.numel() == 1, kName,
                 "valid has shape ", valid.shape, ", a scalar expected");
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  ROUNDOFF_CHECK(row_stats.dtype == stats && row_stats.shape == (Shape{p.rows, 2}), kName,
                 "row_stats is ", name(row_stats.dtype), " of shape ", row_stats.shape,
                 ", expected ", name(stats), " [", p.rows, ", 2]");
  detail::check_out(dlogits, logits.shape, kName, "dlogits");
  if (p.rows == 0 || p.classes == 0) return;
  launch_backward(device, logits, dlogits, p,
                  {AnyOperand(valid), AnyOperand(row_stats), AnyOperand(dloss)},
                  stats == DType::fp64);
}

template void cross_entropy_forward(Target, const CrossEntropyParams&, const ConstView&,
                                    const ConstView&, const ConstView&, const Out&, const Out&,
                                    const Out&, Scratch&);
template void cross_entropy_backward(Target, const CrossEntropyParams&, const ConstView&,
                                     const ConstView&, const ConstView&, const ConstView&,
                                     const ConstView&, const ConstView&, const Out&);

}  // namespace roundoff
