// Requests, sectors and wavefronts against what one counts by hand.
#include "kernels/simt/emulator/profiler/profile.h"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/simt/access_patterns.h"
#include "tests/simt/seeded_bugs.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using simt::Config;
using simt::Profile;
using simt::RequestCounts;
using simt::RequestKind;
using simt_test::SimDevice;

namespace {

Config profiled(std::uint64_t k = 0) {
  Config config = simt::with_schedule({}, k);
  config.profile = true;
  return config;
}

RequestCounts counted(SimDevice& d, const char* kernel, RequestKind kind) {
  return d.emulator.profile().sum(kernel, kind);
}

}  // namespace

TEST_CASE("global requests touch the sectors that one counts by hand") {
  struct Case {
    unsigned bytes, lanes, offset, stride;
    std::uint64_t sectors, least;
  };
  const Case cases[] = {
      {4, 32, 0, 4, 4, 4},       // coalesced: 128 bytes
      {4, 32, 4, 4, 5, 4},       // one element further: 4 whole sectors become 5
      {4, 32, 128, 4, 4, 4},     // another line
      {4, 32, 0, 8, 8, 4},       // every other element
      {4, 32, 0, 32, 32, 4},     // a sector a lane
      {4, 32, 0, 256, 32, 4},    // the same, further apart
      {4, 32, 0, 0, 1, 1},       // all lanes read one element
      {4, 20, 0, 4, 3, 3},       // 80 bytes
      {4, 1, 28, 4, 1, 1},       // one lane
      {2, 32, 0, 2, 2, 2},       // 64 bytes
      {2, 32, 30, 2, 3, 2},      // across three sectors
      {8, 32, 0, 8, 8, 8},       // 256 bytes
      {16, 32, 0, 16, 16, 16},   // 512 bytes
      {16, 32, 16, 16, 17, 16},  // half a sector further
      {16, 32, 0, 64, 32, 16},   // half of every sector
  };
  SimDevice d(profiled());
  const unsigned char* x = d.upload(std::vector<unsigned char>(16384));
  unsigned char* y = d.upload(std::vector<unsigned char>(512));
  for (const Case& c : cases) {
    CAPTURE(c.bytes);
    CAPTURE(c.lanes);
    CAPTURE(c.offset);
    CAPTURE(c.stride);
    d.emulator.reset_profile();
    launch_global_pattern(d.checked(), c.bytes, c.lanes, c.offset, c.stride, x, y);
    const RequestCounts loads = counted(d, "global_pattern", RequestKind::global_load);
    CHECK(loads.requests == 1);
    CHECK(loads.lanes == c.lanes);
    CHECK(loads.bytes == c.lanes * c.bytes);
    CHECK(loads.sectors == c.sectors);
    CHECK(loads.least_sectors == c.least);
    CHECK(loads.wavefronts == 0);
    const RequestCounts stores = counted(d, "global_pattern", RequestKind::global_store);
    CHECK(stores.requests == 1);
    CHECK(stores.sectors == (c.lanes * c.bytes + 31) / 32);
    CHECK(counted(d, "global_pattern", RequestKind::shared_load).requests == 0);
  }
}

TEST_CASE("shared requests take the wavefronts that one counts by hand") {
  struct Case {
    unsigned bytes, lanes, offset, stride;
    std::uint64_t wavefronts, excess;
  };
  const Case cases[] = {
      {4, 32, 0, 4, 1, 0},                            // one word a bank
      {4, 32, 64, 4, 1, 0},                           // turned by half the banks
      {4, 32, 0, 8, 2, 1},                            // 2-way
      {4, 32, 0, 12, 1, 0},                           // 3 and 32 have no common factor
      {4, 32, 0, 16, 4, 3},                           // 4-way
      {4, 32, 0, 128, 32, 31},                        // one bank for all
      {4, 32, 0, 132, 1, 0},                          // rows of 33 words
      {4, 7, 0, 128, 7, 6},                           // of seven lanes
      {2, 32, 0, 2, 1, 0},                            // two lanes share a word
      {2, 32, 0, 128, 32, 31},  {8, 32, 0, 8, 2, 0},  // half warps
      {8, 32, 0, 16, 4, 2},                           // 2-way in each half
      {8, 16, 0, 8, 1, 0},                            // one half alone
      {16, 32, 0, 16, 4, 0},                          // quarter warps
      {16, 32, 0, 32, 8, 4},                          // 2-way in each quarter
      {16, 32, 0, 144, 4, 0},  // rows of 36 words: 8 of them lie in different banks
      {16, 32, 0, 128, 32, 28}, {16, 9, 0, 16, 2, 0},
  };
  SimDevice d(profiled());
  unsigned char* y = d.upload(std::vector<unsigned char>(512));
  for (const Case& c : cases) {
    CAPTURE(c.bytes);
    CAPTURE(c.lanes);
    CAPTURE(c.stride);
    d.emulator.reset_profile();
    launch_shared_pattern(d.checked(), c.bytes, c.lanes, c.offset, c.stride, y);
    for (const RequestKind kind : {RequestKind::shared_load, RequestKind::shared_store}) {
      const RequestCounts counts = counted(d, "shared_pattern", kind);
      CHECK(counts.requests == 1);
      CHECK(counts.bytes == c.lanes * c.bytes);
      CHECK(counts.wavefronts == c.wavefronts);
      CHECK(counts.excess_wavefronts == c.excess);
      CHECK(counts.sectors == 0);
    }
  }
  // A broadcast: one word for all lanes.
  d.emulator.reset_profile();
  launch_shared_pattern(d.checked(), 4, 32, 0, 0, y);
  CHECK(counted(d, "shared_pattern", RequestKind::shared_load).wavefronts == 1);
  CHECK(counted(d, "shared_pattern", RequestKind::shared_store).lanes == 1);
}

TEST_CASE(
    "ldmatrix is one request, each matrix a wavefront where its rows lie in different banks") {
  SimDevice d(profiled());
  std::uint32_t* y = d.upload(std::vector<std::uint32_t>(128));
  for (const unsigned count : {1U, 2U, 4U}) {
    struct Rows {
      unsigned pitch, ways;
    };
    for (const Rows& rows : {Rows{16, 1}, Rows{48, 1}, Rows{80, 1}, Rows{32, 2}, Rows{64, 4},
                             Rows{128, 8}, Rows{144, 1}}) {
      const unsigned pitch = rows.pitch;
      const unsigned ways = rows.ways;
      CAPTURE(count);
      CAPTURE(pitch);
      d.emulator.reset_profile();
      launch_matrix_pattern(d.checked(), count, pitch, y);
      const RequestCounts loads = counted(d, "matrix_pattern", RequestKind::shared_load);
      CHECK(loads.requests == 1);
      CHECK(loads.bytes == count * 128);
      CHECK(loads.wavefronts == count * ways);
      CHECK(loads.excess_wavefronts == count * (ways - 1));
    }
  }
}

TEST_CASE("copies read global memory, atomics of one word take turns") {
  SimDevice d(profiled());
  const unsigned char* x = d.upload(std::vector<unsigned char>(512));
  unsigned char* y = d.upload(std::vector<unsigned char>(512));
  launch_copy_pattern(d.checked(), x, y);
  const RequestCounts copies = counted(d, "copy_pattern", RequestKind::global_load);
  CHECK(copies.requests == 1);
  CHECK(copies.sectors == 16);
  CHECK(counted(d, "copy_pattern", RequestKind::shared_load).wavefronts == 4);

  unsigned* words = d.upload(std::vector<unsigned>(1024));
  struct Words {
    unsigned stride, wavefronts;
  };
  for (const Words& asked : {Words{0, 32}, Words{1, 1}, Words{2, 2}, Words{32, 32}}) {
    const unsigned stride = asked.stride;
    CAPTURE(stride);
    d.emulator.reset_profile();
    launch_atomic_pattern(d.checked(), stride, words);
    const RequestCounts atomics = counted(d, "atomic_pattern", RequestKind::shared_atomic);
    CHECK(atomics.requests == 1);
    CHECK(atomics.wavefronts == asked.wavefronts);
    const std::uint64_t sectors = stride == 0 ? 1 : 4 * stride;
    CHECK(counted(d, "atomic_pattern", RequestKind::global_atomic).sectors ==
          std::min<std::uint64_t>(sectors, 32));
  }
}

TEST_CASE("lanes meet in a request by the round of their loop") {
  SimDevice d(profiled());
  const float* x = d.upload(std::vector<float>(128));
  float* y = d.upload(std::vector<float>(32));
  launch_ragged_loop(d.checked(), x, y);
  const RequestCounts loads = counted(d, "ragged_loop", RequestKind::global_load);
  // Round r has the lanes with lane % 4 >= r: in each sector of 8 elements there are some.
  CHECK(loads.requests == 4);
  CHECK(loads.lanes == 32 + 24 + 16 + 8);
  CHECK(loads.sectors == 16);
}

TEST_CASE("the same figures under every schedule, by launch, line and in the counters") {
  std::string first;
  for (std::uint64_t k = 0; k < simt_test::kSchedules; ++k) {
    CAPTURE(k);
    SimDevice d(profiled(k));
    std::vector<float> values(1000);
    const float* x = d.upload(values);
    float* y = d.upload(values);
    launch_plus_one(d.checked(), 1000, x, y);
    launch_plus_one(d.checked(), 257, x, y);
    launch_transpose(d.checked(), Bug::none, 30, 33, x, y);
    const Profile profile = d.emulator.profile();
    REQUIRE(profile.launches.size() == 3);
    // 31 whole warps of 4 sectors, and 8 lanes of one; then 8 warps and one lane.
    CHECK(profile.launches[0].global_loads.requests == 32);
    CHECK(profile.launches[0].global_loads.sectors == 125);
    CHECK(profile.launches[0].global_loads.bytes == 4000);
    CHECK(profile.launches[1].global_stores.sectors == 33);
    CHECK(profile.launches[2].kernel == "transpose");
    const simt::Counters& counters = d.emulator.counters();
    CHECK(counters.global_load_requests ==
          profile.sum("plus_one", RequestKind::global_load).requests +
              profile.sum("transpose", RequestKind::global_load).requests);
    CHECK(counters.shared_excess_wavefronts == 0);
    std::ostringstream table;
    profile.print(table);
    if (k == 0) first = table.str();
    CHECK(table.str() == first);
  }
}

TEST_CASE("a bank conflict and a strided store are seen in the profile") {
  SimDevice d(profiled());
  const float* x = d.upload(std::vector<float>(64 * 64));
  float* y = d.upload(std::vector<float>(64 * 64));
  launch_transpose(d.checked(), Bug::none, 64, 64, x, y);
  RequestCounts shared = counted(d, "transpose", RequestKind::shared_load);
  CHECK(shared.requests == 128);
  CHECK(shared.excess_wavefronts == 0);
  RequestCounts stores = counted(d, "transpose", RequestKind::global_store);
  CHECK(stores.sectors == stores.least_sectors);

  d.emulator.reset_profile();
  launch_transpose(d.checked(), Bug::transpose_bank_conflict, 64, 64, x, y);
  shared = counted(d, "transpose", RequestKind::shared_load);
  CHECK(shared.wavefronts == 32 * shared.requests);
  CHECK(shared.excess_wavefronts == 31 * shared.requests);

  d.emulator.reset_profile();
  launch_transpose(d.checked(), Bug::transpose_strided_store, 64, 64, x, y);
  stores = counted(d, "transpose", RequestKind::global_store);
  CHECK(stores.sectors == 32 * stores.requests);
  CHECK(stores.least_sectors == 4 * stores.requests);

  // Tiles of 64 halves a row: 8 rows of an ldmatrix in one bank.
  const Half* a = d.upload(std::vector<Half>(64 * 16));
  d.emulator.reset_profile();
  launch_mma_gemm(d.checked(), Bug::none, 16, a, a, y);
  CHECK(counted(d, "mma_gemm", RequestKind::shared_load).excess_wavefronts == 0);
  d.emulator.reset_profile();
  launch_mma_gemm(d.checked(), Bug::mma_bank_conflict, 16, a, a, y);
  CHECK(counted(d, "mma_gemm", RequestKind::shared_load).excess_wavefronts > 0);
}

TEST_CASE("the table names lines, the costliest first") {
  SimDevice d(profiled());
  const float* x = d.upload(std::vector<float>(64 * 64));
  float* y = d.upload(std::vector<float>(64 * 64));
  launch_plus_one(d.checked(), 128, x, y);
  launch_transpose(d.checked(), Bug::transpose_strided_store, 64, 64, x, y);
  const Profile profile = d.emulator.profile();
  REQUIRE(profile.lines.size() == 4);
  CHECK(profile.lines[0].kernel == "transpose");
  CHECK(profile.lines[0].kind == RequestKind::global_store);
  std::ostringstream table;
  profile.print(table, 2);
  CHECK_MESSAGE(table.str().find("(2 more lines)") != std::string::npos, table.str());
  CHECK(table.str().find("global store") != std::string::npos);
#if defined(ROUNDOFF_LIBDW)
  CHECK_MESSAGE(table.str().find("seeded_bugs_tiles.cu:") != std::string::npos, table.str());
#endif
}
