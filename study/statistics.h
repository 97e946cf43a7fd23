// What studies say of several seeds and of samples that belong together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/metrics.h"

namespace roundoff::study {

double mean(std::span<const double> values);
// Sample standard deviation, with n - 1; NaN for fewer than two values.
double standard_deviation(std::span<const double> values);
// The middle value, or the mean of the two middle ones; NaN for none.
double median(std::span<const double> values);

// P(T <= t) for Student's distribution with `freedom` > 0 degrees of freedom, by the continued
// fraction of the incomplete beta function (Abramowitz and Stegun 1964, 26.5.8 and 26.7.1).
double student_t_probability(double t, double freedom);
// The t with P(T <= t) = p, 0 < p < 1.
double student_t_quantile(double p, double freedom);

// A mean over n independent values and Student's interval for it: mean +- t s / sqrt(n), n - 1
// degrees of freedom. One value has no interval, and none is made up for it.
struct MeanInterval {
  double mean = 0;
  double deviation = 0;  // NaN for n < 2
  std::int64_t n = 0;
  std::optional<Interval> interval = {};
};
MeanInterval mean_interval(std::span<const double> values, double level = 0.95);

// Two settings run with the same n seeds, element i of both with the same seed: the mean of
// b[i] - a[i] with Student's interval. What the seed moves in both alike drops out.
MeanInterval paired_over_seeds(std::span<const double> a, std::span<const double> b,
                               double level = 0.95);

// A mean over samples that come in clusters (images of one scene), which are independent of each
// other while the samples in them are not. The interval is Student's over the clusters' sums of
// residuals, with G - 1 degrees of freedom and the factor G / (G - 1) (Liang and Zeger 1986; the
// small-sample factor as in Cameron and Miller 2015). `cluster` has a number a sample, any numbers.
// For a paired difference give b[i] - a[i], a sample each.
struct ClusteredMean {
  double mean = 0;
  std::int64_t samples = 0;
  std::int64_t clusters = 0;
  std::optional<Interval> interval = {};  // none for fewer than two clusters
};
ClusteredMean clustered_mean(std::span<const double> values, std::span<const std::int64_t> cluster,
                             double level = 0.95);
// The mean of paired differences of right and wrong decisions, b[i] - a[i] in [-1, 1] a sample (or
// their mean over seeds), in clusters: clustered_mean with the adjustment of Agresti and Min
// (2005), half a sample that only b decides rightly and half a one that only a does, twice each:
// two more samples, and 1 more in the sum of squares. The interval is around the adjusted mean and
// within
// [-1, 1]; it has a width where no sample is decided differently. For clusters of one sample it is
// theirs, with Student's quantile and G / (G - 1). Derived here for clusters.
ClusteredMean clustered_paired_difference(std::span<const double> differences,
                                          std::span<const std::int64_t> cluster,
                                          double level = 0.95);
// A clustered mean by the bootstrap over clusters (Efron 1979; percentile interval): `draws`
// resamples of whole clusters with replacement, a pure function of the seed.
ClusteredMean clustered_bootstrap(std::span<const double> values,
                                  std::span<const std::int64_t> cluster, std::uint64_t seed,
                                  std::int64_t draws = 2000, double level = 0.95);

// "+0.12 [-0.05, +0.29], n = 5", or "+0.12, n = 1: no interval". `factor` turns a share into
// percent; `digits` after the point; `sign`: a plus before what is positive.
std::string text(const MeanInterval& m, double factor = 1, int digits = 4, bool sign = true);
std::string text(const ClusteredMean& m, double factor = 1, int digits = 4, bool sign = true);

}  // namespace roundoff::study
