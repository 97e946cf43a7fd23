// The kernel for sm_80 over matrices of fp32 values, multiplied as tf32.
#include "kernels/gemm/sm80_matrices.cuh"

namespace roundoff {

template <DeviceTarget T>
void launch_sm80_tf32(T target, const ProductProblem& p, ProductTile tile, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out, Scratch& scratch) {
  launch_sm80_matrices<Tf32>(target, p, tile, a, b, out, scratch);
}

template void launch_sm80_tf32(Target, const ProductProblem&, ProductTile, const MatrixSource&,
                               const MatrixSource&, const ProductOutput&, Scratch&);

}  // namespace roundoff
