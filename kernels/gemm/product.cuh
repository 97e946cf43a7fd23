// Products of two sources (source.cuh) on a device: what GEMM and convolution launch.
//
// A block computes one tile (tile.cuh) of one result, or of one part of its sum: where a sum is
// long and a result small, the steps along depth are cut into parts, whose sums wait in workspace
// and are added in order by a second launch. How a sum is cut depends on the product's sizes alone,
// never on the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/gemm/modelled.cuh"
#include "kernels/gemm/modelled.h"
#include "kernels/gemm/output.cuh"
#include "kernels/gemm/tile.cuh"

namespace roundoff {

// Results [m, n] of sums over depth, and over `terms` matrices; all of them below 2^31.
struct ProductSizes {
  unsigned m = 0, n = 0, depth = 0;
  unsigned terms = 1;    // matrices that one sum runs through
  unsigned results = 1;  // matrices of results; one of the two is 1
};

// How a launch is laid out: blocks count through columns of tiles, rows, parts and results.
struct ProductGrid {
  ProductSizes size;
  unsigned tiles_m = 1, tiles_n = 1;
  unsigned steps = 1;  // along the depth of one matrix
  unsigned all_steps = 0;
  unsigned parts = 1, steps_a_part = 0;
};

ROUNDOFF_DEVICE_NAMESPACE {
  template <class C, class T, class A, class B>
  __global__ void __launch_bounds__(T::kThreads, 1)
      product_tiles(ProductGrid g, A a, B b, ProductOutput out, C * partial) {
    constexpr int kLeft = 2 * buffer_size<C, T::kM, T::kDepth>();
    constexpr int kRight = 2 * buffer_size<C, T::kN, T::kDepth>();
    ROUNDOFF_SHARED(Access<C>, buffers, [(kLeft + kRight) / kLanes<C>]);
    C* const shared = reinterpret_cast<C*>(buffers);
    unsigned index = blockIdx.x;
    const unsigned column0 = index % g.tiles_n * T::kN;
    index /= g.tiles_n;
    const unsigned row0 = index % g.tiles_m * T::kM;
    index /= g.tiles_m;
    const unsigned part = index % g.parts, result = index / g.parts;
    const bool whole = g.parts == 1;

    C sums[T::kRows][T::kColumns];
    ROUNDOFF_UNROLL
    for (int i = 0; i < T::kRows; ++i) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < T::kColumns; ++j) sums[i][j] = C(0);
    }
    if (whole && !out.late && (out.addition != Addition::none || begins_with_held<C>(out)))
      begin_tile<T>(
          g.size.m, g.size.n, row0, column0, shared, sums,
          [&](unsigned row, unsigned column) { return begin_sum<C>(out, result, row, column); });

    const unsigned first = part * g.steps_a_part;
    const unsigned last =
        first + g.steps_a_part < g.all_steps ? first + g.steps_a_part : g.all_steps;
    multiply_steps<T>(a, b, result, first, last, g.steps, row0, column0, shared, shared + kLeft,
                      sums);

    ProductOutput to = out;
    if (!whole) {
      to = {};
      to.y = partial;
      to.dtype = kDTypeOf<C>;
      to.pitch = g.size.n;
      to.stride = static_cast<std::int64_t>(g.size.m) * g.size.n;
      to.aligned = g.size.n % kLanes<C> == 0;
    }
    const unsigned matrix = whole ? result : result * g.parts + part;
    end_tile<T>(
        g.size.m, g.size.n, row0, column0, shared, sums, writes_runs<C>(to),
        [&](unsigned row, unsigned column, const C(&v)[kLanes<C>]) {
          write_run(to, matrix, row, column, v);
        },
        [&](unsigned row, unsigned column, C v) { write_element(to, matrix, row, column, v); });
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
    const C* from = partial + result * g.parts * matrix + index % matrix;
    C sum = begin_sum<C>(out, result, row, column);
    for (unsigned part = 0; part < g.parts; ++part) sum += from[part * matrix];
    write_element(out, result, row, column, sum);
  }

}  // namespace

// A product, its operands apart.
struct ProductProblem {
  const char* name = "product";  // of the operation, in messages and profiles
  ProductSizes size;
  bool wide = false;      // in fp64
  Arithmetic arithmetic;  // where not wide
  // The sum may be cut into parts: for sums over samples. A sum that belongs to one sample must not
  // depend on how many others there are, nor on how they are cut.
  bool may_split = false;
  ProductKernel kernel = ProductKernel::automatic;
};

// Parts of a sum of `steps` steps of a result that `tiles` blocks compute: at least 16 steps each
// (256 products), and no more blocks than a large device holds.
inline unsigned product_parts(std::uint64_t tiles, std::uint64_t steps) {
  constexpr std::uint64_t kStepsAPart = 16, kBlocks = 256;
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>(std::min(steps / kStepsAPart, kBlocks / tiles), 1, 64));
}

template <class Tile>
ProductGrid product_grid(const ProductProblem& p) {
  ProductGrid g{.size = p.size};
  g.tiles_m = (p.size.m + Tile::kM - 1) / Tile::kM;
  g.tiles_n = (p.size.n + Tile::kN - 1) / Tile::kN;
  g.steps = std::max(1U, (p.size.depth + Tile::kDepth - 1) / Tile::kDepth);
  const std::uint64_t steps =
      p.size.depth == 0 ? 0 : static_cast<std::uint64_t>(g.steps) * p.size.terms;
  g.all_steps = device_extent(p.name, "a sum's length", static_cast<std::int64_t>(steps));
  const std::uint64_t tiles = std::uint64_t{g.tiles_m} * g.tiles_n * p.size.results;
  if (p.may_split) g.parts = product_parts(tiles, steps);
  g.steps_a_part = (g.all_steps + g.parts - 1) / g.parts;
  if (g.steps_a_part != 0) g.parts = (g.all_steps + g.steps_a_part - 1) / g.steps_a_part;
  device_extent(p.name, "the number of blocks", static_cast<std::int64_t>(tiles * g.parts));
  return g;
}

inline unsigned blocks_of(const ProductGrid& g) {
  return g.tiles_m * g.tiles_n * g.parts * g.size.results;
}

template <class C, class Tile, class T, class A, class B>
void launch_tiles(T target, const ProductProblem& p, const A& a, const B& b,
                  const ProductOutput& out, Scratch& scratch) {
  const ProductGrid g = product_grid<Tile>(p);
  Scratch::Frame frame(scratch);
  const std::int64_t size = static_cast<std::int64_t>(p.size.m) * p.size.n * p.size.results;
  C* partial = g.parts > 1 ? scratch.get<C>(size * g.parts) : nullptr;
  launch(target, {.name = p.name, .grid = {blocks_of(g)}, .block = {Tile::kThreads}},
         product_tiles<C, Tile, A, B>, g, a, b, out, partial);
  if (g.parts == 1) return;
  launch(target,
         {.name = p.name,
          .grid = {device_extent(p.name, "the number of blocks", (size + 127) / 128)},
          .block = {128}},
         add_parts<C>, g, out, static_cast<const C*>(partial));
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
    return launch_modelled(target, p.name, p.arithmetic, {z.m, z.n, z.depth, z.terms, z.results}, a,
                           b, out);
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
