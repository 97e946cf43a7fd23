#include "verify/bound/norm.h"

#include <cmath>

#include "verify/bound/tracked.h"

namespace roundoff::bound {

using oracle::at;
using oracle::BatchNormParams;
using oracle::In;
using oracle::LayerNormParams;

namespace {

// The statistics of n values and the normalised values, with their errors.
struct Normalized {
  Tracked mean, unbiased_var, inverse_sigma;
  std::vector<Tracked> xhat;
};

Normalized normalized(const Tracker& t, std::span<const double> x, double eps) {
  const Arithmetic& a = t.arithmetic();
  const auto n = static_cast<std::int64_t>(x.size());
  const auto count = static_cast<long double>(n);
  long double mean = 0;
  long double mean_abs = 0;
  for (const double v : x) {
    mean += v;
    mean_abs += std::abs(v);
  }
  mean /= count;
  mean_abs /= count;
  long double var = 0;
  for (const double v : x) var += (v - mean) * (v - mean);
  const long double squares = var;
  var /= count;

  const double u = a.u();
  // One value is its own mean.
  const long double dm = n < 2 ? 0.0L : sum_factor(a, n, 1) * mean_abs + a.underflow();
  const long double sigma2 = var + static_cast<long double>(eps);
  const long double sigma = std::sqrt(sigma2);
  const double r = static_cast<double>((dm * dm + a.underflow()) / sigma2);
  const double variance = sum_factor(a, n, 4);
  const double relative = compounded(r / 2 + variance / 2 + 4 * u);

  Normalized out;
  // Where the sum or the squares may leave the range, nothing is known.
  const long double limit = a.accumulator.max_finite();
  if (mean_abs * count > limit || squares * (1 + variance) + dm * dm * count > limit) {
    constexpr long double kUnknown = std::numeric_limits<long double>::infinity();
    out.mean = t.with_error(mean, kUnknown);
    out.inverse_sigma = t.with_error(1 / sigma, kUnknown);
    out.unbiased_var = t.with_error(squares / (count - 1), kUnknown);
    for (const double v : x) out.xhat.push_back(t.with_error((v - mean) / sigma, kUnknown));
    return out;
  }
  out.mean = t.with_error(mean, dm);
  out.inverse_sigma = t.with_error(1 / sigma, relative / sigma);
  const long double unbiased = squares / (count - 1);
  out.unbiased_var = t.with_error(unbiased, unbiased * compounded(variance + 2 * u) +
                                                (dm * dm + a.underflow()) * count / (count - 1));
  for (const double v : x) {
    const long double xhat = (v - mean) / sigma;
    out.xhat.push_back(t.with_error(xhat, std::abs(xhat) * relative + dm / sigma * (1 + relative)));
  }
  return out;
}

// Of values normalised by given statistics.
Normalized by_running(const Tracker& t, std::span<const double> x, double mean, double var,
                      double eps) {
  Normalized out;
  out.mean = t.exact(mean);
  out.inverse_sigma = t.exact(1) / sqrt(t.exact(var) + t.constant(eps));
  for (const double v : x) out.xhat.push_back((t.exact(v) - out.mean) * out.inverse_sigma);
  return out;
}

// The gradient of xhat's normalisation, for g = dL / dxhat.
std::vector<Tracked> input_gradient(const Tracker& t, const Normalized& s,
                                    const std::vector<Tracked>& g) {
  const Tracked n = t.exact(static_cast<long double>(g.size()));
  std::vector<Tracked> products;
  for (std::size_t i = 0; i < g.size(); ++i) products.push_back(g[i] * s.xhat[i]);
  const Tracked mean_g = t.sum(g) / n;
  const Tracked mean_gx = t.sum(products) / n;
  std::vector<Tracked> dx;
  for (std::size_t i = 0; i < g.size(); ++i)
    dx.push_back(s.inverse_sigma * (g[i] - mean_g - s.xhat[i] * mean_gx));
  return dx;
}

Tracked factor(const Tracker& t, In values, std::size_t i, double fallback) {
  return t.exact(values.empty() ? fallback : values[i]);
}

std::vector<std::size_t> channel_indices(const BatchNormParams& p, std::int64_t c) {
  std::vector<std::size_t> index;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t l = 0; l < p.l; ++l) index.push_back(at((n * p.c + c) * p.l + l));
  return index;
}

std::vector<double> pick(In values, const std::vector<std::size_t>& index) {
  std::vector<double> picked;
  for (const std::size_t i : index) picked.push_back(values[i]);
  return picked;
}

// dgamma = sum(dy xhat), dbeta = sum(dy) of one channel.
Tracked sum_of_products(const Tracker& t, In dy, const std::vector<Tracked>& xhat) {
  std::vector<Tracked> terms;
  for (std::size_t i = 0; i < xhat.size(); ++i) terms.push_back(t.exact(dy[i]) * xhat[i]);
  return t.sum(terms);
}
Tracked sum_of(const Tracker& t, In dy) {
  std::vector<Tracked> terms;
  for (const double v : dy) terms.push_back(t.exact(v));
  return t.sum(terms);
}

Bound derived(std::vector<double> reference, const std::vector<Tracked>& results,
              const Arithmetic& a) {
  return bound_of(std::move(reference), results, a, BoundKind::derived);
}

}  // namespace

BatchNorm batch_norm_train(const BatchNormParams& p, In x, In gamma, In beta,
                           std::optional<double> momentum, std::int64_t batches_seen,
                           In running_mean, In running_var, const Arithmetic& a) {
  auto exact = oracle::batch_norm_train(p, x, gamma, beta);
  const Tracker t(a);
  std::vector<Tracked> y(x.size());
  std::vector<Tracked> mean, var;
  const double m = momentum ? *momentum : 1.0 / static_cast<double>(batches_seen + 1);
  const auto mixed = [&](double before, const Tracked& batch) {
    return t.constant(1 - static_cast<long double>(m)) * t.exact(before) + t.constant(m) * batch;
  };
  for (std::int64_t c = 0; c < p.c; ++c) {
    const auto index = channel_indices(p, c);
    const Normalized s = normalized(t, pick(x, index), p.eps);
    for (std::size_t i = 0; i < index.size(); ++i)
      y[index[i]] = factor(t, gamma, at(c), 1) * s.xhat[i] + factor(t, beta, at(c), 0);
    if (running_mean.empty()) continue;
    mean.push_back(mixed(running_mean[at(c)], s.mean));
    var.push_back(mixed(running_var[at(c)], s.unbiased_var));
  }
  oracle::Values exact_mean(running_mean.begin(), running_mean.end());
  oracle::Values exact_var(running_var.begin(), running_var.end());
  oracle::batch_norm_update(exact, momentum, batches_seen, exact_mean, exact_var);
  // The buffers are held in the arithmetic's own format.
  Arithmetic buffers = a;
  buffers.output = a.accumulator;
  return {derived(std::move(exact.y), y, a), derived(std::move(exact_mean), mean, buffers),
          derived(std::move(exact_var), var, buffers)};
}

Bound batch_norm_eval(const BatchNormParams& p, In x, In gamma, In beta, In running_mean,
                      In running_var, const Arithmetic& a) {
  auto exact = oracle::batch_norm_eval(p, x, gamma, beta, running_mean, running_var);
  const Tracker t(a);
  std::vector<Tracked> y(x.size());
  for (std::int64_t c = 0; c < p.c; ++c) {
    const auto index = channel_indices(p, c);
    const Normalized s =
        by_running(t, pick(x, index), running_mean[at(c)], running_var[at(c)], p.eps);
    for (std::size_t i = 0; i < index.size(); ++i)
      y[index[i]] = factor(t, gamma, at(c), 1) * s.xhat[i] + factor(t, beta, at(c), 0);
  }
  return derived(std::move(exact), y, a);
}

NormGradients batch_norm_train_backward(const BatchNormParams& p, In x, In gamma, In dy,
                                        const Arithmetic& a) {
  auto exact = oracle::batch_norm_train_backward(p, x, gamma, dy);
  const Tracker t(a);
  std::vector<Tracked> dx(x.size());
  std::vector<Tracked> dgamma, dbeta;
  for (std::int64_t c = 0; c < p.c; ++c) {
    const auto index = channel_indices(p, c);
    const Normalized s = normalized(t, pick(x, index), p.eps);
    const std::vector<double> dyc = pick(dy, index);
    std::vector<Tracked> g;
    for (const double v : dyc) g.push_back(t.exact(v) * factor(t, gamma, at(c), 1));
    const std::vector<Tracked> dxc = input_gradient(t, s, g);
    for (std::size_t i = 0; i < index.size(); ++i) dx[index[i]] = dxc[i];
    dgamma.push_back(sum_of_products(t, dyc, s.xhat));
    dbeta.push_back(sum_of(t, dyc));
  }
  return {derived(std::move(exact.x), dx, a), derived(std::move(exact.gamma), dgamma, a),
          derived(std::move(exact.beta), dbeta, a)};
}

NormGradients batch_norm_eval_backward(const BatchNormParams& p, In x, In gamma, In running_mean,
                                       In running_var, In dy, const Arithmetic& a) {
  auto exact = oracle::batch_norm_eval_backward(p, x, gamma, running_mean, running_var, dy);
  const Tracker t(a);
  std::vector<Tracked> dx(x.size());
  std::vector<Tracked> dgamma, dbeta;
  for (std::int64_t c = 0; c < p.c; ++c) {
    const auto index = channel_indices(p, c);
    const Normalized s =
        by_running(t, pick(x, index), running_mean[at(c)], running_var[at(c)], p.eps);
    const std::vector<double> dyc = pick(dy, index);
    for (std::size_t i = 0; i < index.size(); ++i)
      dx[index[i]] = t.exact(dyc[i]) * factor(t, gamma, at(c), 1) * s.inverse_sigma;
    dgamma.push_back(sum_of_products(t, dyc, s.xhat));
    dbeta.push_back(sum_of(t, dyc));
  }
  return {derived(std::move(exact.x), dx, a), derived(std::move(exact.gamma), dgamma, a),
          derived(std::move(exact.beta), dbeta, a)};
}

Bound layer_norm(const LayerNormParams& p, In x, In gamma, In beta, const Arithmetic& a) {
  auto exact = oracle::layer_norm(p, x, gamma, beta);
  const Tracker t(a);
  std::vector<Tracked> y;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const Normalized s = normalized(t, x.subspan(at(row * p.n), at(p.n)), p.eps);
    for (std::size_t i = 0; i < s.xhat.size(); ++i)
      y.push_back(factor(t, gamma, i, 1) * s.xhat[i] + factor(t, beta, i, 0));
  }
  return derived(std::move(exact), y, a);
}

NormGradients layer_norm_backward(const LayerNormParams& p, In x, In gamma, In dy,
                                  const Arithmetic& a) {
  auto exact = oracle::layer_norm_backward(p, x, gamma, dy);
  const Tracker t(a);
  std::vector<Tracked> dx;
  std::vector<std::vector<Tracked>> products(at(p.n)), rows(at(p.n));
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const In xr = x.subspan(at(row * p.n), at(p.n));
    const In dyr = dy.subspan(at(row * p.n), at(p.n));
    const Normalized s = normalized(t, xr, p.eps);
    std::vector<Tracked> g;
    for (std::size_t i = 0; i < dyr.size(); ++i) {
      g.push_back(t.exact(dyr[i]) * factor(t, gamma, i, 1));
      products[i].push_back(t.exact(dyr[i]) * s.xhat[i]);
      rows[i].push_back(t.exact(dyr[i]));
    }
    for (const Tracked& v : input_gradient(t, s, g)) dx.push_back(v);
  }
  std::vector<Tracked> dgamma, dbeta;
  for (const auto& terms : products) dgamma.push_back(t.sum(terms));
  for (const auto& terms : rows) dbeta.push_back(t.sum(terms));
  return {derived(std::move(exact.x), dx, a), derived(std::move(exact.gamma), dgamma, a),
          derived(std::move(exact.beta), dbeta, a)};
}

}  // namespace roundoff::bound
