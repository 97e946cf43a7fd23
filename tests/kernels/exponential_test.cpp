#include "kernels/elementwise/exponential.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>

using namespace roundoff::detail;

namespace {

// The largest error in ulp of an fp32 function over every `step`-th of all 2^32 patterns; NaN has
// to give NaN, and what is beyond fp32's range infinity.
template <class F, class Exact>
double worst_ulp(F f, Exact exact) {
  constexpr std::uint64_t kStep = 20011;
  double worst = 0;
  for (std::uint64_t pattern = 0; pattern < (std::uint64_t{1} << 32); pattern += kStep) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
    const float y = f(x);
    const long double want = exact(static_cast<long double>(x));
    if (std::isnan(x)) {
      if (!std::isnan(y)) return HUGE_VAL;
      continue;
    }
    if (std::isinf(y)) {
      if (std::abs(want) < 0x1.FFFFFFp127L) return HUGE_VAL;
      continue;
    }
    int exponent = 0;
    std::frexp(want, &exponent);
    const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
    const auto error = static_cast<double>(std::abs(static_cast<long double>(y) - want)) / ulp;
    if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

}  // namespace

TEST_CASE("fp32 exp, sigmoid, tanh and log(1 + exp(-|x|)) are all but correctly rounded") {
  // Half an ulp is the rounding. What comes before it is below 2^-45 relative for exp and what is
  // formed from it, 2^-38 for tanh near its seam, 2^-36 for the logarithm's series, which its
  // argument's error (2^-45) does not add to: 2^-45, 2^-38, 2^-36 of at most 2^24 ulp, and as much
  // again for fp64's own roundings.
  CHECK(worst_ulp([](float x) { return exponential(x); },
                  [](long double x) { return std::exp(x); }) <= 0.5 + 2 * 0x1p-21);
  CHECK(worst_ulp([](float x) { return sigmoid(x); },
                  [](long double x) { return 1 / (1 + std::exp(-x)); }) <= 0.5 + 2 * 0x1p-21);
  CHECK(worst_ulp([](float x) { return tangent(x); }, [](long double x) { return std::tanh(x); }) <=
        0.5 + 2 * 0x1p-14);
  CHECK(worst_ulp([](float x) { return softplus_tail(x); },
                  [](long double x) { return std::log1p(std::exp(-std::abs(x))); }) <=
        0.5 + 2 * 0x1p-12);
}

TEST_CASE("exponentials at their limits") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(exponential(0.0F) == 1);
  CHECK(exponential(-kInf) == 0);
  CHECK(exponential(kInf) == kInf);
  CHECK(exponential(-103.0F) > 0);  // subnormal
  CHECK(exponential(-104.0F) == 0);
  CHECK(exponential(88.72283F) < kInf);
  CHECK(exponential(88.722839F) == kInf);
  CHECK(sigmoid(kInf) == 1);
  CHECK(sigmoid(-kInf) == 0);
  CHECK(sigmoid(0.0F) == 0.5);
  CHECK(tangent(kInf) == 1);
  CHECK(tangent(-kInf) == -1);
  CHECK(std::signbit(tangent(-0.0F)));
  CHECK(tangent(1e-45F) == 1e-45F);
  CHECK(softplus_tail(kInf) == 0);
  CHECK(softplus_tail(-kInf) == 0);
}
