#include "bench/evidence/occupancy.h"

#include <doctest/doctest.h>

#include "kernels/base/check.h"

using namespace roundoff;
using namespace roundoff::evidence;

namespace {

struct Row {
  int architecture;
  BlockResources block;
  int blocks;
  OccupancyLimit limit;
};
using enum OccupancyLimit;

// By hand, from the limits of the programming guide.
constexpr Row kRows[] = {
    {80, {256, 32, 0}, 8, registers},          // 65536 / (32 * 256), as many as threads allow
    {80, {256, 33, 0}, 6, registers},          // 40 a thread: 12 warps a partition, 48 in all
    {80, {1024, 32, 0}, 2, registers},         //
    {80, {1024, 16, 0}, 2, threads},           //
    {80, {32, 16, 0}, 32, blocks},             //
    {80, {256, 255, 0}, 1, registers},         // 8 warps of 8192 registers
    {80, {256, 128, 0}, 2, registers},         //
    {80, {288, 128, 0}, 1, registers},         // 9 of 16 warps
    {80, {128, 32, 96 * 1024}, 1, shared},     //
    {80, {128, 32, 81 * 1024}, 2, shared},     // with the 1 KB that the system takes of each
    {80, {128, 32, 163 * 1024}, 1, shared},    //
    {80, {128, 32, 163 * 1024 + 1}, 0, none},  //
    {90, {384, 168, 224 * 1024}, 1, registers},
    {90, {384, 168, 227 * 1024}, 1, registers},
    {90, {384, 168, 227 * 1024 + 1}, 0, none},
    {90, {128, 32, 113 * 1024}, 2, shared},
    {90, {128, 32, 113 * 1024 + 1}, 1, shared},
    {90, {1024, 64, 0}, 1, registers},
    {90, {1024, 65, 0}, 0, none},   // 72 x 1024 registers
    {90, {96, 0, 0}, 21, threads},  // 3 of 64 warps
};

}  // namespace

TEST_CASE("blocks on a multiprocessor by registers, shared memory and threads") {
  for (const Row& row : kRows) {
    const Occupancy found = occupancy(sm_limits(row.architecture), row.block);
    CAPTURE(row.architecture);
    CAPTURE(row.block.threads);
    CAPTURE(row.block.registers);
    CAPTURE(row.block.shared);
    CHECK(found.blocks == row.blocks);
    CHECK(name(found.limit) == name(row.limit));
    CHECK(found.warps == row.blocks * ((row.block.threads + 31) / 32));
    CHECK(found.share == doctest::Approx(found.warps / 64.0));
  }
}

TEST_CASE("a block that cannot be is an error") {
  const SmLimits& limits = sm_limits(80);
  CHECK_THROWS_WITH_AS(occupancy(limits, {0, 32, 0}),
                       "[evidence] a block of 0 threads, expected 1 to 1024", Error);
  CHECK_THROWS_AS(occupancy(limits, {1025, 32, 0}), Error);
  CHECK_THROWS_AS(occupancy(limits, {32, -1, 0}), Error);
  CHECK_THROWS_AS(occupancy(limits, {32, 32, -1}), Error);
}
