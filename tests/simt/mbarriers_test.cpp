#include "tests/simt/mbarriers.h"

#include <numeric>

#include "tests/simt/sim_device.h"

using namespace roundoff;
using namespace roundoff::simt_test;

TEST_CASE("a ring of full and empty mbarriers hands every value over, by every kind of wait") {
  under_schedules(
      [](auto& device, auto target) {
        constexpr int kSteps = 7;
        std::vector<int> x(kSteps);
        std::iota(x.begin(), x.end(), 10);
        const int* px = device.upload(x);
        for (const WaitKind kind : {WaitKind::try_parity, WaitKind::test_parity,
                                    WaitKind::try_state, WaitKind::test_state}) {
          int* py = device.upload(std::vector<int>(3 * kSteps * 32, -1));
          launch_ring(target, kind, kSteps, px, py);
          const std::vector<int> y = device.download(py, 3 * kSteps * 32);
          int differ = 0;
          for (std::size_t i = 0; i < y.size(); ++i)
            if (y[i] != 32 * x[i / 32 % kSteps] + 31 * 16) ++differ;
          CHECK(differ == 0);
        }
      },
      Architecture::sm_90a);
}

TEST_CASE("an mbarrier's phase ends with its arrivals and its bytes") {
  under_schedules(
      [](auto& device, auto target) {
        int* out = device.upload(std::vector<int>(8, -1));
        launch_barrier_states(target, out);
        std::vector<int> got = device.download(out, 8);
        // A try_wait may give up early.
        if (got[6] == 0) got[6] = 1;
        CHECK(got == std::vector<int>{1, 0, 0, 1, 1, 0, 1, 0});
      },
      Architecture::sm_90a);
}

TEST_CASE("blocks of a cluster reach each other's shared memory") {
  for (const unsigned cluster : {1U, 2U, 3U, 8U, 16U}) {
    if (kOnGpu && cluster > 8) continue;  // more blocks are not portable
    under_schedules(
        [cluster](auto& device, auto target) {
          constexpr unsigned kClusters = 2;
          const unsigned blocks = kClusters * cluster;
          int* out = device.upload(std::vector<int>(4 * blocks));
          launch_cluster_exchange(target, kClusters, cluster, out);
          const std::vector<int> got = device.download(out, 4 * blocks);
          int differ = 0;
          for (unsigned b = 0; b < blocks; ++b) {
            const unsigned rank = b % cluster;
            const unsigned neighbour = b - rank + (rank + cluster - 1) % cluster;
            const auto n = static_cast<int>(cluster);
            const int want[] = {static_cast<int>(rank), n, static_cast<int>(neighbour * 100 + 31),
                                n * (n + 1)};
            for (std::size_t i = 0; i < 4; ++i)
              if (got[4 * b + i] != want[i]) ++differ;
          }
          CHECK(differ == 0);
        },
        Architecture::sm_90a);
  }
}

TEST_CASE("arrivals from other blocks of the cluster end a phase") {
  under_schedules(
      [](auto& device, auto target) {
        int* out = device.upload(std::vector<int>(4, -1));
        launch_remote_arrive(target, 4, out);
        CHECK(device.download(out, 4) == std::vector<int>{1, 2, 5, 10});
      },
      Architecture::sm_90a);
}

TEST_CASE("one lane of a warp is elected") {
  under_schedules(
      [](auto& device, auto target) {
        int* out = device.upload(std::vector<int>(3));
        launch_elect(target, 3, out);
        CHECK(device.download(out, 3) == std::vector<int>{1, 1, 1});
      },
      Architecture::sm_90a);
}

#if !defined(ROUNDOFF_TEST_ON_GPU)

namespace {

struct Expected {
  BarrierMisuse misuse;
  const char* message;
  bool always;  // under every schedule, not only under some
};
constexpr Expected kExpected[] = {
    {BarrierMisuse::use_before_init, "used before mbarrier.init", true},
    {BarrierMisuse::use_after_inval, "after mbarrier.inval", true},
    {BarrierMisuse::init_twice, "there is a barrier already", true},
    {BarrierMisuse::init_count_zero, "a count of 0", true},
    {BarrierMisuse::too_many_arrivals, "2 arrivals where the phase expects 1 more (of 2)", true},
    {BarrierMisuse::arrivals_beyond_bytes, "1 arrivals where the phase expects 0 more (of 1)",
     true},
    {BarrierMisuse::tx_overflow, "tx-count overflow", true},
    {BarrierMisuse::completion_without_expectation, "announced", true},
    {BarrierMisuse::landing_in_a_later_phase, "announced", true},
    {BarrierMisuse::overwritten, "memory was overwritten", true},
    {BarrierMisuse::wrong_phase, "deadlock", true},
    {BarrierMisuse::wrong_phase, "wait in mbarrier.try_wait", true},
    {BarrierMisuse::missed_phase, "before this wait saw it", false},
    {BarrierMisuse::stale_state, "neither of this phase nor of the one before", true},
    {BarrierMisuse::not_shared, "not an address of shared memory", true},
    {BarrierMisuse::misaligned, "not a multiple of 8", true},
    {BarrierMisuse::cluster_arrive_twice, "has not waited since it last arrived", true},
    {BarrierMisuse::cluster_wait_first, "has not arrived", true},
    {BarrierMisuse::cluster_missing_arrive, "wait in barrier.cluster", true},
    {BarrierMisuse::rank_outside, "rank 2 in a cluster of 2", true},
    {BarrierMisuse::remote_to_exited, "has exited", false},
};

}  // namespace

TEST_CASE("misuse of mbarriers and clusters is diagnosed") {
  for (const Expected& e : kExpected) {
    unsigned found = 0;
    std::string other;
    for (std::uint64_t k = 0; k < kSchedules; ++k) {
      const std::string message =
          fault_of(simt::with_schedule({}, k), [&](SimDevice& device, auto target) {
            launch_barrier_misuse(target, e.misuse, device.upload(std::vector<int>(32)),
                                  device.upload(std::vector<int>(32)));
          });
      if (contains(message, e.message)) {
        ++found;
        CHECK(contains(message, "[barrier_misuse]"));
      } else if (other.empty()) {
        other = message.empty() ? "silent" : message;
      }
    }
    CAPTURE(static_cast<int>(e.misuse));
    CAPTURE(other);
    if (e.always) {
      CHECK(found == kSchedules);
    } else {
      CHECK(found > 0);
    }
  }
}

TEST_CASE("a poll that nothing can end is not a hang") {
  const std::string message = fault_of({}, [](SimDevice& device, auto target) {
    launch_barrier_misuse(target, BarrierMisuse::poll_for_ever, device.upload(std::vector<int>(32)),
                          device.upload(std::vector<int>(32)));
  });
  CHECK(contains(message, "polled for ever"));
}

TEST_CASE("a fault around a barrier leaves the next launch right") {
  SimDevice device;
  int* out = device.upload(std::vector<int>(32));
  for (const Expected& e : kExpected) {
    if (e.always) {
      CHECK_THROWS_AS(launch_barrier_misuse(device.sim(), e.misuse, out, out), Error);
    }
    launch_elect(device.sim(), 1, out);
    CHECK(device.download(out, 1)[0] == 1);
  }
}

#endif
