// The ladder's first rung, `naive`: a thread computes one element, its operands straight from
// memory.
//
// Nothing is shared: an m x n x k product reads 2 m n k values, which caches may or may not hold,
// for one multiply-add each. What the rungs above gain, they gain over this.
//
// Numerics: one chain of fused multiply-adds in fp32 over depth, in order.
#pragma once

#include "kernels/gemm/parts.cuh"
#include "kernels/gemm/tile.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Neighbouring threads compute neighbours in a row.
  template <class A, class B>
  __global__ void __launch_bounds__(128) product_naive(ProductGrid g, A a, B b, ProductOutput out) {
    const ProductPlace at = product_place(g, blockIdx.x, 1);
    const unsigned column = at.tile_n * 128 + threadIdx.x, row = at.tile_m;
    if (column >= g.size.n) return;
    float sum = begin_sum<float>(out, at.matrix, row, column);
    unsigned term = at.first / g.steps, depth = at.first % g.steps;
    ROUNDOFF_NO_UNROLL
    for (unsigned step = at.first; step < at.last; ++step) {
      a.select(at.result + term);
      b.select(at.result + term);
      sum = multiply_add(a.value(row, depth), b.value(column, depth), sum);
      if (++depth == g.steps) {
        depth = 0;
        ++term;
      }
    }
    write_element(out, at.matrix, row, column, sum);
  }

}  // namespace

template <class T, class A, class B>
void launch_naive(T target, const ProductProblem& p, const A& a, const B& b,
                  const ProductOutput& out, Scratch& scratch) {
  const ProductGrid g = product_grid(p, 1, 128, 1);
  Scratch::Frame frame(scratch);
  float* partial = partial_sums<float>(g, scratch);
  launch(target, {.name = p.name, .grid = {g.blocks()}, .block = {128}}, product_naive<A, B>, g, a,
         b, kernel_output(g, out, partial));
  launch_add_parts<float>(target, p, g, out, partial);
}

}  // namespace roundoff
