#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The values go through memory that the optimiser may not see through.
std::vector<float> opaque(std::vector<float> values) {
  for (float& value : values) {
    volatile float hidden = value;
    value = hidden;
  }
  return values;
}

}  // namespace

TEST_CASE("case 137 [BUILD] fast-math removes the inf check") {
  const std::vector<float> values = opaque({kInf, kNan, 1.0F, -kInf});
  int by_isfinite = 0;
  int by_bits = 0;
  int by_comparison = 0;
  for (const float value : values) {
    by_isfinite += std::isfinite(value) ? 0 : 1;
    by_bits += (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U ? 1 : 0;
    by_comparison += value - value == 0.0F ? 0 : 1;
  }
  CHECK(by_isfinite == 3);
  CHECK(by_bits == 3);
  CHECK(by_comparison == 3);
}

TEST_CASE("a * b + c is rounded twice unless std::fma is written") {
  // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 exactly; rounding the product to fp32 loses it.
  const std::vector<float> v = opaque({1.0F + 0x1p-12F, -(1.0F + 0x1p-11F)});
  const float two_roundings = v[0] * v[0] + v[1];
  CHECK(two_roundings == 0.0F);
  CHECK(std::fma(v[0], v[0], v[1]) == 0x1p-24F);
}

TEST_CASE("subnormal numbers are kept") {
  const std::vector<float> v = opaque({std::numeric_limits<float>::min(), 0.5F});
  const float product = v[0] * v[1];
  CHECK(product == std::numeric_limits<float>::min() / 2);
  CHECK(product > 0.0F);
}
