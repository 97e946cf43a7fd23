#include "tests/device/conversions.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "tests/skip.h"

using namespace roundoff;

namespace {

// Every pattern's value, every midpoint between neighbours, and the two numbers next to each.
template <class T, class From>
std::vector<From> narrowing_inputs() {
  std::vector<From> values;
  for (unsigned i = 0; i < 65536; ++i) {
    const auto at = static_cast<double>(T::from_bits(static_cast<std::uint16_t>(i)));
    const auto next = static_cast<double>(T::from_bits(static_cast<std::uint16_t>(i + 1)));
    values.push_back(static_cast<From>(at));
    if (!std::isfinite(at) || !std::isfinite(next)) continue;
    const auto middle = static_cast<From>(at + (next - at) / 2);
    const auto infinity = std::numeric_limits<From>::infinity();
    values.insert(values.end(),
                  {middle, std::nextafter(middle, infinity), std::nextafter(middle, -infinity)});
  }
  return values;
}

template <class T, class From>
void check_narrowing() {
  const std::vector<From> values = narrowing_inputs<T, From>();
  const std::vector<std::uint16_t> bits = narrow_on_device<T>(values);
  for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(bits[i] == T(values[i]).bits);
}

template <class T>
void check_widening() {
  const Conversions device = widen_on_device<T>();
  for (std::size_t i = 0; i < 65536; ++i) {
    const T value = T::from_bits(static_cast<std::uint16_t>(i));
    REQUIRE(device.to_float[i] == std::bit_cast<std::uint32_t>(static_cast<float>(value)));
    // Widening a NaN from float to double is the hardware's, so its payload is not compared.
    const auto wide = static_cast<double>(value);
    if (std::isnan(wide))
      REQUIRE(std::isnan(std::bit_cast<double>(device.to_double[i])));
    else
      REQUIRE(device.to_double[i] == std::bit_cast<std::uint64_t>(wide));
  }
}

}  // namespace

TEST_CASE("a GPU widens and narrows fp16 and bf16 to the host's bits") {
  const std::string absent = device_absent();
  if (!absent.empty()) return skip_test(absent);
  check_widening<Half>();
  check_widening<BFloat16>();
  check_narrowing<Half, float>();
  check_narrowing<Half, double>();
  check_narrowing<BFloat16, float>();
  check_narrowing<BFloat16, double>();
}
