#include "kernels/base/format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace roundoff;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr RoundingMode kDirected[] = {RoundingMode::rne, RoundingMode::rz, RoundingMode::rd,
                                      RoundingMode::ru};

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

// Formats whose every pattern can be listed, with odd ones beside the named.
std::vector<Format> small_formats() {
  std::vector<Format> all;
  for (const FormatRow& row : format_rows())
    if (row.format.width() <= 19) all.push_back(row.format);
  all.push_back({2, -2, 3, true, true, false});
  all.push_back({4, -6, 8, false, true, false});  // e4m3 that overflows to NaN
  all.push_back({3, -14, 15, true, true, true});  // e5m2 that saturates
  all.push_back({5, -2, 0, false, false, true});
  return all;
}

// The non-negative finite numbers, ascending, from the definition (no encode or decode).
std::vector<double> numbers(const Format& f) {
  std::vector<double> all;
  const auto hidden = std::uint64_t{1} << (f.precision - 1);
  for (std::uint64_t m = 0; m < hidden; ++m)
    all.push_back(std::ldexp(static_cast<double>(m), f.emin - f.precision + 1));
  for (int e = f.emin; e <= f.emax; ++e)
    for (std::uint64_t m = hidden; m < 2 * hidden; ++m)
      all.push_back(std::ldexp(static_cast<double>(m), e - f.precision + 1));
  if (f.nan && !f.infinities) all.pop_back();
  return all;
}

// Rounds x >= 0 to one of `grid`, whose last entry stands for everything beyond the format; the
// index of the result. Small formats only: midpoints are exact.
std::size_t round_on_grid(double x, const std::vector<double>& grid, RoundingMode mode,
                          bool negative) {
  const auto above = std::lower_bound(grid.begin(), grid.end(), x);
  if (above == grid.end()) return grid.size() - 1;
  const auto high = static_cast<std::size_t>(above - grid.begin());
  if (grid[high] == x) return high;
  const std::size_t low = high - 1;
  const double middle = (grid[low] + grid[high]) / 2;
  switch (mode) {
    case RoundingMode::rz:
      return low;
    case RoundingMode::rd:
      return negative ? high : low;
    case RoundingMode::ru:
      return negative ? low : high;
    default:
      return x < middle ? low : x > middle ? high : low % 2 == 0 ? low : high;
  }
}

void check_against_grid(double x, const Format& f, const std::vector<double>& grid) {
  for (const bool negative : {false, true}) {
    for (const RoundingMode mode : kDirected) {
      const std::size_t want = round_on_grid(x, grid, mode, negative);
      const Rounded r = round_to_format(negative ? -x : x, f, mode);
      const double sign = negative ? -1.0 : 1.0;
      CAPTURE(x);
      CAPTURE(negative);
      CAPTURE(name(mode));
      CAPTURE(format_name(f));
      if (want + 1 < grid.size()) {
        REQUIRE(bits(r.value) == bits(sign * grid[want]));
        REQUIRE(r.inexact == (grid[want] != x));
        REQUIRE_FALSE(r.overflow);
        REQUIRE(r.value_class == classify(r.value, f));
        continue;
      }
      REQUIRE(r.overflow);
      const bool finite = f.saturates || mode == RoundingMode::rz ||
                          (mode == RoundingMode::rd && !negative) ||
                          (mode == RoundingMode::ru && negative);
      if (finite) {
        REQUIRE(r.value == sign * f.max_finite());
      } else if (f.infinities) {
        REQUIRE(r.value == sign * kInf);
      } else {
        REQUIRE(std::isnan(r.value));
        REQUIRE(std::signbit(r.value) == negative);
      }
    }
  }
}

}  // namespace

TEST_CASE("the rows say what the tables of numerics and the specifications say") {
  struct Want {
    std::string_view name;
    double u, max, min_normal, min_subnormal;
    int width, exponent_bits;
  };
  const Want table[] = {
      {"fp64", 0x1p-53, std::numeric_limits<double>::max(), 0x1p-1022, 0x1p-1074, 64, 11},
      {"fp32", 0x1p-24, std::numeric_limits<float>::max(), 0x1p-126, 0x1p-149, 32, 8},
      {"tf32", 0x1p-11, 0x1.FFCp127, 0x1p-126, 0x1p-136, 19, 8},
      {"fp16", 0x1p-11, 65504, 6.103515625e-05, 0x1p-24, 16, 5},
      {"bf16", 0x1p-8, 3.3895313892515355e+38, 0x1p-126, 0x1p-133, 16, 8},
      {"fp8-e5m2", 0x1p-3, 57344, 0x1p-14, 0x1p-16, 8, 5},
      {"fp8-e4m3", 0x1p-4, 448, 0x1p-6, 0x1p-9, 8, 4},
      {"fp6-e3m2", 0x1p-3, 28, 0.25, 0.0625, 6, 3},
      {"fp6-e2m3", 0x1p-4, 7.5, 1, 0.125, 6, 2},
      {"fp4-e2m1", 0x1p-2, 6, 1, 0.5, 4, 2},
  };
  REQUIRE(format_rows().size() == std::size(table));
  for (const Want& want : table) {
    CAPTURE(want.name);
    const Format f = parse_format(want.name);
    check_format(f);
    CHECK(format_name(f) == want.name);
    CHECK(f.unit_roundoff() == want.u);
    CHECK(f.max_finite() == want.max);
    CHECK(f.min_normal() == want.min_normal);
    CHECK(f.min_subnormal() == want.min_subnormal);
    CHECK(f.eta() == want.min_subnormal / 2);
    CHECK(f.has_layout());
    CHECK(f.width() == want.width);
    CHECK(f.exponent_bits() == want.exponent_bits);
  }
  CHECK(parse_format("e4m3") == kFp8E4M3);
  CHECK(parse_format("e2m1") == kFp4E2M1);
  CHECK(format_of(DType::bf16) == kBf16);
  CHECK(format_of(DType::fp64) == kFp64);
  CHECK_THROWS_WITH_AS(format_of(DType::i32), "[format] int32 is no floating-point format", Error);
}

TEST_CASE("every pattern of every small format decodes to its number and encodes back") {
  for (const Format& f : small_formats()) {
    CAPTURE(format_name(f));
    REQUIRE(f.has_layout());
    const std::vector<double> grid = numbers(f);
    const std::uint64_t half = std::uint64_t{1} << (f.width() - 1);
    for (std::uint64_t i = 0; i < 2 * half; ++i) {
      const double value = decode(i, f);
      const std::uint64_t magnitude = i % half;
      REQUIRE(std::signbit(value) == (i >= half));
      if (magnitude < grid.size()) {
        REQUIRE(std::fabs(value) == grid[magnitude]);
        REQUIRE(encode(value, f) == i);
        const Rounded r = round_to_format(value, f);
        REQUIRE(bits(r.value) == bits(value));
        REQUIRE_FALSE(r.inexact);
        REQUIRE(r.error_ulp == 0.0);
      } else if (f.infinities && magnitude == grid.size()) {
        REQUIRE(std::isinf(value));
        REQUIRE(encode(value, f) == i);
      } else {
        REQUIRE(f.nan);
        REQUIRE(std::isnan(value));
        REQUIRE(std::isnan(decode(encode(value, f), f)));
      }
    }
  }
}

TEST_CASE("rounding at every number, midpoint and their neighbours, in four modes") {
  for (const Format& f : small_formats()) {
    std::vector<double> grid = numbers(f);
    // The next number, were there one: reaching it is an overflow.
    grid.push_back(grid.back() + std::ldexp(1.0, f.emax - f.precision + 1));
    const std::size_t step =
        grid.size() > 5000 ? 97 : 1;  // fp16 and bf16 have their own whole test
    for (std::size_t i = 0; i + 1 < grid.size(); i += step) {
      const double middle = (grid[i] + grid[i + 1]) / 2;
      for (const double x : {grid[i], middle, grid[i + 1]}) {
        check_against_grid(x, f, grid);
        check_against_grid(std::nextafter(x, kInf), f, grid);
        if (x > 0) check_against_grid(std::nextafter(x, 0.0), f, grid);
      }
    }
    check_against_grid(std::numeric_limits<double>::max(), f, grid);
    check_against_grid(std::numeric_limits<double>::denorm_min(), f, grid);
    std::mt19937_64 random(1);
    for (int i = 0; i < 2000; ++i) {
      const auto pattern = random() & 0x7FFFFFFFFFFFFFFFU;
      if (pattern < bits(kInf)) check_against_grid(std::bit_cast<double>(pattern), f, grid);
    }
  }
}

TEST_CASE("fp32 as a format is the processor's fp32, and fp64 keeps every double") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    std::uint64_t pattern = random();
    if (i % 2 == 0)  // half of them near and below fp32's smallest numbers
      pattern = (pattern & ~(std::uint64_t{0x7FF} << 52)) | ((860 + random() % 50) << 52);
    const auto x = std::bit_cast<double>(pattern);
    const double as_fp64 = round_to_format(x, kFp64).value;
    if (std::isnan(x)) {
      REQUIRE(std::isnan(as_fp64));
      REQUIRE(std::isnan(round_to_format(x, kFp32).value));
      continue;
    }
    REQUIRE(bits(as_fp64) == pattern);
    REQUIRE(encode(x, kFp64) == pattern);
    REQUIRE(bits(decode(pattern, kFp64)) == pattern);
    const auto as_float = static_cast<float>(x);
    REQUIRE(bits(round_to_format(x, kFp32).value) == bits(static_cast<double>(as_float)));
    REQUIRE(encode(static_cast<double>(as_float), kFp32) == std::bit_cast<std::uint32_t>(as_float));
    REQUIRE(bits(round_to_format(as_float, kFp64).value) == bits(static_cast<double>(as_float)));
  }
}

TEST_CASE("a NaN gets the pattern that the storage types give it") {
  for (std::uint32_t top = 0x7C01; top < 0x8000; ++top) {
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const auto value = std::bit_cast<float>(((top | sign) << 16) | 0x7F800001U);
      REQUIRE(encode(round_to_format(value, kFp16).value, kFp16) == Half(value).bits);
      REQUIRE(encode(round_to_format(value, kBf16).value, kBf16) == BFloat16(value).bits);
    }
  }
  const double nan = -std::numeric_limits<double>::quiet_NaN();
  CHECK(encode(round_to_format(nan, kFp8E4M3).value, kFp8E4M3) == 0xFF);
  const Rounded r = round_to_format(nan, kFp4E2M1);  // no pattern is NaN
  CHECK(r.invalid);
  CHECK(r.value == 6.0);
  CHECK(r.value_class == ValueClass::normal);
}

TEST_CASE("infinities: kept, NaN, or the largest number, as the format says") {
  CHECK(round_to_format(-kInf, kFp16, RoundingMode::rz).value == -kInf);
  CHECK_FALSE(round_to_format(kInf, kFp16).inexact);
  CHECK(round_to_format(kInf, kFp8E4M3).value == 448.0);
  CHECK(round_to_format(-kInf, kFp4E2M1).value == -6.0);
  const Format strict{4, -6, 8, false, true, false};
  CHECK(std::isnan(round_to_format(kInf, strict).value));
  CHECK(std::isnan(round_to_format(1e9, strict).value));
  CHECK(round_to_format(464.0, strict).value == 448.0);  // a tie, to the even pattern
  CHECK(std::isnan(round_to_format(464.5, strict).value));
}

TEST_CASE("error in ulp, class and flags") {
  Rounded r = round_to_format(0.1F, kFp16);
  CHECK(r.value == 0.0999755859375);
  CHECK(r.value_class == ValueClass::normal);
  CHECK(r.error_ulp == doctest::Approx((0.0999755859375 - double{0.1F}) / 0x1p-14));
  r = round_to_format(3.0 * 0x1p-26, kFp16);
  CHECK(r.value_class == ValueClass::subnormal);
  CHECK(r.error_ulp == 0.25);
  r = round_to_format(-0x1p-26, kFp16);
  CHECK(r.value_class == ValueClass::zero);
  CHECK(std::signbit(r.value));
  CHECK(r.error_ulp == 0.25);
  r = round_to_format(0x1p-14 - 0x1p-26, kFp16);  // rounds up into the normal numbers
  CHECK(r.value == 0x1p-14);
  CHECK(r.value_class == ValueClass::normal);
  CHECK(round_to_format(70000.0, kFp16).error_ulp == kInf);
  CHECK(round_to_format(-512.0, kFp8E4M3).error_ulp == 2.0);
  CHECK(classify(0x1p-15, kFp16) == ValueClass::subnormal);
  CHECK(classify(0x1p-15, kBf16) == ValueClass::normal);
  CHECK(classify(kInf, kBf16) == ValueClass::infinite);
  CHECK(name(classify(-0.0, kBf16)) == "zero");
}

TEST_CASE("stochastic rounding goes up exactly as often as the discarded fraction says") {
  struct Case {
    double x;
    const Format& format;
    int up_of_256;  // discarded fraction, times 256
    double low, high;
  };
  const double ulp = 0x1p-10;
  const Case cases[] = {
      {1.0, kFp16, 0, 1.0, 1.0},
      {1.0 + ulp / 256, kFp16, 1, 1.0, 1.0 + ulp},
      {1.0 + 77 * ulp / 256, kFp16, 77, 1.0, 1.0 + ulp},
      {1.0 + 255 * ulp / 256, kFp16, 255, 1.0, 1.0 + ulp},
      {0x1p-25, kFp16, 128, 0.0, 0x1p-24},
      {0x1p-32, kFp16, 1, 0.0, 0x1p-24},
      {0x1p-14 - 0x1p-26, kFp16, 192, 0x1p-14 - 0x1p-24, 0x1p-14},
      {65504.0 + 8.0, kFp16, 64, 65504.0, kInf},
      {456.0, kFp8E4M3, 64, 448.0, 448.0},
      {5.0, kFp4E2M1, 128, 4.0, 6.0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.x);
    for (const double sign : {1.0, -1.0}) {
      int up = 0;
      for (std::uint64_t i = 0; i < 256; ++i) {  // every value of the top 8 bits, once
        const Rounded r =
            round_to_format(sign * c.x, c.format, RoundingMode::sr, (i << 56) | 0xABCDEF);
        const bool high = r.value == sign * c.high && (c.high != c.low || r.overflow);
        REQUIRE((high || r.value == sign * c.low));
        up += high ? 1 : 0;
      }
      // 0xABCDEF in the low bits never turns r < k 2^56 around.
      CHECK(up == c.up_of_256);
    }
  }
  // Fewer than 2^-64 of a quantum: nothing that 64 bits could decide.
  CHECK(round_to_format(0x1p-100, kFp16, RoundingMode::sr, 0).value == 0.0);
  // One part in 2^40.
  CHECK(round_to_format(0x1p-64, kFp16, RoundingMode::sr, (1ULL << 24) - 1).value == 0x1p-24);
  CHECK(round_to_format(0x1p-64, kFp16, RoundingMode::sr, 1ULL << 24).value == 0.0);
}

TEST_CASE("stochastic rounding is unbiased over random integers") {
  std::mt19937_64 random(7);
  constexpr int kN = 100000;
  const double x = 1.0 + 0.3 * 0x1p-7;
  const double p = (x - 1.0) / 0x1p-7;
  int up = 0;
  for (int i = 0; i < kN; ++i)
    up += round_to_format(x, kBf16, RoundingMode::sr, random()).value > 1.0 ? 1 : 0;
  CHECK(std::fabs(up - kN * p) < 5.0 * std::sqrt(kN * p * (1 - p)));
}

TEST_CASE("an exact value with more digits than fp64 holds is rounded once") {
  // 2^-25 is a tie and goes to zero; anything more, however small, goes up.
  const std::uint64_t top = std::uint64_t{1} << 63;
  CHECK(round_to_format(ExactValue{false, top, -25 - 63, false}, kFp16).value == 0.0);
  CHECK(round_to_format(ExactValue{false, top, -25 - 63, true}, kFp16).value == 0x1p-24);
  // fp64's own tie: 1 + 2^-53.
  CHECK(round_to_format(ExactValue{false, top | (1U << 10), -63, false}, kFp64).value == 1.0);
  CHECK(round_to_format(ExactValue{false, top | (1U << 10), -63, true}, kFp64).value ==
        1.0 + 0x1p-52);
  CHECK(round_to_format(ExactValue{true, top, 5000, true}, kFp64).value == -kInf);
  CHECK(round_to_format(ExactValue{false, top, -5000, true}, kFp64, RoundingMode::ru).value ==
        0x1p-1074);
  CHECK(round_to_format(ExactValue{true, 3, -1, false}, kFp32).value == -1.5);
  CHECK_THROWS_AS(round_to_format(ExactValue{false, 1, 0, true}, kFp16), Error);
  CHECK_THROWS_AS(round_to_format(ExactValue{false, 0, 0, true}, kFp16), Error);
}

TEST_CASE("custom formats: parsed, named, checked") {
  const Format f = parse_format("p=5,emin=-6,emax=7");
  CHECK(f == Format{5, -6, 7, true, true, false});
  CHECK(format_name(f) == "p=5,emin=-6,emax=7");
  CHECK(f.max_finite() == 248.0);
  CHECK(f.width() == 9);
  const Format g = parse_format("emax=8,p=4,emin=-6,infinities=no,saturates=yes");
  CHECK(g == kFp8E4M3);
  const Format odd = parse_format("p=10,emin=-20,emax=20");
  CHECK_FALSE(odd.has_layout());
  CHECK(round_to_format(1e9, odd).value == kInf);
  CHECK(round_to_format(0.1, odd).value == 0x1.998p-4);
  CHECK_THROWS_WITH_AS(encode(1.0, odd), "[encode] p=10,emin=-20,emax=20 has no bit layout", Error);
  CHECK(parse_format(format_name(Format{2, -1073, 1023})).min_subnormal() == 0x1p-1074);

  const auto refused = [](const char* text, const char* part) {
    CAPTURE(text);
    try {
      parse_format(text);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
  };
  refused("fp15", "unknown format 'fp15'");
  refused("", "unknown format ''");
  refused("p=4", "lacks emin");
  refused("p=4,emin=-6", "lacks emax");
  refused("p=1,emin=-6,emax=7", "p = 1");
  refused("p=54,emin=-6,emax=7", "p = 54");
  refused("p=4,emin=8,emax=7", "emin = 8 above emax = 7");
  refused("p=4,emin=-6,emax=1024", "emax = 1024");
  refused("p=4,emin=-1072,emax=0", "emin = -1072");
  refused("p=4,emin=-2147483648,emax=0", "emin = -2147483648");
  refused("p=4,emin=-6,emax=99999999999", "an integer expected");
  refused("p=4x,emin=-6,emax=7", "p = '4x'");
  refused("p=4,p=4,emin=-6,emax=7", "given twice");
  refused("p=4,emin=-6,emax=7,bias=3", "unknown field 'bias'");
  refused("p=4,,emin=-6,emax=7", "KEY=VALUE");
  refused("p=4,emin=-6,emax=7,nan=no", "infinities without NaN");
  refused("p=4,emin=-6,emax=7,nan=no,infinities=no", "can only saturate");
  refused("p=4,emin=-6,emax=7,nan=maybe", "yes or no");

  CHECK_THROWS_AS(encode(1.0 + 0x1p-20, kFp16), Error);
  CHECK_THROWS_AS(encode(70000.0, kFp16), Error);
  CHECK_THROWS_AS(encode(kInf, kFp8E4M3), Error);
  CHECK_THROWS_AS(encode(std::nan(""), kFp4E2M1), Error);
  CHECK_THROWS_AS(decode(0x100, kFp8E4M3), Error);
  CHECK(parse_rounding_mode("ru") == RoundingMode::ru);
  CHECK_THROWS_AS(parse_rounding_mode("up"), Error);
}
