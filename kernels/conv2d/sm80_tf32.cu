// Convolutions of tf32 on the tensor cores of sm_80.
#include "kernels/conv2d/sm80.cuh"

namespace roundoff {

template <DeviceTarget T, class A, class B>
void launch_conv2d_tf32(T target, const ProductProblem& p, const A& a, const B& b,
                        const ProductOutput& out, Scratch& scratch) {
  launch_conv2d_sm80<Tf32>(target, p, a, b, out, scratch);
}

template void launch_conv2d_tf32(Target, const ProductProblem&, const WindowSource&,
                                 const MatrixSource&, const ProductOutput&, Scratch&);
template void launch_conv2d_tf32(Target, const ProductProblem&, const WindowSource&,
                                 const FilterSource&, const ProductOutput&, Scratch&);
template void launch_conv2d_tf32(Target, const ProductProblem&, const MatrixSource&,
                                 const WindowSource&, const ProductOutput&, Scratch&);

}  // namespace roundoff
