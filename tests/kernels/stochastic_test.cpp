// Stochastic rounding to the 16-bit types: bits, probabilities and the optimizer's stream.
#include "kernels/base/stochastic.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/base/format.h"
#include "kernels/step/optimizer.h"

using namespace roundoff;

namespace {

template <class T>
constexpr Format kFormat = std::is_same_v<T, Half> ? kFp16 : kBf16;

template <class T>
void check_bits(std::uint32_t bits, std::uint32_t random) {
  const auto value = std::bit_cast<float>(bits);
  T rounded;
  round_stochastic(value, random, rounded);
  const Rounded expected = round_to_format(value, kFormat<T>, RoundingMode::sr,
                                           static_cast<std::uint64_t>(random) << 32);
  const auto pattern = static_cast<std::uint16_t>(encode(expected.value, kFormat<T>));
  if (rounded.bits == pattern) return;
  CAPTURE(bits);
  CAPTURE(random);
  CHECK(rounded.bits == pattern);
}

// Of 2^16 evenly spread numbers, those that round `value` away from zero.
template <class T>
std::int64_t times_up(float value, const T& below) {
  std::int64_t up = 0;
  for (std::uint32_t r = 0; r < 0x10000U; ++r) {
    T rounded;
    round_stochastic(value, r << 16, rounded);
    up += rounded.bits != below.bits;
  }
  return up;
}

}  // namespace

TEST_CASE_TEMPLATE("stochastic rounding has the bits of round_to_format", T, Half, BFloat16) {
  std::mt19937 random(1);
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
    for (int i = 0; i < 400; ++i) {
      std::uint32_t fraction = static_cast<std::uint32_t>(random()) & 0x7FFFFFU;
      if (i % 4 == 0) fraction = 0x7FFFFFU >> (i % 24) << (i % 7);
      if (i % 4 == 1) fraction = i % 8 == 1 ? 0 : 1U << (i % 23);
      const std::uint32_t bits =
          (i % 2 == 0 ? 0U : 0x80000000U) | exponent << 23 | (fraction & 0x7FFFFFU);
      const std::uint32_t extremes[] = {0U, 0xFFFFFFFFU, 0x80000000U,
                                        static_cast<std::uint32_t>(random())};
      check_bits<T>(bits, extremes[(i / 4) % 4]);
    }
}

TEST_CASE("stochastic rounding goes up as often as the discarded fraction says") {
  // 1 + 3/8 of an ulp, and 5/16 of the smallest subnormal; a number of the format stays.
  CHECK(times_up(1.0F + 0.375F * 0x1p-7F, BFloat16(1.0F)) == 0x10000 * 3 / 8);
  CHECK(times_up(-1.0F - 0.375F * 0x1p-10F, Half(-1.0F)) == 0x10000 * 3 / 8);
  CHECK(times_up(0.3125F * 0x1p-24F, Half(0.0F)) == 0x10000 * 5 / 16);
  CHECK(times_up(0x1p-24F, Half(0x1p-24F)) == 0);
  CHECK(times_up(3.0F, BFloat16(3.0F)) == 0);
  // Between the largest number and where infinity would stand: half an ulp above 65504.
  CHECK(times_up(65520.0F, Half(65504.0F)) == 0x10000 / 2);
}

TEST_CASE("an optimizer's stochastic rounding: keyed by seed, parameter, update and element") {
  constexpr std::int64_t n = 3001;
  const auto update = [&](std::uint64_t seed, bool adam, int steps) {
    std::vector<BFloat16> w[2];
    std::vector<float> g(n, 1.0F), m(2 * n), v(2 * n);
    std::int64_t counts[2] = {0, 0};
    std::vector<OptimizerChunk> chunks;
    for (std::size_t k = 0; k < 2; ++k) {
      w[k].assign(n, BFloat16(1.0F));
      OptimizerChunk c;
      c.parameter = View{w[k].data(), DType::bf16, {n}};
      c.gradient = ConstView(View{g.data(), DType::fp32, {n}});
      c.first_moment = m.data() + k * n;
      c.second_moment = v.data() + k * n;
      c.steps = &counts[k];
      chunks.push_back(c);
    }
    const UpdateRounding rounding{true, seed};
    for (int i = 0; i < steps; ++i) {
      if (adam)
        adam_step(Ref{}, {.lr = 0x1p-12, .rounding = rounding}, {}, chunks);
      else
        sgd_step(Ref{}, {.lr = 0x1p-12, .rounding = rounding}, {}, chunks);
    }
    std::vector<std::uint16_t> bits;
    for (const auto& values : w)
      for (const BFloat16 x : values) bits.push_back(x.bits);
    return bits;
  };
  for (const bool adam : {false, true}) {
    const std::vector<std::uint16_t> one = update(1, adam, 1);
    CHECK(one == update(1, adam, 1));
    CHECK(one != update(2, adam, 1));
    CHECK(one != update(1, adam, 2));
    CHECK(!std::equal(one.begin(), one.begin() + n, one.begin() + n));
  }
  // 1 - 2^-12 is 1/16 of bf16's ulp below 1 away from 1; element by element as the layout says.
  const std::vector<std::uint16_t> got = update(9, false, 1);
  for (std::uint32_t parameter = 0; parameter < 2; ++parameter)
    for (std::uint32_t e = 0; e < n; ++e) {
      const std::uint32_t random = PhiloxStream{9, 1, kRoundingTensor}.bits(parameter, e);
      BFloat16 expected;
      round_stochastic(1.0F - 0x1p-12F, random, expected);
      REQUIRE(got[parameter * n + e] == expected.bits);
    }
}
