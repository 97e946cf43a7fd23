// The kernel for sm_80 over matrices of fp16.
#include "kernels/gemm/sm80_matrices.cuh"

namespace roundoff {

template <DeviceTarget T>
void launch_sm80_half(T target, const ProductProblem& p, ProductTile tile, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out, Scratch& scratch) {
  launch_sm80_matrices<Half>(target, p, tile, a, b, out, scratch);
}

template void launch_sm80_half(Target, const ProductProblem&, ProductTile, const MatrixSource&,
                               const MatrixSource&, const ProductOutput&, Scratch&);

}  // namespace roundoff
