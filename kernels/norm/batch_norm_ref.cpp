#include "kernels/norm/arguments.h"
#include "kernels/norm/common.h"

namespace roundoff {

namespace {

using norm::widened;

// A matrix of count() rows, one column a channel: row (o, i), column c is element (o, c, i) of
// [outer, channels, inner].
using Channels = NormMatrix;

// Moves blocks of rows between a tensor and T[count][channels].
template <class T>
class Rows {
 public:
  Rows(const Channels& c, Scratch& scratch)
      : c_(c),
        block_(std::clamp<std::int64_t>(8192 / std::max<std::int64_t>(c.channels, 1), 1,
                                        norm::kLeafRows)),
        line_(c.inner == 1 ? nullptr : scratch.get<T>(block_)) {}

  std::int64_t block() const { return block_; }
  T* buffer(Scratch& scratch) const { return scratch.get<T>(block_ * c_.channels); }

  // Rows [row, row + count): in place where they lie in memory like that, else in `buffer`.
  const T* read(const ConstView& x, std::int64_t row, std::int64_t count, T* buffer) const {
    if (c_.inner == 1) {
      if (x.dtype == dtype_of<T>) return x.as<T>() + row * c_.channels;
      widen(x, row * c_.channels, count * c_.channels, buffer);
      return buffer;
    }
    for_each_run(row, count,
                 [&](std::int64_t k, std::int64_t run, std::int64_t c, std::int64_t at) {
                   widen(x, at, run, line_);
                   for (std::int64_t j = 0; j < run; ++j)
                     buffer[(k + j) * c_.channels + c] = line_[j];
                 });
    return buffer;
  }

  void write(const T* from, std::int64_t row, std::int64_t count, const Out& y) const {
    if (c_.inner == 1) return narrow(from, count * c_.channels, y, row * c_.channels);
    for_each_run(row, count,
                 [&](std::int64_t k, std::int64_t run, std::int64_t c, std::int64_t at) {
                   for (std::int64_t j = 0; j < run; ++j)
                     line_[j] = from[(k + j) * c_.channels + c];
                   narrow(line_, run, y, at);
                 });
  }

 private:
  // f(first row of the run - row, length, channel, offset): runs of rows contiguous in memory.
  template <class F>
  void for_each_run(std::int64_t row, std::int64_t count, const F& f) const {
    for (std::int64_t k = 0; k < count;) {
      const std::int64_t o = (row + k) / c_.inner, i = (row + k) % c_.inner;
      const std::int64_t run = std::min(count - k, c_.inner - i);
      for (std::int64_t c = 0; c < c_.channels; ++c)
        f(k, run, c, (o * c_.channels + c) * c_.inner + i);
      k += run;
    }
  }

  Channels c_;
  std::int64_t block_;
  T* line_;
};

template <class T>
void add_row(const T* __restrict x, std::int64_t n, T* __restrict sums) {
  for (std::int64_t c = 0; c < n; ++c) sums[c] += x[c];
}

template <class T>
void add_deviations(const T* __restrict x, const T* __restrict center, std::int64_t n,
                    T* __restrict sums, T* __restrict squares) {
  for (std::int64_t c = 0; c < n; ++c) {
    const T d = x[c] - center[c];
    sums[c] += d;
    squares[c] += d * d;
  }
}

template <class T>
void normalize_row(const T* __restrict x, const T* __restrict mean, const T* __restrict factor,
                   const T* __restrict shift, std::int64_t n, T* __restrict y) {
  for (std::int64_t c = 0; c < n; ++c) y[c] = (x[c] - mean[c]) * factor[c] + shift[c];
}

template <class T>
struct Statistics {
  T* mean;
  T* var;
  T* rstd;
};

// Statistics of every channel, with sums formed in A.
template <class T, class A>
void statistics_in(const ConstView& x, const Channels& shape, double eps, const Statistics<T>& out,
                   Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::int64_t n = shape.count(), channels = shape.channels;
  const Rows<A> rows(shape, scratch);
  A* buffer = rows.buffer(scratch);
  A* first = scratch.get<A>(channels);
  A* sums = scratch.get<A>(2 * channels);
  A* spare = scratch.get<A>(norm::spare_rows(n) * 2 * channels);
  const A count = static_cast<A>(n);
  // f(row, sums) for every row of a leaf.
  const auto over = [&](const auto& f) {
    return [&, f](std::int64_t row, std::int64_t m, A* to) {
      for (std::int64_t k = 0; k < m; k += rows.block()) {
        const std::int64_t b = std::min(rows.block(), m - k);
        const A* p = rows.read(x, row + k, b, buffer);
        for (std::int64_t j = 0; j < b; ++j) f(p + j * channels, to);
      }
    };
  };
  norm::row_sums(std::int64_t{0}, n, channels, first, spare,
                 over([&](const A* p, A* to) { add_row(p, channels, to); }));
  for (std::int64_t c = 0; c < channels; ++c) first[c] /= count;
  norm::row_sums(std::int64_t{0}, n, 2 * channels, sums, spare, over([&](const A* p, A* to) {
                   add_deviations(p, first, channels, to, to + channels);
                 }));
  for (std::int64_t c = 0; c < channels; ++c) {
    const A rest = sums[c] / count;
    const A var = sums[channels + c] / count - rest * rest;
    out.mean[c] = static_cast<T>(first[c] + rest);
    out.var[c] = static_cast<T>(var < A(0) ? A(0) : var);
    out.rstd[c] = static_cast<T>(norm::reciprocal_deviation(var, eps));
  }
}

template <class T>
Statistics<T> statistics(const ConstView& x, const Channels& shape, double eps, Scratch& scratch) {
  const std::int64_t channels = shape.channels;
  const Statistics<T> s{scratch.get<T>(channels), scratch.get<T>(channels),
                        scratch.get<T>(channels)};
  statistics_in<T, T>(x, shape, eps, s, scratch);
  if constexpr (sizeof(T) < sizeof(double)) {
    for (std::int64_t c = 0; c < channels; ++c) {
      if (!norm::out_of_range(s.mean[c], s.rstd[c])) continue;
      statistics_in<T, double>(x, shape, eps, s, scratch);
      break;
    }
  }
  return s;
}

// y = (x - mean) rstd gamma + beta
template <class T>
void normalize(const ConstView& x, const Channels& shape, const T* mean, const T* rstd,
               const ConstView& gamma, const ConstView& beta, const Out& y, Scratch& scratch) {
  if (!y.wanted) return;
  const std::int64_t channels = shape.channels;
  T* factor = widened(gamma, channels, T(1), scratch);
  for (std::int64_t c = 0; c < channels; ++c) factor[c] *= rstd[c];
  const T* shift = widened(beta, channels, T(0), scratch);
  const Rows<T> rows(shape, scratch);
  T* in = rows.buffer(scratch);
  T* out = rows.buffer(scratch);
  for (std::int64_t r = 0; r < shape.count(); r += rows.block()) {
    const std::int64_t m = std::min(rows.block(), shape.count() - r);
    const T* p = rows.read(x, r, m, in);
    for (std::int64_t j = 0; j < m; ++j)
      normalize_row(p + j * channels, mean, factor, shift, channels, out + j * channels);
    rows.write(out, r, m, y);
  }
}

// running' = (1 - momentum) running + momentum batch
template <class T>
void update_running(const BatchNormParams& params, const ConstView& running, const T* batch,
                    double factor, std::int64_t channels, const Out& next, Scratch& scratch) {
  if (!next.wanted) return;
  T* value = widened(running, channels, T(0), scratch);
  const T keep = static_cast<T>(1.0 - params.momentum), take = static_cast<T>(params.momentum);
  const T correction = static_cast<T>(factor);
  for (std::int64_t c = 0; c < channels; ++c)
    value[c] = keep * value[c] + take * (batch[c] * correction);
  narrow(value, channels, next, 0);
}

// Eval statistics: the running buffers in T, the variance turned into rstd.
template <class T>
Statistics<T> running_statistics(const BatchNormParams& params, const ConstView& running_mean,
                                 const ConstView& running_var, std::int64_t channels,
                                 Scratch& scratch) {
  const Statistics<T> s{widened(running_mean, channels, T(0), scratch), nullptr,
                        widened(running_var, channels, T(1), scratch)};
  for (std::int64_t c = 0; c < channels; ++c)
    s.rstd[c] = T(1) / std::sqrt(s.rstd[c] + static_cast<T>(params.eps));
  return s;
}

template <class T>
void add_gradients(const T* __restrict x, const T* __restrict dy, const T* __restrict mean,
                   const T* __restrict rstd, std::int64_t n, T* __restrict dgamma,
                   T* __restrict dbeta) {
  for (std::int64_t c = 0; c < n; ++c) {
    dgamma[c] += dy[c] * ((x[c] - mean[c]) * rstd[c]);
    dbeta[c] += dy[c];
  }
}

template <class T>
void training_dx(const T* __restrict x, const T* __restrict dy, const T* __restrict mean,
                 const T* __restrict rstd, const T* __restrict scale, const T* __restrict mean_dy,
                 const T* __restrict mean_dyx, std::int64_t n, T* __restrict dx) {
  for (std::int64_t c = 0; c < n; ++c) {
    const T xhat = (x[c] - mean[c]) * rstd[c];
    dx[c] = scale[c] * (dy[c] - mean_dy[c] - xhat * mean_dyx[c]);
  }
}

template <class T>
void backward(bool training, const Channels& shape, const ConstView& x, const Statistics<T>& s,
              const ConstView& gamma, const ConstView& dy, const Out& dx, const Out& dgamma,
              const Out& dbeta, Scratch& scratch) {
  const std::int64_t channels = shape.channels, n = shape.count();
  const Rows<T> rows(shape, scratch);
  T* x_buffer = rows.buffer(scratch);
  T* dy_buffer = rows.buffer(scratch);
  const bool batch = training && dx.wanted;  // dx needs the sums itself
  T* sums = batch ? scratch.get<T>(2 * channels) : nullptr;
  if (batch || dgamma.wanted || dbeta.wanted)
    norm::affine_gradients(false, n, channels, dgamma, dbeta, sums, scratch,
                           [&](std::int64_t row, std::int64_t m, T* to) {
                             for (std::int64_t k = 0; k < m; k += rows.block()) {
                               const std::int64_t b = std::min(rows.block(), m - k);
                               const T* p = rows.read(x, row + k, b, x_buffer);
                               const T* g = rows.read(dy, row + k, b, dy_buffer);
                               for (std::int64_t j = 0; j < b * channels; j += channels)
                                 add_gradients(p + j, g + j, s.mean, s.rstd, channels, to,
                                               to + channels);
                             }
                           });
  if (!dx.wanted) return;
  T* scale = widened(gamma, channels, T(1), scratch);
  for (std::int64_t c = 0; c < channels; ++c) scale[c] *= s.rstd[c];
  if (batch)
    for (std::int64_t c = 0; c < 2 * channels; ++c) sums[c] /= static_cast<T>(n);
  T* out = rows.buffer(scratch);
  for (std::int64_t r = 0; r < n; r += rows.block()) {
    const std::int64_t m = std::min(rows.block(), n - r);
    const T* g = rows.read(dy, r, m, dy_buffer);
    if (batch) {
      const T* p = rows.read(x, r, m, x_buffer);
      for (std::int64_t j = 0; j < m * channels; j += channels)
        training_dx(p + j, g + j, s.mean, s.rstd, scale, sums + channels, sums, channels, out + j);
    } else {
      for (std::int64_t j = 0; j < m * channels; j += channels)
        for (std::int64_t c = 0; c < channels; ++c) out[j + c] = g[j + c] * scale[c];
    }
    rows.write(out, r, m, dx);
  }
}

}  // namespace

void batch_norm_forward_training(Ref, const BatchNormParams& params, const ConstView& x,
                                 const ConstView& gamma, const ConstView& beta,
                                 const ConstView& running_mean, const ConstView& running_var,
                                 const Out& y, const Out& mean, const Out& rstd,
                                 const Out& running_mean_next, const Out& running_var_next,
                                 Scratch& scratch) {
  const Channels shape =
      check_batch_norm_training(params, x, gamma, beta, running_mean, running_var, y, mean, rstd,
                                running_mean_next, running_var_next);
  const std::int64_t n = shape.count();
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype}, [&]<class T>() {
    const Scratch::Frame frame(scratch);
    const Statistics<T> s = statistics<T>(x, shape, params.eps, scratch);
    normalize(x, shape, s.mean, s.rstd, gamma, beta, y, scratch);
    if (mean.wanted) narrow(s.mean, shape.channels, mean, 0);
    if (rstd.wanted) narrow(s.rstd, shape.channels, rstd, 0);
    const double unbiased = static_cast<double>(n) / static_cast<double>(n - 1);
    update_running(params, running_mean, s.mean, 1.0, shape.channels, running_mean_next, scratch);
    update_running(params, running_var, s.var, unbiased, shape.channels, running_var_next, scratch);
  });
}

void batch_norm_forward_eval(Ref, const BatchNormParams& params, const ConstView& x,
                             const ConstView& gamma, const ConstView& beta,
                             const ConstView& running_mean, const ConstView& running_var,
                             const Out& y, Scratch& scratch) {
  const Channels shape =
      check_batch_norm_eval(params, x, gamma, beta, running_mean, running_var, y);
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, beta.dtype}, [&]<class T>() {
    const Scratch::Frame frame(scratch);
    const auto s =
        running_statistics<T>(params, running_mean, running_var, shape.channels, scratch);
    normalize(x, shape, s.mean, s.rstd, gamma, beta, y, scratch);
  });
}

void batch_norm_backward_training(Ref, const BatchNormParams& params, const ConstView& x,
                                  const ConstView& gamma, const ConstView& mean,
                                  const ConstView& rstd, const ConstView& dy, const Out& dx,
                                  const Out& dgamma, const Out& dbeta, Scratch& scratch) {
  const Channels shape =
      check_batch_norm_backward(params, x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class T>() {
    const Scratch::Frame frame(scratch);
    const Statistics<T> s{widened(mean, shape.channels, T(0), scratch), nullptr,
                          widened(rstd, shape.channels, T(1), scratch)};
    backward(true, shape, x, s, gamma, dy, dx, dgamma, dbeta, scratch);
  });
}

void batch_norm_backward_eval(Ref, const BatchNormParams& params, const ConstView& x,
                              const ConstView& gamma, const ConstView& running_mean,
                              const ConstView& running_var, const ConstView& dy, const Out& dx,
                              const Out& dgamma, const Out& dbeta, Scratch& scratch) {
  const Channels shape =
      check_batch_norm_backward(params, x, gamma, running_mean, running_var, dy, dx, dgamma, dbeta);
  norm::dispatch(params.accumulator, {x.dtype, gamma.dtype, dy.dtype}, [&]<class T>() {
    const Scratch::Frame frame(scratch);
    const auto s =
        running_statistics<T>(params, running_mean, running_var, shape.channels, scratch);
    backward(false, shape, x, s, gamma, dy, dx, dgamma, dbeta, scratch);
  });
}

}  // namespace roundoff
