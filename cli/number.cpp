#include "cli/number.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace roundoff::cli {

namespace {

using Limbs = std::vector<std::uint32_t>;

// Powers of ten and two beyond these lie outside every format, however long the mantissa.
constexpr int kMaxExponent10 = 20000;
constexpr int kMaxExponent2 = 100000;
constexpr std::size_t kMaxText = 5000;

void trim(Limbs& a) {
  while (!a.empty() && a.back() == 0) a.pop_back();
}

// a = a * factor + addend
void multiply_add(Limbs& a, std::uint32_t factor, std::uint32_t addend) {
  std::uint64_t carry = addend;
  for (std::uint32_t& limb : a) {
    carry += std::uint64_t{limb} * factor;
    limb = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  if (carry != 0) a.push_back(static_cast<std::uint32_t>(carry));
}

void multiply_power_of_five(Limbs& a, int k) {
  constexpr std::uint32_t kFiveTo13 = 1220703125;
  for (; k >= 13; k -= 13) multiply_add(a, kFiveTo13, 0);
  for (; k > 0; --k) multiply_add(a, 5, 0);
}

Limbs multiply(const Limbs& a, const Limbs& b) {
  Limbs c(a.size() + b.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      carry += std::uint64_t{a[i]} * b[j] + c[i + j];
      c[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    c[i + b.size()] = static_cast<std::uint32_t>(carry);
  }
  trim(c);
  return c;
}

int bit_length(const Limbs& a) {
  return a.empty() ? 0 : static_cast<int>(a.size()) * 32 - std::countl_zero(a.back());
}

bool bit(const Limbs& a, int i) {
  const auto limb = static_cast<std::size_t>(i / 32);
  return limb < a.size() && ((a[limb] >> (i % 32)) & 1U) != 0;
}

void double_and_add(Limbs& a, bool low_bit) { multiply_add(a, 2, low_bit ? 1 : 0); }

bool at_least(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() > b.size();
  return !std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

// a -= b, a >= b
void subtract(Limbs& a, const Limbs& b) {
  std::uint64_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint64_t take = (i < b.size() ? b[i] : 0) + borrow;
    borrow = a[i] < take ? 1 : 0;
    a[i] = static_cast<std::uint32_t>(a[i] - take);
  }
  trim(a);
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  return text.size() == lower.size() &&
         std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
         });
}

[[noreturn]] void not_a_number(std::string_view text) {
  std::string shown(text.substr(0, 40));
  if (text.size() > 40) shown += "...";
  throw UsageError(
      concat("[number] '", shown, "' is not a number; 1.5, -2e-7, 0x1.8p-3, inf or nan expected"));
}

// Signed decimal digits up to the end of the text, saturating.
int parse_exponent(std::string_view digits, std::string_view text) {
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty()) not_a_number(text);
  int value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') not_a_number(text);
    value = std::min(value * 10 + (c - '0'), 10 * kMaxExponent2);
  }
  return negative ? -value : value;
}

}  // namespace

ExactNumber ExactNumber::parse(std::string_view text) {
  if (text.size() > kMaxText)
    throw UsageError(
        concat("[number] ", text.size(), " characters; at most ", kMaxText, " are read exactly"));
  ExactNumber x;
  std::string_view rest = text;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    x.negative_ = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (equals_ignoring_case(rest, "inf") || equals_ignoring_case(rest, "infinity")) {
    x.kind_ = Kind::infinite;
    return x;
  }
  if (equals_ignoring_case(rest, "nan")) {
    x.kind_ = Kind::nan;
    return x;
  }
  const bool hex = rest.size() > 2 && rest[0] == '0' && (rest[1] == 'x' || rest[1] == 'X');
  if (hex) rest.remove_prefix(2);
  const int base = hex ? 16 : 10;
  bool any = false;
  bool point = false;
  int fraction_digits = 0;
  while (!rest.empty()) {
    const char c = rest[0];
    if (c == '.' && !point) {
      point = true;
    } else if (digit_of(c) < base) {
      any = true;
      if (!x.mantissa_.empty() || c != '0')
        multiply_add(x.mantissa_, static_cast<std::uint32_t>(base),
                     static_cast<std::uint32_t>(digit_of(c)));
      fraction_digits += point ? 1 : 0;
    } else {
      break;
    }
    rest.remove_prefix(1);
  }
  if (!any) not_a_number(text);
  int exponent = 0;
  if (!rest.empty()) {
    const char mark = rest[0];
    const bool good = hex ? mark == 'p' || mark == 'P' : mark == 'e' || mark == 'E';
    if (!good) not_a_number(text);
    exponent = parse_exponent(rest.substr(1), text);
  }
  if (x.mantissa_.empty()) return x;
  if (hex) {
    x.exponent2_ = std::clamp(exponent - 4 * fraction_digits, -kMaxExponent2, kMaxExponent2);
  } else {
    x.exponent10_ = std::clamp(exponent - fraction_digits, -kMaxExponent10, kMaxExponent10);
  }
  return x;
}

ExactNumber ExactNumber::times(const ExactNumber& factor) const {
  ROUNDOFF_CHECK(factor.kind_ == Kind::finite && !factor.is_zero(), "number",
                 "a finite factor other than 0 expected");
  ExactNumber product = *this;
  product.negative_ = negative_ != factor.negative_;
  if (kind_ != Kind::finite || is_zero()) return product;
  product.mantissa_ = multiply(mantissa_, factor.mantissa_);
  product.exponent10_ += factor.exponent10_;
  product.exponent2_ += factor.exponent2_;
  return product;
}

ExactNumber ExactNumber::times_exp2(int k) const {
  ExactNumber product = *this;
  if (kind_ == Kind::finite && !is_zero()) product.exponent2_ += k;
  return product;
}

ExactValue ExactNumber::leading_bits() const {
  Limbs n = mantissa_;
  ExactValue x;
  x.negative = negative_;
  x.exponent = exponent2_ + exponent10_;  // 10^k = 5^k 2^k
  if (exponent10_ >= 0) {
    multiply_power_of_five(n, exponent10_);
    const int length = bit_length(n);
    for (int i = length - 1; i >= 0 && i >= length - 64; --i)
      x.significand = (x.significand << 1) | (bit(n, i) ? 1U : 0U);
    x.exponent += std::max(length - 64, 0);
    for (int i = 0; i < length - 64 && !x.sticky; ++i) x.sticky = bit(n, i);
    return x;
  }
  // Long division in base two, until 64 bits of the quotient stand.
  Limbs divisor = {1};
  multiply_power_of_five(divisor, -exponent10_);
  Limbs remainder;
  int next = bit_length(n) - 1;  // the dividend's bit that comes down next; zeros after bit 0
  while ((x.significand >> 63) == 0) {
    double_and_add(remainder, next >= 0 && bit(n, next));
    const bool one = at_least(remainder, divisor);
    if (one) subtract(remainder, divisor);
    x.significand = (x.significand << 1) | (one ? 1U : 0U);
    --next;
  }
  x.exponent += next + 1;
  x.sticky = !remainder.empty();
  for (int i = 0; i <= next && !x.sticky; ++i) x.sticky = bit(n, i);
  return x;
}

int ExactNumber::exponent() const {
  const ExactValue x = leading_bits();
  return x.exponent + 63 - std::countl_zero(x.significand);
}

Rounded ExactNumber::round(const Format& format, RoundingMode mode, std::uint64_t random) const {
  const double sign = negative_ ? -1.0 : 1.0;
  if (kind_ == Kind::nan)
    return round_to_format(std::copysign(std::numeric_limits<double>::quiet_NaN(), sign), format,
                           mode, random);
  if (kind_ == Kind::infinite)
    return round_to_format(sign * std::numeric_limits<double>::infinity(), format, mode, random);
  if (mantissa_.empty()) return round_to_format(sign * 0.0, format, mode, random);
  return round_to_format(leading_bits(), format, mode, random);
}

}  // namespace roundoff::cli
