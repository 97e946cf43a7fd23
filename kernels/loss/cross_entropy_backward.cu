// Gradient of cross-entropy on devices: the formulas of cross_entropy.h.
//
// One read and one write of every logit, four packs at a time, in place where that is asked for.
// The rows' maxima and sums are the forward's; the seed and the mean's divisor are read from device
// memory. fp32 (fp64 where logits or the accumulator are), one rounding on the way out.
#include "kernels/loss/cross_entropy.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using namespace cross_entropy;
  using reduce::Shared;
  using reduce::Sum;

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
    const std::int64_t n = row < p.rows ? p.classes : 0;
    const int head = pack_head<kPack>(x, dx);
    const bool packed = head >= 0 && head <= n;
    const std::int64_t first = packed ? head : n;
    const std::int64_t packs = (n - first) / kPack;
    // dx may be x, so the compiler would not ask for a pack before the last one is written.
    constexpr int kAtOnce = 4;
    for (std::int64_t i = rank; i < packs; i += kAtOnce * kThreads) {
      A v[kAtOnce][kPack];
      ROUNDOFF_UNROLL
      for (int q = 0; q < kAtOnce; ++q)
        if (i + q * kThreads < packs) load_pack(x + first + (i + q * kThreads) * kPack, v[q]);
      ROUNDOFF_UNROLL
      for (int q = 0; q < kAtOnce; ++q) {
        if (i + q * kThreads >= packs) continue;
        const std::int64_t c = first + (i + q * kThreads) * kPack;
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) v[q][j] = slope(v[q][j], c + j);
        store_pack(dx + c, v[q]);
      }
    }
    const auto single = [&](std::int64_t c) {
      dx[c] = narrow_value<T>(slope(widen_value<A>(x[c]), c));
    };
    for (std::int64_t c = rank; c < first; c += kThreads) single(c);
    for (std::int64_t c = first + packs * kPack + rank; c < n; c += kThreads) single(c);
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

  void launch_backward(Target device, const ConstView& logits, const Out& dlogits, const Problem& p,
                       const BackwardIn& in, bool fp64) {
    if (dlogits.view.dtype != logits.dtype || dlogits.write == Write::accumulate ||
        fp64 != (logits.dtype == DType::fp64))
      return detail::with_arithmetic(fp64, [&]<class A>(A) {
        launch(device,
               {.name = "cross_entropy_backward_any",
                .grid = {reduce::grid_of("cross_entropy", p.rows)},
                .block = {256}},
               cross_entropy_backward_any<A>, AnyOperand(logits), AnyResult(dlogits), p, in);
      });
    visit_floating(logits.dtype, "cross_entropy", [&]<class T>() {
      const auto run = [&]<int kThreads>() {
        launch(device,
               {.name = "cross_entropy_backward",
                .grid = {reduce::grid_of("cross_entropy", (p.rows * kThreads + 255) / 256)},
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
void cross_entropy_backward(T device, const CrossEntropyParams& params, const ConstView& logits,
                            const ConstView& target, const ConstView& weight,
                            const ConstView& valid, const ConstView& row_stats,
                            const ConstView& dloss, const Out& dlogits) {
  if (!dlogits.wanted) return;
  const CrossEntropyShape shape = check_cross_entropy_backward(params, logits, target, weight,
                                                               valid, row_stats, dloss, dlogits);
  if (shape.rows == 0 || shape.classes == 0) return;
  launch_backward(device, logits, dlogits, problem_of(device, shape, params, target, weight),
                  {AnyOperand(valid), AnyOperand(row_stats), AnyOperand(dloss)},
                  row_stats.dtype == DType::fp64);
}

template void cross_entropy_backward(Target, const CrossEntropyParams&, const ConstView&,
                                     const ConstView&, const ConstView&, const ConstView&,
                                     const ConstView&, const ConstView&, const Out&);

}  // namespace roundoff
