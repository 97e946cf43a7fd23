#include "kernels/base/convert.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace roundoff;

TEST_CASE("every fp16 and bf16 pattern survives widening and narrowing, bulk equal to scalar") {
  std::vector<Half> h(65536);
  std::vector<BFloat16> b(65536);
  for (std::size_t i = 0; i < 65536; ++i) {
    h[i] = Half::from_bits(static_cast<std::uint16_t>(i));
    b[i] = BFloat16::from_bits(static_cast<std::uint16_t>(i));
  }
  const Shape shape{65536};
  std::vector<float> wide(65536);
  widen({h.data(), DType::fp16, shape}, 0, 65536, wide.data());
  std::vector<Half> back(65536);
  narrow(wide.data(), 65536, View{back.data(), DType::fp16, shape}, 0);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto scalar = static_cast<float>(h[i]);
    REQUIRE(std::bit_cast<std::uint32_t>(scalar) == std::bit_cast<std::uint32_t>(wide[i]));
    const bool nan = (i & 0x7C00) == 0x7C00 && (i & 0x3FF) != 0;
    REQUIRE(std::isnan(scalar) == nan);
    REQUIRE(back[i].bits == (nan ? (h[i].bits | 0x200) : h[i].bits));
    REQUIRE(Half(static_cast<double>(scalar)).bits == back[i].bits);
    REQUIRE(BFloat16(static_cast<float>(b[i])).bits ==
            (std::isnan(static_cast<float>(b[i])) ? (b[i].bits | 0x40) : b[i].bits));
  }
}
