// Implicit GEMM by the kernel for sm_80 (kernels/gemm/sm80.cuh). What differs from a product of
// matrices is where a chunk of an operand lies: a thread decodes its pixels once, walks the taps by
// adding what each is further on, and asks cp.async for no bytes where a position is outside the
// image (source.cuh).
//
// Chunks of 16 bytes need channels of a group in multiples of 8 (tf32: 4). Fewer or other channels
// come through registers, taps and channels in one line: 7 x 7 x 3 are 147 products, 160 with the
// last step's zeros, where channels padded to 8 would make 392.
#pragma once

#include <type_traits>

#include "kernels/conv2d/sm80.h"
#include "kernels/gemm/select.h"
#include "kernels/gemm/sm80.cuh"

namespace roundoff {

// Warps of 64 x 32, not 64 x 64: what a thread keeps of pixels and taps needs registers too.
using ConvBlock128x128 = MmaBlock<128, 128, 64, 32, 4, 1, false>;

template <class T, class Target, class A, class B>
void launch_conv2d_sm80(Target target, const ProductProblem& p, const A& a, const B& b,
                        const ProductOutput& out, Scratch& scratch) {
  constexpr Along kA = std::is_same_v<A, WindowSource> ? Along::depth : Along::rows;
  constexpr Along kB =
      kA == Along::depth && std::is_same_v<B, MatrixSource> ? Along::depth : Along::rows;
  const bool chunked =
      a.chunked && b.chunked && size_of(a.dtype) == sizeof(T) && size_of(b.dtype) == sizeof(T);
  switch (select_tile(p, chunked)) {
    case ProductTile::m256n128:
    case ProductTile::m128n128:
      return launch_sm80<T, ConvBlock128x128, kA, kB>(target, p, a, b, out, scratch);
    case ProductTile::m64n64:
      return launch_sm80<T, MmaBlock64x64, kA, kB>(target, p, a, b, out, scratch);
    case ProductTile::automatic:
    case ProductTile::m32n32:
      return launch_sm80<T, MmaBlock32x32, kA, kB>(target, p, a, b, out, scratch);
  }
}

}  // namespace roundoff
