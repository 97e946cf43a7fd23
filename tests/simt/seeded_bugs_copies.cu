// Asynchronous copies of sm_80, tensor-core products of a warp, and clusters.
#include "kernels/simt/cluster.h"
#include "kernels/simt/copy.h"
#include "kernels/simt/mma.h"
#include "kernels/simt/simt.h"
#include "tests/simt/seeded_bugs.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kThreads = 128;
  constexpr unsigned kTileFloats = 4 * kThreads;

  template <Bug B>
  __global__ void copy_pipeline(unsigned tiles, const float* x, float* sums) {
    ROUNDOFF_DYNAMIC_SHARED(bytes);
    auto* stages = reinterpret_cast<float*>(bytes);
    const unsigned t = threadIdx.x;
    const float* mine = x + std::size_t{blockIdx.x} * tiles * kTileFloats + 4 * t;
    const auto start = [&](unsigned tile) {
      float* stage = stages + tile % 2 * kTileFloats;
      if (B == Bug::pipeline_misaligned && tile == 1) stage += 1;
      const bool more = B == Bug::pipeline_source_overrun ? tile <= tiles : tile < tiles;
      if (more) cp_async<16>(stage + 4 * t, mine + tile * kTileFloats);
      cp_async_commit();
    };
    start(0);
    float sum = 0;
    for (unsigned tile = 0; tile < tiles; ++tile) {
      start(tile + 1);
      if (B == Bug::pipeline_wait_too_few) {
        cp_async_wait<2>();
      } else if (B != Bug::pipeline_no_wait) {
        cp_async_wait<1>();
      }
      if (B != Bug::pipeline_no_barrier) __syncthreads();
      const float* stage = stages + tile % 2 * kTileFloats;
      const unsigned other = (t + 37) % kThreads;
      for (unsigned i = 0; i < 4; ++i) sum += stage[4 * other + i];
      if (B != Bug::pipeline_stage_reused) __syncthreads();
    }
    if (B == Bug::pipeline_exit_unawaited) start(0);
    sums[blockIdx.x * kThreads + t] = sum;
  }

  template <Bug B>
  __global__ void mma_gemm(unsigned k, const Half* a, const Half* b, float* c) {
    // Rows of 16 elements stand 24 apart, so that 8 of them lie in different banks.
    constexpr unsigned kPitch = B == Bug::mma_bank_conflict    ? 64
                                : B == Bug::mma_row_misaligned ? 20
                                                               : 24;
    ROUNDOFF_SHARED(Half, tile_a, [64 * kPitch]);
    ROUNDOFF_SHARED(Half, tile_b, [8 * kPitch]);
    const unsigned t = threadIdx.x;
    const unsigned warp = t / 32;
    const unsigned lane = t % 32;
    float sum[4] = {0, 0, 0, 0};
    for (unsigned k0 = 0; k0 < k; k0 += 16) {
      for (unsigned i = t; i < 72 * 16; i += kThreads) {
        const unsigned row = i / 16;
        const unsigned col = k0 + i % 16;
        Half* to =
            row < 64 ? tile_a + row * kPitch + i % 16 : tile_b + (row - 64) * kPitch + i % 16;
        if (col < k) {
          *to = row < 64 ? a[row * k + col] : b[(row - 64) * k + col];
        } else if (B != Bug::mma_tail_not_zeroed) {
          *to = Half(0.0F);
        }
      }
      if (B != Bug::mma_no_barrier) __syncthreads();
      std::uint32_t fa[4];
      std::uint32_t fb[2];
      const unsigned row = warp * 16 + lane % 16 + (B == Bug::mma_row_overrun ? 1 : 0);
      ldmatrix(fa, tile_a + row * kPitch + lane / 16 * 8);
      ldmatrix(fb, tile_b + lane % 8 * kPitch + lane / 8 % 2 * 8);
      if (B == Bug::mma_diverged) {
        if (lane < 16) mma<Half, 16>(sum, fa, fb, sum);
      } else {
        mma<Half, 16>(sum, fa, fb, sum);
      }
      __syncthreads();
    }
    for (unsigned i = 0; i < 4; ++i)
      c[(warp * 16 + lane / 4 + 8 * (i / 2)) * 8 + lane % 4 * 2 + i % 2] = sum[i];
  }

  template <Bug B>
  __global__ void ring_sum(const int* x, int* out) {
    ROUNDOFF_SHARED(int, own, [1]);
    if (threadIdx.x == 0) own[0] = x[blockIdx.x];
    if (B != Bug::ring_no_sync_before) cluster_sync();
    if (threadIdx.x == 0) {
      int sum = 0;
      for (unsigned rank = 0; rank <= cluster_rank(); ++rank) sum += cluster_load(own, rank);
      out[blockIdx.x] = sum;
    }
    // Nobody leaves while its shared memory is read.
    if (B != Bug::ring_no_sync_after) cluster_sync();
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_copy_pipeline(T target, Bug bug, unsigned blocks, unsigned tiles, const float* x,
                          float* sums) {
  with_bug<Bug::none, Bug::pipeline_no_wait, Bug::pipeline_wait_too_few, Bug::pipeline_no_barrier,
           Bug::pipeline_stage_reused, Bug::pipeline_exit_unawaited, Bug::pipeline_source_overrun,
           Bug::pipeline_misaligned>(bug, [&]<Bug B>() {
    launch(target,
           {.name = "copy_pipeline",
            .grid = {blocks},
            .block = {kThreads},
            .shared = 2 * kTileFloats * sizeof(float)},
           copy_pipeline<B>, tiles, x, sums);
  });
}
template <DeviceTarget T>
void launch_mma_gemm(T target, Bug bug, unsigned k, const Half* a, const Half* b, float* c) {
  with_bug<Bug::none, Bug::mma_no_barrier, Bug::mma_diverged, Bug::mma_row_overrun,
           Bug::mma_row_misaligned, Bug::mma_tail_not_zeroed, Bug::mma_bank_conflict>(
      bug, [&]<Bug B>() {
        launch(target, {.name = "mma_gemm", .block = {kThreads}}, mma_gemm<B>, k, a, b, c);
      });
}
template <DeviceTarget T>
void launch_ring_sum(T target, Bug bug, unsigned blocks, const int* x, int* out) {
  with_bug<Bug::none, Bug::ring_no_sync_before, Bug::ring_no_sync_after>(bug, [&]<Bug B>() {
    launch(target,
           {.name = "ring_sum",
            .grid = {blocks},
            .block = {32},
            .cluster = {4},
            .needs = Architecture::sm_90a},
           ring_sum<B>, x, out);
  });
}

template void launch_copy_pipeline(Target, Bug, unsigned, unsigned, const float*, float*);
template void launch_mma_gemm(Target, Bug, unsigned, const Half*, const Half*, float*);
template void launch_ring_sum(Target, Bug, unsigned, const int*, int*);

}  // namespace roundoff
