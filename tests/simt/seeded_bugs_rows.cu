// Softmax over rows and a sum by halving: blocks whose threads combine what each of them found.
#include "kernels/simt/simt.h"
#include "tests/simt/seeded_bugs.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kThreads = 128;
  constexpr unsigned kWarps = kThreads / 32;

  ROUNDOFF_DEVICE float warp_max(float v) {
    for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_xor_sync(~0U, v, o));
    return v;
  }
  ROUNDOFF_DEVICE float warp_sum(float v) {
    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(~0U, v, o);
    return v;
  }

  template <Bug B>
  __global__ void softmax_rows(unsigned n, const float* x, float* y) {
    ROUNDOFF_SHARED(float, partial, [kWarps]);
    const unsigned warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const std::size_t row = std::size_t{blockIdx.x} * n;
    if (B == Bug::softmax_early_exit && threadIdx.x >= n) return;
    float most = -INFINITY;
    for (unsigned i = threadIdx.x; B == Bug::softmax_global_overrun ? i <= n : i < n; i += kThreads)
      most = fmaxf(most, x[row + i]);
    most = warp_max(most);
    if (lane == 0 && !(B == Bug::softmax_uninitialised && warp * 32 >= n))
      partial[B == Bug::softmax_shared_overrun ? warp + 1 : warp] = most;
    if (B != Bug::softmax_no_barrier) __syncthreads();
    for (unsigned w = 0; w < kWarps; ++w) most = fmaxf(most, partial[w]);
    if (B != Bug::softmax_buffer_reused) __syncthreads();
    float sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += kThreads) sum += expf(x[row + i] - most);
    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned w = 0; w < kWarps; ++w) sum += partial[w];
    for (unsigned i = threadIdx.x; i < n; i += kThreads) y[row + i] = expf(x[row + i] - most) / sum;
  }

  template <Bug B>
  __global__ void tree_sum(const int* x, int* out) {
    ROUNDOFF_SHARED(int, tree, [256]);
    const unsigned t = threadIdx.x;
    tree[t] = x[t];
    __syncthreads();
    for (unsigned half = B == Bug::tree_overrun ? 256 : 128; half >= 64; half /= 2) {
      if (t < half) tree[t] += tree[t + half];
      if (B != Bug::tree_no_barrier) __syncthreads();
    }
    if (t < 32) {
      if (B == Bug::tree_wrong_mask) {
        // Half of the lanes are gone by then.
        int v = tree[t] + tree[t + 32];
        if (t < 16) {
          v += __shfl_down_sync(0xFFFFU, v, 16);
          if (t == 0) out[0] = v;
        }
        return;
      }
      for (unsigned half = 32; half > 0; half /= 2) {
        const int v = tree[t] + (t < half ? tree[t + half] : 0);
        if (B == Bug::tree_shuffle_as_fence) {
          static_cast<void>(__shfl_xor_sync(~0U, v, 1));
        } else if (B != Bug::tree_no_syncwarp) {
          __syncwarp();
        }
        tree[t] = v;
        if (B == Bug::tree_shuffle_as_fence) {
          static_cast<void>(__shfl_xor_sync(~0U, v, 1));
        } else if (B != Bug::tree_no_syncwarp) {
          __syncwarp();
        }
      }
      if (t == 0) out[0] = tree[0];
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_softmax_rows(T target, Bug bug, unsigned rows, unsigned n, const float* x, float* y) {
  with_bug<Bug::none, Bug::softmax_no_barrier, Bug::softmax_buffer_reused,
           Bug::softmax_uninitialised, Bug::softmax_shared_overrun, Bug::softmax_global_overrun,
           Bug::softmax_early_exit>(bug, [&]<Bug B>() {
    launch(target, {.name = "softmax_rows", .grid = {rows}, .block = {kThreads}}, softmax_rows<B>,
           n, x, y);
  });
}
template <DeviceTarget T>
void launch_tree_sum(T target, Bug bug, const int* x, int* out) {
  with_bug<Bug::none, Bug::tree_no_barrier, Bug::tree_no_syncwarp, Bug::tree_wrong_mask,
           Bug::tree_overrun, Bug::tree_shuffle_as_fence>(bug, [&]<Bug B>() {
    launch(target, {.name = "tree_sum", .block = {256}}, tree_sum<B>, x, out);
  });
}

template void launch_softmax_rows(Target, Bug, unsigned, unsigned, const float*, float*);
template void launch_tree_sum(Target, Bug, const int*, int*);

}  // namespace roundoff
