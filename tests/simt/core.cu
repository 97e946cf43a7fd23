#include "tests/simt/core.h"

#include "kernels/base/check.h"
#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  __global__ void axpy(unsigned n, float a, const float* x, float* y) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
  }

  __global__ void reverse(const int* x, int* y) {
    ROUNDOFF_SHARED(int, part, [128]);
    const unsigned base = blockIdx.x * 128;
    part[threadIdx.x] = x[base + threadIdx.x];
    __syncthreads();
    y[base + threadIdx.x] = part[127 - threadIdx.x];
  }

  __global__ void block_sum(const int* x, int* sums) {
    ROUNDOFF_DYNAMIC_SHARED(bytes);
    int* partial = reinterpret_cast<int*>(bytes);
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xFFFFFFFFU, v, o);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
      v = lane < blockDim.x / 32 ? partial[lane] : 0;
      for (int o = 16; o > 0; o /= 2)
        v += __shfl_down_sync(0xFFFFFFFFU, v, static_cast<unsigned>(o));
      if (lane == 0) sums[blockIdx.x] = v;
    }
  }

  __global__ void shuffles(int width, int amount, unsigned* out) {
    const unsigned lane = threadIdx.x;
    const auto delta = static_cast<unsigned>(amount);
    out[4 * lane] = __shfl_sync(~0U, lane, amount, width);
    out[4 * lane + 1] = __shfl_up_sync(~0U, lane, delta, width);
    out[4 * lane + 2] = __shfl_down_sync(~0U, lane, delta, width);
    out[4 * lane + 3] = __shfl_xor_sync(~0U, lane, amount, width);
  }

  __global__ void votes(unsigned* out) {
    const unsigned lane = threadIdx.x;
    const unsigned all = blockDim.x == 32 ? ~0U : (1U << blockDim.x) - 1;
    unsigned* mine = out + 10 * lane;
    int same = 0;
    mine[0] = __ballot_sync(all, static_cast<int>(lane % 2));
    mine[1] = __match_any_sync(all, lane % 5);
    mine[2] = __match_all_sync(all, 7, &same);
    mine[3] = __match_all_sync(all, lane, &same);
    mine[4] = __reduce_add_sync(all, lane);
    mine[5] = static_cast<unsigned>(__reduce_min_sync(all, static_cast<int>(lane) - 3));
    mine[6] = static_cast<unsigned>(__reduce_max_sync(all, -static_cast<int>(lane)));
    mine[7] = __reduce_and_sync(all, lane | 64U);
    mine[8] = __reduce_or_sync(all, lane);
    mine[9] = __reduce_xor_sync(all, lane + 1);
  }

  __global__ void named_barrier(int* out) {
    ROUNDOFF_SHARED(int, box, [64]);
    const unsigned warp = threadIdx.x / 32;
    if (warp < 2) {
      box[threadIdx.x] = static_cast<int>(threadIdx.x) + 100;
      bar_arrive(3, 96);
    } else if (warp == 2) {
      bar_sync(3, 96);
      out[threadIdx.x - 64] = box[threadIdx.x - 64] + box[threadIdx.x - 32];
    }
  }

  __global__ void early_exit(unsigned leave, int* out) {
    ROUNDOFF_SHARED(int, count, [1]);
    if (threadIdx.x < leave) return;
    if (threadIdx.x == leave) count[0] = 0;
    __syncthreads();
    atomicAdd(&count[0], 1);
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) out[0] = count[0];
  }

  __global__ void last_block(int* part, unsigned* counts, int* out) {
    ROUNDOFF_SHARED(bool, last, [1]);
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counts[0], 1U);
    atomicMax(&counts[1], i);
    if (atomicCAS(&counts[2], 0U, i + 1) == 0) atomicAdd(&counts[3], 1U);
    if (threadIdx.x == 0) {
      part[blockIdx.x] = static_cast<int>(blockIdx.x * blockIdx.x);
      __threadfence();
      last[0] = atomicAdd(&counts[4], 1U) == gridDim.x - 1;
    }
    __syncthreads();
    if (last[0] && threadIdx.x == 0) {
      __threadfence();
      int sum = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) sum += part[b];
      out[0] = sum;
    }
  }

  __global__ void barrier_reduce(int* out) {
    const int t = static_cast<int>(threadIdx.x);
    const int any = __syncthreads_or(t == 1);
    const int none = __syncthreads_or(t < 0);
    const int all = __syncthreads_and(t >= 0);
    const int not_all = __syncthreads_and(t != 2);
    const int count = __syncthreads_count(t % 3 == 0);
    out[t] = (any != 0 ? 1 : 0) + (none != 0 ? 2 : 0) + (all != 0 ? 4 : 0) +
             (not_all != 0 ? 8 : 0) + 16 * count;
  }

  __global__ void cluster_places(unsigned cluster, unsigned* out) {
    if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x * 100 + gridDim.x + cluster;
  }

  __global__ void misuse_kernel(Misuse misuse, int* out) {
    const unsigned lane = threadIdx.x % 32;
    const int mine = static_cast<int>(threadIdx.x);
    int v = 0;
    switch (misuse) {
      case Misuse::mask_without_self:
        v = __shfl_xor_sync(~1U, mine, 0);
        break;
      case Misuse::mask_of_exited:
        if (lane == 5) return;
        __syncwarp(~(1U << 5));
        v = __shfl_xor_sync(~0U, mine, 1);
        break;
      case Misuse::mask_beyond_warp:
        if (threadIdx.x >= 32) __syncwarp(~0U);
        break;
      case Misuse::divergent_collectives:
        if (lane < 16) {
          __syncwarp(~0U);
        } else {
          v = static_cast<int>(__ballot_sync(~0U, 1));
        }
        break;
      case Misuse::shuffle_outside_mask:
        if (lane < 16) v = __shfl_sync(0xFFFFU, mine, 20);
        break;
      case Misuse::barrier_divergent_in_warp:
        if (lane % 2 == 0) {
          __syncthreads();
        } else {
          v = 1;
          __syncthreads();
        }
        break;
      case Misuse::barrier_missing_thread:
        if (threadIdx.x == 33) {
          bar_sync(1, 32);
        } else {
          __syncthreads();
        }
        break;
      case Misuse::barrier_id:
        bar_sync(16, 32);
        break;
      case Misuse::barrier_count:
        bar_sync(1, 40);
        break;
      case Misuse::shared_too_large: {
#if ROUNDOFF_SIM  // ptxas refuses it
        ROUNDOFF_SHARED(char, large, [240 * 1024]);
        large[threadIdx.x] = 1;
#endif
        break;
      }
      case Misuse::shuffle_width:
        v = __shfl_sync(~0U, mine, 0, 12);
        break;
      case Misuse::misaligned_atomic:
        atomicAdd(reinterpret_cast<int*>(reinterpret_cast<char*>(out) + 2), 1);
        break;
      case Misuse::exit_before_collective:
        if (threadIdx.x == 31) return;
        v = __shfl_xor_sync(~0U, mine, 1);
        break;
      case Misuse::throws:
#if ROUNDOFF_SIM
        if (threadIdx.x == 3) throw Error("[misuse] thrown in a kernel");
#endif
        break;
    }
    out[threadIdx.x] = v;
  }

}  // namespace

template <DeviceTarget T>
void launch_axpy(T target, unsigned n, float a, const float* x, float* y) {
  launch(target, {.name = "axpy", .grid = {(n + 127) / 128}, .block = {128}}, axpy, n, a, x, y);
}
template <DeviceTarget T>
void launch_reverse(T target, unsigned blocks, const int* x, int* y) {
  launch(target, {.name = "reverse", .grid = {blocks}, .block = {128}}, reverse, x, y);
}
template <DeviceTarget T>
void launch_block_sum(T target, unsigned blocks, unsigned threads, const int* x, int* sums) {
  launch(target, {.name = "block_sum", .grid = {blocks}, .block = {threads}, .shared = 128},
         block_sum, x, sums);
}
template <DeviceTarget T>
void launch_shuffles(T target, int width, int amount, unsigned* out) {
  launch(target, {.name = "shuffles", .block = {32}}, shuffles, width, amount, out);
}
template <DeviceTarget T>
void launch_votes(T target, unsigned lanes, unsigned* out) {
  launch(target, {.name = "votes", .block = {lanes}}, votes, out);
}
template <DeviceTarget T>
void launch_named_barrier(T target, int* out) {
  launch(target, {.name = "named_barrier", .block = {128}}, named_barrier, out);
}
template <DeviceTarget T>
void launch_early_exit(T target, unsigned threads, unsigned leave, int* out) {
  launch(target, {.name = "early_exit", .block = {threads}}, early_exit, leave, out);
}
template <DeviceTarget T>
void launch_last_block(T target, unsigned blocks, int* part, unsigned* counts, int* out) {
  launch(target, {.name = "last_block", .grid = {blocks}, .block = {64}}, last_block, part, counts,
         out);
}
template <DeviceTarget T>
void launch_barrier_reduce(T target, unsigned threads, int* out) {
  launch(target, {.name = "barrier_reduce", .block = {threads}}, barrier_reduce, out);
}
template <DeviceTarget T>
void launch_cluster_places(T target, unsigned blocks, unsigned cluster, unsigned* out) {
  launch(target, {.name = "cluster_places", .grid = {blocks}, .block = {32}, .cluster = {cluster}},
         cluster_places, cluster, out);
}
template <DeviceTarget T>
void launch_misuse(T target, Misuse misuse, int* out) {
  const unsigned threads = misuse == Misuse::mask_beyond_warp ? 48 : 64;
  launch(target, {.name = "misuse", .grid = {2}, .block = {threads}}, misuse_kernel, misuse, out);
}

template void launch_axpy(Target, unsigned, float, const float*, float*);
template void launch_reverse(Target, unsigned, const int*, int*);
template void launch_block_sum(Target, unsigned, unsigned, const int*, int*);
template void launch_shuffles(Target, int, int, unsigned*);
template void launch_votes(Target, unsigned, unsigned*);
template void launch_named_barrier(Target, int*);
template void launch_early_exit(Target, unsigned, unsigned, int*);
template void launch_last_block(Target, unsigned, int*, unsigned*, int*);
template void launch_barrier_reduce(Target, unsigned, int*);
template void launch_cluster_places(Target, unsigned, unsigned, unsigned*);
template void launch_misuse(Target, Misuse, int*);

}  // namespace roundoff
