// How the kernels of the ladder are cut: what their files say (kernels/gemm).
#include <optional>

#include "bench/evidence/cycle_model.h"
#include "kernels/base/check.h"

namespace roundoff::evidence {
namespace {

using enum ProductKernel;

constexpr KernelPlan kNaive[] = {{.kernel = naive,
                                  .tile_m = 1,
                                  .tile_n = 128,
                                  .tile_k = 1,
                                  .threads = 128,
                                  .blocks_per_sm = 16}};
constexpr KernelPlan kTiles[] = {{.kernel = tiles,
                                  .tile_m = 128,
                                  .tile_n = 128,
                                  .tile_k = 16,
                                  .warp_m = 32,
                                  .warp_n = 64,
                                  .stages = 2,
                                  .threads = 256},
                                 {.kernel = tiles,
                                  .tile_m = 64,
                                  .tile_n = 64,
                                  .tile_k = 16,
                                  .warp_m = 32,
                                  .warp_n = 64,
                                  .stages = 2,
                                  .threads = 64,
                                  .blocks_per_sm = 4}};
// One buffer without a swizzle: four rows of a matrix share their banks.
constexpr KernelPlan kMma[] = {{.kernel = mma,
                                .tile_m = 64,
                                .tile_n = 64,
                                .tile_k = 32,
                                .warp_m = 32,
                                .warp_n = 32,
                                .stages = 1,
                                .threads = 128,
                                .blocks_per_sm = 3,
                                .bank_conflicts = 4}};

constexpr KernelPlan mma_block(int m, int n, int warp, int threads, int blocks) {
  return {.kernel = sm80,
          .tile_m = m,
          .tile_n = n,
          .tile_k = 32,
          .warp_m = warp,
          .warp_n = warp,
          .stages = 4,
          .threads = threads,
          .blocks_per_sm = blocks};
}
constexpr KernelPlan kSm80[] = {mma_block(256, 128, 64, 256, 1), mma_block(128, 128, 64, 128, 2),
                                mma_block(64, 64, 32, 128, 3), mma_block(32, 32, 32, 32, 4)};

constexpr KernelPlan hopper(ProductKernel kernel, int m, int n, int cluster, int stages,
                            int threads, int blocks) {
  return {.kernel = kernel,
          .tile_m = m,
          .tile_n = n,
          .tile_k = 64,
          .warp_n = n,
          .stages = stages,
          .cluster = cluster,
          .threads = threads,
          .blocks_per_sm = blocks};
}
constexpr KernelPlan kWgmma[] = {hopper(wgmma, 128, 128, 1, 3, 256, 2)};
constexpr KernelPlan kSm90[] = {hopper(sm90, 128, 256, 2, 4, 384, 1),
                                hopper(sm90, 128, 128, 1, 5, 384, 1),
                                hopper(sm90, 64, 64, 1, 5, 256, 2)};
constexpr KernelPlan kPingPong[] = {hopper(ping_pong, 128, 128, 2, 5, 384, 1)};

}  // namespace

std::span<const KernelPlan> plans_of(ProductKernel kernel) {
  switch (kernel) {
    case automatic:
      break;
    case naive:
      return kNaive;
    case tiles:
      return kTiles;
    case mma:
      return kMma;
    case sm80:
      return kSm80;
    case wgmma:
      return kWgmma;
    case sm90:
      return kSm90;
    case ping_pong:
      return kPingPong;
  }
  fail("evidence", "automatic is no kernel with a plan of its own");
}

const KernelPlan& usual_plan(ProductKernel kernel) { return plans_of(kernel).front(); }

KernelPlan best_plan(const DeviceSpec& device, const ProductShape& shape, ProductKernel kernel,
                     int split_k) {
  std::optional<KernelPlan> best;
  double least = 0;
  for (KernelPlan plan : plans_of(kernel)) {
    plan.split_k = split_k;
    const double seconds = predict(device, shape, plan).seconds;
    if (best && seconds >= least) continue;
    best = plan;
    least = seconds;
  }
  return *best;
}

}  // namespace roundoff::evidence
