// The kernel for sm_80 over matrices as they lie in memory, an instance for each type of operands
// and each tile.
#pragma once

#include "kernels/gemm/select.h"
#include "kernels/gemm/sm80.cuh"

namespace roundoff {

template <DeviceTarget T>
void launch_sm80_half(T target, const ProductProblem& p, ProductTile tile, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out, Scratch& scratch);
template <DeviceTarget T>
void launch_sm80_bfloat16(T target, const ProductProblem& p, ProductTile tile,
                          const MatrixSource& a, const MatrixSource& b, const ProductOutput& out,
                          Scratch& scratch);
template <DeviceTarget T>
void launch_sm80_tf32(T target, const ProductProblem& p, ProductTile tile, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out, Scratch& scratch);

}  // namespace roundoff
