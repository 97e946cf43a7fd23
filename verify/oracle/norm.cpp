#include "verify/oracle/norm.h"

#include <cmath>

namespace roundoff::oracle {

namespace {

struct Moments {
  long double mean = 0, biased = 0, unbiased = 0;
};

// Two passes: the mean, then the squared deviations from it. x(i) for i in [0, n).
template <class F>
Moments moments(std::int64_t n, F x) {
  Moments m;
  for (std::int64_t i = 0; i < n; ++i) m.mean += x(i);
  m.mean /= static_cast<long double>(n);
  long double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += (x(i) - m.mean) * (x(i) - m.mean);
  m.biased = squares / static_cast<long double>(n);
  m.unbiased = squares / static_cast<long double>(n - 1);
  return m;
}

long double inverse_deviation(long double variance, double eps) {
  return 1 / std::sqrt(variance + static_cast<long double>(eps));
}

// The gradient of xhat_i = (x_i - mean(x)) / sqrt(var(x) + eps) applied to g = dL / dxhat:
//   dx_i = (g_i - mean(g) - xhat_i mean(g xhat)) / sqrt(var + eps)
// x(i) and g(i) for i in [0, n); write(i, dx_i).
template <class X, class G, class W>
void normalization_backward(std::int64_t n, double eps, X x, G g, W write) {
  const Moments m = moments(n, x);
  const long double r = inverse_deviation(m.biased, eps);
  long double mean_g = 0;
  long double mean_gx = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    mean_g += g(i);
    mean_gx += g(i) * (x(i) - m.mean) * r;
  }
  mean_g /= static_cast<long double>(n);
  mean_gx /= static_cast<long double>(n);
  for (std::int64_t i = 0; i < n; ++i)
    write(i, r * (g(i) - mean_g - (x(i) - m.mean) * r * mean_gx));
}

double or_default(In values, std::size_t i, double fallback) {
  return values.empty() ? fallback : values[i];
}

void check_channels(std::string_view operand, In values, std::int64_t c, bool optional) {
  if (!(optional && values.empty())) check_size("norm oracle", operand, values, c);
}

void check(const BatchNormParams& p, In x, In gamma, In beta) {
  check_size("batch_norm oracle", "x", x, p.size());
  check_channels("gamma", gamma, p.c, true);
  check_channels("beta", beta, p.c, true);
}

// The flat index of value i of channel c.
std::size_t channel_at(const BatchNormParams& p, std::int64_t c, std::int64_t i) {
  return at((i / p.l * p.c + c) * p.l + i % p.l);
}

void check_train(const BatchNormParams& p) {
  ROUNDOFF_CHECK(p.count() > 1 || p.c == 0, "batch_norm oracle", p.count(),
                 " value(s) a channel in training, at least 2 expected");
}

}  // namespace

BatchNorm batch_norm_train(const BatchNormParams& p, In x, In gamma, In beta) {
  check(p, x, gamma, beta);
  check_train(p);
  BatchNorm out{Values(x.size()), Values(at(p.c)), Values(at(p.c)), Values(at(p.c))};
  for (std::int64_t c = 0; c < p.c; ++c) {
    const Moments m = moments(p.count(), [&](std::int64_t i) {
      return static_cast<long double>(x[channel_at(p, c, i)]);
    });
    const long double r = inverse_deviation(m.biased, p.eps);
    for (std::int64_t i = 0; i < p.count(); ++i) {
      const std::size_t j = channel_at(p, c, i);
      out.y[j] = static_cast<double>(or_default(gamma, at(c), 1) * ((x[j] - m.mean) * r) +
                                     or_default(beta, at(c), 0));
    }
    out.mean[at(c)] = static_cast<double>(m.mean);
    out.biased_var[at(c)] = static_cast<double>(m.biased);
    out.unbiased_var[at(c)] = static_cast<double>(m.unbiased);
  }
  return out;
}

Values batch_norm_eval(const BatchNormParams& p, In x, In gamma, In beta, In running_mean,
                       In running_var) {
  check(p, x, gamma, beta);
  check_channels("running_mean", running_mean, p.c, false);
  check_channels("running_var", running_var, p.c, false);
  Values y(x.size());
  for (std::int64_t c = 0; c < p.c; ++c) {
    const long double r = inverse_deviation(running_var[at(c)], p.eps);
    for (std::int64_t i = 0; i < p.count(); ++i) {
      const std::size_t j = channel_at(p, c, i);
      const long double xhat = (static_cast<long double>(x[j]) - running_mean[at(c)]) * r;
      y[j] = static_cast<double>(or_default(gamma, at(c), 1) * xhat + or_default(beta, at(c), 0));
    }
  }
  return y;
}

void batch_norm_update(const BatchNorm& batch, std::optional<double> momentum,
                       std::int64_t batches_seen, Values& running_mean, Values& running_var) {
  const double m = momentum ? *momentum : 1.0 / static_cast<double>(batches_seen + 1);
  for (std::size_t c = 0; c < running_mean.size(); ++c) {
    running_mean[c] = (1 - m) * running_mean[c] + m * batch.mean[c];
    running_var[c] = (1 - m) * running_var[c] + m * batch.unbiased_var[c];
  }
}

NormGradients batch_norm_train_backward(const BatchNormParams& p, In x, In gamma, In dy) {
  check(p, x, gamma, {});
  check_train(p);
  check_size("batch_norm oracle", "dy", dy, p.size());
  NormGradients d{Values(x.size()), Values(at(p.c)), Values(at(p.c))};
  for (std::int64_t c = 0; c < p.c; ++c) {
    const auto xc = [&](std::int64_t i) {
      return static_cast<long double>(x[channel_at(p, c, i)]);
    };
    const long double g = or_default(gamma, at(c), 1);
    normalization_backward(
        p.count(), p.eps, xc, [&](std::int64_t i) { return g * dy[channel_at(p, c, i)]; },
        [&](std::int64_t i, long double v) { d.x[channel_at(p, c, i)] = static_cast<double>(v); });
    const Moments m = moments(p.count(), xc);
    const long double r = inverse_deviation(m.biased, p.eps);
    long double dgamma = 0;
    long double dbeta = 0;
    for (std::int64_t i = 0; i < p.count(); ++i) {
      dgamma += dy[channel_at(p, c, i)] * ((xc(i) - m.mean) * r);
      dbeta += dy[channel_at(p, c, i)];
    }
    d.gamma[at(c)] = static_cast<double>(dgamma);
    d.beta[at(c)] = static_cast<double>(dbeta);
  }
  return d;
}

NormGradients batch_norm_eval_backward(const BatchNormParams& p, In x, In gamma, In running_mean,
                                       In running_var, In dy) {
  check(p, x, gamma, {});
  check_channels("running_mean", running_mean, p.c, false);
  check_channels("running_var", running_var, p.c, false);
  check_size("batch_norm oracle", "dy", dy, p.size());
  NormGradients d{Values(x.size()), Values(at(p.c)), Values(at(p.c))};
  for (std::int64_t c = 0; c < p.c; ++c) {
    const long double r = inverse_deviation(running_var[at(c)], p.eps);
    long double dgamma = 0;
    long double dbeta = 0;
    for (std::int64_t i = 0; i < p.count(); ++i) {
      const std::size_t j = channel_at(p, c, i);
      d.x[j] = static_cast<double>(dy[j] * or_default(gamma, at(c), 1) * r);
      dgamma += dy[j] * ((static_cast<long double>(x[j]) - running_mean[at(c)]) * r);
      dbeta += dy[j];
    }
    d.gamma[at(c)] = static_cast<double>(dgamma);
    d.beta[at(c)] = static_cast<double>(dbeta);
  }
  return d;
}

Values layer_norm(const LayerNormParams& p, In x, In gamma, In beta) {
  check_size("layer_norm oracle", "x", x, p.rows * p.n);
  check_channels("gamma", gamma, p.n, true);
  check_channels("beta", beta, p.n, true);
  Values y(x.size());
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const In xr = x.subspan(at(row * p.n), at(p.n));
    const Moments m =
        moments(p.n, [&](std::int64_t i) { return static_cast<long double>(xr[at(i)]); });
    const long double r = inverse_deviation(m.biased, p.eps);
    for (std::size_t i = 0; i < xr.size(); ++i)
      y[at(row * p.n) + i] = static_cast<double>(or_default(gamma, i, 1) * ((xr[i] - m.mean) * r) +
                                                 or_default(beta, i, 0));
  }
  return y;
}

NormGradients layer_norm_backward(const LayerNormParams& p, In x, In gamma, In dy) {
  check_size("layer_norm oracle", "x", x, p.rows * p.n);
  check_size("layer_norm oracle", "dy", dy, p.rows * p.n);
  check_channels("gamma", gamma, p.n, true);
  NormGradients d{Values(x.size()), {}, {}};
  Sums dgamma = zeros(p.n);
  Sums dbeta = zeros(p.n);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::size_t r0 = at(row * p.n);
    const auto xr = [&](std::int64_t i) { return static_cast<long double>(x[r0 + at(i)]); };
    normalization_backward(
        p.n, p.eps, xr,
        [&](std::int64_t i) {
          return static_cast<long double>(dy[r0 + at(i)]) * or_default(gamma, at(i), 1);
        },
        [&](std::int64_t i, long double v) { d.x[r0 + at(i)] = static_cast<double>(v); });
    const Moments m = moments(p.n, xr);
    const long double r = inverse_deviation(m.biased, p.eps);
    for (std::int64_t i = 0; i < p.n; ++i) {
      dgamma[at(i)] += dy[r0 + at(i)] * ((xr(i) - m.mean) * r);
      dbeta[at(i)] += dy[r0 + at(i)];
    }
  }
  d.gamma = rounded(dgamma);
  d.beta = rounded(dbeta);
  return d;
}

}  // namespace roundoff::oracle
