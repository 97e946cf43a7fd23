// Tensor maps and launches of sm90.cuh's kernels.
#pragma once

#include <algorithm>

#include "kernels/gemm/sm90.cuh"
#include "kernels/gemm/sm90.h"
#include "kernels/simt/multiprocessors.h"

namespace roundoff {

namespace sm90_detail {

// Lines of 128 bytes, `rows` of them, of one matrix at a time; MN-major: 64 rows x 64 of depth.
inline TiledMap operand_map(const MatrixSource& s, unsigned batch, unsigned rows) {
  const auto bytes = static_cast<std::uint64_t>(size_of(s.dtype));
  const std::uint64_t width = s.depth_contiguous ? s.depth : s.rows;
  const std::uint64_t lines = s.depth_contiguous ? s.rows : s.depth;
  TiledMap map;
  map.dtype = s.dtype;
  map.address = s.data;
  map.rank = 3;
  map.size[0] = width;
  map.size[1] = lines;
  map.size[2] = s.stride == 0 ? 1 : batch;
  // The distance of lines and matrices where there is one is not read, and must be valid.
  map.stride_bytes[1] =
      lines == 1 ? (width * bytes + 15) / 16 * 16 : static_cast<std::uint64_t>(s.pitch) * bytes;
  map.stride_bytes[2] =
      map.size[2] == 1 ? map.stride_bytes[1] : static_cast<std::uint64_t>(s.stride) * bytes;
  map.box[0] = static_cast<std::uint32_t>(128 / bytes);
  map.box[1] = s.depth_contiguous ? rows : 64;
  map.box[2] = 1;
  map.swizzle = Swizzle::span128;
  map.promotion = L2Promotion::bytes256;
  return map;
}

// Boxes of 64 rows x 128 bytes of the results.
inline TiledMap result_map(const ProductOutput& out, const ProductSizes& size, unsigned matrices) {
  const auto bytes = static_cast<std::uint64_t>(size_of(out.dtype));
  TiledMap map;
  map.dtype = out.dtype;
  map.address = out.y;
  map.rank = 3;
  map.size[0] = size.n;
  map.size[1] = size.m;
  map.size[2] = matrices;
  map.stride_bytes[1] =
      size.m == 1 ? (size.n * bytes + 15) / 16 * 16 : static_cast<std::uint64_t>(out.pitch) * bytes;
  map.stride_bytes[2] =
      matrices == 1 ? map.stride_bytes[1] : static_cast<std::uint64_t>(out.stride) * bytes;
  map.box[0] = static_cast<std::uint32_t>(128 / bytes);
  map.box[1] = 64;
  map.box[2] = 1;
  map.swizzle = Swizzle::span128;
  return map;
}

// Whether TMA may write the results: their memory is as it asks, and nothing is done to them but
// what finish_values() does.
inline bool stores_by_tma(const ProductOutput& out, const ProductSizes& size, unsigned matrices) {
  const auto bytes = static_cast<std::int64_t>(size_of(out.dtype));
  if (bytes > 4 || (out.activation != Activation::none && out.activation != Activation::relu))
    return false;
  if (out.accumulate && (out.late || out.dtype != DType::fp32)) return false;
  if (out.late && out.addition != Addition::none) return false;
  return reinterpret_cast<std::uintptr_t>(out.y) % 16 == 0 &&
         (size.m == 1 || out.pitch * bytes % 16 == 0) &&
         (matrices == 1 || (out.stride * bytes % 16 == 0 && out.stride >= out.pitch));
}

// `steps` of kDepth along the depth of one matrix.
template <class S, unsigned kDepth>
Sm90Grid grid_of(const ProductProblem& p, std::uint64_t steps) {
  Sm90Grid g{.size = p.size};
  constexpr unsigned kRows = S::kM * S::kCluster;
  g.bands = (p.size.m + kRows - 1) / kRows;
  g.tiles_n = (p.size.n + S::kN - 1) / S::kN;
  g.steps = static_cast<unsigned>(std::max<std::uint64_t>(steps, 1));
  steps *= p.size.terms;
  g.all_steps = device_extent(p.name, "a sum's length", static_cast<std::int64_t>(steps));
  const std::uint64_t tiles = std::uint64_t{g.bands} * S::kCluster * g.tiles_n * p.size.results;
  // Parts begin where those of every other kernel do, but for batches whose matrices are no whole
  // number of blocks deep.
  const ProductCut cut = product_cut(p);
  constexpr unsigned kStepsABlock = ProductCut::kBlock / kDepth;
  g.parts = cut.parts;
  g.steps_a_part = p.size.terms == 1 || g.steps % kStepsABlock == 0
                       ? cut.blocks_a_part * kStepsABlock
                       : (g.all_steps + g.parts - 1) / g.parts;
  if (g.steps_a_part != 0) g.parts = (g.all_steps + g.steps_a_part - 1) / g.steps_a_part;
  g.units = device_extent(p.name, "the number of tiles",
                          static_cast<std::int64_t>(tiles / S::kCluster * g.parts));
  return g;
}

// The largest tile that most multiprocessors of a large GPU get one of, parts of sums counted, and
// that is not mostly beyond the result.
inline Sm90Tile tile_of(const ProductProblem& p) {
  constexpr std::uint64_t kEnough = 96;
  const unsigned parts = product_cut(p).parts;
  const auto enough = [&](unsigned rows, unsigned columns) {
    const std::uint64_t n = std::uint64_t{(p.size.m + rows - 1) / rows} *
                            ((p.size.n + columns - 1) / columns) * p.size.results;
    return n * parts >= kEnough;
  };
  if (p.size.m > 64 && p.size.n > 128 && enough(128, 256)) return Sm90Tile::large;
  if (p.size.m > 64 && p.size.n > 64 && enough(128, 128)) return Sm90Tile::medium;
  return Sm90Tile::small;
}

inline LaunchConfig with_arithmetic(LaunchConfig config, const ProductArithmetic& arithmetic) {
  config.needs = Architecture::sm_90a;
  if (arithmetic.modelled) config.tensor_core = arithmetic.accumulator;
  return config;
}

// f<major A, major B>()
template <class T, class F>
void with_majors(const MatrixSource& a, const MatrixSource& b, F&& f) {
  if constexpr (sizeof(T) == 2) {
    if (!a.depth_contiguous && !b.depth_contiguous)
      return f.template operator()<Major::mn, Major::mn>();
    if (!a.depth_contiguous) return f.template operator()<Major::mn, Major::k>();
    if (!b.depth_contiguous) return f.template operator()<Major::k, Major::mn>();
  }
  f.template operator()<Major::k, Major::k>();
}

// Splits the sum where it may be, launches by launch_grid(grid, out) and adds the parts.
template <class S, unsigned kDepth, DeviceTarget T, class F>
void launch_parts(T target, const ProductProblem& p, std::uint64_t steps, const ProductOutput& out,
                  Scratch& scratch, F&& launch_grid) {
  Sm90Grid g = grid_of<S, kDepth>(p, steps);
  g.addend_runs = out.addition != Addition::none &&
                  lanes_aligned(out.c, out.c_dtype, 4,
                                out.addition == Addition::matrix ? out.c_pitch : 0, out.c_stride);
  Scratch::Frame frame(scratch);
  if (g.parts == 1) return launch_grid(g, out);
  const std::int64_t matrix = static_cast<std::int64_t>(p.size.m) * p.size.n;
  const std::int64_t all = matrix * p.size.results;
  ProductOutput to;
  to.y = scratch.get<float>(all * g.parts);
  to.pitch = p.size.n;
  to.stride = matrix;
  to.aligned = p.size.n % 4 == 0;
  launch_grid(g, to);
  ProductGrid parts;
  parts.size = p.size;
  parts.cut.parts = g.parts;
  launch(target,
         {.name = p.name,
          .grid = {device_extent(p.name, "the number of blocks", (all + 127) / 128)},
          .block = {128}},
         add_parts<float>, parts, out, static_cast<const float*>(to.y));
}

// The steps of two matrices, and what is the same for the whole batch.
template <class E>
std::uint64_t matrix_steps(const ProductProblem& p) {
  return (std::uint64_t{p.size.depth} + kStageDepth<E> - 1) / kStageDepth<E>;
}

// Of a persistent kernel.
template <class S, DeviceTarget T>
LaunchConfig blocks_for(T target, const ProductProblem& p, const Sm90Grid& g,
                        const Sm90Options& options) {
  const unsigned available =
      options.multiprocessors != 0 ? options.multiprocessors : multiprocessors(target);
  const unsigned clusters = std::clamp(available * S::kBlocks / S::kCluster, 1U, g.units);
  return with_arithmetic({.name = p.name,
                          .grid = {clusters * S::kCluster},
                          .block = {S::kThreads},
                          .shared = S::kShared,
                          .cluster = {S::kCluster}},
                         p.arithmetic);
}

template <class S, class E, DeviceTarget T>
void launch_shape(T target, const ProductProblem& p, const MatrixSource& a, const MatrixSource& b,
                  const ProductOutput& out, Scratch& scratch, const Sm90Options& options) {
  launch_parts<S, kStageDepth<E>>(
      target, p, matrix_steps<E>(p), out, scratch, [&](Sm90Grid g, const ProductOutput& to) {
        const ProductSizes& z = p.size;
        g.by_tma = stores_by_tma(to, z, z.results * g.parts);
        g.one_a = a.stride == 0;
        g.one_b = b.stride == 0;
        const unsigned batch = std::max(z.results, z.terms);
        TensorMap map_a{}, map_b{}, map_y{};
        if (g.all_steps != 0) {
          map_a = encode_tiled(operand_map(a, batch, S::kM));
          map_b = encode_tiled(operand_map(b, batch, S::kShareB));
        }
        if (g.by_tma) map_y = encode_tiled(result_map(to, z, z.results * g.parts));
        with_majors<E>(a, b, [&]<Major kMajorA, Major kMajorB> {
          launch(target, blocks_for<S>(target, p, g, options), product_sm90<S, E, kMajorA, kMajorB>,
                 map_a, map_b, map_y, g, to);
        });
      });
}

}  // namespace sm90_detail

//                          subtiles, groups, n, cluster, stages, blocks, ping-pong
using Sm90Large = Sm90Shape<1, 2, 256, 2, 4, 1, false>;
using Sm90Medium = Sm90Shape<1, 2, 128, 1, 5, 1, false>;
using Sm90Small = Sm90Shape<1, 1, 64, 1, 5, 2, false>;
using Sm90PingPong = Sm90Shape<2, 2, 128, 2, 5, 1, true>;

// The kernels of one type of operands, each in a file of its own: sm90_fp16.cu, ...
template <class E, DeviceTarget T>
void launch_sm90_of(T target, const ProductProblem& p, const MatrixSource& a, const MatrixSource& b,
                    const ProductOutput& out, Scratch& scratch, const Sm90Options& options,
                    bool ping_pong) {
  using namespace sm90_detail;
  if (ping_pong) return launch_shape<Sm90PingPong, E>(target, p, a, b, out, scratch, options);
  switch (options.tile) {
    case Sm90Tile::large:
      return launch_shape<Sm90Large, E>(target, p, a, b, out, scratch, options);
    case Sm90Tile::medium:
      return launch_shape<Sm90Medium, E>(target, p, a, b, out, scratch, options);
    default:
      return launch_shape<Sm90Small, E>(target, p, a, b, out, scratch, options);
  }
}

#define ROUNDOFF_SM90_OF(declaration, E)                                                           \
  declaration template void launch_sm90_of<E>(Target, const ProductProblem&, const MatrixSource&,  \
                                              const MatrixSource&, const ProductOutput&, Scratch&, \
                                              const Sm90Options&, bool)

}  // namespace roundoff
