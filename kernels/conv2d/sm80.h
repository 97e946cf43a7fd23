// Convolutions on the tensor cores of sm_80 and later: the main loop of products
// (kernels/gemm/mma_loop.cuh) over windows of images, an instance for each type of operands.
#pragma once

#include "kernels/conv2d/source.cuh"
#include "kernels/gemm/output.cuh"
#include "kernels/gemm/problem.h"

namespace roundoff {

// Forward: (WindowSource, MatrixSource) with the sum along taps and channels; the input's gradient:
// (WindowSource, FilterSource); the weights': (MatrixSource, WindowSource) with the sum along
// pixels.
template <DeviceTarget T, class A, class B>
void launch_conv2d_half(T target, const ProductProblem& p, const A& a, const B& b,
                        const ProductOutput& out, Scratch& scratch);
template <DeviceTarget T, class A, class B>
void launch_conv2d_bfloat16(T target, const ProductProblem& p, const A& a, const B& b,
                            const ProductOutput& out, Scratch& scratch);
template <DeviceTarget T, class A, class B>
void launch_conv2d_tf32(T target, const ProductProblem& p, const A& a, const B& b,
                        const ProductOutput& out, Scratch& scratch);

}  // namespace roundoff
