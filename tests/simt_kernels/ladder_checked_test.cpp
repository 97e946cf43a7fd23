// The ladder's kernels under the sanitizer, in a pairwise design, and what the profiler counts of
// the kernel for sm_80.
#include <doctest/doctest.h>

#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/covering.h"
#include "tests/simt_kernels/ladder.h"

using namespace roundoff;
using namespace roundoff::test;
using simt::RequestCounts;

namespace {

struct Kind {
  DType operand;
  bool tf32;
};
constexpr Kind kKinds[] = {{DType::fp16, false}, {DType::bf16, false}, {DType::fp32, true}};

std::int64_t up_to_8(std::int64_t n) { return (n + 7) / 8 * 8; }

// A row of the design as a product that its kernel takes.
LadderCase of_row(const std::vector<int>& row) {
  struct Size {
    std::int64_t m, n, k;
  };
  constexpr Size kSizes[] = {{1, 1, 1},   {3, 70, 40},   {17, 8, 33},
                             {65, 33, 0}, {40, 72, 200}, {130, 136, 72}};
  constexpr DType kOutputs[] = {DType::fp32, DType::fp16, DType::bf16, DType::fp64};
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(row[i]); };
  const Size& s = kSizes[at(2)];
  const ProductKernel kernel = kLadder[row[0]];
  LadderCase t;
  t.p = {.m = s.m, .n = s.n, .k = s.k, .trans_a = row[4] % 2 == 1, .trans_b = row[4] / 2 == 1};
  t.operand = kKinds[at(3)].operand;
  t.p.tf32 = kKinds[at(3)].tf32;
  t.output = kOutputs[at(6)];
  if (row[5] == 1 && on_tensor_cores(kernel)) t.p.accumulator = Accumulator::h100;
  switch (row[7]) {
    case 1:
      t.p.beta = 1;
      t.bias = true;
      t.p.activation = Activation::relu;
      break;
    case 2:
      t.p.beta = 0.5;
      t.addend = DType::fp16;
      break;
    case 3:
      t.p.alpha = 0.5;
      t.p.beta = 1;
      break;
    case 4:
      t.accumulate = !is_16bit(t.output);
      break;
    case 5:
      t.accumulate = !is_16bit(t.output);
      t.p.beta = 1;
      t.p.split = 2;
      break;
    default:
      break;
  }
  t.p.kernel = kernel;
  t.offset = row[8];
  if (on_sm90(kernel)) {
    // As TMA reads it, and K-major for tf32.
    t.offset = 0;
    if (t.p.tf32) {
      t.p.trans_a = false;
      t.p.trans_b = true;
    }
    t.p.k = up_to_8(t.p.k);
    t.p.n = up_to_8(t.p.n);
    if (t.p.trans_a) t.p.m = up_to_8(t.p.m);
  }
  if (kernel == ProductKernel::sm80) {
    t.p.tile = kTiles[row[9]];
    if (row[9] < 2) {  // the large ones
      t.offset = 0;
      t.p.k = up_to_8(t.p.k);
      t.p.n = up_to_8(t.p.n);
      t.p.m = up_to_8(t.p.m);
    }
  }
  return t;
}

}  // namespace

TEST_SUITE("full") {
  TEST_CASE("the ladder, pairwise over everything, with no fault diagnosed") {
    // Kernel, schedule, size, type, layout, model, output, epilogue, alignment, tile.
    const std::vector<int> levels{7, 16, 6, 3, 4, 2, 4, 6, 2, 4};
    const auto rows = covering_array(levels);
    REQUIRE(covers_pairs(rows, levels));
    REQUIRE(rows.size() <= 900);
    std::mt19937 random(51);
    for (const auto& row : rows) {
      const LadderCase t = of_row(row);
      CAPTURE(row);
      CAPTURE(name(t.p.kernel));
      const LadderArrays arrays(t, random, true);
      SimDevice device(static_cast<std::uint64_t>(row[1]));
      Array got = arrays.y;
      CHECK_NOTHROW(got = run_ladder(device, t, arrays));
      CHECK(same_bits(got, reference(t, arrays)));
    }
    MESSAGE(rows.size(), " sanitized products");
  }
}

TEST_CASE("the kernel for sm_80 moves 16 bytes a lane, whole sectors, and meets no bank twice") {
  std::mt19937 random(52);
  for (const ProductTile tile : kTiles) {
    for (std::size_t kind = 0; kind < 3; ++kind) {
      for (int layout = 0; layout < 4; ++layout) {
        LadderCase t;
        const bool small = tile == ProductTile::m64n64 || tile == ProductTile::m32n32;
        t.p = {.m = small ? 64 : 256,
               .n = small ? 64 : 128,
               .k = 96,
               .trans_a = layout % 2 == 1,
               .trans_b = layout / 2 == 1,
               .beta = layout == 0 ? 1.0 : 0.0};
        t.p.tf32 = kKinds[kind].tf32;
        t.p.kernel = ProductKernel::sm80;
        t.p.tile = tile;
        t.operand = kKinds[kind].operand;
        t.output = kind == 0 ? DType::fp16 : kind == 1 ? DType::bf16 : DType::fp32;
        t.bias = layout == 0;
        CAPTURE(static_cast<int>(tile));
        CAPTURE(kind);
        CAPTURE(layout);
        const LadderArrays arrays(t, random, true);
        SimDevice device;
        device.emulator().config.profile = true;
        const Array got = run_ladder(device, t, arrays);
        CHECK(same_bits(got, reference(t, arrays)));
        REQUIRE(device.emulator().profile().launches.size() == 1);
        const simt::LaunchProfile& l = device.emulator().profile().launches[0];
        CHECK(l.shared_loads.requests > 0);
        CHECK(l.shared_loads.excess_wavefronts == 0);
        CHECK(l.shared_stores.excess_wavefronts == 0);
        CHECK(l.global_loads.sectors == l.global_loads.least_sectors);
        CHECK(l.global_stores.sectors == l.global_stores.least_sectors);
        // A warp's store is 32 x 16 bytes, and nothing is written twice.
        const std::uint64_t bytes = static_cast<std::uint64_t>(t.p.m * t.p.n) * size_of(t.output);
        CHECK(l.global_stores.bytes == bytes);
        CHECK(l.global_stores.requests * 512 == bytes);
        // Operands by cp.async, 16 bytes each: A once a column of tiles, B once a row of them.
        const auto tiles = [&](std::int64_t extent, std::int64_t tile_extent) {
          return static_cast<std::uint64_t>((extent + tile_extent - 1) / tile_extent);
        };
        const std::int64_t tile_m = tile == ProductTile::m256n128   ? 256
                                    : tile == ProductTile::m128n128 ? 128
                                    : tile == ProductTile::m64n64   ? 64
                                                                    : 32;
        const std::int64_t tile_n = std::min<std::int64_t>(tile_m, 128);
        const std::uint64_t operands =
            (static_cast<std::uint64_t>(t.p.m * t.p.k) * tiles(t.p.n, tile_n) +
             static_cast<std::uint64_t>(t.p.n * t.p.k) * tiles(t.p.m, tile_m)) *
            size_of(t.operand);
        const simt::Counters& counters = device.emulator().counters();
        CHECK(counters.cp_async_bytes == operands);
        // One barrier a step of 64 bytes, one where sums come from memory and one where they leave.
        const std::uint64_t steps = static_cast<std::uint64_t>(t.p.k) * size_of(t.operand) / 64;
        CHECK(counters.barriers == counters.blocks * (steps + 1 + (layout == 0 ? 1 : 0)));
      }
    }
  }
}

TEST_CASE("without the swizzle matrices share banks: what the kernel `mma` shows") {
  std::mt19937 random(53);
  LadderCase t;
  t.p = {.m = 64, .n = 64, .k = 64, .trans_b = true, .kernel = ProductKernel::mma};
  const LadderArrays arrays(t, random, true);
  SimDevice device;
  device.emulator().config.profile = true;
  CHECK(same_bits(run_ladder(device, t, arrays), reference(t, arrays)));
  const simt::LaunchProfile& l = device.emulator().profile().launches[0];
  // Eight rows of 64 bytes: four pairs of rows, each pair four chunks apart, share their banks.
  CHECK(l.shared_loads.excess_wavefronts > 0);
}
