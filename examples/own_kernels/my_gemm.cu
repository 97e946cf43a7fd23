// y = a b^T on Hopper: tiles of 64 x 64 by TMA, through two stages of shared memory, into wgmma. A
// block of 128 threads a tile; its first thread also issues the copies. Simple rather than fast.
//
// A stage has an mbarrier: its phase ends when both tiles have landed. A stage is filled again once
// the products that read it are done.
#include "my_gemm.h"

#include "kernels/base/bfloat16.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/tma.h"
#include "kernels/simt/wgmma.h"

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  constexpr int kTile = 64;  // rows and columns of y, and k of a stage
  constexpr int kStages = 2;
  constexpr unsigned kTileBytes = kTile * kTile * 2;

  __global__ void __launch_bounds__(128)
      gemm_tiles(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 int m, int n, int k, BFloat16* y) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, full, [kStages]);
    const int row0 = static_cast<int>(blockIdx.x) * kTile;
    const int column0 = static_cast<int>(blockIdx.y) * kTile;
    const int steps = (k + kTile - 1) / kTile;
    const auto tile_a = [&](int stage) {
      return shared + 2 * static_cast<unsigned>(stage) * kTileBytes;
    };
    const auto tile_b = [&](int stage) { return tile_a(stage) + kTileBytes; };
    // Elements outside the matrices arrive as zeros.
    const auto fetch = [&](int step) {
      const int stage = step % kStages;
      mbarrier_arrive_expect_tx(&full[stage], 2 * kTileBytes);
      tma_load(tile_a(stage), &map_a, {step * kTile, row0}, &full[stage]);
      tma_load(tile_b(stage), &map_b, {step * kTile, column0}, &full[stage]);
    };

    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) mbarrier_init(&full[s], 1);
      fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (int step = 0; step < kStages && step < steps; ++step) fetch(step);

    float sums[kTile / 2];
    ROUNDOFF_UNROLL
    for (int i = 0; i < kTile / 2; ++i) sums[i] = 0;
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages;
      mbarrier_wait(&full[stage], static_cast<unsigned>(step / kStages % 2));
      const std::uint64_t a = wgmma_descriptor(tile_a(stage), Swizzle::span128, 16, 1024);
      const std::uint64_t b = wgmma_descriptor(tile_b(stage), Swizzle::span128, 16, 1024);
      wgmma_fence();
      ROUNDOFF_UNROLL
      for (unsigned l = 0; l < kTile / 16; ++l)
        wgmma<BFloat16, kTile>(sums, wgmma_advance(a, l * 32), wgmma_advance(b, l * 32), true);
      wgmma_commit();
      wgmma_wait<0>();
      __syncthreads();  // all four warps have read the stage
      if (threadIdx.x == 0 && step + kStages < steps) fetch(step + kStages);
    }

    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    ROUNDOFF_UNROLL
    for (int i = 0; i < kTile / 2; ++i) {
      const int row = row0 + warp * 16 + lane / 4 + (i / 2 % 2) * 8;
      const int column = column0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (row < m && column < n)
        y[static_cast<std::size_t>(row) * static_cast<std::size_t>(n) +
          static_cast<std::size_t>(column)] = BFloat16(sums[i]);
    }
  }
}
}  // namespace roundoff

using namespace roundoff;

namespace {
// Rows of k elements in boxes of 64 x 64, swizzled as wgmma reads them.
TensorMap tiles_of(const ConstView& x) {
  TiledMap map;
  map.dtype = DType::bf16;
  map.address = x.data;
  map.rank = 2;
  map.size[0] = static_cast<std::uint64_t>(x.shape[1]);
  map.size[1] = static_cast<std::uint64_t>(x.shape[0]);
  map.stride_bytes[1] = map.size[0] * sizeof(BFloat16);
  map.box[0] = map.box[1] = kTile;
  map.swizzle = Swizzle::span128;
  return encode_tiled(map);
}
unsigned tiles(std::int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); }
}  // namespace

template <DeviceTarget T>
void my_gemm(T target, const ConstView& a, const ConstView& b, const View& y) {
  launch(target,
         {.name = "gemm_tiles",
          .grid = {tiles(a.shape[0]), tiles(b.shape[0])},
          .block = {128},
          .shared = 2 * kStages * kTileBytes,
          .needs = Architecture::sm_90a},
         gemm_tiles, tiles_of(a), tiles_of(b), static_cast<int>(a.shape[0]),
         static_cast<int>(b.shape[0]), static_cast<int>(a.shape[1]), y.as<BFloat16>());
}

template void my_gemm(Target, const ConstView&, const ConstView&, const View&);
