#include "engine/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/base/check.h"

using namespace roundoff;

namespace {

constexpr double kZ = 1.959963984540054;

// A cell count of each kind: right in both, in a alone, in b alone, in neither.
PairedDifference paired(int both, int only_a, int only_b, int neither) {
  std::vector<std::uint8_t> a, b;
  const auto add = [&](int n, std::uint8_t x, std::uint8_t y) {
    for (int i = 0; i < n; ++i) {
      a.push_back(x);
      b.push_back(y);
    }
  };
  add(both, 1, 1);
  add(only_a, 1, 0);
  add(only_b, 0, 1);
  add(neither, 0, 0);
  return paired_difference(a, b);
}

}  // namespace

TEST_CASE("Wilson's interval: published values, symmetry, coverage of the estimate") {
  // Newcombe (1998), method 3, four decimals.
  struct Row {
    std::int64_t successes, n;
    double low, high;
  };
  const Row rows[] = {{81, 263, 0.2553, 0.3662},
                      {15, 148, 0.0624, 0.1605},
                      {0, 20, 0, 0.1611},
                      {1, 29, 0.0061, 0.1718}};
  for (const Row& row : rows) {
    CAPTURE(row.successes);
    const Interval i = wilson_interval(row.successes, row.n);
    CHECK(std::abs(i.low - row.low) <= 0.5e-4);
    CHECK(std::abs(i.high - row.high) <= 0.5e-4);
  }
  for (const std::int64_t n : {1, 2, 10, 10'000}) {
    for (std::int64_t s = 0; s <= n; s += std::max<std::int64_t>(n / 7, 1)) {
      const Interval i = wilson_interval(s, n);
      const Interval mirrored = wilson_interval(n - s, n);
      const double p = static_cast<double>(s) / static_cast<double>(n);
      CHECK(i.low >= 0);
      CHECK(i.high <= 1);
      CHECK(i.low <= p);
      CHECK(i.high >= p);
      CHECK(i.low < i.high);
      CHECK(std::abs(i.low - (1 - mirrored.high)) <= 16 * 0x1p-53);
      // The ends solve |p - q| = z sqrt(q (1 - q) / n).
      for (const double q : {i.low, i.high})
        CHECK(std::abs((p - q) * (p - q) - kZ * kZ * q * (1 - q) / static_cast<double>(n)) <=
              64 * 0x1p-53);
    }
  }
  const Interval nothing = wilson_interval(0, 0);
  CHECK(nothing.low == 0);
  CHECK(nothing.high == 1);
  CHECK_THROWS_AS(wilson_interval(-1, 10), Error);
  CHECK_THROWS_AS(wilson_interval(11, 10), Error);
  CHECK_THROWS_AS(wilson_interval(0, -1), Error);
}

TEST_CASE("paired difference by hand") {
  // n = 100, b right where a was wrong 12 times, the other way about 5 times.
  const PairedDifference d = paired(60, 5, 12, 23);
  CHECK(d.only_a == 5);
  CHECK(d.only_b == 12);
  CHECK(d.difference == 0.07);
  const double m = 102;
  const double half = kZ * std::sqrt((12.5 + 5.5) - 7 * 7 / m) / m;
  CHECK(std::abs(d.interval.low - (7 / m - half)) <= 16 * 0x1p-53);
  CHECK(std::abs(d.interval.high - (7 / m + half)) <= 16 * 0x1p-53);
  // Swapped, everything changes its sign.
  const PairedDifference e = paired(60, 12, 5, 23);
  CHECK(e.difference == -0.07);
  CHECK(std::abs(e.interval.low + d.interval.high) <= 16 * 0x1p-53);
}

TEST_CASE("paired difference at the edges") {
  const PairedDifference same = paired(50, 0, 0, 50);
  CHECK(same.difference == 0);
  CHECK(same.interval.low < 0);  // no disagreement seen still has width
  CHECK(same.interval.high == -same.interval.low);
  CHECK(std::abs(same.interval.high - kZ / 102) <= 16 * 0x1p-53);

  const PairedDifference all = paired(0, 0, 10, 0);
  CHECK(all.difference == 1);
  CHECK(all.interval.high <= 1);
  CHECK(all.interval.low > 0);
  CHECK(paired(0, 1, 0, 0).interval.low >= -1);

  const PairedDifference none = paired_difference({}, {});
  CHECK(none.difference == 0);
  CHECK(none.interval.low == -1);
  CHECK(none.interval.high == 1);
  const std::vector<std::uint8_t> one(1), two(2), odd{2}, yes{1};
  CHECK_THROWS_AS(paired_difference(one, two), Error);
  CHECK(paired_difference(odd, yes).difference == 0);  // any value but 0 is right
}

TEST_CASE("a metrics line is one JSON object on one line, every digit kept") {
  MetricsRecord record;
  record.step = 12;
  record.epoch = 1;
  record.samples = (std::int64_t{1} << 53) + 1;
  record.loss = 0.1 + 0.2;
  record.lr = 1e-300;
  record.grad_norm = 0x1.fffffffffffffp+1023;
  record.clip = -0.0;
  record.scale = 0x1p-126;
  record.found_inf = false;
  record.did_step = true;
  record.growth_tracker = 1999;
  record.valid_count = 63.5;
  const std::string line = json_line(record);
  CHECK(line.find('\n') == std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  CHECK(parsed.size() == 12);
  CHECK(parsed.at("step") == 12);
  CHECK(parsed.at("epoch") == 1);
  CHECK(parsed.at("samples").get<std::int64_t>() == record.samples);
  CHECK(parsed.at("loss").get<double>() == record.loss);
  CHECK(parsed.at("lr").get<double>() == record.lr);
  CHECK(parsed.at("grad_norm").get<double>() == record.grad_norm);
  CHECK(std::signbit(parsed.at("clip").get<double>()));
  CHECK(parsed.at("scale").get<double>() == record.scale);
  CHECK(parsed.at("found_inf") == false);
  CHECK(parsed.at("did_step") == true);
  CHECK(parsed.at("growth_tracker") == 1999);
  CHECK(parsed.at("valid_count").get<double>() == 63.5);
}

TEST_CASE("a number that is not finite is null beside its class") {
  MetricsRecord record;
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.lr = -std::numeric_limits<double>::infinity();
  const auto parsed = nlohmann::json::parse(json_line(record));
  CHECK(parsed.size() == 15);
  CHECK(parsed.at("loss").is_null());
  CHECK(parsed.at("loss_class") == "nan");
  CHECK(parsed.at("grad_norm").is_null());
  CHECK(parsed.at("grad_norm_class") == "inf");
  CHECK(parsed.at("lr").is_null());
  CHECK(parsed.at("lr_class") == "-inf");
  CHECK(!parsed.contains("scale_class"));
  CHECK(parsed.at("scale") == 1);
}
