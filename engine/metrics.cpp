#include "engine/metrics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/check.h"

namespace roundoff {

namespace {
constexpr double kZ95 = 1.959963984540054;  // 97.5% quantile of the standard normal
}

Interval wilson_interval(std::int64_t successes, std::int64_t n) {
  ROUNDOFF_CHECK(successes >= 0 && successes <= n, "metrics", successes, " successes of ", n);
  if (n == 0) return {0, 1};
  const auto count = static_cast<double>(n);
  const double p = static_cast<double>(successes) / count;
  const double z2 = kZ95 * kZ95;
  const double centre = p + z2 / (2 * count);
  const double half = kZ95 * std::sqrt(p * (1 - p) / count + z2 / (4 * count * count));
  const double scale = 1 + z2 / count;
  // At the ends the formula gives 0 and 1, but for rounding.
  return {successes == 0 ? 0.0 : std::max(0.0, (centre - half) / scale),
          successes == n ? 1.0 : std::min(1.0, (centre + half) / scale)};
}

PairedDifference paired_difference(std::span<const std::uint8_t> a,
                                   std::span<const std::uint8_t> b) {
  ROUNDOFF_CHECK(a.size() == b.size(), "metrics", "paired results of ", a.size(), " and ", b.size(),
                 " samples");
  PairedDifference result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    result.only_a += a[i] != 0 && b[i] == 0;
    result.only_b += a[i] == 0 && b[i] != 0;
  }
  if (a.empty()) return {0, {-1, 1}, 0, 0};
  const auto n = static_cast<double>(a.size());
  const auto gained = static_cast<double>(result.only_b);
  const auto lost = static_cast<double>(result.only_a);
  result.difference = (gained - lost) / n;
  const double m = n + 2;
  const double centre = (gained - lost) / m;
  const double variance = (gained + lost + 1 - (gained - lost) * (gained - lost) / m) / (m * m);
  const double half = kZ95 * std::sqrt(variance);
  result.interval = {std::max(-1.0, centre - half), std::min(1.0, centre + half)};
  return result;
}

std::string json_line(const MetricsRecord& record) {
  nlohmann::ordered_json line;
  const auto number = [&](const char* name, double value) {
    line[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr;
    if (!std::isfinite(value))
      line[std::string(name) + "_class"] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  };
  line["step"] = record.step;
  line["epoch"] = record.epoch;
  line["samples"] = record.samples;
  number("loss", record.loss);
  number("lr", record.lr);
  number("grad_norm", record.grad_norm);
  number("clip", record.clip);
  number("scale", record.scale);
  line["found_inf"] = record.found_inf;
  line["did_step"] = record.did_step;
  line["growth_tracker"] = record.growth_tracker;
  number("valid_count", record.valid_count);
  return line.dump();
}

}  // namespace roundoff
