// Intervals over seeds and clusters, against published tables and closed forms.
#include "study/statistics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "engine/data/random.h"
#include "kernels/base/check.h"

using namespace roundoff;
using namespace roundoff::study;

TEST_CASE("Student's quantiles are those of the published table") {
  // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: critical values of Student's t.
  struct Row {
    double freedom, t95, t975, t995;
  };
  for (const Row& row :
       {Row{1, 6.314, 12.706, 63.657}, Row{2, 2.920, 4.303, 9.925}, Row{3, 2.353, 3.182, 5.841},
        Row{4, 2.132, 2.776, 4.604}, Row{5, 2.015, 2.571, 4.032}, Row{9, 1.833, 2.262, 3.250},
        Row{10, 1.812, 2.228, 3.169}, Row{30, 1.697, 2.042, 2.750},
        Row{100, 1.660, 1.984, 2.626}}) {
    CAPTURE(row.freedom);
    // The table has three decimals.
    CHECK(std::abs(student_t_quantile(0.95, row.freedom) - row.t95) <= 0.0005);
    CHECK(std::abs(student_t_quantile(0.975, row.freedom) - row.t975) <= 0.0005);
    CHECK(std::abs(student_t_quantile(0.995, row.freedom) - row.t995) <= 0.0005);
  }
}

TEST_CASE("Student's distribution has its closed forms for one and two degrees of freedom") {
  for (const double t : {-30.0, -2.5, -0.1, 0.0, 0.7, 1.0, 12.0, 900.0}) {
    CAPTURE(t);
    const double one = 0.5 + std::atan(t) / std::numbers::pi;
    const double two = 0.5 + t / (2 * std::sqrt(2 + t * t));
    // A few hundred operations in fp64, each within one rounding.
    const double bound = 1000 * 0x1p-53;
    CHECK(std::abs(student_t_probability(t, 1) - one) <= bound);
    CHECK(std::abs(student_t_probability(t, 2) - two) <= bound);
    CHECK(std::abs(student_t_probability(-t, 7) + student_t_probability(t, 7) - 1) <= bound);
  }
  for (const double p : {0.01, 0.3, 0.5, 0.8, 0.999})
    for (const double freedom : {1.0, 3.0, 50.0, 5000.0}) {
      // The exponent holds logarithms of the gamma function; their roundings are relative errors.
      const double bound = (1000 + 8 * std::lgamma(freedom / 2 + 1)) * 0x1p-53;
      CHECK(std::abs(student_t_probability(student_t_quantile(p, freedom), freedom) - p) <= bound);
    }
  CHECK_THROWS_AS(student_t_quantile(1.0, 3), Error);
  CHECK_THROWS_AS(student_t_quantile(0.5, 0), Error);
}

TEST_CASE("a mean over seeds has Student's interval, and one seed has none") {
  const std::vector<double> values{1, 2, 3, 4, 5};
  const MeanInterval m = mean_interval(values);
  CHECK(m.mean == 3);
  CHECK(m.n == 5);
  CHECK(m.deviation == doctest::Approx(std::sqrt(2.5)));
  REQUIRE(m.interval.has_value());
  CHECK(m.interval->high - m.mean == doctest::Approx(2.776445 * std::sqrt(2.5 / 5)).epsilon(1e-6));
  CHECK(text(m, 1, 2, false) == "3.00 [1.04, 4.96], n = 5");

  const MeanInterval single = mean_interval(std::vector<double>{0.5});
  CHECK_FALSE(single.interval.has_value());
  CHECK(std::isnan(single.deviation));
  CHECK(text(single, 100, 1) == "+50.0, n = 1: no interval");
  CHECK_THROWS_AS(mean_interval(std::vector<double>{}), Error);
  CHECK(median(values) == 3);
  CHECK(median(std::vector<double>{4, 1}) == 2.5);
}

TEST_CASE("pairing removes what a seed moves in both settings alike") {
  const std::vector<double> a{0.1, 0.9, 0.4, 0.7};
  std::vector<double> b = a;
  for (double& v : b) v += 0.25;
  const MeanInterval paired = paired_over_seeds(a, b);
  CHECK(paired.mean == doctest::Approx(0.25));
  CHECK(paired.interval->high - paired.interval->low < 1e-12);
  CHECK_THROWS_AS(paired_over_seeds(a, std::vector<double>{1}), Error);
}

TEST_CASE("paired differences in clusters: Agresti and Min's where a cluster is a sample") {
  // 200 images: a alone right on 3, b alone on 5.
  std::vector<std::uint8_t> a(200, 1), b(200, 1);
  std::fill_n(b.begin(), 3, std::uint8_t{0});
  std::fill_n(a.begin() + 10, 5, std::uint8_t{0});
  std::vector<double> difference;
  std::vector<std::int64_t> cluster;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference.push_back(static_cast<double>(b[i]) - static_cast<double>(a[i]));
    cluster.push_back(static_cast<std::int64_t>(i));
  }
  const PairedDifference theirs = paired_difference(a, b);
  const ClusteredMean ours = clustered_paired_difference(difference, cluster);
  REQUIRE(ours.interval.has_value());
  CHECK(ours.mean == doctest::Approx(0.01));
  const auto centre = [](const Interval& i) { return (i.low + i.high) / 2; };
  const auto half = [](const Interval& i) { return (i.high - i.low) / 2; };
  CHECK(centre(*ours.interval) == doctest::Approx(centre(theirs.interval)));
  const double wider = student_t_quantile(0.975, 199) / 1.959963984540054 * std::sqrt(200.0 / 199);
  CHECK(half(*ours.interval) == doctest::Approx(wider * half(theirs.interval)).epsilon(1e-6));

  // Nothing decided differently is no proof of nothing.
  const std::vector<double> same(200, 0.0);
  const ClusteredMean none = clustered_paired_difference(same, cluster);
  CHECK(none.mean == 0);
  CHECK(none.interval->low == doctest::Approx(-none.interval->high));
  CHECK(none.interval->high ==
        doctest::Approx(student_t_quantile(0.975, 199) * std::sqrt(200.0 / 199) / 202));
  // Images of a scene that err together say less than as many that err apart.
  std::vector<std::int64_t> scenes;
  for (std::size_t i = 0; i < a.size(); ++i) scenes.push_back(static_cast<std::int64_t>(i / 10));
  CHECK(half(*clustered_paired_difference(difference, scenes).interval) > half(*ours.interval));
  CHECK_FALSE(clustered_paired_difference(same, std::vector<std::int64_t>(200, 1)).interval);
  CHECK_THROWS_AS(
      clustered_paired_difference(std::vector<double>{0, 1.5}, std::vector<std::int64_t>{0, 1}),
      Error);
  CHECK(clustered_paired_difference(std::vector<double>{1, 1}, std::vector<std::int64_t>{0, 1})
            .interval->high <= 1);
}

TEST_CASE("clusters widen an interval where samples in them agree") {
  // 20 clusters of 10 equal samples: 20 observations, not 200.
  std::vector<double> values, means;
  std::vector<std::int64_t> cluster;
  std::vector<std::int64_t> own;
  RandomStream random(3, RandomUse::checks, 0);
  for (std::int64_t g = 0; g < 20; ++g) {
    means.push_back(random.normal());
    for (int i = 0; i < 10; ++i) {
      values.push_back(means.back());
      cluster.push_back(1000 - 7 * g);
      own.push_back(g * 10 + i);
    }
  }
  const ClusteredMean clustered = clustered_mean(values, cluster);
  const MeanInterval over_means = mean_interval(means);
  CHECK(clustered.clusters == 20);
  CHECK(clustered.samples == 200);
  // With equal clusters it is Student's interval over the clusters' means.
  CHECK(clustered.interval->low == doctest::Approx(over_means.interval->low).epsilon(1e-12));
  CHECK(clustered.interval->high == doctest::Approx(over_means.interval->high).epsilon(1e-12));
  // Every sample a cluster of its own: the plain interval.
  const ClusteredMean plain = clustered_mean(values, own);
  const MeanInterval reference = mean_interval(values);
  CHECK(plain.interval->high == doctest::Approx(reference.interval->high).epsilon(1e-12));
  CHECK(plain.interval->high - plain.mean < 0.5 * (clustered.interval->high - clustered.mean));

  const ClusteredMean boot = clustered_bootstrap(values, cluster, 1);
  const ClusteredMean again = clustered_bootstrap(values, cluster, 1);
  CHECK(boot.interval->low == again.interval->low);
  CHECK(boot.mean == clustered.mean);
  // The percentile interval is narrower by about sqrt(19/20) and z / t; half to one and a half of
  // it.
  const double ratio = (boot.interval->high - boot.interval->low) /
                       (clustered.interval->high - clustered.interval->low);
  CHECK(ratio > 0.5);
  CHECK(ratio < 1.5);
  CHECK_FALSE(clustered_mean(values, std::vector<std::int64_t>(200, 4)).interval.has_value());
}
