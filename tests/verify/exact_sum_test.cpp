// The long accumulator: exact where numbers are known, free of order, rounded once.
#include "verify/exact_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace roundoff;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float sum_of(std::initializer_list<float> terms) {
  ExactSum sum;
  for (const float term : terms) sum.add(term);
  return sum.value();
}

// Any finite fp32 number, all exponents alike.
float any_float(std::mt19937& random) {
  for (;;) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) return value;
  }
}

}  // namespace

TEST_CASE("exact sums: nothing is lost on the way") {
  CHECK(sum_of({}) == 0.0F);
  CHECK_FALSE(std::signbit(sum_of({-0.0F})));
  CHECK(sum_of({1e30F, 1.0F, -1e30F}) == 1.0F);
  CHECK(sum_of({0x1p127F, 0x1p-149F, -0x1p127F}) == 0x1p-149F);
  CHECK(sum_of({-3.0F, 1.0F}) == -2.0F);
  ExactSum square;
  square.add_product(16777215.0F, 16777215.0F);
  square.add_product(-16777216.0F, 16777214.0F);
  CHECK(square.value() == 1.0F);
  // Far beyond fp32's range, and back.
  ExactSum large;
  for (int i = 0; i < 1000; ++i) large.add_product(0x1p127F, 0x1p127F);
  large.add(7.0F);
  CHECK(large.value() == kInfinity);
  for (int i = 0; i < 1000; ++i) large.add_product(-0x1p127F, 0x1p127F);
  CHECK(large.value() == 7.0F);
}

TEST_CASE("exact sums are rounded once, to nearest, ties to even") {
  CHECK(sum_of({0x1p24F, 1.0F}) == 0x1p24F);                    // a tie, to even
  CHECK(sum_of({0x1p24F, 2.0F, 1.0F}) == 0x1p24F + 4.0F);       // a tie, to even
  CHECK(sum_of({0x1p24F, 1.0F, 0x1p-149F}) == 0x1p24F + 2.0F);  // just above a tie
  CHECK(sum_of({0x1p24F, 1.0F, -0x1p-149F}) == 0x1p24F);        // just below
  CHECK(sum_of({-0x1p24F, -1.0F, -0x1p-149F}) == -0x1p24F - 2.0F);
  ExactSum tiny;
  tiny.add_product(0x1p-149F, 0.5F);
  CHECK(tiny.value() == 0.0F);  // half the smallest subnormal: to even
  tiny.add_product(0x1p-149F, 0x1p-149F);
  CHECK(tiny.value() == 0x1p-149F);
  CHECK(tiny.to_double() == 0x1p-150);
  constexpr float kLargest = std::numeric_limits<float>::max();
  CHECK(sum_of({kLargest, 0x1p102F}) == kLargest);
  CHECK(sum_of({kLargest, 0x1p103F}) == kInfinity);  // a tie at the end of the range
}

TEST_CASE("exact sums of infinities and NaN") {
  CHECK(sum_of({kInfinity, -1e30F}) == kInfinity);
  CHECK(sum_of({-kInfinity, 1.0F}) == -kInfinity);
  CHECK(std::isnan(sum_of({kInfinity, -kInfinity})));
  CHECK(std::isnan(sum_of({std::nanf(""), 1.0F})));
  ExactSum zero;
  zero.add_product(0.0F, kInfinity);
  CHECK(std::isnan(zero.value()));
}

TEST_CASE("exact sums do not depend on the order of the terms, nor on cuts") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    CAPTURE(trial);
    std::vector<std::pair<float, float>> terms(1 + random() % 60);
    for (auto& [a, b] : terms) a = any_float(random), b = any_float(random);
    // Some cancel to the last bit.
    if (terms.size() > 2) terms[1] = {-terms[0].first, terms[0].second};
    ExactSum whole;
    for (const auto& [a, b] : terms) whole.add_product(a, b);
    std::shuffle(terms.begin(), terms.end(), random);
    const std::size_t cut = random() % (terms.size() + 1);
    ExactSum left, right;
    for (std::size_t i = 0; i < terms.size(); ++i)
      (i < cut ? left : right).add_product(terms[i].first, terms[i].second);
    left.add(right);
    CHECK(std::bit_cast<std::uint32_t>(left.value()) ==
          std::bit_cast<std::uint32_t>(whole.value()));
    CHECK(left.to_double() == whole.to_double());
  }
}

TEST_CASE("exact sums agree with fp64 where that is exact") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 200; ++trial) {
    ExactSum sum;
    double expected = 0;
    // Products of 11 bits by 11 bits within 2^20 of each other: multiples of 2^-30 below 2^22.
    for (int i = 0; i < 100; ++i) {
      const auto pick = [&] {
        return std::ldexp(static_cast<float>(static_cast<int>(random() % 4095) - 2047), -15);
      };
      const float a = pick(), b = pick();
      sum.add_product(a, b);
      expected += static_cast<double>(a) * static_cast<double>(b);
    }
    CHECK(sum.to_double() == expected);
    CHECK(sum.value() == static_cast<float>(expected));
  }
}
