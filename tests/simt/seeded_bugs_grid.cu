// Blocks that work together: a histogram whose last block sums up, and elements shared out.
#include "kernels/simt/simt.h"
#include "tests/simt/seeded_bugs.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kThreads = 64;
  constexpr unsigned kBins = 16;

  template <Bug B>
  __global__ void histogram(unsigned n, const unsigned* keys, unsigned* partial, unsigned* count,
                            unsigned* bins) {
    ROUNDOFF_SHARED(unsigned, own, [kBins]);
    ROUNDOFF_SHARED(bool, last, [1]);
    if (threadIdx.x < kBins && B != Bug::histogram_not_zeroed) own[threadIdx.x] = 0;
    if (B == Bug::histogram_barrier_count && threadIdx.x >= 32) {
      bar_sync(1, 96);
    } else if (B != Bug::histogram_no_barrier_before) {
      __syncthreads();
    }
    for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
      if (B == Bug::histogram_not_atomic) {
        own[keys[i]] += 1;
      } else {
        atomicAdd(&own[keys[i]], 1U);
      }
    }
    if (B != Bug::histogram_no_barrier_after) __syncthreads();
    if (threadIdx.x < kBins) partial[blockIdx.x * kBins + threadIdx.x] = own[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      if (B != Bug::histogram_no_fence) __threadfence();
      if (B == Bug::histogram_plain_counter) {
        last[0] = ++*count == gridDim.x;
      } else {
        last[0] = atomicAdd(count, 1U) == gridDim.x - 1;
      }
    }
    if (B != Bug::histogram_flag_unseen) __syncthreads();
    if (!last[0]) return;
    __threadfence();
    if (threadIdx.x < kBins) {
      unsigned sum = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b * kBins + threadIdx.x];
      bins[threadIdx.x] = sum;
    }
    if (threadIdx.x == 0) *count = 0;
  }

  template <Bug B>
  __global__ void scale(unsigned n, float a, const float* x, float* y) {
    const unsigned step = B == Bug::scale_overlapping_blocks ? blockDim.x - 1 : blockDim.x;
    const unsigned i = blockIdx.x * step + threadIdx.x;
    if (i < n) y[i] = a * x[i];
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_histogram(T target, Bug bug, unsigned blocks, unsigned n, const unsigned* keys,
                      unsigned* partial, unsigned* count, unsigned* bins) {
  with_bug<Bug::none, Bug::histogram_not_zeroed, Bug::histogram_not_atomic,
           Bug::histogram_no_barrier_before, Bug::histogram_no_barrier_after,
           Bug::histogram_no_fence, Bug::histogram_plain_counter, Bug::histogram_flag_unseen,
           Bug::histogram_barrier_count>(bug, [&]<Bug B>() {
    launch(target, {.name = "histogram", .grid = {blocks}, .block = {kThreads}}, histogram<B>, n,
           keys, partial, count, bins);
  });
}
template <DeviceTarget T>
void launch_scale(T target, Bug bug, unsigned n, float a, const float* x, float* y) {
  with_bug<Bug::none, Bug::scale_null, Bug::scale_overlapping_blocks>(bug, [&]<Bug B>() {
    launch(target, {.name = "scale", .grid = {(n + 127) / 128}, .block = {128}}, scale<B>, n, a, x,
           B == Bug::scale_null ? nullptr : y);
  });
}

template void launch_histogram(Target, Bug, unsigned, unsigned, const unsigned*, unsigned*,
                               unsigned*, unsigned*);
template void launch_scale(Target, Bug, unsigned, float, const float*, float*);

}  // namespace roundoff
