// BatchNorm on devices: the formulas of batch_norm.h, in two passes over the batch with the
// corrected mean.
//
// Training: sums of x, then of its deviations (columns.cuh: two launches each, one over the batch
// and one that folds), then y: three reads and one write. Backward: the sums of dy xhat and dy,
// then dx: two reads of x and dy, one write. One type throughout, and rows (channels last) or a
// channel's runs (channels first) of whole packs, take 16-byte accesses; everything else goes
// element by element, still along the memory.
// Per channel the workspace holds rows of a table: what the passes need of it, in the arithmetic.
// fp32 (fp64 where an operand or the accumulator is), one rounding on the way out.
#include "kernels/norm/batch_norm.cuh"
#include "kernels/norm/batch_norm.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using namespace norms;

  template <class A>
  struct FinishMean {
    Table<A> table;
    A count;
    ROUNDOFF_DEVICE void operator()(std::int64_t c, const A (&sums)[1], bool first, double*) const {
      if (first) table(kFirst, c) = sums[0] / count;
    }
  };

  template <class A>
  struct FinishStatistics {
    Table<A> table;
    NormMatrix matrix;
    AnyOperand x;
    AnyOperand gamma;
    AnyOperand beta;
    AnyOperand running_mean;
    AnyOperand running_var;
    AnyResult mean;
    AnyResult rstd;
    AnyResult running_mean_next;
    AnyResult running_var_next;
    double eps;
    double momentum;

    // running' = (1 - momentum) running + momentum batch
    ROUNDOFF_DEVICE void update(const AnyOperand& running, const AnyResult& next, A batch,
                                double factor, std::int64_t c) const {
      if (!next.wanted()) return;
      const A keep = static_cast<A>(1.0 - momentum);
      next.put(c, keep * running.get<A>(c) +
                      static_cast<A>(momentum) * (batch * static_cast<A>(factor)));
    }

    ROUNDOFF_DEVICE void operator()(std::int64_t c, const A (&sums)[2], bool first,
                                    double* memory) const {
      const std::int64_t n = matrix.count();
      const auto count = static_cast<A>(n);
      const bool inside = c < matrix.channels;
      Moments<A> m{A(0), A(0), A(1)};
      if (inside) m = norms::moments(table(kFirst, c), sums[0] / count, sums[1] / count, eps);
      if constexpr (std::is_same_v<A, float>) {
        const bool again = inside && norms::left_range(m);
        if (__syncthreads_or(again ? 1 : 0) != 0) {
          reduce::ColumnTeam<double> team(memory);
          const Moments<A> wider = norms::moments_in_fp64<A>(
              inside ? n : 0, team.rank, 8, eps,
              [&](std::int64_t e) {
                const std::int64_t o = e / matrix.inner;
                return x.get<double>((o * matrix.channels + c) * matrix.inner + e % matrix.inner);
              },
              [&](double value) { return team(value, reduce::Sum{}); });
          if (again) m = wider;
        }
      }
      if (!first) return;
      if (mean.wanted()) mean.put(c, m.mean);
      if (rstd.wanted()) rstd.put(c, m.rstd);
      table(kMean, c) = m.mean;
      table(kFactor, c) = gamma.get_or(c, A(1)) * m.rstd;
      table(kShift, c) = beta.get_or(c, A(0));
      update(running_mean, running_mean_next, m.mean, 1.0, c);
      update(running_var, running_var_next, m.var,
             static_cast<double>(n) / static_cast<double>(n - 1), c);
    }
  };

  // What eval needs: rstd of the running variance in the row kFirst, factor and shift.
  template <class A>
  __global__ void __launch_bounds__(256)
      running_statistics(Table<A> table, AnyOperand gamma, AnyOperand beta, AnyOperand mean,
                         AnyOperand var, double eps) {
    const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
    if (c >= table.channels) return;
    const A rstd = A(1) / norms::square_root(var.get<A>(c) + static_cast<A>(eps));
    table(kFirst, c) = rstd;
    table(kMean, c) = mean.get<A>(c);
    table(kFactor, c) = gamma.get_or(c, A(1)) * rstd;
    table(kShift, c) = beta.get_or(c, A(0));
  }

  template <class A>
  struct FinishGradients {
    Table<A> table;
    AnyOperand gamma;
    const A* rstd;
    AnyResult dgamma;
    AnyResult dbeta;
    A count;
    ROUNDOFF_DEVICE void operator()(std::int64_t c, const A (&sums)[2], bool first, double*) const {
      if (!first) return;
      if (dgamma.wanted()) dgamma.put(c, sums[0]);
      if (dbeta.wanted()) dbeta.put(c, sums[1]);
      table(kFactor, c) = gamma.get_or(c, A(1)) * rstd[c];
      table(kMeanDyXhat, c) = sums[0] / count;
      table(kMeanDy, c) = sums[1] / count;
    }
  };

  // run.template operator()<kPack>(In{...} of each operand...): packs of one type, or any types.
  template <class A, class F>
  void with_inputs(const NormMatrix& m, const ConstView& x, const ConstView& dy, F&& f) {
    bool done = false;
    if ((x.dtype == DType::fp64) == std::is_same_v<A, double> && dy.dtype == x.dtype)
      visit_floating(x.dtype, "batch_norm", [&]<class T>() {
        if constexpr (std::is_same_v<ArithmeticOf<T>, A>) {
          if (!norms::packs_fit<T>(m)) return;
          done = true;
          f.template operator()<kPackOf<T>>(TypedIn<T>{x.as<T>()}, TypedIn<T>{dy.as<T>()});
        }
      });
    if (!done) f.template operator()<1>(AnyOperand(x), AnyOperand(dy));
  }
  // The same with an output.
  template <class A, class F>
  void with_arrays(const NormMatrix& m, const ConstView& x, const ConstView& dy, const Out& out,
                   F&& f) {
    bool done = false;
    if ((x.dtype == DType::fp64) == std::is_same_v<A, double> && dy.dtype == x.dtype &&
        out.view.dtype == x.dtype && out.write == Write::overwrite)
      visit_floating(x.dtype, "batch_norm", [&]<class T>() {
        if constexpr (std::is_same_v<ArithmeticOf<T>, A>) {
          if (!norms::packs_fit<T>(m)) return;
          done = true;
          f.template operator()<kPackOf<T>>(TypedIn<T>{x.as<T>()}, TypedIn<T>{dy.as<T>()},
                                            TypedOut<T>{out.view.as<T>()});
        }
      });
    if (!done) f.template operator()<1>(AnyOperand(x), AnyOperand(dy), AnyResult(out));
  }

  template <class A>
  Table<A> table_of(const NormMatrix& m, Scratch& scratch) {
    return {scratch.get<A>(kRows * m.channels), m.channels};
  }

  template <class A>
  void normalize(Target device, const NormMatrix& m, const ConstView& x, const Table<A>& table,
                 const Out& y) {
    if (!y.wanted) return;
    with_arrays<A>(m, x, x, y, [&]<int kPack, class In, class To>(In from, In, To to) {
      norms::launch_map<kPack, A>(device, "batch_norm", m, Normalize<A, In, To>{from, to, table});
    });
  }

  template <class A>
  void launch_running(Target device, const Table<A>& table, const ConstView& gamma,
                      const ConstView& beta, const ConstView& mean, const ConstView& var,
                      double eps) {
    launch(device,
           {.name = "running_statistics",
            .grid = {static_cast<unsigned>((table.channels + 255) / 256)},
            .block = {256}},
           running_statistics<A>, table, AnyOperand(gamma), AnyOperand(beta), AnyOperand(mean),
           AnyOperand(var), eps);
  }

  template <class A>
  void statistics(Target device, const NormMatrix& m, const ConstView& x,
                  const FinishStatistics<A>& finish, Scratch& scratch) {
    const Table<A>& table = finish.table;
    with_inputs<A>(m, x, x, [&]<int kPack, class In>(In from, In) {
      const Scratch::Frame frame(scratch);
      const auto sums = norms::launch_sums<kPack, A>(device, "batch_norm_mean", m,
                                                     ValueTerms<A, In>{from}, scratch);
      norms::launch_fold<1>(device, "batch_norm_fold_mean", sums, m.channels,
                            FinishMean<A>{table, static_cast<A>(m.count())});
      const auto squares = norms::launch_sums<kPack, A>(
          device, "batch_norm_deviations", m, DeviationTerms<A, In>{from, table}, scratch);
      norms::launch_fold<2>(device, "batch_norm_statistics", squares, m.channels, finish);
    });
  }

  // mean and rstd in the arithmetic's type.
  template <class A>
  void backward(Target device, bool training, const NormMatrix& m, const ConstView& x,
                const ConstView& gamma, const A* mean, const A* rstd, const Table<A>& table,
                const ConstView& dy, const Out& dx, const Out& dgamma, const Out& dbeta,
                Scratch& scratch) {
    if ((training && dx.wanted) || dgamma.wanted || dbeta.wanted)
      with_inputs<A>(m, x, dy, [&]<int kPack, class In>(In values, In gradients) {
        const Scratch::Frame frame(scratch);
        const auto sums = norms::launch_sums<kPack, A>(
            device, "batch_norm_gradients", m, GradientTerms<A, In>{values, gradients, mean, rstd},
            scratch);
        norms::launch_fold<2>(device, "batch_norm_fold_gradients", sums, m.channels,
                              FinishGradients<A>{table, AnyOperand(gamma), rstd, AnyResult(dgamma),
                                                 AnyResult(dbeta), static_cast<A>(m.count())});
      });
    if (!dx.wanted || m.count() == 0) return;
    with_arrays<A>(
        m, x, dy, dx, [&]<int kPack, class In, class To>(In values, In gradients, To to) {
          norms::launch_map<kPack, A>(
              device, "batch_norm_backward", m,
              InputGradient<A, In, To>{values, gradients, to, table, mean, rstd, training});
        });
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void batch_norm_forward_training(T device, const BatchNormParams& params, const ConstView& x,
                                 const ConstView& gamma, const ConstView& beta,
                                 const ConstView& running_mean, const ConstView& running_var,
                                 const Out& y, const Out& mean, const Out& rstd,
                                 const Out& running_mean_next, const Out& running_var_next,
                                 Scratch& scratch) {
  const NormMatrix m =
      check_batch_norm_training(params, x, gamma, beta, running_mean, running_var, y, mean, rstd,
                                running_mean_next, running_var_next);
  if (m.channels == 0) return;
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype}, [&]<class A>() {
    const Scratch::Frame frame(scratch);
    const Table<A> table = table_of<A>(m, scratch);
    const FinishStatistics<A> finish{table,
                                     m,
                                     AnyOperand(x),
                                     AnyOperand(gamma),
                                     AnyOperand(beta),
                                     AnyOperand(running_mean),
                                     AnyOperand(running_var),
                                     AnyResult(mean),
                                     AnyResult(rstd),
                                     AnyResult(running_mean_next),
                                     AnyResult(running_var_next),
                                     params.eps,
                                     params.momentum};
    statistics(device, m, x, finish, scratch);
    normalize(device, m, x, table, y);
  });
}

template <DeviceTarget T>
void batch_norm_forward_eval(T device, const BatchNormParams& params, const ConstView& x,
                             const ConstView& gamma, const ConstView& beta,
                             const ConstView& running_mean, const ConstView& running_var,
                             const Out& y, Scratch& scratch) {
  const NormMatrix m = check_batch_norm_eval(params, x, gamma, beta, running_mean, running_var, y);
  if (x.numel() == 0 || !y.wanted) return;
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype}, [&]<class A>() {
    const Scratch::Frame frame(scratch);
    const Table<A> table = table_of<A>(m, scratch);
    launch_running(device, table, gamma, beta, running_mean, running_var, params.eps);
    normalize(device, m, x, table, y);
  });
}

template <DeviceTarget T>
void batch_norm_backward_training(T device, const BatchNormParams& params, const ConstView& x,
                                  const ConstView& gamma, const ConstView& mean,
                                  const ConstView& rstd, const ConstView& dy, const Out& dx,
                                  const Out& dgamma, const Out& dbeta, Scratch& scratch) {
  const NormMatrix m =
      check_batch_norm_backward(params, x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
  if (m.channels == 0) return;
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class A>() {
    const Scratch::Frame frame(scratch);
    backward(device, true, m, x, gamma, norms::widened_on_device<A>(device, mean, scratch),
             norms::widened_on_device<A>(device, rstd, scratch), table_of<A>(m, scratch), dy, dx,
             dgamma, dbeta, scratch);
  });
}

template <DeviceTarget T>
void batch_norm_backward_eval(T device, const BatchNormParams& params, const ConstView& x,
                              const ConstView& gamma, const ConstView& running_mean,
                              const ConstView& running_var, const ConstView& dy, const Out& dx,
                              const Out& dgamma, const Out& dbeta, Scratch& scratch) {
  const NormMatrix m =
      check_batch_norm_backward(params, x, gamma, running_mean, running_var, dy, dx, dgamma, dbeta);
  if (m.channels == 0) return;
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class A>() {
    const Scratch::Frame frame(scratch);
    const Table<A> table = table_of<A>(m, scratch);
    launch_running(device, table, gamma, ConstView::absent(), running_mean, running_var,
                   params.eps);
    const A* rstd = table.data + kFirst * m.channels;
    const A* mean = table.data + kMean * m.channels;
    backward(device, false, m, x, gamma, mean, rstd, table, dy, dx, dgamma, dbeta, scratch);
  });
}

template void batch_norm_forward_training(Target, const BatchNormParams&, const ConstView&,
                                          const ConstView&, const ConstView&, const ConstView&,
                                          const ConstView&, const Out&, const Out&, const Out&,
                                          const Out&, const Out&, Scratch&);
template void batch_norm_forward_eval(Target, const BatchNormParams&, const ConstView&,
                                      const ConstView&, const ConstView&, const ConstView&,
                                      const ConstView&, const Out&, Scratch&);
template void batch_norm_backward_training(Target, const BatchNormParams&, const ConstView&,
                                           const ConstView&, const ConstView&, const ConstView&,
                                           const ConstView&, const Out&, const Out&, const Out&,
                                           Scratch&);
template void batch_norm_backward_eval(Target, const BatchNormParams&, const ConstView&,
                                       const ConstView&, const ConstView&, const ConstView&,
                                       const ConstView&, const Out&, const Out&, const Out&,
                                       Scratch&);

}  // namespace roundoff
