// Small kernels that use each part of the kernel language once.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

// y[i] = a x[i] + y[i].
template <DeviceTarget T>
void launch_axpy(T target, unsigned n, float a, const float* x, float* y);

// Every block of 128 reverses its own part of x through static shared memory; n = 128 blocks.
template <DeviceTarget T>
void launch_reverse(T target, unsigned blocks, const int* x, int* y);

// sums[b] = sum of the `threads` values of block b, by shuffles and dynamic shared memory.
template <DeviceTarget T>
void launch_block_sum(T target, unsigned blocks, unsigned threads, const int* x, int* sums);

// What a lane reads: out[4 * lane + mode], for lanes of one warp under `width`.
template <DeviceTarget T>
void launch_shuffles(T target, int width, int amount, unsigned* out);

// Per lane: ballot of odd lanes, match_any of lane % 5, match_all of a constant and of the lane,
// reduce add, min, max (signed), and, or, xor. 10 words a lane; one warp of `lanes` lanes.
template <DeviceTarget T>
void launch_votes(T target, unsigned lanes, unsigned* out);

// Warps 0 to `producers` - 1 arrive at a named barrier that the others wait for before they read.
template <DeviceTarget T>
void launch_named_barrier(T target, int* out);

// Threads below `leave` exit at once; the others meet twice at __syncthreads and count themselves.
template <DeviceTarget T>
void launch_early_exit(T target, unsigned threads, unsigned leave, int* out);

// counts[0]: atomicAdd of 1; [1]: atomicMax of the global thread; [2]: atomicCAS winner count;
// the last block to finish writes the sum of `part` to out.
template <DeviceTarget T>
void launch_last_block(T target, unsigned blocks, int* part, unsigned* counts, int* out);

// Reductions at a barrier: any, all, count.
template <DeviceTarget T>
void launch_barrier_reduce(T target, unsigned threads, int* out);

// out[block] = global block index, seen through its place in the cluster.
template <DeviceTarget T>
void launch_cluster_places(T target, unsigned blocks, unsigned cluster, unsigned* out);

enum class Misuse : int {
  mask_without_self,
  mask_of_exited,
  mask_beyond_warp,
  divergent_collectives,
  shuffle_outside_mask,
  barrier_divergent_in_warp,
  barrier_missing_thread,
  barrier_id,
  barrier_count,
  shared_too_large,
  shuffle_width,
  misaligned_atomic,
  exit_before_collective,
  throws
};
template <DeviceTarget T>
void launch_misuse(T target, Misuse misuse, int* out);

}  // namespace roundoff
