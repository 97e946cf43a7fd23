// Gradients of LayerNorm on devices: the formulas of layer_norm.h.
//
// Rows of one type, up to kResidentPair elements in a block and on sm_90 up to 65536 (fp32:
// 49152) in a cluster of 2 to 8 blocks: x and dy stay in registers, and beside them every thread
// keeps the sums of dy xhat and dy of its columns, over all rows that its block works through. So x
// and dy are read once and dx is written once; at the end a block leaves its sums as one line of
// partial[block][sum][column] (through shared memory, so that neighbours write neighbours), and a
// second launch folds the lines (columns.cuh). The number of blocks depends on the shape alone: 16
// rows or more each, at most 264. Bytes beside x, dy and dx: 16 a column and block, mean and rstd,
// gamma from a cache. Longer rows and mixed types: a block a row in three reads; dgamma and dbeta
// in two stages (columns.cuh), which read x and dy once more; in order, one thread a column. Sums
// of columns: rows of a thread in order, the rows of a block, then blocks / 8 + 3. fp32 (fp64 where
// an operand or the accumulator is), one rounding on the way out.
#include "kernels/norm/layer_norm.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using reduce::RowMap;
  using reduce::RowPlace;
  using reduce::RowTotal;
  using reduce::RowValues;
  using reduce::Shared;
  using reduce::Sum;

  template <class A>
  using Two = reduce::Values<A, 2>;

  // Rows of a cluster; four arrays of them fit into a thread's registers, and the packs of fp32
  // beside fewer.
  template <class T>
  using LongRow = reduce::ClusterShape<sizeof(T) == 4 ? 24 : 32>;
  constexpr std::int64_t most_of_cluster(DType dtype) {
    return dtype == DType::fp32 ? LongRow<float>::most : LongRow<Half>::most;
  }
  constexpr std::int64_t kMostBlocks = 264;  // two for every multiprocessor of the largest GPUs
  constexpr std::int64_t kLeastRows = 16;    // of a block, where there are so many

  // Where a block's sums of columns stand in shared memory before they are written: value (k, j) of
  // thread t at (k kPack + j) stride + t, which meets no conflicts on the way in, and with this
  // stride none on the way out, where lanes read kPack values of 32 / kPack threads.
  template <class T, class Shape>
  struct ColumnStage {
    static constexpr int pack = Shape::template pack<T>;
    static constexpr int local = Shape::cluster ? Shape::block : Shape::block / Shape::rows;
    static constexpr int stride = (local + 31) / 32 * 32 + 32 / pack;
    // Of one row's threads; rows of one warp begin at different banks.
    static constexpr int size = Shape::values * stride + (local < 32 ? local : 0);
    static constexpr int floats = Shape::rows * size;
  };

  // partial: [blocks, 2, n], or null where dgamma and dbeta are not wanted; dx likewise.
  template <class T, class Shape>
  __global__ void __launch_bounds__(Shape::block, 256 / Shape::block)
      layer_norm_gradients(const T* __restrict__ x, const float* __restrict__ gamma,
                           const float* __restrict__ mean, const float* __restrict__ rstd,
                           const T* __restrict__ dy, T* dx, float* __restrict__ partial,
                           std::int64_t rows, std::int64_t stride, int n) {
    if (!Shape::here) return;
    using A = float;
    using Stage = ColumnStage<T, Shape>;
    constexpr int kPack = Shape::template pack<T>;
    constexpr int kPacks = Shape::template packs<T>;
    ROUNDOFF_SHARED(Two<A>, memory, [Shape::shared]);
    ROUNDOFF_SHARED(A, memory_sum, [Shape::shared]);
    ROUNDOFF_DYNAMIC_SHARED(bytes);
    RowPlace<Shape> place;
    RowTotal<Shape, Two<A>> total(place, memory);
    RowTotal<Shape, A> total_sum(place, memory_sum);
    const auto count = static_cast<A>(n);
    RowValues<A, kPacks, kPack> of_gamma;
    RowValues<A, kPacks, kPack> of_beta;
    of_gamma.all(of_beta, [](A& a, A& b) { a = b = A(0); });
    // All rows of a block take part in every turn.
    ROUNDOFF_NO_UNROLL
    for (std::int64_t row = place.row; row - place.row % Shape::rows < rows; row += stride) {
      const bool inside = row < rows;
      const std::int64_t at = inside ? row * n : 0;
      const RowMap<kPacks, kPack> map(inside ? n : 0, place.rank, place.threads);
      const A mu = inside ? mean[row] : A(0);
      const A inverse = inside ? rstd[row] : A(0);
      RowValues<A, kPacks, kPack> xhat;
      RowValues<A, kPacks, kPack> d;
      map.load(x + at, A(0), xhat);
      map.load(dy + at, A(0), d);
      xhat.all([&](A& value) { value = (value - mu) * inverse; });
      if (partial != nullptr) {
        of_gamma.all(d, xhat, [](A& sum, A gradient, A value) { sum += gradient * value; });
        of_beta.all(d, [](A& sum, A gradient) { sum += gradient; });
      }
      if (dx == nullptr) continue;
      if (gamma != nullptr) norms::combine(map, d, gamma, [](A& value, A g) { value *= g; });
      Two<A> sums{{A(0), A(0)}};
      map.each(d, xhat, [&](A& gradient, A& value) {
        sums.at[0] += gradient;
        sums.at[1] += gradient * value;
      });
      sums = total(sums, Sum{});
      const A first = sums.at[0] / count;
      const A mean_dx = sums.at[1] / count;
      // Corrected like the mean of x: exactly d for a constant d.
      A rest = A(0);
      map.each(d, [&](A& gradient) { rest += gradient - first; });
      const A mean_d = first + total_sum(rest, Sum{}) / count;
      d.all(xhat, [&](A& gradient, A value) {
        gradient = inverse * (gradient - mean_d - value * mean_dx);
      });
      map.store(dx + at, d);
    }
    place.join();
    if (partial == nullptr) return;
    const auto thread = static_cast<int>(threadIdx.x);
    const int own = thread % Stage::local;
    const int before = place.rank - own;  // the row's threads in the cluster's earlier blocks
    A* const stage = reinterpret_cast<A*>(bytes);
    A* const mine = stage + thread / Stage::local * Stage::size + own;
    const bool packed = n % kPack == 0;
    const std::int64_t block = place.row / Shape::rows;
    ROUNDOFF_UNROLL
    for (int s = 0; s < 2; ++s) {
      const RowValues<A, kPacks, kPack>& sums = s == 0 ? of_gamma : of_beta;
      __syncthreads();
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) mine[(k * kPack + j) * Stage::stride] = sums.at[k][j];
      }
      __syncthreads();
      ROUNDOFF_NO_UNROLL
      for (int i = thread; i < Stage::local * Shape::values; i += Shape::block) {
        constexpr int kRun = Stage::local * kPack;
        const int k = packed ? i / kRun : i / Stage::local;
        const int rest = packed ? i % kRun : i % Stage::local;
        const int from = packed ? (k * kPack + rest % kPack) * Stage::stride + rest / kPack
                                : k * Stage::stride + rest;
        const int column = (k * place.threads + before) * (packed ? kPack : 1) + rest;
        if (column >= n) continue;
        A sum = stage[from];
        for (int r = 1; r < Shape::rows; ++r) sum += stage[r * Stage::size + from];
        partial[(block * 2 + s) * n + column] = sum;
      }
    }
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
    static constexpr bool kPlanes = false;
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
    const typename AffineTerms<A, AnyOperand>::template State<norms::Neighbours, 1> state(terms, c);
    for (std::int64_t row = 0; row < rows; ++row) state.add(terms, row * n + c, row, sums);
    dgamma.accumulate = false;
    dbeta.accumulate = false;
    if (dgamma.wanted()) dgamma.put(c, sums[0][0]);
    if (dbeta.wanted()) dbeta.put(c, sums[1][0]);
  }

  template <class A>
  void gradient_of_affine(Target device, bool in_order, const NormMatrix& m, const ConstView& x,
                          const A* mean, const A* rstd, const ConstView& dy, const Out& dgamma,
                          const Out& dbeta, Scratch& scratch) {
    const AffineTerms<A, AnyOperand> any{AnyOperand(x), AnyOperand(dy), mean, rstd};
    if (in_order)
      return launch(device,
                    {.name = "affine_in_order",
                     .grid = {reduce::grid_of("layer_norm", (m.channels + 255) / 256)},
                     .block = {256}},
                    affine_in_order<A>, any, m.outer, m.channels, AnyResult(dgamma),
                    AnyResult(dbeta));
    const auto run = [&]<int kPack>(const auto& terms) {
      const auto sums = norms::launch_sums<kPack, A>(device, "affine_gradients", m, terms, scratch);
      norms::launch_fold<2>(device, "affine_fold", sums, m.channels,
                            WriteAffine{AnyResult(dgamma), AnyResult(dbeta)});
    };
    bool done = false;
    if ((x.dtype == DType::fp64) == std::is_same_v<A, double> && dy.dtype == x.dtype)
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

  // Whether rows stay in registers, with dgamma and dbeta beside them.
  template <class A>
  bool stays(Target device, std::int64_t n, const ConstView& x, const ConstView& dy,
             const Out& dx) {
    return n > 0 && norms::stays<A>(x.dtype) && dy.dtype == x.dtype &&
           norms::overwrites(dx, x.dtype) &&
           (n <= reduce::kResidentPair ||
            (n <= most_of_cluster(x.dtype) && architecture(device) == Architecture::sm_90a));
  }

  void resident_gradients(Target device, const NormMatrix& m, const ConstView& x,
                          const float* gamma, const float* mean, const float* rstd,
                          const ConstView& dy, const Out& dx, bool affine, const Out& dgamma,
                          const Out& dbeta, Scratch& scratch) {
    const std::int64_t n = m.channels;
    const Scratch::Frame frame(scratch);
    norms::Partial<float> partial{nullptr, 0};
    const auto run = [&]<class T, class Shape>() {
      LaunchConfig config = reduce::row_launch<Shape>("layer_norm_gradients", m.outer, n);
      const unsigned cluster = config.cluster.x;
      unsigned blocks = config.grid.x / cluster;
      if (affine) {
        const std::int64_t enough = std::clamp<std::int64_t>(
            m.outer / std::max<std::int64_t>(kLeastRows, Shape::rows), 1, kMostBlocks);
        blocks = std::min(blocks, static_cast<unsigned>(enough));
        config.grid = {blocks * cluster};
        config.shared = ColumnStage<T, Shape>::floats * sizeof(float);
        partial = {scratch.get<float>(std::int64_t{blocks} * 2 * n), blocks};
      }
      launch(device, config, layer_norm_gradients<T, Shape>, x.as<T>(), gamma, mean, rstd,
             dy.as<T>(), dx.wanted ? dx.view.as<T>() : nullptr, partial.sums, m.outer,
             std::int64_t{blocks} * Shape::rows, static_cast<int>(n));
    };
    norms::visit_resident(x.dtype, [&]<class T>() {
      if (n > reduce::kResidentPair) return run.template operator()<T, LongRow<T>>();
      reduce::with_pair_shape(n, [&]<class Shape>(Shape) { run.template operator()<T, Shape>(); });
    });
    if (affine)
      norms::launch_fold<2>(device, "affine_fold", partial, n,
                            WriteAffine{AnyResult(dgamma), AnyResult(dbeta)});
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void layer_norm_backward(T device, const LayerNormParams& params, const ConstView& x,
                         const ConstView& gamma, const ConstView& mean, const ConstView& rstd,
                         const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
                         Scratch& scratch) {
  const NormMatrix m =
      check_layer_norm_backward(params, x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
  if (m.channels == 0) return;
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class A>() {
    const Scratch::Frame frame(scratch);
    const A* scale = norms::widened_on_device<A>(device, gamma, scratch);
    const A* mu = norms::widened_on_device<A>(device, mean, scratch);
    const A* inverse = norms::widened_on_device<A>(device, rstd, scratch);
    const bool resident = m.outer > 0 && stays<A>(device, m.channels, x, dy, dx);
    bool affine = dgamma.wanted || dbeta.wanted;
    if (affine && (params.in_order || !resident)) {
      gradient_of_affine(device, params.in_order, m, x, mu, inverse, dy, dgamma, dbeta, scratch);
      affine = false;
    }
    if (m.outer == 0 || !(dx.wanted || affine)) return;
    if constexpr (std::is_same_v<A, float>) {
      if (resident)
        return resident_gradients(device, m, x, scale, mu, inverse, dy, dx, affine, dgamma, dbeta,
                                  scratch);
    }
    launch(device,
           {.name = "layer_norm_lines_backward",
            .grid = {reduce::grid_of("layer_norm", m.outer)},
            .block = {256}},
           layer_norm_lines_backward<A>, AnyOperand(x), scale, mu, inverse, AnyOperand(dy),
           AnyResult(dx), m.channels);
  });
}

template void layer_norm_backward(Target, const LayerNormParams&, const ConstView&,
                                  const ConstView&, const ConstView&, const ConstView&,
                                  const ConstView&, const Out&, const Out&, const Out&, Scratch&);

}  // namespace roundoff
