// LayerNorm on devices: the formulas of layer_norm.h, in its two passes with the corrected mean.
//
// Forward and dx: rows up to kResident elements of one type stay in the registers of 16 to 256
// threads: one read (two backward: x and dy) and one write. Longer rows and mixed types: a block a
// row, three reads. gamma and beta are widened once, into the workspace, where they are not of the
// arithmetic's type already.
// dgamma, dbeta: sums over rows in two stages (columns.cuh); in order, one thread a column.
// fp32 (fp64 where an operand or the accumulator is), one rounding on the way out.
#include "kernels/norm/columns.cuh"
#include "kernels/norm/layer_norm.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using norms::Moments;
  using reduce::RowMap;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;

  template <class A>
  using Two = reduce::Values<A, 2>;

  // f(value, a's element) for the elements of a row; a lies in the row's own order.
  template <class Map, class A, int kPacks, int kPack, class F>
  ROUNDOFF_DEVICE void combine(const Map& map, RowValues<A, kPacks, kPack>& v,
                               const A* __restrict__ a, F f) {
    constexpr int kStep = kPack < kPackOf<A> ? kPack : kPackOf<A>;
    if (map.packed && is_aligned(a)) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        if (map.index(k, 0) >= map.n) continue;
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; j += kStep) {
          A factor[kStep];
          load_pack(a + map.index(k, j), factor);
          ROUNDOFF_UNROLL
          for (int l = 0; l < kStep; ++l) f(v.at[k][j + l], factor[l]);
        }
      }
      return;
    }
    ROUNDOFF_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kPack; ++j)
        if (const int i = map.index(k, j); i < map.n) f(v.at[k][j], a[i]);
    }
  }

  template <class A>
  struct Affine {
    const A* gamma;
    const A* beta;
  };

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, Shape::blocks)
      layer_norm_rows(const T* __restrict__ x, Affine<ArithmeticOf<T>> p, T* __restrict__ y,
                      AnyResult mean, AnyResult rstd, std::int64_t rows, int n, double eps) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    constexpr int kThreads = Shape::threads;
    ROUNDOFF_SHARED(Two<A>, partial, [reduce::shared_size(Shape::block)]);
    ROUNDOFF_SHARED(A, partial_sum, [reduce::shared_size(Shape::block)]);
    Shared<Two<A>> shared(partial);
    Shared<A> shared_sum(partial_sum);
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * Shape::rows + threadIdx.x / kThreads;
    const int rank = static_cast<int>(threadIdx.x) % kThreads;
    const bool inside = row < rows;
    const std::int64_t at = inside ? row * n : 0;
    const RowMap<kThreads, kPacks, kPack> map(inside ? n : 0, rank);
    const auto count = static_cast<A>(n);
    RowValues<A, kPacks, kPack> v;
    map.load(x + at, A(0), v);
    A sum = A(0);
    v.all([&](A& value) { sum += value; });
    const A first = reduce::row<kThreads>(sum, Sum{}, shared_sum) / count;
    Two<A> sums{{A(0), A(0)}};
    map.each(v, [&](A& value) {
      const A d = value - first;
      sums.at[0] += d;
      sums.at[1] += d * d;
    });
    sums = reduce::row<kThreads>(sums, Sum{}, shared);
    Moments<A> m = norms::moments(first, sums.at[0] / count, sums.at[1] / count, eps);
    {
      // All threads of a row agree; rows of one warp may not.
      ROUNDOFF_SHARED(double, wide, [reduce::shared_size(Shape::block)]);
      Shared<double> shared_wide(wide);
      const bool again = inside && norms::left_range(m);
      if (kThreads > 32 ? again : __any_sync(0xFFFFFFFFU, again) != 0) {
        const Moments<A> wider = norms::moments_in_fp64<A>(
            map.n, rank, kThreads, eps,
            [&](std::int64_t i) { return widen_value<double>(x[at + i]); },
            [&](double value) { return reduce::row<kThreads>(value, Sum{}, shared_wide); });
        if (again) m = wider;
      }
    }
    if (inside && rank == 0) {
      if (mean.wanted()) mean.put(row, m.mean);
      if (rstd.wanted()) rstd.put(row, m.rstd);
    }
    if (y == nullptr) return;
    v.all([&](A& value) { value = (value - m.mean) * m.rstd; });
    if (p.gamma != nullptr) combine(map, v, p.gamma, [](A& value, A g) { value *= g; });
    if (p.beta != nullptr) combine(map, v, p.beta, [](A& value, A b) { value += b; });
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

  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, Shape::blocks / 2)
      layer_norm_rows_backward(const T* __restrict__ x, const ArithmeticOf<T>* __restrict__ gamma,
                               const ArithmeticOf<T>* __restrict__ mean,
                               const ArithmeticOf<T>* __restrict__ rstd, const T* __restrict__ dy,
                               T* dx, std::int64_t rows, int n) {
    using A = ArithmeticOf<T>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    constexpr int kThreads = Shape::threads;
    ROUNDOFF_SHARED(Two<A>, partial, [reduce::shared_size(Shape::block)]);
    ROUNDOFF_SHARED(A, partial_sum, [reduce::shared_size(Shape::block)]);
    Shared<Two<A>> shared(partial);
    Shared<A> shared_sum(partial_sum);
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * Shape::rows + threadIdx.x / kThreads;
    const bool inside = row < rows;
    const std::int64_t at = inside ? row * n : 0;
    const RowMap<kThreads, kPacks, kPack> map(inside ? n : 0,
                                              static_cast<int>(threadIdx.x) % kThreads);
    const A mu = inside ? mean[row] : A(0);
    const A inverse = inside ? rstd[row] : A(0);
    const auto count = static_cast<A>(n);
    RowValues<A, kPacks, kPack> xhat;
    RowValues<A, kPacks, kPack> d;
    map.load(x + at, A(0), xhat);
    map.load(dy + at, A(0), d);
    if (gamma != nullptr) combine(map, d, gamma, [](A& value, A g) { value *= g; });
    Two<A> sums{{A(0), A(0)}};
    map.each(d, xhat, [&](A& gradient, A& value) {
      value = (value - mu) * inverse;
      sums.at[0] += gradient;
      sums.at[1] += gradient * value;
    });
    sums = reduce::row<kThreads>(sums, Sum{}, shared);
    const A first = sums.at[0] / count;
    const A mean_dx = sums.at[1] / count;
    // Corrected like the mean of x: exactly d for a constant d.
    A rest = A(0);
    map.each(d, [&](A& gradient) { rest += gradient - first; });
    const A mean_d = first + reduce::row<kThreads>(rest, Sum{}, shared_sum) / count;
    d.all(xhat, [&](A& gradient, A value) {
      gradient = inverse * (gradient - mean_d - value * mean_dx);
    });
    map.store(dx + at, d);
  }

  template <class A>
  __global__ void __launch_bounds__(256, 2)
      layer_norm_lines_backward(AnyOperand x, const A* gamma, const A* mean, const A* rstd,
                                AnyOperand dy, AnyResult dx, std::int64_t n) {
    ROUNDOFF_SHARED(A, partial, [reduce::shared_size(256)]);
    Shared<A> shared(partial);
    const auto team = [&](A value) { return reduce::row<256>(value, Sum{}, shared); };
    const std::int64_t row = blockIdx.x;
    const std::int64_t at = row * n;
    const int rank = static_cast<int>(threadIdx.x);
    const auto count = static_cast<A>(n);
    const A mu = mean[row];
    const A inverse = rstd[row];
    const auto gradient = [&](std::int64_t i) {
      return gamma == nullptr ? dy.get<A>(at + i) : dy.get<A>(at + i) * gamma[i];
    };
    const auto normalised = [&](std::int64_t i) { return (x.get<A>(at + i) - mu) * inverse; };
    A sum = A(0);
    A products = A(0);
    for (std::int64_t i = rank; i < n; i += 256) {
      const A d = gradient(i);
      sum += d;
      products += d * normalised(i);
    }
    const A first = team(sum) / count;
    const A mean_dx = team(products) / count;
    A rest = A(0);
    for (std::int64_t i = rank; i < n; i += 256) rest += gradient(i) - first;
    const A mean_d = first + team(rest) / count;
    for (std::int64_t i = rank; i < n; i += 256)
      dx.put(at + i, inverse * (gradient(i) - mean_d - normalised(i) * mean_dx));
  }

  // A row's terms of dgamma and dbeta: dy xhat, dy.
  template <class A, class In>
  struct AffineTerms {
    static constexpr int kSums = 2;
    In x;
    In dy;
    const A* mean;
    const A* rstd;
    template <class, int kPack>
    struct State {
      ROUNDOFF_DEVICE State(const AffineTerms&, std::int64_t) {}
      ROUNDOFF_DEVICE void add(const AffineTerms& t, std::int64_t at, std::int64_t row,
                               A (&sums)[2][kPack]) const {
        A xs[kPack];
        A gs[kPack];
        norms::load(t.x, at, xs);
        norms::load(t.dy, at, gs);
        const A mu = t.mean[row];
        const A inverse = t.rstd[row];
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) {
          sums[0][j] += gs[j] * ((xs[j] - mu) * inverse);
          sums[1][j] += gs[j];
        }
      }
    };
  };

  struct WriteAffine {
    AnyResult dgamma;
    AnyResult dbeta;
    template <class A>
    ROUNDOFF_DEVICE void operator()(std::int64_t c, const A (&sums)[2], bool first, double*) const {
      if (!first) return;
      if (dgamma.wanted()) dgamma.put(c, sums[0]);
      if (dbeta.wanted()) dbeta.put(c, sums[1]);
    }
  };

  // One row after the other straight onto what the outputs hold.
  template <class A>
  __global__ void __launch_bounds__(256)
      affine_in_order(AffineTerms<A, AnyOperand> terms, std::int64_t rows, std::int64_t n,
                      AnyResult dgamma, AnyResult dbeta) {
    const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
    if (c >= n) return;
    A sums[2][1] = {};
    if (dgamma.wanted() && dgamma.accumulate) sums[0][0] = dgamma.get<A>(c);
    if (dbeta.wanted() && dbeta.accumulate) sums[1][0] = dbeta.get<A>(c);
    const typename AffineTerms<A, AnyOperand>::template State<A, 1> state(terms, c);
    for (std::int64_t row = 0; row < rows; ++row) state.add(terms, row * n + c, row, sums);
    dgamma.accumulate = false;
    dbeta.accumulate = false;
    if (dgamma.wanted()) dgamma.put(c, sums[0][0]);
    if (dbeta.wanted()) dbeta.put(c, sums[1][0]);
  }

  NormMatrix matrix_of(const LayerNormParams& params, const Shape& shape,
                       std::string_view operation) {
    ROUNDOFF_CHECK(params.axes >= 1 && params.axes <= shape.rank(), operation, "normalises over ",
                   params.axes, " trailing axes, shape is ", shape);
    norm::check_eps(params.eps, operation);
    NormMatrix m;
    for (int a = 0; a < shape.rank(); ++a)
      (a < shape.rank() - params.axes ? m.outer : m.channels) *= shape[a];
    return m;
  }

  unsigned blocks_of(std::int64_t items, std::int64_t items_a_block) {
    const std::int64_t blocks = (items + items_a_block - 1) / items_a_block;
    ROUNDOFF_CHECK(blocks < (std::int64_t{1} << 31), "layer_norm", items, " are too many");
    return static_cast<unsigned>(blocks);
  }

  // Rows of fp64 take too many registers to stay in them.
  template <class A>
  bool stays(std::int64_t n, DType dtype) {
    return n > 0 && n <= reduce::kResident && std::is_same_v<A, float> && dtype != DType::fp64;
  }
  template <class A>
  bool is_own(DType dtype) {
    return (dtype == DType::fp64) == std::is_same_v<A, double>;
  }
  bool overwrites(const Out& out, DType dtype) {
    return !out.wanted || (out.view.dtype == dtype && out.write == Write::overwrite);
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
    if (!stays<A>(n, x.dtype) || !overwrites(y, x.dtype))
      return launch(device,
                    {.name = "layer_norm_lines", .grid = {blocks_of(m.outer, 1)}, .block = {256}},
                    layer_norm_lines<A>, AnyOperand(x), p, AnyResult(y), AnyResult(mean),
                    AnyResult(rstd), n, params.eps);
    visit_floating(x.dtype, "layer_norm", [&]<class T>() {
      if constexpr (!std::is_same_v<T, double> && std::is_same_v<A, float>)
        reduce::with_row_shape(n, [&]<class Shape>(Shape) {
          launch(device,
                 {.name = "layer_norm_rows",
                  .grid = {blocks_of(m.outer, Shape::rows)},
                  .block = {Shape::block}},
                 layer_norm_rows<T, Shape>, x.as<T>(), p, y.wanted ? y.view.as<T>() : nullptr,
                 AnyResult(mean), AnyResult(rstd), m.outer, static_cast<int>(n), params.eps);
        });
    });
  }

  template <class A>
  void gradient_of_x(Target device, const NormMatrix& m, const ConstView& x, const A* gamma,
                     const A* mean, const A* rstd, const ConstView& dy, const Out& dx) {
    const std::int64_t n = m.channels;
    if (!stays<A>(n, x.dtype) || dy.dtype != x.dtype || !overwrites(dx, x.dtype))
      return launch(
          device,
          {.name = "layer_norm_lines_backward", .grid = {blocks_of(m.outer, 1)}, .block = {256}},
          layer_norm_lines_backward<A>, AnyOperand(x), gamma, mean, rstd, AnyOperand(dy),
          AnyResult(dx), n);
    visit_floating(x.dtype, "layer_norm", [&]<class T>() {
      if constexpr (!std::is_same_v<T, double> && std::is_same_v<A, float>)
        reduce::with_row_shape(n, [&]<class Shape>(Shape) {
          launch(device,
                 {.name = "layer_norm_rows_backward",
                  .grid = {blocks_of(m.outer, Shape::rows)},
                  .block = {Shape::block}},
                 layer_norm_rows_backward<T, Shape>, x.as<T>(), gamma, mean, rstd, dy.as<T>(),
                 dx.view.as<T>(), m.outer, static_cast<int>(n));
        });
    });
  }

  template <class A>
  void gradient_of_affine(Target device, bool in_order, const NormMatrix& m, const ConstView& x,
                          const A* mean, const A* rstd, const ConstView& dy, const Out& dgamma,
                          const Out& dbeta, Scratch& scratch) {
    const AffineTerms<A, AnyOperand> any{AnyOperand(x), AnyOperand(dy), mean, rstd};
    if (in_order)
      return launch(
          device, {.name = "affine_in_order", .grid = {blocks_of(m.channels, 256)}, .block = {256}},
          affine_in_order<A>, any, m.outer, m.channels, AnyResult(dgamma), AnyResult(dbeta));
    const auto run = [&]<int kPack>(const auto& terms) {
      const auto sums = norms::launch_sums<kPack, A>(device, "affine_gradients", m, terms, scratch);
      norms::launch_fold<2>(device, "affine_fold", sums, m.channels,
                            WriteAffine{AnyResult(dgamma), AnyResult(dbeta)});
    };
    bool done = false;
    if (is_own<A>(x.dtype) && dy.dtype == x.dtype)
      visit_floating(x.dtype, "layer_norm", [&]<class T>() {
        if constexpr (std::is_same_v<ArithmeticOf<T>, A>) {
          if (!norms::packs_fit<T>(m)) return;
          done = true;
          run.template operator()<kPackOf<T>>(
              AffineTerms<A, TypedIn<T>>{{x.as<T>()}, {dy.as<T>()}, mean, rstd});
        }
      });
    if (!done) run.template operator()<1>(any);
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void layer_norm_forward(T device, const LayerNormParams& params, const ConstView& x,
                        const ConstView& gamma, const ConstView& beta, const Out& y,
                        const Out& mean, const Out& rstd, Scratch& scratch) {
  constexpr std::string_view kName = "layer_norm";
  const NormMatrix m = matrix_of(params, x.shape, kName);
  norm::check_operand(x, x.numel(), kName, "x");
  norm::check_operand(gamma, m.channels, kName, "gamma");
  norm::check_operand(beta, m.channels, kName, "beta");
  norm::check_out(y, x.numel(), kName, "y");
  norm::check_out(mean, m.outer, kName, "mean");
  norm::check_out(rstd, m.outer, kName, "rstd");
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype}, [&]<class A>() {
    forward<A>(device, params, m, x, gamma, beta, y, mean, rstd, scratch);
  });
}

template <DeviceTarget T>
void layer_norm_backward(T device, const LayerNormParams& params, const ConstView& x,
                         const ConstView& gamma, const ConstView& mean, const ConstView& rstd,
                         const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
                         Scratch& scratch) {
  constexpr std::string_view kName = "layer_norm_backward";
  const NormMatrix m = matrix_of(params, x.shape, kName);
  norm::check_operand(x, x.numel(), kName, "x");
  norm::check_operand(gamma, m.channels, kName, "gamma");
  norm::check_operand(mean, m.outer, kName, "mean");
  norm::check_operand(rstd, m.outer, kName, "rstd");
  norm::check_operand(dy, x.numel(), kName, "dy");
  norm::check_out(dx, x.numel(), kName, "dx");
  norm::check_out(dgamma, m.channels, kName, "dgamma");
  norm::check_out(dbeta, m.channels, kName, "dbeta");
  if (m.channels == 0) return;
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class A>() {
    const Scratch::Frame frame(scratch);
    const A* scale = norms::widened_on_device<A>(device, gamma, scratch);
    const A* mu = norms::widened_on_device<A>(device, mean, scratch);
    const A* inverse = norms::widened_on_device<A>(device, rstd, scratch);
    if (dgamma.wanted || dbeta.wanted)
      gradient_of_affine(device, params.in_order, m, x, mu, inverse, dy, dgamma, dbeta, scratch);
    if (dx.wanted && m.outer > 0) gradient_of_x(device, m, x, scale, mu, inverse, dy, dx);
  });
}

template void layer_norm_forward(Target, const LayerNormParams&, const ConstView&, const ConstView&,
                                 const ConstView&, const Out&, const Out&, const Out&, Scratch&);
template void layer_norm_backward(Target, const LayerNormParams&, const ConstView&,
                                  const ConstView&, const ConstView&, const ConstView&,
                                  const ConstView&, const Out&, const Out&, const Out&, Scratch&);

}  // namespace roundoff
