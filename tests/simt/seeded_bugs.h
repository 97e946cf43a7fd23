// Kernels of the usual kinds, each right as it stands and wrong in one way for every Bug that it
// knows. What a check of kernels must find, and where it must keep silent.
#pragma once

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

// Calls f.template operator()<B>() for the B that `bug` is, of those listed.
template <Bug... All, class F>
void with_bug(Bug bug, F&& f) {
  static_cast<void>(((bug == All ? (f.template operator()<All>(), true) : false) || ...));
}

}  // namespace roundoff
