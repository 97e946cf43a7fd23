#include "tests/device/scaler.h"

#include <doctest/doctest.h>

#include "tests/device/conversions.h"
#include "tests/skip.h"

using namespace roundoff;

TEST_CASE("a GPU moves the loss scale as the host does") {
  const std::string absent = device_absent();
  if (!absent.empty()) return skip_test(absent);
  // Long runs of finite windows and of overflows, so that both ends of the range are reached.
  std::vector<std::int32_t> found_inf;
  for (int i = 0; i < 3000; ++i) found_inf.push_back((i / 400) % 2 == 1 || i % 37 == 0 ? 1 : 0);
  ScalerConfig odd_factors;
  odd_factors.growth_interval = 3;
  odd_factors.growth_factor = 1.7;
  odd_factors.backoff_factor = 0.3;
  ScalerConfig powers_of_two;
  powers_of_two.growth_interval = 2;
  for (const ScalerConfig& config : {powers_of_two, odd_factors}) {
    StepStatus status;
    status.present = 1;
    set_scale(status, initial_state(config).scale);
    const std::vector<StepStatus> device = play_on_device(config, status, found_inf);
    for (std::size_t i = 0; i < found_inf.size(); ++i) {
      status.found_inf = found_inf[i];
      update_scale(config, status);
      REQUIRE(device[i].scale == status.scale);
      REQUIRE(device[i].inv_scale == status.inv_scale);
      REQUIRE(device[i].growth_tracker == status.growth_tracker);
      REQUIRE(device[i].consecutive_skips == status.consecutive_skips);
    }
  }
}
