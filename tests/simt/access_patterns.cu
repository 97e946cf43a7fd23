#include "tests/simt/access_patterns.h"

#include "kernels/simt/copy.h"
#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kBytes = 8 * 1024;

  template <class V>
  __global__ void global_pattern(unsigned lanes, unsigned offset, unsigned stride,
                                 const unsigned char* x, unsigned char* y) {
    const unsigned lane = threadIdx.x;
    if (lane >= lanes) return;
    if constexpr (sizeof(V) == 2) {
      reinterpret_cast<V*>(y)[lane] = *reinterpret_cast<const V*>(x + offset + lane * stride);
    } else {
      store_vector(y + lane * sizeof(V), load_vector<V>(x + offset + lane * stride));
    }
  }

  template <class V>
  __global__ void shared_pattern(unsigned lanes, unsigned offset, unsigned stride,
                                 unsigned char* y) {
    ROUNDOFF_SHARED(uint4, all, [kBytes / 16]);
    unsigned char* bytes = reinterpret_cast<unsigned char*>(all);
    const unsigned lane = threadIdx.x;
    if (lane >= lanes) return;
    V* mine = reinterpret_cast<V*>(bytes + offset + lane * stride);
    if (stride == 0 && lane != 0) {
      // One lane alone writes what all of them read.
    } else if constexpr (sizeof(V) == 2) {
      *mine = V{};
    } else {
      store_vector(mine, V{});
    }
    __syncthreads();
    if constexpr (sizeof(V) == 2) {
      reinterpret_cast<V*>(y)[lane] = *mine;
    } else {
      store_vector(y + lane * sizeof(V), load_vector<V>(mine));
    }
  }

  template <int kCount>
  __global__ void matrix_pattern(unsigned pitch, std::uint32_t* y) {
    ROUNDOFF_SHARED(uint4, all, [kBytes / 16]);
    unsigned char* bytes = reinterpret_cast<unsigned char*>(all);
    const unsigned lane = threadIdx.x;
    store_vector(bytes + lane * pitch, uint4{});
    __syncwarp();
    std::uint32_t values[kCount];
    ldmatrix(values, bytes + lane * pitch);
    for (int i = 0; i < kCount; ++i) y[lane * kCount + static_cast<unsigned>(i)] = values[i];
  }

  __global__ void copy_pattern(const unsigned char* x, unsigned char* y) {
    ROUNDOFF_SHARED(uint4, all, [32]);
    const unsigned lane = threadIdx.x;
    cp_async<16>(all + lane, x + 16 * lane);
    cp_async_wait_all();
    store_vector(y + 16 * lane, load_vector<uint4>(all + lane));
  }

  __global__ void atomic_pattern(unsigned stride, unsigned* y) {
    ROUNDOFF_SHARED(unsigned, all, [1024]);
    const unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < 1024; i += 32) all[i] = 0;
    __syncwarp();
    atomicAdd(&all[lane * stride], 1U);
    atomicAdd(&y[lane * stride], 1U);
  }

  __global__ void ragged_loop(const float* x, float* y) {
    const unsigned lane = threadIdx.x;
    float sum = 0;
    for (unsigned round = 0; round < lane % 4 + 1; ++round) sum += x[32 * round + lane];
    y[lane] = sum;
  }

  __global__ void plus_one(unsigned n, const float* x, float* y) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_global_pattern(T target, unsigned bytes, unsigned lanes, unsigned offset,
                           unsigned stride, const unsigned char* x, unsigned char* y) {
  const LaunchConfig config{.name = "global_pattern", .block = {32}};
  if (bytes == 2)
    launch(target, config, global_pattern<unsigned short>, lanes, offset, stride, x, y);
  if (bytes == 4) launch(target, config, global_pattern<float>, lanes, offset, stride, x, y);
  if (bytes == 8) launch(target, config, global_pattern<uint2>, lanes, offset, stride, x, y);
  if (bytes == 16) launch(target, config, global_pattern<uint4>, lanes, offset, stride, x, y);
}
template <DeviceTarget T>
void launch_shared_pattern(T target, unsigned bytes, unsigned lanes, unsigned offset,
                           unsigned stride, unsigned char* y) {
  const LaunchConfig config{.name = "shared_pattern", .block = {32}};
  if (bytes == 2) launch(target, config, shared_pattern<unsigned short>, lanes, offset, stride, y);
  if (bytes == 4) launch(target, config, shared_pattern<float>, lanes, offset, stride, y);
  if (bytes == 8) launch(target, config, shared_pattern<uint2>, lanes, offset, stride, y);
  if (bytes == 16) launch(target, config, shared_pattern<uint4>, lanes, offset, stride, y);
}
template <DeviceTarget T>
void launch_matrix_pattern(T target, unsigned count, unsigned pitch, std::uint32_t* y) {
  const LaunchConfig config{.name = "matrix_pattern", .block = {32}};
  if (count == 1) launch(target, config, matrix_pattern<1>, pitch, y);
  if (count == 2) launch(target, config, matrix_pattern<2>, pitch, y);
  if (count == 4) launch(target, config, matrix_pattern<4>, pitch, y);
}
template <DeviceTarget T>
void launch_copy_pattern(T target, const unsigned char* x, unsigned char* y) {
  launch(target, {.name = "copy_pattern", .block = {32}}, copy_pattern, x, y);
}
template <DeviceTarget T>
void launch_atomic_pattern(T target, unsigned stride, unsigned* y) {
  launch(target, {.name = "atomic_pattern", .block = {32}}, atomic_pattern, stride, y);
}
template <DeviceTarget T>
void launch_ragged_loop(T target, const float* x, float* y) {
  launch(target, {.name = "ragged_loop", .block = {32}}, ragged_loop, x, y);
}
template <DeviceTarget T>
void launch_plus_one(T target, unsigned n, const float* x, float* y) {
  launch(target, {.name = "plus_one", .grid = {(n + 127) / 128}, .block = {128}}, plus_one, n, x,
         y);
}

template void launch_global_pattern(Target, unsigned, unsigned, unsigned, unsigned,
                                    const unsigned char*, unsigned char*);
template void launch_shared_pattern(Target, unsigned, unsigned, unsigned, unsigned, unsigned char*);
template void launch_matrix_pattern(Target, unsigned, unsigned, std::uint32_t*);
template void launch_copy_pattern(Target, const unsigned char*, unsigned char*);
template void launch_atomic_pattern(Target, unsigned, unsigned*);
template void launch_ragged_loop(Target, const float*, float*);
template void launch_plus_one(Target, unsigned, const float*, float*);

}  // namespace roundoff
