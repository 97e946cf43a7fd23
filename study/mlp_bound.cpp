#include "study/mlp_bound.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"

namespace roundoff::study {

namespace {

constexpr double kU = 0x1p-24;

double gamma(std::int64_t k) {
  const double ku = static_cast<double>(k) * kU;
  return ku / (1 - ku);
}

// A number and how far its fp32 counterpart may be from it.
struct Wide {
  double value = 0;
  double error = 0;
  double most() const { return std::abs(value) + error; }
};

// Softmax minus one-hot, times `seed`, of one row.
std::vector<Wide> loss_gradient(const std::vector<Wide>& z, std::size_t label, double seed) {
  double largest = z[0].value;
  double shift = 0;  // of any logit
  for (const Wide& w : z) {
    largest = std::max(largest, w.value);
    shift = std::max(shift, w.error);
  }
  double sum = 0;
  for (const Wide& w : z) sum += std::exp(w.value - largest);
  const auto classes = static_cast<std::int64_t>(z.size());
  // Exponentials within 1 ulp (2 u), differences to the maximum rounded.
  const double of_sum = kU * std::log(static_cast<double>(classes)) + 2 * kU + gamma(classes);
  std::vector<Wide> delta;
  for (std::size_t c = 0; c < z.size(); ++c) {
    const double p = std::exp(z[c].value - largest) / sum;
    const double depth = largest - z[c].value + 2 * shift;
    const double own = of_sum + 2 * kU + (depth + 1) * kU;
    const double p_error = p * (std::exp(2 * shift) * (1 + 2 * own) - 1);
    const double difference = p - (c == label ? 1.0 : 0.0);
    // The seed, the difference and their product are rounded.
    delta.push_back(
        {seed * difference, seed * (p_error + gamma(4) * (std::abs(difference) + p_error))});
  }
  return delta;
}

}  // namespace

BoundedGradient bounded_gradient(const MlpShape& shape, std::span<const double> weights,
                                 std::span<const double> x, std::span<const std::int64_t> labels,
                                 std::int64_t parts) {
  const auto in = static_cast<std::size_t>(shape.inputs);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto classes = static_cast<std::size_t>(shape.classes);
  ROUNDOFF_CHECK(static_cast<std::int64_t>(weights.size()) == shape.parameters() &&
                     x.size() == labels.size() * in,
                 "study", weights.size(), " weights and ", x.size(), " inputs for ", labels.size(),
                 " samples of a network of ", shape.parameters(), " parameters");
  const auto w1 = weights.subspan(0, hidden * in);
  const auto b1 = weights.subspan(w1.size(), hidden);
  const auto w2 = weights.subspan(w1.size() + hidden, classes * hidden);
  const auto b2 = weights.subspan(w1.size() + hidden + w2.size());
  const auto valid = std::count_if(labels.begin(), labels.end(), [](auto l) { return l >= 0; });
  const double seed = 1.0 / static_cast<double>(valid);

  BoundedGradient g;
  g.value.resize(weights.size());
  g.bound.resize(weights.size());
  std::vector<double> magnitude(weights.size());
  // One term of an element's sum over samples.
  const auto add = [&](std::size_t i, const Wide& a, const Wide& b) {
    g.value[i] += a.value * b.value;
    g.bound[i] += a.error * b.most() + std::abs(a.value) * b.error;
    magnitude[i] += a.most() * b.most();
  };
  const std::size_t at_b1 = hidden * in, at_w2 = at_b1 + hidden, at_b2 = at_w2 + classes * hidden;
  std::vector<Wide> h(hidden), z(classes);
  std::vector<bool> unknown(hidden), open(hidden);
  for (std::size_t s = 0; s < labels.size(); ++s) {
    if (labels[s] < 0) continue;
    const auto row = x.subspan(s * in, in);
    for (std::size_t j = 0; j < hidden; ++j) {
      double sum = b1[j];
      double size = std::abs(b1[j]);
      for (std::size_t i = 0; i < in; ++i) {
        sum += w1[j * in + i] * row[i];
        size += std::abs(w1[j * in + i] * row[i]);
      }
      const double error = gamma(shape.inputs + 2) * size;
      open[j] = sum > 0;
      unknown[j] = std::abs(sum) <= error;
      h[j] = {open[j] ? sum : 0, sum > -error ? error : 0};
    }
    for (std::size_t c = 0; c < classes; ++c) {
      double sum = b2[c];
      double size = std::abs(b2[c]);
      double passed = 0;
      for (std::size_t j = 0; j < hidden; ++j) {
        sum += w2[c * hidden + j] * h[j].value;
        size += std::abs(w2[c * hidden + j]) * h[j].most();
        passed += std::abs(w2[c * hidden + j]) * h[j].error;
      }
      z[c] = {sum, passed + gamma(shape.hidden + 2) * size};
    }
    const std::vector<Wide> delta = loss_gradient(z, static_cast<std::size_t>(labels[s]), seed);
    for (std::size_t c = 0; c < classes; ++c) {
      for (std::size_t j = 0; j < hidden; ++j) add(at_w2 + c * hidden + j, delta[c], h[j]);
      add(at_b2 + c, delta[c], {1, 0});
    }
    for (std::size_t j = 0; j < hidden; ++j) {
      Wide back;
      double size = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        const double w = w2[c * hidden + j];
        back.value += w * delta[c].value;
        back.error += std::abs(w) * delta[c].error;
        size += std::abs(w) * delta[c].most();
      }
      back.error += gamma(shape.classes + 1) * size;
      if (unknown[j])
        back.error = back.most();
      else if (!open[j])
        back.error = 0;
      if (!open[j]) back.value = 0;
      if (back.value == 0 && back.error == 0) continue;
      for (std::size_t i = 0; i < in; ++i) add(j * in + i, back, {row[i], 0});
      add(at_b1 + j, back, {1, 0});
    }
  }
  const double order = gamma(static_cast<std::int64_t>(labels.size()) + parts + 2);
  for (std::size_t i = 0; i < g.bound.size(); ++i) g.bound[i] += order * magnitude[i];
  return g;
}

}  // namespace roundoff::study
