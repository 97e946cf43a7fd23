// A product of sm_90a: a warp feeds stages by TMA, four warps multiply, one thread stores the
// result by TMA.
#include "kernels/simt/mbarrier.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/tma.h"
#include "kernels/simt/wgmma.h"
#include "tests/simt/seeded_bugs.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kRows = 64;
  constexpr int kColumns = 32;
  constexpr unsigned kDepth = 64;  // of a stage: a span of 128 bytes
  constexpr unsigned kStages = 2;
  constexpr unsigned kStageBytes = kRows * kDepth * 2;
  constexpr unsigned kMostDepth = 256;
  constexpr unsigned kBBytes = kColumns * kMostDepth * 2;
  constexpr unsigned kCBytes = kRows * kColumns * 4;
  constexpr unsigned kConsumers = 128;

  template <Bug B>
  __global__ void wgmma_gemm(unsigned k, const __grid_constant__ TensorMap map_a, const Half* b,
                             const __grid_constant__ TensorMap map_c) {
    ROUNDOFF_DYNAMIC_SHARED(bytes);
    ROUNDOFF_SHARED(Mbarrier, full, [kStages]);
    ROUNDOFF_SHARED(Mbarrier, empty, [kStages]);
    unsigned char* const stage_a = bytes;
    auto* const all_b = reinterpret_cast<Half*>(bytes + kStages * kStageBytes);
    auto* const tile_c = reinterpret_cast<float*>(bytes + kStages * kStageBytes + kBBytes);
    const unsigned t = threadIdx.x;
    const unsigned steps = k / kDepth;
    if (t == 0) {
      for (unsigned s = 0; s < kStages; ++s) {
        mbarrier_init(&full[s], 1);
        mbarrier_init(&empty[s], kConsumers / 32);
      }
      fence_mbarrier_init();
    }
    // B without a swizzle: blocks of 8 rows x 16 bytes, 128 bytes each, first along the rows.
    for (unsigned i = t; i < kColumns * k; i += blockDim.x) {
      const unsigned row = i / k;
      const unsigned col = i % k;
      all_b[(col / 8 * (kColumns / 8) + row / 8) * 64 + row % 8 * 8 + col % 8] = b[i];
    }
    if (B != Bug::wgmma_no_proxy_fence) fence_proxy_async();
    if (B != Bug::wgmma_init_unseen) __syncthreads();

    if (t >= kConsumers) {
      if (t == kConsumers) {
        for (unsigned step = 0; step < steps; ++step) {
          const unsigned s = step % kStages;
          const unsigned round = step / kStages;
          mbarrier_wait(&empty[s], (round + 1) % 2);
          const unsigned announced = B == Bug::wgmma_bytes_too_few    ? kStageBytes - 128
                                     : B == Bug::wgmma_bytes_too_many ? kStageBytes + 128
                                                                      : kStageBytes;
          mbarrier_arrive_expect_tx(&full[s], announced);
          if (B == Bug::wgmma_double_arrive) mbarrier_arrive(&full[s]);
          tma_load(stage_a + s * kStageBytes, &map_a, {static_cast<int>(step * kDepth), 0},
                   &full[s]);
        }
      }
      return;
    }

    float d[kColumns / 2];
    for (float& v : d) v = 0;
    for (unsigned step = 0; step < steps; ++step) {
      const unsigned s = step % kStages;
      const unsigned parity = B == Bug::wgmma_wrong_phase ? 0 : step / kStages % 2;
      if (B != Bug::wgmma_full_not_awaited) mbarrier_wait(&full[s], parity);
      if (B != Bug::wgmma_no_fence) wgmma_fence();
      const std::uint64_t a_at =
          wgmma_descriptor(stage_a + s * kStageBytes, Swizzle::span128, 0, 8 * 128);
      for (unsigned kk = 0; kk < kDepth; kk += 16) {
        const std::uint64_t b_at = wgmma_descriptor(all_b + (step * kDepth + kk) * kColumns,
                                                    Swizzle::none, kColumns / 8 * 128, 128);
        wgmma<Half, kColumns>(d, wgmma_advance(a_at, kk * 2), b_at, true);
      }
      wgmma_commit();
      if (B == Bug::wgmma_early_release && t % 32 == 0) mbarrier_arrive(&empty[s]);
      if (B != Bug::wgmma_no_wait) wgmma_wait<0>();
      if (B != Bug::wgmma_early_release && t % 32 == 0) {
        mbarrier_arrive(&empty[s]);
        if (B == Bug::wgmma_released_twice) mbarrier_arrive(&empty[s]);
      }
    }
    const unsigned warp = t / 32;
    const unsigned lane = t % 32;
    for (unsigned i = 0; i < kColumns / 2; ++i)
      tile_c[(warp * 16 + lane / 4 + 8 * (i / 2 % 2)) * kColumns + i / 4 * 8 + lane % 4 * 2 +
             i % 2] = d[i];
    if (B != Bug::wgmma_store_no_proxy_fence) fence_proxy_async();
    bar_sync(1, kConsumers);
    if (t == 0) {
      tma_store(&map_c, {0, 0}, tile_c);
      tma_store_commit();
      if (B != Bug::wgmma_store_not_awaited) tma_store_wait<0>();
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_wgmma_gemm(T target, Bug bug, unsigned k, const Half* a, const Half* b, float* c) {
  TiledMap of_a;
  of_a.dtype = DType::fp16;
  of_a.address = a;
  of_a.rank = 2;
  of_a.size[0] = k;
  of_a.size[1] = kRows;
  of_a.stride_bytes[1] = k * sizeof(Half);
  of_a.box[0] = kDepth;
  of_a.box[1] = kRows;
  of_a.swizzle = Swizzle::span128;
  TiledMap of_c;
  of_c.address = c;
  of_c.rank = 2;
  of_c.size[0] = kColumns;
  of_c.size[1] = kRows;
  of_c.stride_bytes[1] = kColumns * sizeof(float);
  of_c.box[0] = kColumns;
  of_c.box[1] = kRows;
  with_bug<Bug::none, Bug::wgmma_init_unseen, Bug::wgmma_full_not_awaited, Bug::wgmma_wrong_phase,
           Bug::wgmma_early_release, Bug::wgmma_double_arrive, Bug::wgmma_released_twice,
           Bug::wgmma_bytes_too_few, Bug::wgmma_bytes_too_many, Bug::wgmma_no_proxy_fence,
           Bug::wgmma_no_wait, Bug::wgmma_store_no_proxy_fence, Bug::wgmma_store_not_awaited,
           Bug::wgmma_no_fence>(bug, [&]<Bug B>() {
    launch(target,
           {.name = "wgmma_gemm",
            .block = {kConsumers + 32},
            .shared = kStages * kStageBytes + kBBytes + kCBytes,
            .needs = Architecture::sm_90a},
           wgmma_gemm<B>, k, encode_tiled(of_a), b, encode_tiled(of_c));
  });
}

template void launch_wgmma_gemm(Target, Bug, unsigned, const Half*, const Half*, float*);

}  // namespace roundoff
