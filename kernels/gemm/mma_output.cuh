// How the sums of a tensor-core kernel (mma_loop.cuh) begin and end: each warp moves 16 rows of its
// tile at a time through a slab of shared memory of its own, so that memory is read and written in
// runs of 16 bytes along rows and nobody waits for another warp.
//
// A slab has a pitch of kWarpN + 8 words: the pairs of sums that lanes hold (8 rows x 4 pairs)
// fall into all banks once. Runs of eight values are read as two accesses of four, every other four
// lanes beginning with the second, for the same reason.
#pragma once

#include <cstdint>

#include "kernels/gemm/mma_loop.cuh"
#include "kernels/gemm/output.cuh"

namespace roundoff {

template <class Block>
inline constexpr unsigned kSlabPitch = Block::kWarpN + 8;
template <class Block>
inline constexpr unsigned kSlabBytes = Block::kWarps * 16 * kSlabPitch<Block> * sizeof(float);
// Of dynamic shared memory that a kernel asks for.
template <class Block>
inline constexpr unsigned kMmaBytes =
    Block::kLoopBytes > kSlabBytes<Block> ? Block::kLoopBytes : kSlabBytes<Block>;

ROUNDOFF_DEVICE_NAMESPACE {
  template <class Block>
  ROUNDOFF_DEVICE float* warp_slab(unsigned char* shared) {
    return reinterpret_cast<float*>(shared) + threadIdx.x / 32 * 16 * kSlabPitch<Block>;
  }

  // This lane's pairs of the 16 rows of tiles sums[j], moved to or from a slab.
  template <class Block, bool kTo>
  ROUNDOFF_DEVICE void move_pairs(float* slab, float(&sums)[Block::kTilesN][4]) {
    const unsigned lane = threadIdx.x % 32;
    float* const at = slab + lane / 4 * kSlabPitch<Block> + lane % 4 * 2;
    ROUNDOFF_UNROLL
    for (int j = 0; j < Block::kTilesN; ++j) {
      ROUNDOFF_UNROLL
      for (int e = 0; e < 4; e += 2) {
        float* const place = at + static_cast<unsigned>(e) * 4 * kSlabPitch<Block> + j * 8;
        if constexpr (kTo) {
          store_vector(place, make_float2(sums[j][e], sums[j][e + 1]));
        } else {
          const auto pair = load_vector<float2>(place);
          sums[j][e] = pair.x;
          sums[j][e + 1] = pair.y;
        }
      }
    }
  }

  // sums = what each begins with (begin_sum), 0 outside [m, n].
  template <class Block>
  ROUNDOFF_DEVICE void begin_mma(const ProductOutput& out, unsigned m, unsigned n, unsigned result,
                                 unsigned row0, unsigned column0, unsigned char* shared,
                                 float(&sums)[Block::kTilesM][Block::kTilesN][4]) {
    ROUNDOFF_UNROLL
    for (int i = 0; i < Block::kTilesM; ++i) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < Block::kTilesN; ++j) {
        ROUNDOFF_UNROLL
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
      }
    }
    const bool held = begins_with_held<float>(out);
    if (out.late || (!held && out.addition == Addition::none)) return;
    const unsigned lane = threadIdx.x % 32;
    const unsigned first_row = row0 + mma_warp_row<Block>();
    const unsigned first_column = column0 + mma_warp_column<Block>();
    float* const slab = warp_slab<Block>(shared);
    const bool runs = out.c_aligned && (!held || out.aligned) && n % 4 == 0;
    ROUNDOFF_NO_UNROLL
    for (int slice = 0; slice < Block::kTilesM; ++slice) {
      const unsigned top = first_row + static_cast<unsigned>(slice) * 16;
      if (runs) {
        constexpr unsigned kAcross = Block::kWarpN / 4;
        ROUNDOFF_NO_UNROLL
        for (unsigned i = lane; i < 16 * kAcross; i += 32) {
          const unsigned row = top + i / kAcross, column = first_column + i % kAcross * 4;
          float v[4] = {};
          if (row < m && column < n) {
            if (held)
              load_run(out.y, DType::fp32,
                       result * out.stride + static_cast<std::int64_t>(row) * out.pitch + column,
                       v);
            if (out.addition != Addition::none) {
              float c[4];
              const std::int64_t line = out.addition == Addition::matrix
                                            ? static_cast<std::int64_t>(row) * out.c_pitch
                                            : 0;
              load_run(out.c, out.c_dtype, result * out.c_stride + line + column, c);
              const auto beta = static_cast<float>(out.beta);
              ROUNDOFF_UNROLL
              for (int j = 0; j < 4; ++j) v[j] = held ? v[j] + beta * c[j] : beta * c[j];
            }
          }
          store_vector(slab + i / kAcross * kSlabPitch<Block> + i % kAcross * 4,
                       float4{v[0], v[1], v[2], v[3]});
        }
      } else {
        ROUNDOFF_NO_UNROLL
        for (unsigned i = lane; i < 16 * Block::kWarpN; i += 32) {
          const unsigned row = top + i / Block::kWarpN, column = first_column + i % Block::kWarpN;
          slab[i / Block::kWarpN * kSlabPitch<Block> + i % Block::kWarpN] =
              row < m && column < n ? begin_sum<float>(out, result, row, column) : 0.0F;
        }
      }
      __syncwarp();
      ROUNDOFF_UNROLL
      for (int i = 0; i < Block::kTilesM; ++i)
        if (i == slice) move_pairs<Block, false>(slab, sums[i]);
      __syncwarp();
    }
    __syncthreads();
  }

  // Ends the sums and writes those inside [m, n]. `shared` is as the loop left it.
  template <class Block>
  ROUNDOFF_DEVICE void end_mma(const ProductOutput& out, unsigned m, unsigned n, unsigned result,
                               unsigned row0, unsigned column0, unsigned char* shared,
                               float(&sums)[Block::kTilesM][Block::kTilesN][4]) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned first_row = row0 + mma_warp_row<Block>();
    const unsigned first_column = column0 + mma_warp_column<Block>();
    float* const slab = warp_slab<Block>(shared);
    const bool late_c = out.late && out.addition != Addition::none;
    const bool runs = n % 4 == 0 && out.aligned && (!late_c || out.c_aligned);
    const bool runs_of_8 = runs && n % 8 == 0 && out.aligned8 && size_of(out.dtype) == 2;
    __syncthreads();
    ROUNDOFF_NO_UNROLL
    for (int slice = 0; slice < Block::kTilesM; ++slice) {
      ROUNDOFF_UNROLL
      for (int i = 0; i < Block::kTilesM; ++i)
        if (i == slice) move_pairs<Block, true>(slab, sums[i]);
      __syncwarp();
      const unsigned top = first_row + static_cast<unsigned>(slice) * 16;
      if (runs_of_8) {
        constexpr unsigned kAcross = Block::kWarpN / 8;
        ROUNDOFF_NO_UNROLL
        for (unsigned i = lane; i < 16 * kAcross; i += 32) {
          const float* from = slab + i / kAcross * kSlabPitch<Block> + i % kAcross * 8;
          const bool second = lane / 4 % 2 != 0;
          const auto x = load_vector<float4>(from + (second ? 4 : 0));
          const auto y = load_vector<float4>(from + (second ? 0 : 4));
          const float4 low = second ? y : x, high = second ? x : y;
          float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
          const unsigned row = top + i / kAcross, column = first_column + i % kAcross * 8;
          if (row < m && column < n) end_run(out, result, row, column, v);
        }
      } else if (runs) {
        constexpr unsigned kAcross = Block::kWarpN / 4;
        ROUNDOFF_NO_UNROLL
        for (unsigned i = lane; i < 16 * kAcross; i += 32) {
          const auto x =
              load_vector<float4>(slab + i / kAcross * kSlabPitch<Block> + i % kAcross * 4);
          float v[4] = {x.x, x.y, x.z, x.w};
          const unsigned row = top + i / kAcross, column = first_column + i % kAcross * 4;
          if (row < m && column < n) end_run(out, result, row, column, v);
        }
      } else {
        ROUNDOFF_NO_UNROLL
        for (unsigned i = lane; i < 16 * Block::kWarpN; i += 32) {
          const unsigned row = top + i / Block::kWarpN, column = first_column + i % Block::kWarpN;
          const float v = slab[i / Block::kWarpN * kSlabPitch<Block> + i % Block::kWarpN];
          if (row < m && column < n) write_element(out, result, row, column, v);
        }
      }
      __syncwarp();
    }
  }

}  // namespace

}  // namespace roundoff
