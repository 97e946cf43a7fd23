// Instances of the kernel for sm_80 over matrices: the large tiles know at compile time along which
// axis each operand lies, the small ones ask.
#pragma once

#include "kernels/gemm/sm80.h"

namespace roundoff {

template <class T, class Block, class Target>
void launch_sm80_layouts(Target target, const ProductProblem& p, const MatrixSource& a,
                         const MatrixSource& b, const ProductOutput& out, Scratch& scratch) {
  if (a.depth_contiguous && b.depth_contiguous)
    return launch_sm80<T, Block, Along::depth, Along::depth>(target, p, a, b, out, scratch);
  if (a.depth_contiguous)
    return launch_sm80<T, Block, Along::depth, Along::rows>(target, p, a, b, out, scratch);
  if (b.depth_contiguous)
    return launch_sm80<T, Block, Along::rows, Along::depth>(target, p, a, b, out, scratch);
  launch_sm80<T, Block, Along::rows, Along::rows>(target, p, a, b, out, scratch);
}

template <class T, class Block, class Target>
void launch_sm80_either(Target target, const ProductProblem& p, const MatrixSource& a,
                        const MatrixSource& b, const ProductOutput& out, Scratch& scratch) {
  launch_sm80<T, Block, Along::either, Along::either>(target, p, a, b, out, scratch);
}

template <class T, class Target>
void launch_sm80_matrices(Target target, const ProductProblem& p, ProductTile tile,
                          const MatrixSource& a, const MatrixSource& b, const ProductOutput& out,
                          Scratch& scratch) {
  switch (tile) {
    case ProductTile::m256n128:
      return launch_sm80_layouts<T, MmaBlock256x128>(target, p, a, b, out, scratch);
    case ProductTile::m128n128:
      return launch_sm80_layouts<T, MmaBlock128x128>(target, p, a, b, out, scratch);
    case ProductTile::m64n64:
      return launch_sm80_either<T, MmaBlock64x64>(target, p, a, b, out, scratch);
    case ProductTile::automatic:
    case ProductTile::m32n32:
      return launch_sm80_either<T, MmaBlock32x32>(target, p, a, b, out, scratch);
  }
}

}  // namespace roundoff
