#include "verify/compare.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace roundoff;
using doctest::Approx;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
}  // namespace

TEST_CASE("overflow thresholds and spacings follow from the format") {
  CHECK(overflow_threshold(kFp16) == 65520);
  CHECK(overflow_threshold(kFp32) == 0x1.ffffffp127);
  CHECK(overflow_threshold(kBf16) == 0x1.ffp127);
  CHECK(ulp(1, kFp16) == 0x1p-10);
  CHECK(ulp(-1.99, kFp32) == 0x1p-23);
  CHECK(ulp(0, kFp16) == 0x1p-24);
  CHECK(ulp(0x1p-15, kFp16) == 0x1p-24);
  CHECK(ulp(1e9, kFp16) == 32);  // beyond the range: the largest binade's
}

TEST_CASE("non-finite values pass only where they are due") {
  struct Case {
    double actual, reference, tolerance;
    bool right;
  };
  const Case cases[] = {
      {1, 1, 0, true},           {1, 1.5, 0.5, true},       {1, 1.5, 0.49, false},
      {kNaN, kNaN, 0, true},     {kNaN, 1, kInf, false},    {1, kNaN, kInf, false},
      {kInf, kNaN, kInf, false}, {kInf, kInf, 0, true},     {-kInf, kInf, 0, false},
      {1, kInf, 1, false},       {kInf, 70000, 0, true},    {-kInf, 70000, 0, false},
      {kInf, -70000, 0, false},  {-kInf, -70000, 0, true},  {kInf, 65519, 0, false},
      {kInf, 65519, 1, true},    {65504, 70000, 32, false},  // saturated instead of overflowed
      {1, 1.5, kNaN, false},
  };
  for (const Case& c : cases) {
    INFO(c.actual, " against ", c.reference, " +- ", c.tolerance);
    CHECK(judge(c.actual, c.reference, c.tolerance, kFp16) == c.right);
  }
}

TEST_CASE("compare: figures by hand") {
  const float values[] = {1.0F, 2.0F, -4.0F, 0.0F};
  const ConstView view{values, DType::fp32, {4}};
  const std::vector<double> reference{1, 2 + 0x1p-20, -4, 0x1p-30}, tolerance{0, 0x1p-19, 0, 1};
  const Comparison c = compare(view, reference, tolerance);
  CHECK(c.max_abs == 0x1p-20);
  CHECK(c.max_rel == 1);
  CHECK(c.max_ulp == Approx(0x1p23 / 1));  // 2^-30 is 2^23 spacings of 2^-53
  CHECK(c.rms == Approx(0x1p-21));
  CHECK(c.bound_ratio == 0.5);
  CHECK(c.holds);
  CHECK(c.worst == 1);
  CHECK(c.worst_tolerance == 0x1p-19);
}

TEST_CASE("compare: what should be exact, or finite, breaks the bound") {
  const Half values[] = {Half(1.0F), Half::from_bits(0x7C00)};
  const ConstView view{values, DType::fp16, {2}};
  const std::vector<double> zero{0, 0};
  CHECK_FALSE(compare(view, std::vector<double>{1.5, kInf}, zero).holds);
  CHECK(compare(view, std::vector<double>{1.5, kInf}, zero).bound_ratio == kInf);
  CHECK_FALSE(compare(view, std::vector<double>{1, 3}, std::vector<double>{1, 1}).holds);
  CHECK(compare(view, std::vector<double>{1, kInf}, zero).holds);
  CHECK(compare({values, DType::fp16, {0}}, {}, {}).worst == -1);
  CHECK_THROWS_AS(compare(view, zero, std::vector<double>{0}), Error);
  const std::int64_t integer = 0;
  CHECK_THROWS_AS(compare({&integer, DType::i64, {1}}, std::vector<double>{0}, {}), Error);
}
