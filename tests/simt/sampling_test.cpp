// A sample of a grid's clusters: which ones run, what they count, and what that says of all.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/simt/core.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using simt_test::SimDevice;

namespace {

bool same(const simt::Counters& a, const simt::Counters& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// 96 blocks that all do the same.
simt::LaunchRecord reversed(std::size_t sample, std::uint64_t k = 0, unsigned workers = 1) {
  simt::Config config = simt::with_schedule({}, k);
  config.record_launches = true;
  config.sample_clusters = sample;
  config.workers = workers;
  SimDevice d(config);
  const int* x = d.upload(std::vector<int>(96 * 128, 1));
  int* y = d.upload(std::vector<int>(96 * 128));
  launch_reverse(d.sim(), 96, x, y);
  REQUIRE(d.emulator.launches().size() == 1);
  return d.emulator.launches()[0];
}

}  // namespace

TEST_CASE("counts of a sample, scaled, are those of the grid where blocks do the same") {
  for (const std::uint64_t k : {0U, 1U, 2U, 3U, 6U}) {
    CAPTURE(k);
    const simt::LaunchRecord all = reversed(0, k);
    CHECK(all.clusters == 96);
    CHECK(all.ran == 96);
    CHECK(all.counters.blocks == 96);
    CHECK(all.counters.threads == 96 * 128);
    CHECK(all.counters.barriers > 0);
    for (const std::size_t sample : {1U, 2U, 32U, 96U, 1000U}) {
      CAPTURE(sample);
      const simt::LaunchRecord part = reversed(sample, k);
      CHECK(part.clusters == 96);
      CHECK(part.ran == std::min<std::size_t>(sample, 96));
      CHECK(part.counters.blocks == part.ran);
      simt::Counters scaled = part.scaled();
      // Which thread runs next is drawn for each block apart.
      scaled.switches = all.counters.switches;
      CHECK(same(scaled, all.counters));
    }
  }
}

TEST_CASE("a sample is spread evenly, whatever the order and the number of workers") {
  for (const std::uint64_t k : {0U, 3U})
    for (const unsigned workers : {1U, 3U}) {
      simt::Config config = simt::with_schedule({}, k);
      config.sample_clusters = 4;
      config.workers = workers;
      SimDevice d(config);
      unsigned* out = d.upload(std::vector<unsigned>(40, 77));
      launch_cluster_places(d.sim(), 40, 2, out);
      const std::vector<unsigned> got = d.download(out, 40);
      d.emulator.config.sample_clusters = 0;
      launch_cluster_places(d.sim(), 40, 2, out);
      const std::vector<unsigned> all = d.download(out, 40);
      // Of 20 clusters those in the middle of each quarter: 2, 7, 12, 17.
      for (unsigned block = 0; block < 40; ++block) {
        const unsigned cluster = block / 2;
        const bool ran = cluster == 2 || cluster == 7 || cluster == 12 || cluster == 17;
        CHECK(got[block] == (ran ? all[block] : 77));
        CHECK(all[block] != 77);
      }
    }
}

TEST_CASE("launches are kept where they are asked for, and scaled to the nearest count") {
  simt::Config config;
  SimDevice d(config);
  unsigned* out = d.upload(std::vector<unsigned>(40));
  launch_cluster_places(d.sim(), 40, 2, out);
  CHECK(d.emulator.launches().empty());
  d.emulator.config.record_launches = true;
  launch_cluster_places(d.sim(), 40, 2, out);
  launch_cluster_places(d.sim(), 8, 4, out);
  REQUIRE(d.emulator.launches().size() == 2);
  CHECK(d.emulator.launches()[1].clusters == 2);
  CHECK(d.emulator.launches()[1].counters.launches == 1);
  CHECK(d.emulator.counters().launches == 3);
  d.emulator.reset_counters();
  CHECK(d.emulator.launches().empty());

  simt::LaunchRecord record;
  record.clusters = 7;
  record.ran = 3;
  record.counters.launches = 1;
  record.counters.barriers = 10;                       // 23.3
  record.counters.mma = 11;                            // 25.7
  record.counters.tma_bytes = std::uint64_t{3} << 61;  // beyond 64 bits on the way
  CHECK(record.scaled().launches == 1);
  CHECK(record.scaled().barriers == 23);
  CHECK(record.scaled().mma == 26);
  CHECK(record.scaled().tma_bytes == std::uint64_t{7} << 61);
  CHECK(record.scaled().wgmma == 0);
}
