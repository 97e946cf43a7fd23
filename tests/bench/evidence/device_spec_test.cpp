#include "bench/evidence/device_spec.h"

#include <doctest/doctest.h>

#include "kernels/base/check.h"

using namespace roundoff;
using namespace roundoff::evidence;

namespace {

// The makers' own figures: TFLOP/s dense. Those of the H100 and H200 are at 1830 MHz for the tensor
// cores, the table's clock is their highest, 1980 MHz.
struct Stated {
  std::string_view device;
  double tensor_clock, tensor, tf32, fp32, fp64;
};
constexpr Stated kStated[] = {
    {"A100", 1.410e9, 312, 156, 19.5, 9.7},
    {"H100", 1.830e9, 989, 495, 67, 34},
    {"H200", 1.830e9, 989, 495, 67, 34},
};

}  // namespace

TEST_CASE("rates by unit, clock and count are the makers' figures") {
  for (const Stated& stated : kStated) {
    const DeviceSpec& device = device_spec(stated.device);
    CAPTURE(stated.device);
    const double slower = stated.tensor_clock / device.clock;
    CHECK(device.rate(Arithmetic::fp16) * slower / 1e12 ==
          doctest::Approx(stated.tensor).epsilon(0.002));
    CHECK(device.rate(Arithmetic::bf16) == device.rate(Arithmetic::fp16));
    CHECK(device.rate(Arithmetic::tf32) * slower / 1e12 ==
          doctest::Approx(stated.tf32).epsilon(0.002));
    CHECK(device.rate(Arithmetic::fp32) / 1e12 == doctest::Approx(stated.fp32).epsilon(0.005));
    CHECK(device.rate(Arithmetic::fp64) / 1e12 == doctest::Approx(stated.fp64).epsilon(0.02));
    // What is sustained is never above what is possible.
    CHECK(device.sustained_16bit <= device.rate(Arithmetic::bf16) * 1.001);
    CHECK(device.copy_bandwidth < device.memory_bandwidth);
  }
}

TEST_CASE("the floor is the larger of arithmetic and memory") {
  const DeviceSpec& h200 = device_spec("h200");
  const double n = 8192;
  const Floor product = roofline_floor(h200, Arithmetic::bf16, 2 * n * n * n, 3 * n * n * 2);
  CHECK_FALSE(product.memory_bound());
  // 1070 TFLOP/s by the highest clock.
  CHECK(product.seconds == doctest::Approx(2 * n * n * n / 1070e12).epsilon(0.002));
  const Floor copy = roofline_floor(h200, Arithmetic::fp32, 1e6, 4.8e9);
  CHECK(copy.memory_bound());
  CHECK(copy.seconds == doctest::Approx(1e-3));
}

TEST_CASE("an unknown GPU or architecture is one clear error") {
  CHECK_THROWS_WITH_AS(device_spec("B200"),
                       "[evidence] no figures of a GPU \"B200\", expected one of A100, H100, H200",
                       Error);
  CHECK_THROWS_WITH_AS(sm_limits(75),
                       "[evidence] limits of sm_75 are not known, expected sm_80 or sm_90", Error);
  CHECK(device_spec("h100").name == "H100");
}
