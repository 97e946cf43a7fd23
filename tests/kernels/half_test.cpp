// fp16 and bf16 storage: widening of every pattern, narrowing at every midpoint and its neighbours.
#include "kernels/base/half.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/convert.h"
#include "kernels/base/format.h"
#include "tests/kernels/narrowing.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

using namespace roundoff;

namespace {

// The value of a pattern of `fraction_bits` and bias, by the definition and with plain arithmetic.
double by_definition(std::uint32_t pattern, int fraction_bits, int bias) {
  const double sign = (pattern & 0x8000U) != 0 ? -1.0 : 1.0;
  const auto field = static_cast<int>((pattern & 0x7FFFU) >> fraction_bits);
  const auto fraction = static_cast<double>(pattern & ((1U << fraction_bits) - 1));
  const double steps = fraction + (field == 0 ? 0.0 : std::ldexp(1.0, fraction_bits));
  return sign * std::ldexp(steps, (field == 0 ? 1 : field) - bias - fraction_bits);
}

template <class T>
struct Layout;
template <>
struct Layout<Half> {
  static constexpr int fraction_bits = 10, bias = 15;
  static constexpr std::uint32_t infinity = 0x7C00;
};
template <>
struct Layout<BFloat16> {
  static constexpr int fraction_bits = 7, bias = 127;
  static constexpr std::uint32_t infinity = 0x7F80;
};

// Inputs around every midpoint between neighbouring numbers (the overflow threshold included), in
// fp32 or fp64, and the pattern each must give.
template <class T, class From>
void midpoints(std::vector<From>& from, std::vector<std::uint16_t>& want) {
  using L = Layout<T>;
  constexpr From kTop = std::numeric_limits<From>::infinity();
  for (std::uint32_t i = 0; i < L::infinity; ++i) {
    const double low = by_definition(i, L::fraction_bits, L::bias);
    const double high = by_definition(i + 1, L::fraction_bits, L::bias);
    const auto middle = static_cast<From>((low + high) / 2);
    REQUIRE(static_cast<double>(middle) == (low + high) / 2);
    const auto even = (i & 1) == 0 ? i : i + 1;
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const auto push = [&](From value, std::uint32_t pattern) {
        from.push_back(sign != 0 ? -value : value);
        want.push_back(static_cast<std::uint16_t>(pattern | sign));
      };
      push(static_cast<From>(low), i);
      push(std::nextafter(middle, From{0}), i);
      push(middle, even);
      push(std::nextafter(middle, kTop), i + 1);
    }
  }
}

template <class T, class From>
void check_midpoints() {
  std::vector<From> from;
  std::vector<std::uint16_t> want;
  midpoints<T>(from, want);
  const auto n = static_cast<std::int64_t>(from.size());
  REQUIRE(n == 8 * static_cast<std::int64_t>(Layout<T>::infinity));
  std::vector<T> bulk(from.size());
  narrow(from.data(), n, View{bulk.data(), dtype_of<T>, Shape{n}}, 0);
  const Format format = format_of(dtype_of<T>);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t scalar = T(from[i]).bits;
    const std::uint64_t as_format = encode(round_to_format(from[i], format).value, format);
    if (scalar != want[i] || bulk[i].bits != want[i] || as_format != want[i]) {
      CAPTURE(from[i]);
      CHECK(scalar == want[i]);
      CHECK(bulk[i].bits == want[i]);
      CHECK(as_format == want[i]);
      return;  // one example is enough
    }
  }
}

template <class T>
void check_widening() {
  using L = Layout<T>;
  std::vector<T> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = T::from_bits(static_cast<std::uint16_t>(i));
  std::vector<float> f(all.size());
  std::vector<double> d(all.size());
  const ConstView view{all.data(), dtype_of<T>, Shape{65536}};
  widen(view, 0, 65536, f.data());
  widen(view, 0, 65536, d.data());
  for (std::uint32_t i = 0; i < 65536; ++i) {
    CAPTURE(i);
    const T x = all[i];
    const std::uint32_t magnitude = i & 0x7FFFU;
    double want = by_definition(i, L::fraction_bits, L::bias);
    if (magnitude == L::infinity)
      want = std::copysign(std::numeric_limits<double>::infinity(), want);
    if (magnitude > L::infinity) {
      REQUIRE(std::isnan(static_cast<float>(x)));
      REQUIRE(std::isnan(static_cast<double>(x)));
      REQUIRE(std::isnan(f[i]));
      REQUIRE(std::isnan(d[i]));
      REQUIRE(std::signbit(f[i]) == (i >= 0x8000U));
      continue;
    }
    const auto bits = std::bit_cast<std::uint64_t>(want);
    REQUIRE(std::bit_cast<std::uint64_t>(static_cast<double>(x)) == bits);
    REQUIRE(std::bit_cast<std::uint64_t>(d[i]) == bits);
    REQUIRE(std::bit_cast<std::uint32_t>(static_cast<float>(x)) ==
            std::bit_cast<std::uint32_t>(static_cast<float>(want)));
    REQUIRE(std::bit_cast<std::uint32_t>(f[i]) ==
            std::bit_cast<std::uint32_t>(static_cast<float>(x)));
  }
}

}  // namespace

TEST_CASE("every fp16 pattern widens to its value, to fp32 and fp64, scalar and bulk") {
  check_widening<Half>();
}
TEST_CASE("every bf16 pattern widens to its value, to fp32 and fp64, scalar and bulk") {
  check_widening<BFloat16>();
}
TEST_CASE("fp16 at every midpoint and both its neighbours, from fp32 and fp64") {
  check_midpoints<Half, float>();
  check_midpoints<Half, double>();
}
TEST_CASE("bf16 at every midpoint and both its neighbours, from fp32 and fp64") {
  check_midpoints<BFloat16, float>();
  check_midpoints<BFloat16, double>();
}

TEST_CASE("fp64 to fp16 rounds once, where going through fp32 would round twice") {
  // 1 + 2^-11 + 2^-40: fp32 drops the last term and leaves a tie.
  const double x = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  CHECK(Half(x).bits == 0x3C01);
  CHECK(Half(static_cast<float>(x)).bits == 0x3C00);
  CHECK(test::narrow_bulk<Half>(x) == 0x3C01);
  const double y = 1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  CHECK(BFloat16(y).bits == 0x3F81);
  CHECK(test::narrow_bulk<BFloat16>(y) == 0x3F81);
}

TEST_CASE("conversions are constant expressions") {
  static_assert(Half(1.0F).bits == 0x3C00);
  static_assert(BFloat16(-2.0).bits == 0xC000);
  static_assert(static_cast<float>(Half::from_bits(0x0001)) == 0x1p-24F);
  static_assert(static_cast<double>(BFloat16::from_bits(0x0001)) == 0x1p-133);
  static_assert(Half().bits == 0 && BFloat16().bits == 0);
}

#if defined(__SSE2__)
TEST_CASE("no conversion depends on FTZ and DAZ") {
  // What the subnormal numbers of every type become, as patterns: floating-point comparisons are
  // themselves subject to DAZ.
  const auto record = [] {
    std::vector<std::uint64_t> out;
    std::vector<float> f;
    std::vector<double> d;
    for (std::uint32_t i = 0; i < 0x00800000U; i += 0x3FFFU) {
      f.push_back(std::bit_cast<float>(i));
      f.push_back(std::bit_cast<float>(i | 0x80000001U));
    }
    for (int e = -160; e < -120; ++e)
      for (const std::uint64_t fraction : {0ULL, 1ULL, 0x8000000000000ULL, 0xFFFFFFFFFFFFFULL})
        d.push_back(std::bit_cast<double>((static_cast<std::uint64_t>(e + 1023) << 52) | fraction));
    d.push_back(std::bit_cast<double>(std::uint64_t{1}));
    d.push_back(std::bit_cast<double>(std::uint64_t{0x800FFFFFFFFFFFFF}));
    std::vector<Half> h(1024);
    std::vector<BFloat16> b(128);
    for (std::size_t i = 0; i < h.size(); ++i)
      h[i] = Half::from_bits(static_cast<std::uint16_t>(i));
    for (std::size_t i = 0; i < b.size(); ++i)
      b[i] = BFloat16::from_bits(static_cast<std::uint16_t>(i));

    const auto each = [&]<class From, class To>(const std::vector<From>& from, To) {
      std::vector<To> to(from.size());
      const auto n = static_cast<std::int64_t>(from.size());
      convert(Ref{}, {from.data(), dtype_of<From>, Shape{n}},
              View{to.data(), dtype_of<To>, Shape{n}});
      for (const To& t : to) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &t, sizeof(To));
        out.push_back(bits);
      }
    };
    const auto all = [&](const auto& from) {
      each(from, 0.0);
      each(from, 0.0F);
      each(from, Half{});
      each(from, BFloat16{});
    };
    all(f), all(d), all(h), all(b);
    for (const float x : f) {
      out.push_back(Half(x).bits);
      out.push_back(BFloat16(x).bits);
      for (const FormatRow& row : format_rows())
        for (const RoundingMode mode : {RoundingMode::rne, RoundingMode::ru, RoundingMode::sr})
          out.push_back(
              std::bit_cast<std::uint64_t>(round_to_format(x, row.format, mode, 1).value));
    }
    for (const double x : d) {
      out.push_back(Half(x).bits);
      out.push_back(BFloat16(x).bits);
      for (const FormatRow& row : format_rows()) {
        const double rounded = round_to_format(x, row.format).value;
        out.push_back(std::bit_cast<std::uint64_t>(rounded));
        out.push_back(encode(rounded, row.format));
        out.push_back(
            std::bit_cast<std::uint64_t>(decode(encode(rounded, row.format), row.format)));
        out.push_back(static_cast<std::uint64_t>(classify(rounded, row.format)));
      }
    }
    for (const BFloat16 x : b) {
      out.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(x)));
      out.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(x)));
    }
    std::vector<float> tf32 = f;
    round_to_tf32(tf32.data(), static_cast<std::int64_t>(tf32.size()));
    for (const float x : tf32) out.push_back(std::bit_cast<std::uint32_t>(x));
    return out;
  };
  const std::vector<std::uint64_t> plain = record();
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // FTZ and DAZ
  volatile double tiny = std::numeric_limits<double>::denorm_min();
  const bool flushed = tiny * 1.0 == 0.0;
  const std::vector<std::uint64_t> under_ftz = record();
  _mm_setcsr(before);
  CHECK(flushed);  // the mode was really on
  REQUIRE(plain.size() == under_ftz.size());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) differ += plain[i] != under_ftz[i] ? 1 : 0;
  CHECK(differ == 0);
}
#endif
