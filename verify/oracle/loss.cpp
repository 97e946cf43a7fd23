#include "verify/oracle/loss.h"

#include <cmath>
#include <limits>
#include <optional>

namespace roundoff::oracle {

namespace {

constexpr std::string_view kCrossEntropy = "cross_entropy oracle";

void check(const CrossEntropyParams& p, In logits, In weight) {
  check_size(kCrossEntropy, "logits", logits, p.rows * p.classes);
  if (!weight.empty()) check_size(kCrossEntropy, "weight", weight, p.classes);
  ROUNDOFF_CHECK(p.label_smoothing >= 0 && p.label_smoothing <= 1, kCrossEntropy,
                 "label smoothing ", p.label_smoothing, ", [0, 1] expected");
}

Sums log_probabilities(In row) {
  long double largest = -std::numeric_limits<long double>::infinity();
  for (const double x : row)
    if (!(x <= largest)) largest = x;
  long double sum = 0;
  for (const double x : row) sum += std::exp(x - largest);
  Sums log_p(row.size());
  for (std::size_t c = 0; c < row.size(); ++c) log_p[c] = row[c] - largest - std::log(sum);
  return log_p;
}

// w_c q_c of one row, and what the row adds to valid_weight; nothing for an ignored row.
struct RowTarget {
  Sums weighted_q;
  long double valid_weight = 1;
};

RowTarget smooth(const CrossEntropyParams& p, const Sums& q, In weight) {
  RowTarget target{Sums(q.size()), 1};
  const auto eps = static_cast<long double>(p.label_smoothing);
  for (std::size_t c = 0; c < q.size(); ++c) {
    const long double w = weight.empty() ? 1.0L : weight[c];
    target.weighted_q[c] = w * ((1 - eps) * q[c] + eps / static_cast<long double>(p.classes));
  }
  return target;
}

std::optional<RowTarget> index_target(const CrossEntropyParams& p, std::int64_t label, In weight) {
  if (label == p.ignore_index) return std::nullopt;
  ROUNDOFF_CHECK(label >= 0 && label < p.classes, kCrossEntropy, "label ", label, ", [0, ",
                 p.classes, ") or ", p.ignore_index, " expected");
  Sums onehot(at(p.classes), 0.0L);
  onehot[at(label)] = 1;
  RowTarget target = smooth(p, onehot, weight);
  target.valid_weight = weight.empty() ? 1.0L : weight[at(label)];
  return target;
}

template <class TargetOf>
CrossEntropy forward(const CrossEntropyParams& p, In logits, TargetOf target_of) {
  Sums losses = zeros(p.rows);
  long double total = 0;
  long double valid_weight = 0;
  CrossEntropy result;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const std::optional<RowTarget> target = target_of(r);
    if (!target) continue;
    const Sums log_p = log_probabilities(logits.subspan(at(r * p.classes), at(p.classes)));
    for (std::size_t c = 0; c < log_p.size(); ++c)
      if (target->weighted_q[c] != 0) losses[at(r)] -= target->weighted_q[c] * log_p[c];
    total += losses[at(r)];
    valid_weight += target->valid_weight;
    ++result.valid_count;
  }
  result.valid_weight = static_cast<double>(valid_weight);
  if (p.reduction == Reduction::none)
    result.loss = rounded(losses);
  else if (p.reduction == Reduction::sum)
    result.loss = {static_cast<double>(total)};
  else
    result.loss = {valid_weight == 0 ? 0.0 : static_cast<double>(total / valid_weight)};
  return result;
}

template <class TargetOf>
Values backward(const CrossEntropyParams& p, In logits, In dloss, TargetOf target_of) {
  check_size(kCrossEntropy, "dloss", dloss, p.reduction == Reduction::none ? p.rows : 1);
  long double valid_weight = 0;
  for (std::int64_t r = 0; r < p.rows; ++r)
    if (const auto target = target_of(r)) valid_weight += target->valid_weight;
  Values dlogits(logits.size(), 0.0);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const std::optional<RowTarget> target = target_of(r);
    if (!target) continue;
    long double seed = p.reduction == Reduction::none ? dloss[at(r)] : dloss[0];
    if (p.reduction == Reduction::mean) {
      if (valid_weight == 0) continue;
      seed /= valid_weight;
    }
    // d(-sum_c v_c log p_c) / dx_j = p_j sum_c v_c - v_j
    const Sums log_p = log_probabilities(logits.subspan(at(r * p.classes), at(p.classes)));
    long double mass = 0;
    for (const long double v : target->weighted_q) mass += v;
    for (std::size_t c = 0; c < log_p.size(); ++c)
      dlogits[at(r * p.classes) + c] =
          static_cast<double>(seed * (std::exp(log_p[c]) * mass - target->weighted_q[c]));
  }
  return dlogits;
}

auto index_targets(const CrossEntropyParams& p, std::span<const std::int64_t> target, In weight) {
  ROUNDOFF_CHECK(static_cast<std::int64_t>(target.size()) == p.rows, kCrossEntropy, "target has ",
                 target.size(), " labels, ", p.rows, " expected");
  return [=](std::int64_t r) { return index_target(p, target[at(r)], weight); };
}

auto soft_targets(const CrossEntropyParams& p, In target, In weight) {
  check_size(kCrossEntropy, "target", target, p.rows * p.classes);
  return [=](std::int64_t r) -> std::optional<RowTarget> {
    const In row = target.subspan(at(r * p.classes), at(p.classes));
    return smooth(p, Sums(row.begin(), row.end()), weight);
  };
}

// Losses that are a sum of independent elements.
template <class F>
Values elementwise_loss(std::string_view operation, Reduction reduction, In x, In target, F f) {
  check_size(operation, "target", target, static_cast<std::int64_t>(x.size()));
  Sums losses(x.size());
  long double total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) total += losses[i] = f(x[i], target[i]);
  if (reduction == Reduction::none) return rounded(losses);
  if (reduction == Reduction::mean && !x.empty()) total /= static_cast<long double>(x.size());
  return {static_cast<double>(total)};
}

template <class F>
Values elementwise_loss_backward(std::string_view operation, Reduction reduction, In x, In target,
                                 In dloss, F derivative) {
  check_size(operation, "target", target, static_cast<std::int64_t>(x.size()));
  check_size(operation, "dloss", dloss,
             reduction == Reduction::none ? static_cast<std::int64_t>(x.size()) : 1);
  Values dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    long double seed = reduction == Reduction::none ? dloss[i] : dloss[0];
    if (reduction == Reduction::mean) seed /= static_cast<long double>(x.size());
    dx[i] = static_cast<double>(seed * derivative(x[i], target[i]));
  }
  return dx;
}

using Real = long double;

}  // namespace

CrossEntropy cross_entropy(const CrossEntropyParams& p, In logits,
                           std::span<const std::int64_t> target, In weight) {
  check(p, logits, weight);
  return forward(p, logits, index_targets(p, target, weight));
}

CrossEntropy cross_entropy_soft(const CrossEntropyParams& p, In logits, In target, In weight) {
  check(p, logits, weight);
  return forward(p, logits, soft_targets(p, target, weight));
}

Values cross_entropy_backward(const CrossEntropyParams& p, In logits,
                              std::span<const std::int64_t> target, In weight, In dloss) {
  check(p, logits, weight);
  return backward(p, logits, dloss, index_targets(p, target, weight));
}

Values cross_entropy_soft_backward(const CrossEntropyParams& p, In logits, In target, In weight,
                                   In dloss) {
  check(p, logits, weight);
  return backward(p, logits, dloss, soft_targets(p, target, weight));
}

Values mse(Reduction reduction, In x, In target) {
  return elementwise_loss("mse oracle", reduction, x, target,
                          [](Real u, Real t) { return (u - t) * (u - t); });
}

Values mse_backward(Reduction reduction, In x, In target, In dloss) {
  return elementwise_loss_backward("mse oracle", reduction, x, target, dloss,
                                   [](Real u, Real t) { return 2 * (u - t); });
}

Values bce_with_logits(Reduction reduction, In x, In target) {
  return elementwise_loss("bce_with_logits oracle", reduction, x, target, [](Real u, Real t) {
    // max(u, 0) - u t, so formed that an infinite logit on the right side costs nothing.
    const Real linear = u > 0 ? (t == 1 ? 0 : u * (1 - t)) : (t == 0 ? 0 : -u * t);
    return linear + std::log1p(std::exp(-std::abs(u)));
  });
}

Values bce_with_logits_backward(Reduction reduction, In x, In target, In dloss) {
  return elementwise_loss_backward(
      "bce_with_logits oracle", reduction, x, target, dloss, [](Real u, Real t) {
        const Real sigmoid = u >= 0 ? 1 / (1 + std::exp(-u)) : std::exp(u) / (1 + std::exp(u));
        return sigmoid - t;
      });
}

Values bce_with_logits_backward_target(Reduction reduction, In x, In dloss) {
  return elementwise_loss_backward("bce_with_logits oracle", reduction, x, x, dloss,
                                   [](Real u, Real) { return -u; });
}

}  // namespace roundoff::oracle
