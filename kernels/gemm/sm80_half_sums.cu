// Products of fp16 matrices whose sums are in fp16 too, as tensor cores offer it (mma.sync with
// fp16 accumulators): a study of what is lost, on the loop of the kernel for sm_80.
//
// Numerics: a sum begins at 0 and is rounded to fp16 after every block of products that the
// hardware adds at once (docs/numerics.md); not to be confused with Accumulator::fp16, which rounds
// after every product. alpha, beta C and what y holds join in fp32, after the products.
#include "kernels/gemm/sm80_half_sums.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  template <class Block>
  __global__ void __launch_bounds__(Block::kThreads, Block::kBlocks)
      product_half_sums(ProductGrid g, MatrixSource a, MatrixSource b, ProductOutput out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    const ProductPlace at = product_place(g, blockIdx.x, 8);
    const unsigned row0 = at.tile_m * Block::kM, column0 = at.tile_n * Block::kN;
    std::uint32_t halves[Block::kTilesM][Block::kTilesN][2] = {};
    multiply_stages<Half, Block, Along::either, Along::either>(
        a, b, at.result, at.first, at.last, g.steps, row0, column0, shared,
        [&](const auto& x, const auto& y) {
          ROUNDOFF_UNROLL
          for (int i = 0; i < Block::kTilesM; ++i) {
            ROUNDOFF_UNROLL
            for (int j = 0; j < Block::kTilesN; ++j)
              mma_half<16>(halves[i][j], x[i], y[j], halves[i][j]);
          }
        });
    float sums[Block::kTilesM][Block::kTilesN][4];
    ROUNDOFF_UNROLL
    for (int i = 0; i < Block::kTilesM; ++i) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < Block::kTilesN; ++j) {
        ROUNDOFF_UNROLL
        for (int e = 0; e < 4; ++e)
          sums[i][j][e] = half_bits_to_float(halves[i][j][e / 2] >> (e % 2 * 16) & 0xFFFFU);
      }
    }
    end_mma<Block>(out, g.size.m, g.size.n, at.matrix, row0, column0, shared, sums);
  }

}  // namespace

template <DeviceTarget T>
void launch_half_sums(T target, const ProductProblem& p, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out) {
  using Block = MmaBlock64x64;
  const ProductGrid g = product_grid(p, Block::kM, Block::kN, kMmaDepth<Half>);
  LaunchConfig config{
      .name = p.name, .grid = {g.blocks()}, .block = {Block::kThreads}, .shared = kMmaBytes<Block>};
  if (p.arithmetic.modelled) config.tensor_core = p.arithmetic.accumulator;
  launch(target, config, product_half_sums<Block>, g, a, b, out);
}

template void launch_half_sums(Target, const ProductProblem&, const MatrixSource&,
                               const MatrixSource&, const ProductOutput&);

}  // namespace roundoff
