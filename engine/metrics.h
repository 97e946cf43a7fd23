// What a run reports: one JSON object a window, and intervals for what it measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace roundoff {

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson's score interval at 95% for `successes` of n (Wilson 1927); [0, 1] for n = 0.
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
PairedDifference paired_difference(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// One line of JSON, built field by field; numbers keep all their digits (shortest text that reads
// back to the same value), and a non-finite number x becomes null beside "<name>_class":
// "inf", "-inf" or "nan".
class JsonLine {
 public:
  JsonLine& add(std::string_view name, double value);
  JsonLine& add(std::string_view name, std::int64_t value);
  JsonLine& add(std::string_view name, bool value);
  JsonLine& add(std::string_view name, std::string_view value);
  std::string text() const { return text_ + "}"; }

 private:
  void key(std::string_view name);
  std::string text_ = "{";
};

}  // namespace roundoff
