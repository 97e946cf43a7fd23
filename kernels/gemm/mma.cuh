// The first rung on tensor cores, `mma`: fragments by ldmatrix, multiplied by mma.sync.
//
// Against `tiles`: an instruction of a warp makes 2048 multiply-adds of 16-bit operands (tf32:
// 1024) where a thread made one, operands stay 16 bits wide in shared memory, and ldmatrix moves
// four 8 x 8 matrices at once. Left as it was: one buffer, filled through registers between two
// barriers, so that products wait for memory at every step; and lines of 64 bytes as they come, so
// that the eight rows of a matrix share banks four by four. `sm80` undoes both.
//
// Layout and numerics: mma_loop.cuh, whose parts this loop is made of.
#pragma once

#include "kernels/gemm/mma_output.cuh"
#include "kernels/gemm/parts.cuh"

namespace roundoff {

// 64 x 64 in four warps of 32 x 32, without swizzle.
using MmaBlockPlain = MmaBlock<64, 64, 32, 32, 1, 3, true, false>;

ROUNDOFF_DEVICE_NAMESPACE {
  template <class T, class A, class B>
  __global__ void __launch_bounds__(MmaBlockPlain::kThreads, MmaBlockPlain::kBlocks)
      product_mma(ProductGrid g, A a, B b, ProductOutput out) {
    using Block = MmaBlockPlain;
    ROUNDOFF_DYNAMIC_SHARED(shared);
    constexpr unsigned kLeft = Block::kM * Block::kLineBytes;
    using FeedA = MmaUnits<T, Block, Block::kM, Along::either, A>;
    using FeedB = MmaUnits<T, Block, Block::kN, Along::either, B>;
    MmaFragments<T, Block, Block::kM, Block::kWarpM, true, Along::either> left;
    MmaFragments<T, Block, Block::kN, Block::kWarpN, false, Along::either> right;
    const ProductPlace at = product_place(g, blockIdx.x, 1);
    const unsigned row0 = at.tile_m * Block::kM, column0 = at.tile_n * Block::kN;
    float sums[Block::kTilesM][Block::kTilesN][4];
    begin_mma<Block>(out, g.size.m, g.size.n, at.matrix, row0, column0, shared, sums);
    const bool depth_a = a.contiguous_depth(), depth_b = b.contiguous_depth();
    const unsigned left0 = left.begin(mma_warp_row<Block>(), depth_a);
    const unsigned right0 = kLeft + right.begin(mma_warp_column<Block>(), depth_b);
    unsigned term = at.first / g.steps, step = at.first % g.steps;
    ROUNDOFF_NO_UNROLL
    for (unsigned i = at.first; i < at.last; ++i) {
      a.select(at.result + term);
      b.select(at.result + term);
      FeedA::fetch_values(a, row0, step * kMmaDepth<T>, shared);
      FeedB::fetch_values(b, column0, step * kMmaDepth<T>, shared + kLeft);
      __syncthreads();
      ROUNDOFF_UNROLL
      for (unsigned half = 0; half < 2; ++half) {
        left.load(shared, left0, half, depth_a);
        right.load(shared, right0, half, depth_b);
        mma_tile<T, static_cast<int>(32 / sizeof(T))>(sums, left.x, right.x);
      }
      __syncthreads();
      if (++step == g.steps) {
        step = 0;
        ++term;
      }
    }
    end_mma<Block>(out, g.size.m, g.size.n, at.matrix, row0, column0, shared, sums);
  }

}  // namespace

template <class T, class Target, class A, class B>
void launch_mma(Target target, const ProductProblem& p, const A& a, const B& b,
                const ProductOutput& out, Scratch& scratch) {
  using Block = MmaBlockPlain;
  const ProductGrid g = product_grid(p, Block::kM, Block::kN, kMmaDepth<T>);
  Scratch::Frame frame(scratch);
  float* partial = partial_sums<float>(g, scratch);
  LaunchConfig config{
      .name = p.name, .grid = {g.blocks()}, .block = {Block::kThreads}, .shared = kMmaBytes<Block>};
  if (p.arithmetic.modelled) config.tensor_core = p.arithmetic.accumulator;
  launch(target, config, product_mma<T, A, B>, g, a, b, kernel_output(g, out, partial));
  launch_add_parts<float>(target, p, g, out, partial);
}

}  // namespace roundoff
