#include "verify/bound/loss.h"

#include "verify/bound/softmax.h"
#include "verify/bound/tracked.h"

namespace roundoff::bound {

using oracle::at;
using oracle::CrossEntropyParams;
using oracle::In;
using oracle::Reduction;

namespace {

using Labels = std::span<const std::int64_t>;

// What a row's loss is built from. target: the class, or -1 for soft targets, whose q is given.
struct RowTarget {
  bool ignored = false;
  std::int64_t label = -1;
  In q{};
  Tracked valid_weight{};
};

Tracked weight_of(const Tracker& t, In weight, std::size_t c) {
  return t.exact(weight.empty() ? 1.0 : weight[c]);
}

// w_c q'_c of a soft target.
Tracked soft_weight(const Tracker& t, const CrossEntropyParams& p, In weight, const RowTarget& row,
                    std::size_t c) {
  const auto eps = static_cast<long double>(p.label_smoothing);
  return weight_of(t, weight, c) * (t.constant(1 - eps) * t.exact(row.q[c]) +
                                    t.constant(eps / static_cast<long double>(p.classes)));
}

Tracked row_loss(const Tracker& t, const CrossEntropyParams& p, In logits, In weight,
                 const RowTarget& row) {
  const SoftmaxRow s = softmax_row(logits, t.arithmetic());
  std::vector<Tracked> terms;
  if (row.label < 0) {
    for (std::size_t c = 0; c < s.log_p.size(); ++c) {
      const Tracked v = soft_weight(t, p, weight, row, c);
      if (!(v.exact() && v.value == 0)) terms.push_back(v * -s.log_p[c]);
    }
    return t.sum(terms);
  }
  const std::size_t label = at(row.label);
  const Tracked target = weight_of(t, weight, label) * -s.log_p[label];
  if (p.label_smoothing == 0) return target;
  const auto eps = static_cast<long double>(p.label_smoothing);
  for (std::size_t c = 0; c < s.log_p.size(); ++c)
    terms.push_back(weight_of(t, weight, c) * -s.log_p[c]);
  return t.constant(1 - eps) * target +
         t.constant(eps / static_cast<long double>(p.classes)) * t.sum(terms);
}

template <class TargetOf>
std::vector<Tracked> losses(const Tracker& t, const CrossEntropyParams& p, In logits, In weight,
                            TargetOf target_of) {
  std::vector<Tracked> rows;
  std::vector<Tracked> valid;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const RowTarget row = target_of(r);
    if (row.ignored) {
      rows.push_back(t.exact(0));
      continue;
    }
    rows.push_back(row_loss(t, p, logits.subspan(at(r * p.classes), at(p.classes)), weight, row));
    valid.push_back(row.valid_weight);
  }
  if (p.reduction == Reduction::none) return rows;
  const Tracked total = t.sum(rows);
  if (p.reduction == Reduction::sum) return {total};
  const Tracked divisor = t.sum(valid);
  return {divisor.value == 0 ? t.exact(0) : total / divisor};
}

// dlogits of one row, before the seed.
std::vector<Tracked> row_gradient(const Tracker& t, const CrossEntropyParams& p, In logits,
                                  In weight, const RowTarget& row) {
  const SoftmaxRow s = softmax_row(logits, t.arithmetic());
  const std::size_t n = s.p.size();
  std::vector<Tracked> g(n);
  if (row.label < 0) {
    std::vector<Tracked> v;
    for (std::size_t c = 0; c < n; ++c) v.push_back(soft_weight(t, p, weight, row, c));
    const Tracked mass = t.sum(v);
    for (std::size_t c = 0; c < n; ++c) g[c] = s.p[c] * mass - v[c];
    return g;
  }
  const auto eps = static_cast<long double>(p.label_smoothing);
  std::vector<Tracked> all;
  for (std::size_t c = 0; c < n; ++c) all.push_back(weight_of(t, weight, c));
  const Tracked mass = t.sum(all);
  const Tracked keep = t.constant(1 - eps) * weight_of(t, weight, at(row.label));
  const Tracked spread = t.constant(eps / static_cast<long double>(p.classes));
  for (std::size_t c = 0; c < n; ++c) {
    const Tracked onehot = t.exact(c == at(row.label) ? 1 : 0);
    g[c] = keep * (s.p[c] - onehot);
    if (eps != 0) g[c] = g[c] + spread * (s.p[c] * mass - all[c]);
  }
  return g;
}

template <class TargetOf>
std::vector<Tracked> gradients(const Tracker& t, const CrossEntropyParams& p, In logits, In weight,
                               In dloss, TargetOf target_of) {
  std::vector<Tracked> valid;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const RowTarget row = target_of(r);
    if (!row.ignored) valid.push_back(row.valid_weight);
  }
  const Tracked divisor = t.sum(valid);
  std::vector<Tracked> out(logits.size(), t.exact(0));
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const RowTarget row = target_of(r);
    if (row.ignored || (p.reduction == Reduction::mean && divisor.value == 0)) continue;
    Tracked seed = t.exact(p.reduction == Reduction::none ? dloss[at(r)] : dloss[0]);
    if (p.reduction == Reduction::mean) seed = seed / divisor;
    const In x = logits.subspan(at(r * p.classes), at(p.classes));
    const std::vector<Tracked> g = row_gradient(t, p, x, weight, row);
    for (std::size_t c = 0; c < g.size(); ++c) out[at(r * p.classes) + c] = seed * g[c];
  }
  return out;
}

auto index_targets(const Tracker& t, const CrossEntropyParams& p, Labels target, In weight) {
  return [&t, &p, target, weight](std::int64_t r) {
    const std::int64_t label = target[at(r)];
    RowTarget row{label == p.ignore_index, label, {}, t.exact(0)};
    if (!row.ignored) row.valid_weight = weight_of(t, weight, at(label));
    return row;
  };
}

auto soft_targets(const Tracker& t, const CrossEntropyParams& p, In target) {
  return [&t, &p, target](std::int64_t r) {
    return RowTarget{false, -1, target.subspan(at(r * p.classes), at(p.classes)), t.exact(1)};
  };
}

}  // namespace

Bound cross_entropy(const CrossEntropyParams& p, In logits, Labels target, In weight,
                    const Arithmetic& a) {
  auto exact = oracle::cross_entropy(p, logits, target, weight);
  const Tracker t(a);
  return bound_of(std::move(exact.loss),
                  losses(t, p, logits, weight, index_targets(t, p, target, weight)), a,
                  BoundKind::derived);
}

Bound cross_entropy_soft(const CrossEntropyParams& p, In logits, In target, In weight,
                         const Arithmetic& a) {
  auto exact = oracle::cross_entropy_soft(p, logits, target, weight);
  const Tracker t(a);
  return bound_of(std::move(exact.loss), losses(t, p, logits, weight, soft_targets(t, p, target)),
                  a, BoundKind::derived);
}

Bound cross_entropy_valid_weight(const CrossEntropyParams& p, Labels target, In weight,
                                 const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> valid;
  for (const std::int64_t label : target)
    if (label != p.ignore_index) valid.push_back(weight_of(t, weight, at(label)));
  const Tracked results[] = {t.sum(valid)};
  return bound_of({static_cast<double>(results[0].value)}, results, a, a.sum_kind());
}

Bound cross_entropy_backward(const CrossEntropyParams& p, In logits, Labels target, In weight,
                             In dloss, const Arithmetic& a) {
  auto exact = oracle::cross_entropy_backward(p, logits, target, weight, dloss);
  const Tracker t(a);
  return bound_of(std::move(exact),
                  gradients(t, p, logits, weight, dloss, index_targets(t, p, target, weight)), a,
                  BoundKind::derived);
}

Bound cross_entropy_soft_backward(const CrossEntropyParams& p, In logits, In target, In weight,
                                  In dloss, const Arithmetic& a) {
  auto exact = oracle::cross_entropy_soft_backward(p, logits, target, weight, dloss);
  const Tracker t(a);
  return bound_of(std::move(exact),
                  gradients(t, p, logits, weight, dloss, soft_targets(t, p, target)), a,
                  BoundKind::derived);
}

namespace {

Tracked seed_of(const Tracker& t, Reduction r, In dloss, std::size_t i, std::size_t n) {
  const Tracked seed = t.exact(r == Reduction::none ? dloss[i] : dloss[0]);
  return r == Reduction::mean ? seed / t.exact(static_cast<long double>(n)) : seed;
}

std::vector<Tracked> reduced(const Tracker& t, Reduction r, const std::vector<Tracked>& items) {
  if (r == Reduction::none) return items;
  const Tracked total = t.sum(items);
  if (r == Reduction::sum || items.empty()) return {total};
  return {total / t.exact(static_cast<long double>(items.size()))};
}

}  // namespace

Bound mse(Reduction r, In x, In target, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> items;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tracked d = t.exact(x[i]) - t.exact(target[i]);
    items.push_back(d * d);
  }
  return bound_of(oracle::mse(r, x, target), reduced(t, r, items), a, BoundKind::derived);
}

Bound mse_backward(Reduction r, In x, In target, In dloss, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> dx;
  for (std::size_t i = 0; i < x.size(); ++i)
    dx.push_back(t.exact(2) * seed_of(t, r, dloss, i, x.size()) *
                 (t.exact(x[i]) - t.exact(target[i])));
  return bound_of(oracle::mse_backward(r, x, target, dloss), dx, a, BoundKind::derived);
}

Bound bce_with_logits(Reduction r, In x, In target, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> items;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tracked v = t.exact(x[i]);
    const Tracked positive = x[i] > 0 ? v : t.exact(0);
    items.push_back((positive - v * t.exact(target[i])) + t.log1p(t.exp(-abs(v))));
  }
  return bound_of(oracle::bce_with_logits(r, x, target), reduced(t, r, items), a,
                  BoundKind::derived);
}

Bound bce_with_logits_backward(Reduction r, In x, In target, In dloss, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tracked e = t.exp(-abs(t.exact(x[i])));
    const Tracked q = t.exact(1) / (t.exact(1) + e);
    const Tracked sigmoid = x[i] >= 0 ? q : e * q;
    dx.push_back(seed_of(t, r, dloss, i, x.size()) * (sigmoid - t.exact(target[i])));
  }
  return bound_of(oracle::bce_with_logits_backward(r, x, target, dloss), dx, a, BoundKind::derived);
}

Bound bce_with_logits_backward_target(Reduction r, In x, In dloss, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> dt;
  for (std::size_t i = 0; i < x.size(); ++i)
    dt.push_back(seed_of(t, r, dloss, i, x.size()) * t.exact(-x[i]));
  return bound_of(oracle::bce_with_logits_backward_target(r, x, dloss), dt, a, BoundKind::derived);
}

}  // namespace roundoff::bound
