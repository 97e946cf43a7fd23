// Kernels of the usual kinds, each right as it stands and wrong in one way for every Bug that it
// knows. What a check of kernels must find, and where it must keep silent.
#pragma once

#include "kernels/base/half.h"
#include "kernels/base/target.h"

namespace roundoff {

enum class Bug : int {
  none,
  // softmax_rows: a block a row, warps combined through shared memory
  softmax_no_barrier,
  softmax_buffer_reused,
  softmax_uninitialised,
  softmax_shared_overrun,
  softmax_global_overrun,
  softmax_early_exit,
  // tree_sum: halving in shared memory, the last steps inside a warp
  tree_no_barrier,
  tree_no_syncwarp,
  tree_wrong_mask,
  tree_overrun,
  tree_shuffle_as_fence,
  // tiled_gemm: 16 x 16 tiles through shared memory
  gemm_no_barrier_before,
  gemm_no_barrier_after,
  gemm_no_zero_fill,
  gemm_depth_off_by_one,
  gemm_row_off_by_one,
  gemm_tiles_overlap,
  gemm_barrier_in_branch,
  // transpose: 32 x 32 tiles
  transpose_no_barrier,
  transpose_bank_conflict,
  transpose_edge,
  transpose_misaligned,
  transpose_strided_store,
  // histogram: shared bins, summed by the last block to finish
  histogram_not_zeroed,
  histogram_not_atomic,
  histogram_no_barrier_before,
  histogram_no_barrier_after,
  histogram_no_fence,
  histogram_plain_counter,
  histogram_flag_unseen,
  histogram_barrier_count,
  // scale: y = a x, one element a thread
  scale_null,
  scale_overlapping_blocks,
  // copy_pipeline: cp.async into two stages, each thread reads what another one copied
  pipeline_no_wait,
  pipeline_wait_too_few,
  pipeline_no_barrier,
  pipeline_stage_reused,
  pipeline_exit_unawaited,
  pipeline_source_overrun,
  pipeline_misaligned,
  // mma_gemm: 64 x 8 by four warps, ldmatrix and mma.sync
  mma_no_barrier,
  mma_diverged,
  mma_row_overrun,
  mma_row_misaligned,
  mma_tail_not_zeroed,
  mma_bank_conflict,
  // wgmma_gemm: 64 x 32; A by TMA through two stages, B by ordinary stores, C by a TMA store
  wgmma_init_unseen,
  wgmma_full_not_awaited,
  wgmma_wrong_phase,
  wgmma_early_release,
  wgmma_double_arrive,
  wgmma_released_twice,
  wgmma_bytes_too_few,
  wgmma_bytes_too_many,
  wgmma_no_proxy_fence,
  wgmma_no_wait,
  wgmma_store_no_proxy_fence,
  wgmma_store_not_awaited,
  wgmma_no_fence,
  // ring_sum: every block of a cluster adds up what the blocks before it hold
  ring_no_sync_before,
  ring_no_sync_after,
};

// x, y: rows x n.
template <DeviceTarget T>
void launch_softmax_rows(T target, Bug bug, unsigned rows, unsigned n, const float* x, float* y);
// out[0] = sum of 256 values.
template <DeviceTarget T>
void launch_tree_sum(T target, Bug bug, const int* x, int* out);
// c[m,n] = a[m,k] b[k,n].
template <DeviceTarget T>
void launch_tiled_gemm(T target, Bug bug, unsigned m, unsigned n, unsigned k, const float* a,
                       const float* b, float* c);
// y[cols,rows] from x[rows,cols].
template <DeviceTarget T>
void launch_transpose(T target, Bug bug, unsigned rows, unsigned cols, const float* x, float* y);
// bins[16] of keys below 16; partial: 16 a block; count: one zero, zero again afterwards.
template <DeviceTarget T>
void launch_histogram(T target, Bug bug, unsigned blocks, unsigned n, const unsigned* keys,
                      unsigned* partial, unsigned* count, unsigned* bins);
template <DeviceTarget T>
void launch_scale(T target, Bug bug, unsigned n, float a, const float* x, float* y);

// sums[b, t] of 512 bytes a tile; `tiles` of them a block of 128 threads: floats x[b, tile, 512].
template <DeviceTarget T>
void launch_copy_pipeline(T target, Bug bug, unsigned blocks, unsigned tiles, const float* x,
                          float* sums);
// c[64,8] = a[64,k] b[8,k]^T, k a multiple of 8.
template <DeviceTarget T>
void launch_mma_gemm(T target, Bug bug, unsigned k, const Half* a, const Half* b, float* c);
// c[64,32] = a[64,k] b[32,k]^T, k a multiple of 64, at most 256; b[32,k] K-major.
template <DeviceTarget T>
void launch_wgmma_gemm(T target, Bug bug, unsigned k, const Half* a, const Half* b, float* c);
// out[b] = sum of x of the blocks of b's cluster of four up to b's own.
template <DeviceTarget T>
void launch_ring_sum(T target, Bug bug, unsigned blocks, const int* x, int* out);

// Calls f.template operator()<B>() for the B that `bug` is, of those listed.
template <Bug... All, class F>
void with_bug(Bug bug, F&& f) {
  static_cast<void>(((bug == All ? (f.template operator()<All>(), true) : false) || ...));
}

}  // namespace roundoff
