#include "tests/device/philox.h"

#include <doctest/doctest.h>

#include "tests/device/conversions.h"
#include "tests/skip.h"

using namespace roundoff;

TEST_CASE("a GPU draws the host's random bits") {
  const std::string absent = device_absent();
  if (!absent.empty()) return skip_test(absent);
  const PhiloxStream stream = philox_stream(0x0123456789ABCDEFU, 7, kReservedTensors + 3);
  constexpr std::uint32_t kElements = 1000003;
  for (const std::uint32_t sample : {0U, 1U, 0xFFFFFFFFU}) {
    const std::vector<std::uint32_t> device = bits_on_device(stream, sample, kElements);
    for (std::uint32_t i = 0; i < kElements; ++i) REQUIRE(device[i] == stream.bits(sample, i));
  }
}
