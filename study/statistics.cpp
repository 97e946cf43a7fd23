#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "engine/data/random.h"
#include "kernels/base/check.h"

namespace roundoff::study {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Continued fraction of the incomplete beta function, by Lentz's method (1976).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away(1 - (a + b) * x / (a + 1));
  double value = d;
  for (int m = 1; m <= 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    value *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return value;
}

// I_x(a, b), 0 <= x <= 1.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast below the mean; above it the other tail is taken.
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

void check_level(double level) {
  ROUNDOFF_CHECK(level > 0 && level < 1, "statistics", "level ", level, "; between 0 and 1");
}

struct Clusters {
  std::vector<double> sum;
  std::vector<double> count;
};

Clusters gather(std::span<const double> values, std::span<const std::int64_t> cluster) {
  ROUNDOFF_CHECK(values.size() == cluster.size(), "statistics", values.size(), " values in ",
                 cluster.size(), " clusters' places");
  ROUNDOFF_CHECK(!values.empty(), "statistics", "no values");
  std::map<std::int64_t, std::size_t> place;
  Clusters result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [at, fresh] = place.try_emplace(cluster[i], result.sum.size());
    if (fresh) {
      result.sum.push_back(0);
      result.count.push_back(0);
    }
    result.sum[at->second] += values[i];
    result.count[at->second] += 1;
  }
  return result;
}

std::string number(double value, int digits, bool sign) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, sign ? "%+.*f" : "%.*f", digits, value);
  return buffer;
}

std::string text_of(double value, const std::optional<Interval>& interval, double factor,
                    int digits, bool sign) {
  std::string out = number(factor * value, digits, sign);
  if (interval)
    out += " [" + number(factor * interval->low, digits, sign) + ", " +
           number(factor * interval->high, digits, sign) + "]";
  return out;
}

}  // namespace

double mean(std::span<const double> values) {
  ROUNDOFF_CHECK(!values.empty(), "statistics", "the mean of no values");
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return kNan;
  const double centre = mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - centre) * (v - centre);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double median(std::span<const double> values) {
  if (values.empty()) return kNan;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double student_t_probability(double t, double freedom) {
  ROUNDOFF_CHECK(freedom > 0, "statistics", freedom, " degrees of freedom");
  if (std::isnan(t)) return kNan;
  const double tail = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2;
  return t < 0 ? tail : 1 - tail;
}

double student_t_quantile(double p, double freedom) {
  ROUNDOFF_CHECK(p > 0 && p < 1, "statistics", "quantile at ", p, "; between 0 and 1");
  ROUNDOFF_CHECK(freedom > 0, "statistics", freedom, " degrees of freedom");
  if (p < 0.5) return -student_t_quantile(1 - p, freedom);
  double low = 0;
  double high = 1;
  while (student_t_probability(high, freedom) < p && high < 1e300) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (student_t_probability(middle, freedom) < p ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

MeanInterval mean_interval(std::span<const double> values, double level) {
  check_level(level);
  MeanInterval result;
  result.mean = mean(values);
  result.deviation = standard_deviation(values);
  result.n = static_cast<std::int64_t>(values.size());
  if (result.n < 2) return result;
  const auto n = static_cast<double>(result.n);
  const double half = student_t_quantile((1 + level) / 2, n - 1) * result.deviation / std::sqrt(n);
  result.interval = {result.mean - half, result.mean + half};
  return result;
}

MeanInterval paired_over_seeds(std::span<const double> a, std::span<const double> b, double level) {
  ROUNDOFF_CHECK(a.size() == b.size(), "statistics", "pairs of ", a.size(), " and ", b.size(),
                 " runs");
  std::vector<double> difference;
  for (std::size_t i = 0; i < a.size(); ++i) difference.push_back(b[i] - a[i]);
  return mean_interval(difference, level);
}

namespace {

// `more` samples of mean 0 whose squares add up to `squares` join the clusters.
ClusteredMean clustered(std::span<const double> values, std::span<const std::int64_t> cluster,
                        double level, double more, double squares) {
  check_level(level);
  const Clusters groups = gather(values, cluster);
  ClusteredMean result;
  result.mean = mean(values);
  result.samples = static_cast<std::int64_t>(values.size());
  result.clusters = static_cast<std::int64_t>(groups.sum.size());
  if (result.clusters < 2) return result;
  const double samples = static_cast<double>(result.samples) + more;
  const double centre = result.mean * static_cast<double>(result.samples) / samples;
  squares += more * centre * centre;
  for (std::size_t g = 0; g < groups.sum.size(); ++g) {
    const double residual = groups.sum[g] - groups.count[g] * centre;
    squares += residual * residual;
  }
  const auto g = static_cast<double>(result.clusters);
  const double error = std::sqrt(g / (g - 1) * squares) / samples;
  const double half = student_t_quantile((1 + level) / 2, g - 1) * error;
  result.interval = {centre - half, centre + half};
  return result;
}

}  // namespace

ClusteredMean clustered_mean(std::span<const double> values, std::span<const std::int64_t> cluster,
                             double level) {
  return clustered(values, cluster, level, 0, 0);
}

ClusteredMean clustered_paired_difference(std::span<const double> differences,
                                          std::span<const std::int64_t> cluster, double level) {
  for (const double d : differences)
    ROUNDOFF_CHECK(std::abs(d) <= 1, "statistics", "a difference of decisions of ", d,
                   "; between -1 and 1");
  ClusteredMean result = clustered(differences, cluster, level, 2, 1);
  if (result.interval)
    result.interval = {std::max(-1.0, result.interval->low), std::min(1.0, result.interval->high)};
  return result;
}

ClusteredMean clustered_bootstrap(std::span<const double> values,
                                  std::span<const std::int64_t> cluster, std::uint64_t seed,
                                  std::int64_t draws, double level) {
  check_level(level);
  ROUNDOFF_CHECK(draws >= 1, "statistics", draws, " draws of a bootstrap");
  const Clusters groups = gather(values, cluster);
  ClusteredMean result;
  result.mean = mean(values);
  result.samples = static_cast<std::int64_t>(values.size());
  result.clusters = static_cast<std::int64_t>(groups.sum.size());
  if (result.clusters < 2) return result;
  std::vector<double> means;
  means.reserve(static_cast<std::size_t>(draws));
  for (std::int64_t draw = 0; draw < draws; ++draw) {
    RandomStream random(seed, RandomUse::checks, static_cast<std::uint64_t>(draw));
    double sum = 0;
    double count = 0;
    for (std::size_t g = 0; g < groups.sum.size(); ++g) {
      const auto pick = static_cast<std::size_t>(random.below(groups.sum.size()));
      sum += groups.sum[pick];
      count += groups.count[pick];
    }
    means.push_back(sum / count);
  }
  std::sort(means.begin(), means.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(means.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, means.size() - 1);
    return means[below] + (place - static_cast<double>(below)) * (means[above] - means[below]);
  };
  result.interval = {at((1 - level) / 2), at((1 + level) / 2)};
  return result;
}

std::string text(const MeanInterval& m, double factor, int digits, bool sign) {
  return text_of(m.mean, m.interval, factor, digits, sign) + ", n = " + std::to_string(m.n) +
         (m.interval ? "" : ": no interval");
}

std::string text(const ClusteredMean& m, double factor, int digits, bool sign) {
  return text_of(m.mean, m.interval, factor, digits, sign) + ", " + std::to_string(m.samples) +
         " samples in " + std::to_string(m.clusters) + " clusters" +
         (m.interval ? "" : ": no interval");
}

}  // namespace roundoff::study
