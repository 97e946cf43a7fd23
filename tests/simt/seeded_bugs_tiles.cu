// A product and a transpose by tiles in shared memory.
#include "kernels/simt/simt.h"
#include "tests/simt/seeded_bugs.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kTile = 16;

  template <Bug B>
  __global__ void tiled_gemm(unsigned m, unsigned n, unsigned k, const float* a, const float* b,
                             float* c) {
    ROUNDOFF_SHARED(float, tile_a, [kTile * kTile]);
    ROUNDOFF_SHARED(float, tile_b, [kTile * kTile]);
    const unsigned i = threadIdx.y;
    const unsigned j = threadIdx.x;
    constexpr unsigned kStep = B == Bug::gemm_tiles_overlap ? kTile - 1 : kTile;
    const unsigned row = blockIdx.y * kStep + i;
    const unsigned col = blockIdx.x * kTile + j;
    const unsigned depth = B == Bug::gemm_depth_off_by_one ? k + 1 : k;
    const unsigned skew = B == Bug::gemm_row_off_by_one ? 1 : 0;
    float sum = 0;
    for (unsigned k0 = 0; k0 < k; k0 += kTile) {
      if (row < m && k0 + j < depth) {
        tile_a[i * kTile + j + skew] = a[row * k + k0 + j];
      } else if (B != Bug::gemm_no_zero_fill) {
        tile_a[i * kTile + j + skew] = 0;
      }
      if (k0 + i < depth && col < n) {
        tile_b[i * kTile + j] = b[(k0 + i) * n + col];
      } else if (B != Bug::gemm_no_zero_fill) {
        tile_b[i * kTile + j] = 0;
      }
      if (B == Bug::gemm_barrier_in_branch) {
        if (row < m) __syncthreads();
      } else if (B != Bug::gemm_no_barrier_before) {
        __syncthreads();
      }
      for (unsigned kk = 0; kk < kTile; ++kk)
        sum = fmaf(tile_a[i * kTile + kk + skew], tile_b[kk * kTile + j], sum);
      if (B != Bug::gemm_no_barrier_after) __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
  }

  constexpr unsigned kSquare = 32;
  constexpr unsigned kRows = 8;  // of threads

  template <Bug B>
  __global__ void transpose(unsigned rows, unsigned cols, const float* x, float* y) {
    constexpr unsigned kPitch = B == Bug::transpose_bank_conflict ? kSquare : kSquare + 1;
    ROUNDOFF_SHARED(float, tile, [kSquare * kPitch]);
    const unsigned col = blockIdx.x * kSquare + threadIdx.x;
    if (B == Bug::transpose_strided_store) {
      for (unsigned r = threadIdx.y; r < kSquare; r += kRows) {
        const unsigned row = blockIdx.y * kSquare + r;
        if (row < rows && col < cols) y[col * rows + row] = x[row * cols + col];
      }
      return;
    }
    if (B == Bug::transpose_misaligned) {
      // Four at once, where a row does not begin on a multiple of four.
      const unsigned row = blockIdx.y * kSquare + threadIdx.y;
      if (threadIdx.x == 0 && row < rows) {
        const auto v = load_vector<float4>(x + row * cols);
        y[row] = v.x;
      }
      return;
    }
    for (unsigned r = threadIdx.y; r < kSquare; r += kRows) {
      const unsigned row = blockIdx.y * kSquare + r;
      if (row < rows && col < cols) tile[r * kPitch + threadIdx.x] = x[row * cols + col];
    }
    if (B != Bug::transpose_no_barrier) __syncthreads();
    const unsigned out_col = blockIdx.y * kSquare + threadIdx.x;
    for (unsigned r = threadIdx.y; r < kSquare; r += kRows) {
      const unsigned out_row = blockIdx.x * kSquare + r;
      const bool inside = B == Bug::transpose_edge ? out_row <= cols && out_col < rows
                                                   : out_row < cols && out_col < rows;
      if (inside) y[out_row * rows + out_col] = tile[threadIdx.x * kPitch + r];
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_tiled_gemm(T target, Bug bug, unsigned m, unsigned n, unsigned k, const float* a,
                       const float* b, float* c) {
  with_bug<Bug::none, Bug::gemm_no_barrier_before, Bug::gemm_no_barrier_after,
           Bug::gemm_no_zero_fill, Bug::gemm_depth_off_by_one, Bug::gemm_row_off_by_one,
           Bug::gemm_tiles_overlap, Bug::gemm_barrier_in_branch>(bug, [&]<Bug B>() {
    launch(target,
           {.name = "tiled_gemm",
            .grid = {(n + kTile - 1) / kTile, (m + kTile - 1) / kTile},
            .block = {kTile, kTile}},
           tiled_gemm<B>, m, n, k, a, b, c);
  });
}
template <DeviceTarget T>
void launch_transpose(T target, Bug bug, unsigned rows, unsigned cols, const float* x, float* y) {
  with_bug<Bug::none, Bug::transpose_no_barrier, Bug::transpose_bank_conflict, Bug::transpose_edge,
           Bug::transpose_misaligned, Bug::transpose_strided_store>(bug, [&]<Bug B>() {
    launch(target,
           {.name = "transpose",
            .grid = {(cols + kSquare - 1) / kSquare, (rows + kSquare - 1) / kSquare},
            .block = {kSquare, kRows}},
           transpose<B>, rows, cols, x, y);
  });
}

template void launch_tiled_gemm(Target, Bug, unsigned, unsigned, unsigned, const float*,
                                const float*, float*);
template void launch_transpose(Target, Bug, unsigned, unsigned, const float*, float*);

}  // namespace roundoff
