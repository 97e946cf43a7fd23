#include "cli/number.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

using namespace roundoff;
using cli::ExactNumber;

namespace {

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

double to(const std::string& text, const Format& f, RoundingMode mode = RoundingMode::rne) {
  return ExactNumber::parse(text).round(f, mode).value;
}

}  // namespace

TEST_CASE("decimals reach fp64 and fp32 as the C library's correctly rounded readers take them") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 4000; ++i) {
    std::string text = (random() & 1) != 0 ? "-" : "";
    const std::size_t digits = 1 + random() % (i % 50 == 0 ? 900 : 25);
    const std::size_t point = random() % (digits + 1);
    for (std::size_t k = 0; k < digits; ++k) {
      if (k == point) text += '.';
      text += static_cast<char>('0' + random() % 10);
    }
    const int range = i % 2 == 0 ? 60 : 340;
    text += 'e';
    text += std::to_string(static_cast<int>(random() % (2 * static_cast<unsigned>(range))) - range);
    CAPTURE(text);
    REQUIRE(bits(to(text, kFp64)) == bits(std::strtod(text.c_str(), nullptr)));
    REQUIRE(bits(to(text, kFp32)) == bits(static_cast<double>(std::strtof(text.c_str(), nullptr))));
  }
}

TEST_CASE("every double printed in full, or as its midpoint to the next, is read back exactly") {
  std::mt19937_64 random(12);
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t pattern = random() % (std::uint64_t{0x7FE} << 52);
    const auto x = std::bit_cast<double>(pattern);
    char text[1200];
    std::snprintf(text, sizeof text, "%.1100f", x > 1e60 ? 1e60 : x);
    REQUIRE(bits(to(text, kFp64)) == bits(x > 1e60 ? 1e60 : x));
    std::snprintf(text, sizeof text, "%a", x);
    REQUIRE(bits(to(text, kFp64)) == pattern);
  }
}

TEST_CASE("a decimal is rounded once: what fp64 cannot see still decides") {
  // 2^-25 is half the smallest fp16 subnormal: a tie, to even, to 0.
  const std::string tie = "2.98023223876953125e-8";
  CHECK(to(tie, kFp16) == 0.0);
  // The extra 1 vanishes in fp64.
  const std::string above = "2.98023223876953125000000000000000000000000001e-8";
  REQUIRE(std::strtod(above.c_str(), nullptr) == 0x1p-25);
  CHECK(to(above, kFp16) == 0x1p-24);
  CHECK(to("2.98023223876953124999999999999999999999999999e-8", kFp16) == 0.0);
  CHECK(to(tie + std::string(400, '0'), kFp16) == to("0.0298023223876953125e-6", kFp16));
  // The overflow threshold of fp16.
  CHECK(to("65519.99999999999999999999999999999", kFp16) == 65504.0);
  CHECK(std::isinf(to("65520", kFp16)));
  // Directed modes see it too, in fp64 itself.
  CHECK(to("1.00000000000000000000000000000000001", kFp64, RoundingMode::ru) == 1.0 + 0x1p-52);
  CHECK(to("-1.00000000000000000000000000000000001", kFp64, RoundingMode::rd) == -1.0 - 0x1p-52);
  CHECK(to("1.00000000000000000000000000000000001", kFp64, RoundingMode::rz) == 1.0);
  // Hexadecimal: 1 + 2^-11 is a tie in fp16.
  CHECK(to("0x1.002p0", kFp16) == 1.0);
  CHECK(to("0x1.00200000000000000000000000001p0", kFp16) == 1.0 + 0x1p-10);
}

TEST_CASE("signs, zeros, infinities, NaN, extreme exponents") {
  CHECK(bits(to("-0", kFp16)) == bits(-0.0));
  CHECK(bits(to("+0.000e99999999999", kFp16)) == bits(0.0));
  CHECK(to("-inf", kFp16) == -std::numeric_limits<double>::infinity());
  CHECK(to("Infinity", kFp8E4M3) == 448.0);
  CHECK(std::isnan(to("NaN", kBf16)));
  CHECK(std::signbit(to("-nan", kBf16)));
  CHECK_FALSE(std::signbit(to("+nan", kBf16)));
  CHECK(std::isinf(to("1e999999999999", kFp64)));
  CHECK(to("1e-999999999999", kFp64) == 0.0);
  CHECK(to("-1e-999999999999", kFp64, RoundingMode::rd) == -0x1p-1074);
  CHECK(std::isinf(to("0x1p99999999", kFp64)));
  CHECK(to("0x1p-99999999", kFp32, RoundingMode::ru) == 0x1p-149);
  CHECK(to("0xFF", kFp64) == 255.0);
  CHECK(to("0x.8", kFp64) == 0.5);
  CHECK(to("5.", kFp64) == 5.0);
  CHECK(to(".5E+1", kFp64) == 5.0);
  CHECK(to(std::string(4900, '9'), kFp32) == std::numeric_limits<double>::infinity());
  CHECK(to("0." + std::string(4000, '0') + "1e4001", kFp32) == 1.0);
}

TEST_CASE("products and exponents are exact") {
  const ExactNumber tenth = ExactNumber::parse("0.1");
  CHECK(tenth.times(ExactNumber::parse("10")).nearest_double() == 1.0);
  CHECK(tenth.times(ExactNumber::parse("10")).round(kFp64).inexact == false);
  CHECK(tenth.times(ExactNumber::parse("-0x1p4")).nearest_double() == -1.6);
  CHECK(tenth.times_exp2(4).nearest_double() == 1.6);
  CHECK(tenth.exponent() == -4);
  CHECK(ExactNumber::parse("1").exponent() == 0);
  CHECK(ExactNumber::parse("0x1p-1074").exponent() == -1074);
  CHECK(ExactNumber::parse("1023.99999999999999999999999999").exponent() == 9);
  const std::string big(60, '7');
  CHECK(ExactNumber::parse(big).times(ExactNumber::parse(big)).nearest_double() ==
        std::strtod("6.04938271604938271604938271604938271604938271604938271604938e119", nullptr));
  CHECK_THROWS_AS(tenth.times(ExactNumber::parse("0")), Error);
  CHECK_THROWS_AS(tenth.times(ExactNumber::parse("inf")), Error);
}

TEST_CASE("what is not a number is wrong usage, and named") {
  for (const char* text :
       {"",    "-",    "+",   ".",  "abc", "1.2.3", "1e",      "1e+",  "1e1.5", "0x",    "0x.",
        "0xg", "0x1p", "--1", "1 ", " 1",  "1,5",   "infinit", "nanx", "1f",    "0x1e5p"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(ExactNumber::parse(text), UsageError);
  }
  CHECK_THROWS_WITH_AS(ExactNumber::parse("abc"),
                       "[number] 'abc' is not a number; 1.5, -2e-7, 0x1.8p-3, inf or nan expected",
                       UsageError);
  CHECK_THROWS_AS(ExactNumber::parse(std::string(5001, '1')), UsageError);
}
