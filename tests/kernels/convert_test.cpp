#include "kernels/base/convert.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/format.h"

using namespace roundoff;

namespace {

template <class T>
ConstView view(const std::vector<T>& v) {
  return {v.data(), dtype_of<T>, Shape{static_cast<std::int64_t>(v.size())}};
}
template <class T>
View view(std::vector<T>& v) {
  return {v.data(), dtype_of<T>, Shape{static_cast<std::int64_t>(v.size())}};
}

}  // namespace

TEST_CASE("every fp16 and bf16 pattern survives widening and narrowing, bulk equal to scalar") {
  std::vector<Half> h(65536);
  std::vector<BFloat16> b(65536);
  for (std::size_t i = 0; i < 65536; ++i) {
    h[i] = Half::from_bits(static_cast<std::uint16_t>(i));
    b[i] = BFloat16::from_bits(static_cast<std::uint16_t>(i));
  }
  const auto check = [](const auto& from, std::uint16_t infinity, std::uint16_t quiet) {
    const auto n = static_cast<std::int64_t>(from.size());
    std::vector<float> f(from.size());
    std::vector<double> d(from.size());
    widen(view(from), 0, n, f.data());
    widen(view(from), 0, n, d.data());
    auto from_f = from;
    auto from_d = from;
    narrow(f.data(), n, view(from_f), 0);
    narrow(d.data(), n, view(from_d), 0);
    for (std::size_t i = 0; i < from.size(); ++i) {
      CAPTURE(i);
      const bool nan = (i & 0x7FFF) > infinity;
      const auto want = static_cast<std::uint16_t>(nan ? from[i].bits | quiet : from[i].bits);
      using T = std::remove_cvref_t<decltype(from[i])>;
      REQUIRE(std::isnan(f[i]) == nan);
      REQUIRE(from_f[i].bits == want);
      REQUIRE(from_d[i].bits == want);
      REQUIRE(T(f[i]).bits == want);
      REQUIRE(T(d[i]).bits == want);
    }
  };
  check(h, 0x7C00, 0x0200);
  check(b, 0x7F80, 0x0040);
}

TEST_CASE("fp32 and fp64 bulk conversions, subnormal numbers among others") {
  std::mt19937_64 random(3);
  std::vector<float> f;
  std::vector<double> d;
  for (int i = 0; i < 5000; ++i) {
    f.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    d.push_back(std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                           static_cast<int>(random() % 300) - 160));
  }
  for (const double x : {0.0, -0.0, 0x1p-149, 0x1p-150, 0x1.8p-150, 0x1.FFFFFFp-127, 0x1p128})
    d.push_back(x);
  std::vector<double> wide(f.size());
  widen(view(f), 0, static_cast<std::int64_t>(f.size()), wide.data());
  for (std::size_t i = 0; i < f.size(); ++i) {
    const auto want = static_cast<double>(f[i]);
    REQUIRE(std::bit_cast<std::uint64_t>(wide[i]) == std::bit_cast<std::uint64_t>(want));
  }
  std::vector<float> by_widen(d.size());
  std::vector<float> by_narrow(d.size());
  widen(view(d), 0, static_cast<std::int64_t>(d.size()), by_widen.data());
  narrow(d.data(), static_cast<std::int64_t>(d.size()), view(by_narrow), 0);
  for (std::size_t i = 0; i < d.size(); ++i) {
    const auto want = std::bit_cast<std::uint32_t>(static_cast<float>(d[i]));
    REQUIRE(std::bit_cast<std::uint32_t>(by_widen[i]) == want);
    REQUIRE(std::bit_cast<std::uint32_t>(by_narrow[i]) == want);
  }
}

TEST_CASE("integers convert as C++ does; 64-bit ones are rounded once") {
  const std::vector<std::uint8_t> u = {0, 1, 255};
  const std::vector<std::int32_t> i = {-2147483647 - 1, -1, 16777217};
  std::vector<float> f(3);
  convert(Ref{}, view(u), view(f));
  CHECK(f == std::vector<float>{0.0F, 1.0F, 255.0F});
  convert(Ref{}, view(i), view(f));
  CHECK(f == std::vector<float>{-2147483648.0F, -1.0F, 16777216.0F});
  std::vector<double> d(3);
  widen(view(i), 1, 2, d.data());
  CHECK(d[1] == 16777217.0);

  // 2^60 + 2^52 is a tie in bf16; fp64 cannot see the 1 that breaks it.
  const std::int64_t tie = (std::int64_t{1} << 60) + (std::int64_t{1} << 52);
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> w = {tie,  tie + 1, -tie - 1, tie - 1, kMin,
                                       kMax, 0,       65519,    65520};
  std::vector<BFloat16> b(w.size());
  convert(Ref{}, view(w), view(b));
  const float step = 0x1p53F;
  CHECK(static_cast<float>(b[0]) == 0x1p60F);
  CHECK(static_cast<float>(b[1]) == 0x1p60F + step);
  CHECK(static_cast<float>(b[2]) == -0x1p60F - step);
  CHECK(static_cast<float>(b[3]) == 0x1p60F);
  CHECK(static_cast<float>(b[4]) == -0x1p63F);
  CHECK(static_cast<float>(b[5]) == 0x1p63F);
  CHECK(b[6].bits == 0);
  std::vector<float> g(w.size());
  convert(Ref{}, view(w), view(g));
  for (std::size_t k = 0; k < w.size(); ++k) CHECK(g[k] == static_cast<float>(w[k]));
  std::vector<Half> h(w.size());
  convert(Ref{}, view(w), view(h));
  CHECK(h[0].bits == 0x7C00);
  CHECK(h[2].bits == 0xFC00);
  CHECK(h[7].bits == 0x7BFF);
  CHECK(h[8].bits == 0x7C00);
  std::vector<double> e(w.size());
  convert(Ref{}, view(w), view(e));
  for (std::size_t k = 0; k < w.size(); ++k) CHECK(e[k] == static_cast<double>(w[k]));
}

TEST_CASE("offsets and ragged sizes touch what they name and nothing else") {
  for (std::int64_t n = 0; n <= 20; ++n) {
    std::vector<float> from(static_cast<std::size_t>(n));
    for (std::size_t k = 0; k < from.size(); ++k) from[k] = static_cast<float>(k) + 0.5F;
    std::vector<Half> to(30, Half::from_bits(0xABCD));
    narrow(from.data(), n, view(to), 5);
    for (std::size_t k = 0; k < to.size(); ++k) {
      const bool inside = k >= 5 && k < 5 + from.size();
      CHECK(to[k].bits == (inside ? Half(static_cast<float>(k - 5) + 0.5F).bits : 0xABCD));
    }
    std::vector<float> back(static_cast<std::size_t>(n) + 1, -1.0F);
    widen(view(to), 5, n, back.data());
    for (std::size_t k = 0; k < from.size(); ++k) CHECK(back[k] == from[k]);
    CHECK(back.back() == -1.0F);
  }
}

TEST_CASE("whole-view conversion: more than a chunk, same type, accumulate, unwanted") {
  const std::vector<float> from(1500, 1.0F + 0x1p-12F);
  std::vector<Half> h(from.size());
  convert(Ref{}, view(from), view(h));
  for (const Half x : h) REQUIRE(x.bits == 0x3C00);
  std::vector<float> copy(from.size());
  convert(Ref{}, view(from), view(copy));
  CHECK(copy == from);
  convert(Ref{}, view(h), Out(view(copy), Write::accumulate));
  for (const float x : copy) REQUIRE(x == 2.0F + 0x1p-12F);
  std::vector<double> sum(from.size(), 1.0);
  convert(Ref{}, view(from), Out(view(sum), Write::accumulate));
  for (const double x : sum) REQUIRE(x == 2.0 + 0x1p-12);
  // fp64 += is formed in fp64 and rounded once into fp32.
  const std::vector<double> small(1, 0x1p-24 + 0x1p-50);
  std::vector<float> one(1, 1.0F);
  convert(Ref{}, view(small), Out(view(one), Write::accumulate));
  CHECK(one[0] == 1.0F + 0x1p-23F);
  convert(Ref{}, view(small), Out());
  narrow(small.data(), 1, Out(), 0);
  const std::vector<float> empty;
  std::vector<Half> nothing;
  convert(Ref{}, view(empty), view(nothing));
}

TEST_CASE("conversions refuse bad requests before they write") {
  const std::vector<float> from(4, 1.0F);
  std::vector<Half> h(3, Half::from_bits(7));
  CHECK_THROWS_WITH_AS(convert(Ref{}, view(from), view(h)),
                       "[convert] shapes [4] and [3] differ in size", Error);
  h.resize(4, Half::from_bits(7));
  CHECK_THROWS_WITH_AS(convert(Ref{}, view(from), Out(view(h), Write::accumulate)),
                       "[convert] cannot accumulate into fp16; fp32 or fp64 expected", Error);
  CHECK_THROWS_AS(narrow(from.data(), 4, Out(view(h), Write::accumulate), 0), Error);
  CHECK(h[0].bits == 7);
  std::vector<std::int32_t> i(4, 9);
  CHECK_THROWS_WITH_AS(convert(Ref{}, view(from), view(i)),
                       "[convert] cannot write int32; a floating type expected", Error);
  CHECK_THROWS_AS(narrow(from.data(), 4, view(i), 0), Error);
  CHECK(i[0] == 9);
  const std::vector<float> empty;
  std::vector<std::int32_t> none;
  CHECK_THROWS_AS(convert(Ref{}, view(empty), view(none)), Error);
}

TEST_CASE("tf32 is the format tf32, NaN and both ends included") {
  std::mt19937_64 random(5);
  std::vector<float> x = {0.0F,
                          -0.0F,
                          0x1p-149F,
                          -0x1p-137F,
                          0x1.002p0F,
                          0x1.006p0F,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::infinity()};
  for (int k = 0; k < 20000; ++k)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  std::vector<float> y = x;
  round_to_tf32(y.data(), static_cast<std::int64_t>(y.size()));
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double want = round_to_format(x[k], kTf32).value;
    if (std::isnan(x[k])) {
      REQUIRE(std::isnan(y[k]));
      REQUIRE(std::signbit(y[k]) == std::signbit(x[k]));
    } else {
      REQUIRE(std::bit_cast<std::uint64_t>(static_cast<double>(y[k])) ==
              std::bit_cast<std::uint64_t>(want));
    }
    REQUIRE((std::bit_cast<std::uint32_t>(y[k]) & 0x1FFFU) == 0);
  }
  CHECK(std::isinf(y[6]));
  const auto payload = std::bit_cast<float>(0x7F800001U);
  std::array<float, 1> nan = {payload};
  round_to_tf32(nan.data(), 1);
  CHECK(std::isnan(nan[0]));
}

TEST_CASE("case 137 [BUILD] the release build still sees what is not finite") {
  const volatile float values[] = {std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::quiet_NaN(), 1.0F,
                                   -std::numeric_limits<float>::infinity()};
  int seen = 0;
  for (const float v : values) seen += std::isfinite(v) ? 0 : 1;
  CHECK(seen == 3);
}
