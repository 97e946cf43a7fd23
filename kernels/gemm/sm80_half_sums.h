// Products of fp16 matrices with sums in fp16 on tensor cores.
#pragma once

#include "kernels/gemm/sm80.cuh"

namespace roundoff {

// out.late must be set, and no sum may be cut.
template <DeviceTarget T>
void launch_half_sums(T target, const ProductProblem& p, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out);

}  // namespace roundoff
