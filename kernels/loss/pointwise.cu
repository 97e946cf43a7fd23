// Losses of single elements on devices: the formulas of pointwise.h, 16 bytes an access where all
// arrays are of one type and lie alike.
// Sums: a block takes kChunk elements, each of its threads adds its own in fp64 in order, then the
// tree of kernels/reduce/block.cuh; kernels/loss/terms.cuh adds the blocks.
#include "kernels/elementwise/chunks.h"
#include "kernels/loss/pointwise.h"
#include "kernels/loss/terms.cuh"
#include "kernels/softmax/online.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr std::int64_t kChunk = 8192;  // elements a block

  ROUNDOFF_DEVICE float magnitude(float x) { return fabsf(x); }
  ROUNDOFF_DEVICE double magnitude(double x) { return fabs(x); }
  ROUNDOFF_DEVICE float log_of_one_and(float x) { return log1pf(x); }
  ROUNDOFF_DEVICE double log_of_one_and(double x) { return log1p(x); }

  struct Mse {
    // In double: the mean of squares may fit where a square of fp32 numbers does not.
    template <class A>
    ROUNDOFF_DEVICE static double loss(A x, A t) {
      const auto difference = static_cast<double>(x - t);
      return difference * difference;
    }
    template <class A>
    ROUNDOFF_DEVICE static A dx(A x, A t) {
      return A(2) * (x - t);
    }
    template <class A>
    ROUNDOFF_DEVICE static A dtarget(A x, A t) {
      return A(-2) * (x - t);
    }
  };

  struct BceWithLogits {
    // factor * x, where a factor of 0 counts as 0 even times infinity.
    template <class A>
    ROUNDOFF_DEVICE static A unless_zero(A factor, A x) {
      return factor == A(0) ? A(0) : factor * x;
    }
    template <class A>
    ROUNDOFF_DEVICE static double loss(A x, A t) {
      const A linear = unless_zero(x >= A(0) ? A(1) - t : -t, x);
      return static_cast<double>(linear + log_of_one_and(exponential(-magnitude(x))));
    }
    // sigmoid(x) - t; for x >= 0 as (1 - t) - sigmoid(-x), which keeps the digits where t is 1.
    template <class A>
    ROUNDOFF_DEVICE static A dx(A x, A t) {
      const A e = exponential(-magnitude(x));
      const A small = e / (A(1) + e);
      return x >= A(0) ? (A(1) - t) - small : small - t;
    }
    template <class A>
    ROUNDOFF_DEVICE static A dtarget(A x, A) {
      return -x;
    }
  };

  // The part of n elements that this block takes.
  struct Chunk {
    std::int64_t first;
    std::int64_t n;
    ROUNDOFF_DEVICE explicit Chunk(std::int64_t size)
        : first(blockIdx.x * kChunk), n(size - first < kChunk ? size - first : kChunk) {}
  };

  template <class T, class Loss>
  __global__ void __launch_bounds__(256)
      pointwise_sum(const T* __restrict__ x, const T* __restrict__ t, std::int64_t n,
                    LossTerm* sums) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    ROUNDOFF_SHARED(double, partial, [reduce::shared_size(256)]);
    reduce::Shared<double> shared(partial);
    const Chunk chunk(n);
    x += chunk.first;
    t += chunk.first;
    double sum = 0;
    for_each_pack<kPack>(
        chunk.n, pack_head<kPack>(x, t), threadIdx.x, 256,
        [&](std::int64_t i) {
          A xs[kPack];
          A ts[kPack];
          load_pack(x + i, xs);
          load_pack(t + i, ts);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) sum += Loss::loss(xs[j], ts[j]);
        },
        [&](std::int64_t i) { sum += Loss::loss(widen_value<A>(x[i]), widen_value<A>(t[i])); });
    sum = reduce::row<256>(sum, reduce::Sum{}, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = {{sum, static_cast<double>(chunk.n)}};
  }

  template <class T, class Loss>
  __global__ void __launch_bounds__(256)
      pointwise_each(const T* __restrict__ x, const T* __restrict__ t, T* loss, std::int64_t n) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    const Chunk chunk(n);
    x += chunk.first;
    t += chunk.first;
    loss += chunk.first;
    for_each_pack<kPack>(
        chunk.n, pack_head<kPack>(x, t, loss), threadIdx.x, 256,
        [&](std::int64_t i) {
          A xs[kPack];
          A ts[kPack];
          load_pack(x + i, xs);
          load_pack(t + i, ts);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) xs[j] = static_cast<A>(Loss::loss(xs[j], ts[j]));
          store_pack(loss + i, xs);
        },
        [&](std::int64_t i) {
          loss[i] = narrow_value<T>(
              static_cast<A>(Loss::loss(widen_value<A>(x[i]), widen_value<A>(t[i]))));
        });
  }

  // Any types; the loss of each element (where sums is null), or sums.
  template <class A, class Loss>
  __global__ void __launch_bounds__(256)
      pointwise_any(AnyOperand x, AnyOperand t, AnyResult loss, std::int64_t n, LossTerm* sums) {
    ROUNDOFF_SHARED(double, partial, [reduce::shared_size(256)]);
    reduce::Shared<double> shared(partial);
    const Chunk chunk(n);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < chunk.n; i += 256) {
      const std::int64_t at = chunk.first + i;
      const double value = Loss::loss(x.get<A>(at), t.get<A>(at));
      if (sums == nullptr)
        loss.put(at, static_cast<A>(value));
      else
        sum += value;
    }
    sum = reduce::row<256>(sum, reduce::Sum{}, shared);
    if (sums != nullptr && threadIdx.x == 0)
      sums[blockIdx.x] = {{sum, static_cast<double>(chunk.n)}};
  }

  // dloss: one number, over n for the mean, or one for each element.
  struct Seed {
    AnyOperand dloss;
    Reduction reduction;
    std::int64_t n;
    template <class A>
    ROUNDOFF_DEVICE A common() const {
      if (reduction == Reduction::none) return A(0);
      const A seed = dloss.get<A>(0);
      return reduction == Reduction::mean ? seed / static_cast<A>(n) : seed;
    }
    template <class A>
    ROUNDOFF_DEVICE A of(std::int64_t i, A one) const {
      return reduction == Reduction::none ? dloss.get<A>(i) : one;
    }
  };

  // One output, overwritten; everything of one type. seeds: for each element, or null.
  template <class T, class Loss, bool kTarget>
  __global__ void __launch_bounds__(256)
      pointwise_gradient(const T* __restrict__ x, const T* __restrict__ t, T* to,
                         const T* __restrict__ seeds, Seed seed) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = kPackOf<T>;
    const Chunk chunk(seed.n);
    x += chunk.first;
    t += chunk.first;
    to += chunk.first;
    const bool each = seeds != nullptr;
    seeds = each ? seeds + chunk.first : x;
    const auto common = seed.common<A>();
    const auto slope = [](A a, A b) {
      if constexpr (kTarget)
        return Loss::dtarget(a, b);
      else
        return Loss::dx(a, b);
    };
    for_each_pack<kPack>(
        chunk.n, pack_head<kPack>(x, t, to, seeds), threadIdx.x, 256,
        [&](std::int64_t i) {
          A xs[kPack];
          A ts[kPack];
          A gs[kPack];
          load_pack(x + i, xs);
          load_pack(t + i, ts);
          if (each) {
            load_pack(seeds + i, gs);
          } else {
            ROUNDOFF_UNROLL
            for (int j = 0; j < kPack; ++j) gs[j] = common;
          }
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) xs[j] = gs[j] * slope(xs[j], ts[j]);
          store_pack(to + i, xs);
        },
        [&](std::int64_t i) {
          const A g = each ? widen_value<A>(seeds[i]) : common;
          to[i] = narrow_value<T>(g * slope(widen_value<A>(x[i]), widen_value<A>(t[i])));
        });
  }

  template <class A, class Loss>
  __global__ void __launch_bounds__(256)
      pointwise_gradient_any(AnyOperand x, AnyOperand t, AnyResult dx, AnyResult dtarget,
                             Seed seed) {
    const Chunk chunk(seed.n);
    const auto common = seed.common<A>();
    for (std::int64_t i = threadIdx.x; i < chunk.n; i += 256) {
      const std::int64_t at = chunk.first + i;
      const A a = x.get<A>(at);
      const A b = t.get<A>(at);
      const A g = seed.of(at, common);
      if (dx.wanted()) dx.put(at, g * Loss::dx(a, b));
      if (dtarget.wanted()) dtarget.put(at, g * Loss::dtarget(a, b));
    }
  }

  void check(const PointwiseLossParams& params, const ConstView& x, const ConstView& target) {
    const std::string_view operation = name(params.loss);
    detail::check_floating(x, operation, "x");
    detail::check_floating(target, operation, "target");
    ROUNDOFF_CHECK(x.shape == target.shape, operation, "x has shape ", x.shape, ", target ",
                   target.shape);
  }

  unsigned chunks_of(std::int64_t n, std::string_view operation) {
    const std::int64_t blocks = (n + kChunk - 1) / kChunk;
    ROUNDOFF_CHECK(blocks < (std::int64_t{1} << 31), operation, n, " elements are too many");
    return static_cast<unsigned>(blocks);
  }

  template <class F>
  void with_loss(PointwiseLoss loss, F&& f) {
    if (loss == PointwiseLoss::mse)
      f.template operator()<Mse>();
    else
      f.template operator()<BceWithLogits>();
  }

  // Everything of one type, whose own arithmetic will do.
  bool uniform(bool fp64, const ConstView& x, const ConstView& target) {
    return x.dtype == target.dtype && fp64 == (x.dtype == DType::fp64);
  }

  template <class Loss>
  void forward(Target device, const PointwiseLossParams& params, const ConstView& x,
               const ConstView& target, const Out& loss, Scratch& scratch) {
    const std::string_view operation = name(params.loss);
    const std::int64_t n = x.numel();
    const bool each = params.reduction == Reduction::none;
    const unsigned blocks = chunks_of(n, operation);
    const Scratch::Frame frame(scratch);
    auto* sums = each ? nullptr : scratch.get<LossTerm>(blocks);
    const bool fp64 = detail::wants_fp64(params.accumulator, x, target);
    const bool typed = uniform(fp64, x, target) &&
                       (!each || (loss.view.dtype == x.dtype && loss.write == Write::overwrite));
    if (n == 0) {
      if (each) return;
    } else if (typed) {
      visit_floating(x.dtype, operation, [&]<class T>() {
        const LaunchConfig config{.name = "pointwise_loss", .grid = {blocks}, .block = {256}};
        if (each)
          launch(device, config, pointwise_each<T, Loss>, x.as<T>(), target.as<T>(),
                 loss.view.as<T>(), n);
        else
          launch(device, config, pointwise_sum<T, Loss>, x.as<T>(), target.as<T>(), n, sums);
      });
    } else {
      detail::with_arithmetic(fp64, [&]<class A>(A) {
        launch(device, {.name = "pointwise_loss_any", .grid = {blocks}, .block = {256}},
               pointwise_any<A, Loss>, AnyOperand(x), AnyOperand(target), AnyResult(loss), n, sums);
      });
    }
    if (!each)
      launch_loss_total(device, sums, blocks, params.reduction, AnyResult(loss), AnyResult(),
                        scratch);
  }

  template <class Loss>
  void backward(Target device, const PointwiseLossParams& params, const ConstView& x,
                const ConstView& target, const ConstView& dloss, const Out& dx,
                const Out& dtarget) {
    const std::string_view operation = name(params.loss);
    const Seed seed{AnyOperand(dloss), params.reduction, x.numel()};
    const unsigned blocks = chunks_of(seed.n, operation);
    if (blocks == 0 || (!dx.wanted && !dtarget.wanted)) return;
    const bool fp64 = detail::wants_fp64(params.accumulator, x, target, dloss);
    const auto fits = [&](const Out& out) {
      return !out.wanted || (out.view.dtype == x.dtype && out.write == Write::overwrite);
    };
    const bool each = params.reduction == Reduction::none;
    if (!uniform(fp64, x, target) || !fits(dx) || !fits(dtarget) ||
        (each && dloss.dtype != x.dtype))
      return detail::with_arithmetic(fp64, [&]<class A>(A) {
        launch(device, {.name = "pointwise_gradient_any", .grid = {blocks}, .block = {256}},
               pointwise_gradient_any<A, Loss>, AnyOperand(x), AnyOperand(target), AnyResult(dx),
               AnyResult(dtarget), seed);
      });
    visit_floating(x.dtype, operation, [&]<class T>() {
      const LaunchConfig config{.name = "pointwise_gradient", .grid = {blocks}, .block = {256}};
      const T* seeds = each ? dloss.as<T>() : nullptr;
      if (dx.wanted)
        launch(device, config, pointwise_gradient<T, Loss, false>, x.as<T>(), target.as<T>(),
               dx.view.as<T>(), seeds, seed);
      if (dtarget.wanted)
        launch(device, config, pointwise_gradient<T, Loss, true>, x.as<T>(), target.as<T>(),
               dtarget.view.as<T>(), seeds, seed);
    });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void pointwise_loss_forward(T device, const PointwiseLossParams& params, const ConstView& x,
                            const ConstView& target, const Out& loss, Scratch& scratch) {
  if (!loss.wanted) return;
  check(params, x, target);
  detail::check_out(loss, params.reduction == Reduction::none ? x.shape : Shape{},
                    name(params.loss), "loss");
  with_loss(params.loss,
            [&]<class Loss>() { forward<Loss>(device, params, x, target, loss, scratch); });
}

template <DeviceTarget T>
void pointwise_loss_backward(T device, const PointwiseLossParams& params, const ConstView& x,
                             const ConstView& target, const ConstView& dloss, const Out& dx,
                             const Out& dtarget) {
  check(params, x, target);
  const std::string_view operation = name(params.loss);
  detail::check_floating(dloss, operation, "dloss");
  const Shape expected = params.reduction == Reduction::none ? x.shape : Shape{};
  ROUNDOFF_CHECK(dloss.shape == expected, operation, "dloss has shape ", dloss.shape, ", expected ",
                 expected);
  detail::check_out(dx, x.shape, operation, "dx");
  detail::check_out(dtarget, x.shape, operation, "dtarget");
  with_loss(params.loss,
            [&]<class Loss>() { backward<Loss>(device, params, x, target, dloss, dx, dtarget); });
}

template void pointwise_loss_forward(Target, const PointwiseLossParams&, const ConstView&,
                                     const ConstView&, const Out&, Scratch&);
template void pointwise_loss_backward(Target, const PointwiseLossParams&, const ConstView&,
                                      const ConstView&, const ConstView&, const Out&, const Out&);

}  // namespace roundoff
