// How a product is laid out over blocks, and how the parts of cut sums come together: what the
// kernels of the ladder share around their main loops.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/gemm/output.cuh"
#include "kernels/gemm/problem.h"

namespace roundoff {

// Blocks count through tiles, then parts, then results.
struct ProductGrid {
  ProductSizes size;
  unsigned tiles_m = 1, tiles_n = 1;
  unsigned steps = 1;      // of a kernel's loop, along the depth of one matrix
  unsigned all_steps = 0;  // of all terms
  unsigned steps_a_block = 1;
  ProductCut cut;

  unsigned blocks() const { return tiles_m * tiles_n * cut.parts * size.results; }
};

// For tiles of tile_m x tile_n whose steps are `depth` places, a divisor of 64.
inline ProductGrid product_grid(const ProductProblem& p, unsigned tile_m, unsigned tile_n,
                                unsigned depth) {
  ProductGrid g;
  g.size = p.size;
  g.tiles_m = (p.size.m + tile_m - 1) / tile_m;
  g.tiles_n = (p.size.n + tile_n - 1) / tile_n;
  g.steps = std::max(1U, (p.size.depth + depth - 1) / depth);
  const std::uint64_t steps =
      p.size.depth == 0 ? 0 : static_cast<std::uint64_t>(g.steps) * p.size.terms;
  g.all_steps = device_extent(p.name, "a sum's length", static_cast<std::int64_t>(steps));
  g.steps_a_block = ProductCut::kBlock / depth;
  g.cut = product_cut(p);
  const std::uint64_t tiles = std::uint64_t{g.tiles_m} * g.tiles_n * p.size.results;
  device_extent(p.name, "the number of blocks", static_cast<std::int64_t>(tiles * g.cut.parts));
  return g;
}

ROUNDOFF_DEVICE_NAMESPACE {
  // What one block computes: a tile of a result, over steps [first, last).
  struct ProductPlace {
    unsigned tile_m, tile_n, result;
    unsigned matrix;  // of the kernel's output: a result, or one of its parts
    unsigned first, last;
  };

  ROUNDOFF_DEVICE unsigned step_of_block(const ProductGrid& g, unsigned block) {
    if (block >= g.cut.all_blocks) return g.all_steps;
    return block / g.cut.blocks * g.steps + block % g.cut.blocks * g.steps_a_block;
  }

  // Tiles go down `group` rows of tiles, then on to the next column: blocks that run side by side
  // share rows of A and columns of B.
  ROUNDOFF_DEVICE ProductPlace product_place(const ProductGrid& g, unsigned index, unsigned group) {
    const unsigned tiles = g.tiles_m * g.tiles_n;
    const unsigned tile = index % tiles, rest = index / tiles;
    const unsigned band = tile / (group * g.tiles_n), in_band = tile % (group * g.tiles_n);
    const unsigned left = g.tiles_m - band * group, height = left < group ? left : group;
    ProductPlace at;
    at.tile_m = band * group + in_band % height;
    at.tile_n = in_band / height;
    const unsigned part = rest % g.cut.parts;
    at.result = rest / g.cut.parts;
    at.matrix = rest;
    at.first = step_of_block(g, part * g.cut.blocks_a_part);
    at.last = step_of_block(g, (part + 1) * g.cut.blocks_a_part);
    return at;
  }

  // One element a thread: the parts' sums, in order.
  template <class C>
  __global__ void __launch_bounds__(128)
      add_parts(ProductGrid g, ProductOutput out, const C* partial) {
    const std::int64_t matrix = static_cast<std::int64_t>(g.size.m) * g.size.n;
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= matrix * g.size.results) return;
    const auto column = static_cast<unsigned>(index % g.size.n);
    const auto row = static_cast<unsigned>(index / g.size.n % g.size.m);
    const auto result = static_cast<unsigned>(index / matrix);
    const C* from = partial + result * g.cut.parts * matrix + index % matrix;
    C sum = begin_sum<C>(out, result, row, column);
    for (unsigned part = 0; part < g.cut.parts; ++part) sum += from[part * matrix];
    write_element(out, result, row, column, sum);
  }

}  // namespace

// A source of a batch of matrices from matrix `first` on.
template <class Source>
Source from_term(Source source, unsigned first) {
  const std::int64_t bytes = static_cast<std::int64_t>(first) * source.stride *
                             static_cast<std::int64_t>(size_of(source.dtype));
  if (first != 0) source.data = static_cast<const std::byte*>(source.data) + bytes;
  return source;
}

// Calls launch(first, count, out) for terms of a sum by matrix, in order, so that their sums take
// at most 64 MiB of workspace at a time (or one matrix): a later call adds to what an earlier one
// left, which has the same bits where the result is of the type that is summed in. Every other sum,
// and any other result, is one call.
template <class F>
void each_terms(const ProductProblem& p, ProductOutput out, F&& launch) {
  constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
  const std::uint64_t size = p.wide ? sizeof(double) : sizeof(float);
  const std::uint64_t matrix = std::uint64_t{p.size.m} * p.size.n * size;
  const bool continues = p.order == SumOrder::by_matrix &&
                         out.dtype == (p.wide ? DType::fp64 : DType::fp32) &&
                         out.activation == Activation::none;
  const std::uint64_t most =
      continues ? std::max<std::uint64_t>(kBytes / std::max<std::uint64_t>(matrix, 1), 1)
                : p.size.terms;
  if (p.size.terms <= most) return launch(0U, p.size.terms, out);
  for (std::uint64_t first = 0; first < p.size.terms; first += most) {
    const std::uint64_t count = std::min<std::uint64_t>(most, p.size.terms - first);
    launch(static_cast<unsigned>(first), static_cast<unsigned>(count), out);
    out.accumulate = true;
    out.addition = Addition::none;
  }
}

// Memory for the parts' sums of a cut product; none where a kernel writes the results.
template <class C>
C* partial_sums(const ProductGrid& g, Scratch& scratch) {
  if (!g.cut.folded) return nullptr;
  return scratch.get<C>(static_cast<std::int64_t>(g.size.m) * g.size.n * g.size.results *
                        g.cut.parts);
}

// What a kernel writes: the results, or the sums of parts as results of their own, so that in both
// cases matrix `result * parts + part` is a block's.
template <class C>
ProductOutput kernel_output(const ProductGrid& g, const ProductOutput& out, C* partial) {
  if (!g.cut.folded) return out;
  ProductOutput to;
  to.y = partial;
  to.dtype = sizeof(C) == 8 ? DType::fp64 : DType::fp32;
  to.pitch = g.size.n;
  to.stride = static_cast<std::int64_t>(g.size.m) * g.size.n;
  align_runs(to);
  return to;
}

// Adds them, after the kernel that leaves them there.
template <class C, class T>
void launch_add_parts(T target, const ProductProblem& p, const ProductGrid& g,
                      const ProductOutput& out, const C* partial) {
  if (!g.cut.folded) return;
  const std::int64_t size = static_cast<std::int64_t>(p.size.m) * p.size.n * p.size.results;
  launch(target,
         {.name = p.name,
          .grid = {device_extent(p.name, "the number of blocks", (size + 127) / 128)},
          .block = {128}},
         add_parts<C>, g, out, partial);
}

}  // namespace roundoff
