// The ladder's kernel for sm_80, and the general one (rung `sm80`).
//
// Against `mma`: copies go to shared memory without registers (cp.async) and several steps ahead of
// the products, places are swizzled so that ldmatrix meets no bank conflicts, fragments are read
// one mma ahead, and a warp's tile is 64 x 64, so that 8 ldmatrix feed 32 mma.sync. The tensor
// cores should hence wait for nothing but the start and the end of a tile.
//
// Mathematics, layout and numerics of the loop: mma_loop.cuh; of a sum's ends: mma_output.cuh.
// y = activation(alpha A B + beta C + what y held), a block a tile of one result, or of one part of
// its sum (parts.cuh).
#pragma once

#include "kernels/gemm/mma_output.cuh"
#include "kernels/gemm/parts.cuh"

namespace roundoff {

// Tiles, largest first. The first two have warps of 64 x 64 and take chunked sources only.
using MmaBlock256x128 = MmaBlock<256, 128, 64, 64, 4, 1, false>;
using MmaBlock128x128 = MmaBlock<128, 128, 64, 64, 4, 2, false>;
using MmaBlock64x64 = MmaBlock<64, 64, 32, 32, 4, 3, true>;
using MmaBlock32x32 = MmaBlock<32, 32, 32, 32, 4, 4, true>;

ROUNDOFF_DEVICE_NAMESPACE {
  template <class T, class Block, Along kAlongA, Along kAlongB, class A, class B>
  __global__ void __launch_bounds__(Block::kThreads, Block::kBlocks)
      product_sm80(ProductGrid g, A a, B b, ProductOutput out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    constexpr int kDeep = 32 / sizeof(T);
    const ProductPlace at = product_place(g, blockIdx.x, 8);
    const unsigned row0 = at.tile_m * Block::kM, column0 = at.tile_n * Block::kN;
    float sums[Block::kTilesM][Block::kTilesN][4];
    begin_mma<Block>(out, g.size.m, g.size.n, at.matrix, row0, column0, shared, sums);
    multiply_stages<T, Block, kAlongA, kAlongB>(
        a, b, at.result, at.first, at.last, g.steps, row0, column0, shared,
        [&](const auto& x, const auto& y) { mma_tile<T, kDeep>(sums, x, y); });
    end_mma<Block>(out, g.size.m, g.size.n, at.matrix, row0, column0, shared, sums);
  }

}  // namespace

// Sources whose stored type is not T are not chunked.
template <class T, class Block, Along kAlongA, Along kAlongB, class Target, class A, class B>
void launch_sm80(Target target, const ProductProblem& p, A a, B b, const ProductOutput& out,
                 Scratch& scratch) {
  const ProductGrid g = product_grid(p, Block::kM, Block::kN, kMmaDepth<T>);
  a.chunked = a.chunked && size_of(a.dtype) == sizeof(T);
  b.chunked = b.chunked && size_of(b.dtype) == sizeof(T);
  ROUNDOFF_CHECK(Block::kAnySource || (a.chunked && b.chunked), p.name, "tiles of ", Block::kM,
                 " x ", Block::kN, " are for operands aligned to 16 bytes");
  Scratch::Frame frame(scratch);
  float* partial = partial_sums<float>(g, scratch);
  LaunchConfig config{
      .name = p.name, .grid = {g.blocks()}, .block = {Block::kThreads}, .shared = kMmaBytes<Block>};
  if (p.arithmetic.modelled) config.tensor_core = p.arithmetic.accumulator;
  launch(target, config, product_sm80<T, Block, kAlongA, kAlongB, A, B>, g, a, b,
         kernel_output(g, out, partial));
  launch_add_parts<float>(target, p, g, out, partial);
}

}  // namespace roundoff
