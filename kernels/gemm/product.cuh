// Products of two sources (source.cuh) on a device, in tiles that shared memory and registers hold
// (tile.cuh): the rung `tiles` of the ladder, which takes every type.
//
// A block computes one tile of one result, or of one part of its sum: where a sum is long and a
// result small, it is cut into parts (problem.h), whose sums wait in workspace and are added in
// order by a second launch.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/gemm/mma.cuh"
#include "kernels/gemm/modelled.cuh"
#include "kernels/gemm/parts.cuh"
#include "kernels/gemm/tile.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  template <class C, class T, class A, class B>
  __global__ void __launch_bounds__(T::kThreads, 1)
      product_tiles(ProductGrid g, A a, B b, ProductOutput out) {
    constexpr int kLeft = 2 * buffer_size<C, T::kM, T::kDepth>();
    constexpr int kRight = 2 * buffer_size<C, T::kN, T::kDepth>();
    ROUNDOFF_SHARED(Access<C>, buffers, [(kLeft + kRight) / kLanes<C>]);
    C* const shared = reinterpret_cast<C*>(buffers);
    const ProductPlace at = product_place(g, blockIdx.x, 1);
    const unsigned row0 = at.tile_m * T::kM, column0 = at.tile_n * T::kN;

    C sums[T::kRows][T::kColumns];
    ROUNDOFF_UNROLL
    for (int i = 0; i < T::kRows; ++i) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < T::kColumns; ++j) sums[i][j] = C(0);
    }
    if (!out.late && (out.addition != Addition::none || begins_with_held<C>(out)))
      begin_tile<T>(
          g.size.m, g.size.n, row0, column0, shared, sums,
          [&](unsigned row, unsigned column) { return begin_sum<C>(out, at.matrix, row, column); });

    multiply_steps<T>(a, b, at.result, at.first, at.last, g.steps, row0, column0, shared,
                      shared + kLeft, sums);

    end_tile<T>(
        g.size.m, g.size.n, row0, column0, shared, sums, writes_runs<C>(out),
        [&](unsigned row, unsigned column, const C(&v)[kLanes<C>]) {
          write_run(out, at.matrix, row, column, v);
        },
        [&](unsigned row, unsigned column, C v) { write_element(out, at.matrix, row, column, v); });
  }

}  // namespace

template <class C, class Tile, class T, class A, class B>
void launch_tiles(T target, const ProductProblem& p, const A& a, const B& b,
                  const ProductOutput& out, Scratch& scratch) {
  const ProductGrid g = product_grid(p, Tile::kM, Tile::kN, Tile::kDepth);
  Scratch::Frame frame(scratch);
  C* partial = partial_sums<C>(g, scratch);
  launch(target, {.name = p.name, .grid = {g.blocks()}, .block = {Tile::kThreads}},
         product_tiles<C, Tile, A, B>, g, a, b, kernel_output(g, out, partial));
  launch_add_parts<C>(target, p, g, out, partial);
}

// In the arithmetic that an accumulator models, of any sources.
template <class T, class A, class B>
void launch_modelled(T target, const ProductProblem& p, const A& a, const B& b,
                     const ProductOutput& out, Scratch& scratch) {
  if (p.arithmetic.accumulator == Accumulator::fp16)
    return launch_half_chains(target, p, a, b, out);
  if (p.arithmetic.operand == DType::fp16) return launch_mma<Half>(target, p, a, b, out, scratch);
  if (p.arithmetic.operand == DType::bf16)
    return launch_mma<BFloat16>(target, p, a, b, out, scratch);
  launch_mma<Tf32>(target, p, a, b, out, scratch);
}

// Which tiles a caller's products come in: `large` ones are worth their registers from so many of
// them on that every multiprocessor has one.
template <bool kLargeTiles, class T, class A, class B>
void launch_product(T target, const ProductProblem& p, const A& a, const B& b, ProductOutput out,
                    Scratch& scratch) {
  const ProductSizes& z = p.size;
  if (p.wide) return launch_tiles<double, Tile<32, 32, 4, 4>>(target, p, a, b, out, scratch);
  if (p.arithmetic.modelled && z.depth != 0) {
    out.late = !p.arithmetic.chains() || out.alpha != 1;
    return launch_modelled(target, p, a, b, out, scratch);
  }
  if constexpr (kLargeTiles) {
    const std::uint64_t large = std::uint64_t{(z.m + 127) / 128} * ((z.n + 127) / 128) * z.results;
    if (z.m > 64 && z.n > 64 && large >= 128)
      return launch_tiles<float, Tile<128, 128, 8, 8>>(target, p, a, b, out, scratch);
  }
  if (z.m > 32 && z.n > 32)
    return launch_tiles<float, Tile<64, 64, 8, 8>>(target, p, a, b, out, scratch);
  if (z.m > 32) return launch_tiles<float, Tile<64, 32, 8, 4>>(target, p, a, b, out, scratch);
  launch_tiles<float, Tile<32, 32, 4, 8>>(target, p, a, b, out, scratch);
}

}  // namespace roundoff
