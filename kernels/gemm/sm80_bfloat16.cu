// The kernel for sm_80 over matrices of bf16.
#include "kernels/gemm/sm80_matrices.cuh"

namespace roundoff {

template <DeviceTarget T>
void launch_sm80_bfloat16(T target, const ProductProblem& p, ProductTile tile,
                          const MatrixSource& a, const MatrixSource& b, const ProductOutput& out,
                          Scratch& scratch) {
  launch_sm80_matrices<BFloat16>(target, p, tile, a, b, out, scratch);
}

template void launch_sm80_bfloat16(Target, const ProductProblem&, ProductTile, const MatrixSource&,
                                   const MatrixSource&, const ProductOutput&, Scratch&);

}  // namespace roundoff
