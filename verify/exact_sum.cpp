#include "verify/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace roundoff {

namespace {

constexpr std::uint64_t kDigit = 0xFFFFFFFFU;

// |value| = significand * 2^exponent; significand below 2^24.
struct Parts {
  std::uint64_t significand;
  int exponent;
};
Parts parts(float value) {
  int exponent = 0;
  const float fraction = std::frexp(std::abs(value), &exponent);
  return {static_cast<std::uint64_t>(fraction * 0x1p24F), exponent - 24};
}

}  // namespace

void ExactSum::add_product(float a, float b) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    const float product = a * b;
    nan_ = nan_ || std::isnan(product);
    (std::signbit(product) ? minus_infinity_ : plus_infinity_) |= std::isinf(product);
    return;
  }
  const Parts x = parts(a), y = parts(b);
  const std::uint64_t product = x.significand * y.significand;  // below 2^48
  if (product == 0) return;
  // Significands of subnormals end in zeros: a negative shift loses nothing.
  const int shift = x.exponent + y.exponent - kLow;
  const std::uint64_t whole = shift < 0 ? product >> -shift : product;
  const int place = shift < 0 ? 0 : shift;
  const auto digit = static_cast<std::size_t>(place / 32);
  const std::uint64_t low = (whole & kDigit) << (place % 32);
  const std::uint64_t high = (whole >> 32) << (place % 32);
  const std::int64_t sign = std::signbit(a) != std::signbit(b) ? -1 : 1;
  digits_[digit] += sign * static_cast<std::int64_t>(low & kDigit);
  digits_[digit + 1] += sign * static_cast<std::int64_t>((low >> 32) + (high & kDigit));
  digits_[digit + 2] += sign * static_cast<std::int64_t>(high >> 32);
  if (++uncarried_ == kUncarried) carry();
}

void ExactSum::add(const ExactSum& other) {
  ExactSum copy = other;
  copy.carry();
  carry();
  for (std::size_t i = 0; i < digits_.size(); ++i) digits_[i] += copy.digits_[i];
  carry();
  nan_ = nan_ || other.nan_;
  plus_infinity_ = plus_infinity_ || other.plus_infinity_;
  minus_infinity_ = minus_infinity_ || other.minus_infinity_;
}

// Afterwards all digits but the last are in [0, 2^32), and the last has the sum's sign.
void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < digits_.size(); ++i) {
    digits_[i + 1] += digits_[i] >> 32;
    digits_[i] &= static_cast<std::int64_t>(kDigit);
  }
  uncarried_ = 0;
}

// To `precision` bits, but to no place below 2^lowest.
double ExactSum::rounded(int precision, int lowest) const {
  if (nan_ || (plus_infinity_ && minus_infinity_)) return std::numeric_limits<double>::quiet_NaN();
  if (plus_infinity_) return std::numeric_limits<double>::infinity();
  if (minus_infinity_) return -std::numeric_limits<double>::infinity();
  ExactSum sum = *this;
  sum.carry();
  const bool negative = sum.digits_.back() < 0;
  if (negative) {
    for (std::int64_t& digit : sum.digits_) digit = -digit;
    sum.carry();
  }
  int top = -1;
  for (int i = kDigits - 1; i >= 0 && top < 0; --i) {
    const auto digit = static_cast<std::uint64_t>(sum.digits_[static_cast<std::size_t>(i)]);
    if (digit != 0) top = 32 * i + static_cast<int>(std::bit_width(digit)) - 1;
  }
  if (top < 0) return 0;
  const auto bit = [&](int place) {
    if (place < 0) return false;
    const auto digit = static_cast<std::size_t>(std::min(place / 32, kDigits - 1));
    const int in_digit = place - 32 * static_cast<int>(digit);
    return ((sum.digits_[digit] >> in_digit) & 1) != 0;
  };
  const int last = std::max(top - precision + 1, lowest - kLow);
  std::uint64_t significand = 0;
  for (int place = top; place >= last; --place)
    significand = 2 * significand + (bit(place) ? 1 : 0);
  bool rest = false;
  for (int place = last - 2; place >= 0 && !rest; --place) rest = bit(place);
  if (bit(last - 1) && (rest || (significand & 1) != 0)) ++significand;
  const double magnitude = std::ldexp(static_cast<double>(significand), last + kLow);
  return negative ? -magnitude : magnitude;
}

float ExactSum::value() const {
  // Rounded to fp32 already; what lies beyond its range becomes infinite.
  return static_cast<float>(rounded(24, -149));
}

double ExactSum::to_double() const { return rounded(53, -1074); }

}  // namespace roundoff
