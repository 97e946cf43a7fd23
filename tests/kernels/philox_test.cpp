#include "kernels/base/philox.h"

#include <doctest/doctest.h>

#include <set>
#include <tuple>

using namespace roundoff;

namespace {

constexpr bool equal(const PhiloxBlock& a, const PhiloxBlock& b) {
  for (int i = 0; i < 4; ++i)
    if (a.word[i] != b.word[i]) return false;
  return true;
}

}  // namespace

// The known answers that the authors publish for philox4x32 with ten rounds.
static_assert(equal(philox4x32({{0, 0, 0, 0}}, 0, 0),
                    {{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}}));
static_assert(equal(philox4x32({{~0U, ~0U, ~0U, ~0U}}, ~0U, ~0U),
                    {{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}}));
static_assert(equal(philox4x32({{0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}}, 0xa4093822U,
                               0x299f31d0U),
                    {{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}}));

TEST_CASE("the layout is what the header says") {
  const PhiloxStream stream{0x299f31d0a4093822U, 0x13198a2eU, 0x03707344U};
  const std::uint64_t element = std::uint64_t{0x243f6a88U} * 4;
  CHECK(stream.bits(0x85a308d3U, element) == 0xd16cfe09U);
  CHECK(stream.bits(0x85a308d3U, element + 1) == 0x94fdccebU);
  CHECK(stream.bits(0x85a308d3U, element + 2) == 0x5001e420U);
  CHECK(stream.bits(0x85a308d3U, element + 3) == 0x24126ea1U);
}

TEST_CASE("different places give different numbers") {
  std::set<std::uint32_t> seen;
  for (const std::uint64_t seed : {0U, 1U})
    for (const std::uint32_t step : {0U, 1U})
      for (const std::uint32_t tensor : {0U, 1U})
        for (const std::uint32_t sample : {0U, 1U})
          for (std::uint64_t e = 0; e < 8; ++e)
            seen.insert(PhiloxStream{seed, step, tensor}.bits(sample, e));
  CHECK(seen.size() == 128);  // 32-bit words: 128 of them collide with probability 2e-6
}

TEST_CASE("numbers beyond the layout are refused") {
  CHECK(philox_stream(7, 0xFFFFFFFFU, 3).step == 0xFFFFFFFFU);
  CHECK_THROWS_AS(philox_stream(7, std::uint64_t{1} << 32, 0), Error);
  CHECK_THROWS_AS(philox_stream(7, 0, std::uint64_t{1} << 32), Error);
}

TEST_CASE("uniform numbers lie in [0, 1), with the moments they should have") {
  CHECK(uniform(0) == 0.0F);
  CHECK(uniform(0xFFFFFFFFU) == 1.0F - 0x1p-24F);
  CHECK(uniform(0x80000000U) == 0.5F);
  const int n = 100000;
  const PhiloxStream stream{1, 2, 3};
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double x = static_cast<double>(uniform(stream.bits(0, static_cast<std::uint64_t>(i))));
    sum += x;
    squares += x * x;
  }
  // Five standard errors: deviations of x and of x^2 are sqrt(1/12) and sqrt(4/45).
  CHECK(std::abs(sum / n - 0.5) <= 5 * std::sqrt(1.0 / 12.0 / n));
  CHECK(std::abs(squares / n - 1.0 / 3.0) <= 5 * std::sqrt(4.0 / 45.0 / n));
}

TEST_CASE("normal numbers: extremes, pairing and moments") {
  CHECK(normal_pair(0xFFFFFFFFU, 0).first == 0.0);
  CHECK(normal_pair(0, 0).first == doctest::Approx(std::sqrt(2 * 32 * std::log(2.0))));
  const PhiloxStream stream{1, 2, 3};
  const PhiloxBlock block = stream.block(9, 5);
  const NormalPair low = normal_pair(block.word[0], block.word[1]);
  const NormalPair high = normal_pair(block.word[2], block.word[3]);
  CHECK(normal(stream, 9, 20) == low.first);
  CHECK(normal(stream, 9, 21) == low.second);
  CHECK(normal(stream, 9, 22) == high.first);
  CHECK(normal(stream, 9, 23) == high.second);
  const int n = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = normal(stream, 0, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Variances of x, x^2 and x^4: 1, 2 and 96.
  CHECK(std::abs(sum / n) <= 5 * std::sqrt(1.0 / n));
  CHECK(std::abs(squares / n - 1.0) <= 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(fourth / n - 3.0) <= 5 * std::sqrt(96.0 / n));
}
