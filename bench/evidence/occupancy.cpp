#include "bench/evidence/occupancy.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace roundoff::evidence {
namespace {

constexpr int kWarp = 32;
constexpr int kThreadsPerBlock = 1024;

int rounded_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

// Blocks by registers: a warp's registers lie in one partition of the register file.
int register_blocks(const SmLimits& limits, int registers, int warps) {
  if (registers > limits.registers_per_thread) return 0;
  const int of_warp = rounded_up(registers * kWarp, limits.register_unit);
  if (of_warp == 0) return limits.blocks;
  if (of_warp * rounded_up(warps, limits.partitions) > limits.registers) return 0;
  return limits.registers / limits.partitions / of_warp * limits.partitions / warps;
}

int shared_blocks(const SmLimits& limits, int shared) {
  const int of_block = rounded_up(shared + limits.shared_reserved, limits.shared_unit);
  if (shared > limits.shared_per_block) return 0;
  return limits.shared / of_block;
}

}  // namespace

std::string_view name(OccupancyLimit limit) {
  switch (limit) {
    case OccupancyLimit::none:
      return "too large";
    case OccupancyLimit::threads:
      return "threads";
    case OccupancyLimit::blocks:
      return "blocks";
    case OccupancyLimit::registers:
      return "registers";
    case OccupancyLimit::shared:
      return "shared memory";
  }
  return "?";
}

Occupancy occupancy(const SmLimits& limits, const BlockResources& block) {
  ROUNDOFF_CHECK(block.threads >= 1 && block.threads <= kThreadsPerBlock, "evidence", "a block of ",
                 block.threads, " threads, expected 1 to ", kThreadsPerBlock);
  ROUNDOFF_CHECK(block.registers >= 0 && block.shared >= 0, "evidence", "a block of ",
                 block.registers, " registers a thread and ", block.shared,
                 " bytes of shared memory, expected none below 0");
  const int warps = (block.threads + kWarp - 1) / kWarp;
  struct Candidate {
    OccupancyLimit limit;
    int blocks;
  };
  const Candidate candidates[] = {
      {OccupancyLimit::registers, register_blocks(limits, block.registers, warps)},
      {OccupancyLimit::shared, shared_blocks(limits, block.shared)},
      {OccupancyLimit::threads, limits.threads / (warps * kWarp)},
      {OccupancyLimit::blocks, limits.blocks},
  };
  const Candidate& least =
      *std::min_element(std::begin(candidates), std::end(candidates),
                        [](const Candidate& a, const Candidate& b) { return a.blocks < b.blocks; });
  if (least.blocks == 0) return {};
  const int resident = least.blocks * warps;
  return {least.blocks, resident, static_cast<double>(resident) * kWarp / limits.threads,
          least.limit};
}

}  // namespace roundoff::evidence
