#include "engine/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/base/check.h"

namespace roundoff {

namespace {
constexpr double kZ95 = 1.959963984540054;  // 97.5% quantile of the standard normal
}

Interval wilson_interval(std::int64_t successes, std::int64_t n) {
  if (n <= 0) return {0, 1};
  const auto count = static_cast<double>(n);
  const double p = static_cast<double>(successes) / count;
  const double z2 = kZ95 * kZ95;
  const double centre = p + z2 / (2 * count);
  const double half = kZ95 * std::sqrt(p * (1 - p) / count + z2 / (4 * count * count));
  const double scale = 1 + z2 / count;
  return {std::max(0.0, (centre - half) / scale), std::min(1.0, (centre + half) / scale)};
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

void JsonLine::key(std::string_view name) {
  if (text_.size() > 1) text_ += ", ";
  text_ += '"';
  text_ += name;
  text_ += "\": ";
}

JsonLine& JsonLine::add(std::string_view name, double value) {
  key(name);
  if (!std::isfinite(value)) {
    text_ += "null";
    const char* what = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    return add(std::string(name) + "_class", std::string_view(what));
  }
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  text_.append(digits, end.ptr);
  return *this;
}

JsonLine& JsonLine::add(std::string_view name, std::int64_t value) {
  key(name);
  text_ += std::to_string(value);
  return *this;
}

JsonLine& JsonLine::add(std::string_view name, bool value) {
  key(name);
  text_ += value ? "true" : "false";
  return *this;
}

JsonLine& JsonLine::add(std::string_view name, std::string_view value) {
  key(name);
  text_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text_ += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(c);
      text_ += "\\u00";
      text_ += kHex[code >> 4];
      text_ += kHex[code & 15];
    } else {
      text_ += c;
    }
  }
  text_ += '"';
  return *this;
}

}  // namespace roundoff
