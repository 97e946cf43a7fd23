#include "verify/bound/softmax.h"

#include <algorithm>
#include <cmath>

#include "verify/bound/tracked.h"

namespace roundoff::bound {

using oracle::In;
using oracle::SoftmaxParams;

SoftmaxRow softmax_row(std::span<const double> x, const Arithmetic& a) {
  const Tracker t(a);
  const double u = a.u();
  const std::size_t n = x.size();
  long double m = -std::numeric_limits<long double>::infinity();
  for (const double v : x) m = std::max(m, static_cast<long double>(v));
  double d = 0;
  long double s = 0;
  for (const double v : x) {
    const long double difference = v - m;
    const auto as_double = static_cast<double>(difference);
    if (std::isfinite(as_double) && (static_cast<long double>(as_double) != difference ||
                                     round_to_format(as_double, a.accumulator).value != as_double))
      d = 1;
    s += std::exp(difference);
  }
  const auto count = static_cast<double>(n);
  // s >= 1, so that absolute errors of the exponentials are relative ones of s at most.
  const double rho = d * u * std::log(count) + a.libm() +
                     (n < 2 ? 0 : sum_factor(a, static_cast<std::int64_t>(n))) +
                     count * a.underflow();
  const long double log_s = std::log(s);
  const long double log_error = compounded(rho) + a.libm() * (log_s + compounded(rho));
  SoftmaxRow row;
  for (const double v : x) {
    const long double distance = m - v;
    const long double p = std::exp(-distance) / s;
    const long double relative =
        compounded(rho + a.libm() + (d * static_cast<double>(distance) + 2) * u);
    row.p.push_back(t.with_error(
        p, p == 0 ? static_cast<long double>(a.underflow())
                  : std::min(p * relative, 1.0L) + 2 * static_cast<long double>(a.underflow())));
    const long double before = (d == 0 ? 0 : d * u * distance) + log_error;
    const long double y = -distance - log_s;
    row.log_p.push_back(t.with_error(y, before + u * (std::abs(y) + before)));
  }
  return row;
}

namespace {

template <class F>
Bound over_rows(const SoftmaxParams& p, In x, std::vector<double> reference, const Arithmetic& a,
                F results_of) {
  std::vector<Tracked> results(x.size());
  for (std::int64_t o = 0; o < p.outer; ++o)
    for (std::int64_t k = 0; k < p.inner; ++k) {
      std::vector<std::size_t> index;
      std::vector<double> values;
      for (std::int64_t i = 0; i < p.n; ++i) {
        index.push_back(oracle::at((o * p.n + i) * p.inner + k));
        values.push_back(x[index.back()]);
      }
      const std::vector<Tracked> row = results_of(softmax_row(values, a), index);
      for (std::size_t i = 0; i < row.size(); ++i) results[index[i]] = row[i];
    }
  return bound_of(std::move(reference), results, a, BoundKind::derived);
}

Tracked stored(Tracked x, const std::optional<Format>& format) {
  if (format) x.error = rounded_tolerance(x.value, x.error, *format);
  if (format && std::abs(x.value) + x.error > format->max_finite()) x.error = INFINITY;
  return x;
}

}  // namespace

Bound softmax(const SoftmaxParams& p, In x, const Arithmetic& a) {
  return over_rows(p, x, oracle::softmax(p, x), a,
                   [](const SoftmaxRow& row, const auto&) { return row.p; });
}

Bound log_softmax(const SoftmaxParams& p, In x, const Arithmetic& a) {
  return over_rows(p, x, oracle::log_softmax(p, x), a,
                   [](const SoftmaxRow& row, const auto&) { return row.log_p; });
}

Bound softmax_backward(const SoftmaxParams& p, In x, In dy, const Arithmetic& a,
                       std::optional<Format> saved) {
  const Tracker t(a);
  return over_rows(p, x, oracle::softmax_backward(p, x, dy), a,
                   [&](SoftmaxRow row, const std::vector<std::size_t>& index) {
                     std::vector<Tracked> terms;
                     for (std::size_t i = 0; i < index.size(); ++i) {
                       row.p[i] = stored(row.p[i], saved);
                       terms.push_back(t.exact(dy[index[i]]) * row.p[i]);
                     }
                     const Tracked dot = t.sum(terms);
                     std::vector<Tracked> dx;
                     for (std::size_t i = 0; i < index.size(); ++i)
                       dx.push_back(row.p[i] * (t.exact(dy[index[i]]) - dot));
                     return dx;
                   });
}

Bound log_softmax_backward(const SoftmaxParams& p, In x, In dy, const Arithmetic& a,
                           std::optional<Format> saved) {
  const Tracker t(a);
  return over_rows(p, x, oracle::log_softmax_backward(p, x, dy), a,
                   [&](const SoftmaxRow& row, const std::vector<std::size_t>& index) {
                     std::vector<Tracked> terms;
                     for (const std::size_t i : index) terms.push_back(t.exact(dy[i]));
                     const Tracked total = t.sum(terms);
                     std::vector<Tracked> dx;
                     for (std::size_t i = 0; i < index.size(); ++i) {
                       // p = exp(y) of the saved y.
                       const Tracked probability = t.exp(stored(row.log_p[i], saved));
                       dx.push_back(t.exact(dy[index[i]]) - probability * total);
                     }
                     return dx;
                   });
}

}  // namespace roundoff::bound
