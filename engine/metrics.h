// What a run reports: one JSON object a window, and intervals for what it measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace roundoff {

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson's score interval at 95% for `successes` of n (Wilson 1927); [0, 1] for n = 0. Throws
// unless 0 <= successes <= n.
Interval wilson_interval(std::int64_t successes, std::int64_t n);

struct PairedDifference {
  double difference = 0;  // accuracy of b minus accuracy of a
  Interval interval;      // 95%
  std::int64_t only_a = 0;
  std::int64_t only_b = 0;
};

// Two classifiers on the same n samples, element i telling whether each was right. The interval is
// Wald's for a difference of paired proportions with Agresti and Min's (2005) adjustment: half an
// observation is added to each of the four cells, so that no disagreement at all still has width.
PairedDifference paired_difference(std::span<const std::uint8_t> a,
                                   std::span<const std::uint8_t> b);

// What metrics.jsonl says of one window.
struct MetricsRecord {
  std::int64_t step = 0;     // windows so far, this one included
  std::int64_t epoch = 0;    // from 0
  std::int64_t samples = 0;  // samples so far, this window's included
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double clip = 1;
  double scale = 1;
  bool found_inf = false;
  bool did_step = false;
  std::int64_t growth_tracker = 0;
  double valid_count = 0;
};

// One JSON object on one line, without the line's end. Numbers keep all their digits; a non-finite
// number x is null beside "x_class": "inf", "-inf" or "nan".
std::string json_line(const MetricsRecord& record);

}  // namespace roundoff
