// Convolution as a product on sm_90a (kernels/gemm/sm90.cuh): the kernels, and their launches for
// one type of operands.
//
// forward, and grad_input at stride 1 (the same over dy, its taps in the opposite direction):
//   A  kM pixels x 64 channels of one tap, gathered by TMA im2col: K-major
//   B  filters [K, R S, C]: 64 channels of one tap; where the sum runs over filters (grad_input)
//      they are lines of it: MN-major
// grad_weight:
//   A  dy, 64 pixels x kM filters: MN-major
//   B  64 pixels x 64 channels of one tap for every 64 columns, by im2col: MN-major
// Layout: NHWC and KRSC. Positions outside an image, and channels beyond the last, are zeros that
// TMA writes. Numerics: sm90.cuh; the order of a sum is (r, s, c), (r, s, k) or (n, p, q).
#pragma once

#include "kernels/conv2d/sm90.h"
#include "kernels/gemm/sm90_launch.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // A patch's place: pixel `pixel`, tap `tap`.
  struct Im2colPlace {
    int w, h, n;
    std::uint16_t offset[2];  // across, down

    ROUNDOFF_DEVICE Im2colPlace(const Sm90Pixels& x, unsigned pixel, unsigned tap) {
      const unsigned row = pixel / x.width;
      w = static_cast<int>(pixel % x.width) * x.stride[1] + x.corner[1];
      h = static_cast<int>(row % x.height) * x.stride[0] + x.corner[0];
      n = static_cast<int>(row / x.height);
      unsigned down = tap / x.taps[1], across = tap % x.taps[1];
      if (x.backwards) {
        down = x.taps[0] - 1 - down;
        across = x.taps[1] - 1 - across;
      }
      offset[0] = static_cast<std::uint16_t>(across * x.dilation[1]);
      offset[1] = static_cast<std::uint16_t>(down * x.dilation[0]);
    }
  };

  template <class S, class T, ConvPass kPass>
  struct PixelLoad {
    const TensorMap* a;
    const TensorMap* b;
    const Sm90Pixels& x;
    unsigned rank;

    static constexpr Major kMajorA = kPass == ConvPass::grad_weight ? Major::mn : Major::k;
    static constexpr Major kMajorB = kPass == ConvPass::forward ? Major::k : Major::mn;

    ROUNDOFF_DEVICE void operator()(unsigned char* stage, Mbarrier* full, const Sm90Unit& u,
                                    unsigned step) const {
      constexpr std::uint16_t kRanks = S::kCluster > 1 ? S::kAll : 0;
      const unsigned column0 = u.column0 + rank * S::kShareB;
      unsigned char* const to_b = stage + S::kBytesA + rank * S::kShareB * kLineBytes;
      if constexpr (kPass == ConvPass::grad_weight) {
        load_rows<T, Major::mn, S::kM>(stage, a, u.result * x.other + u.row0, step * kStageDepth<T>,
                                       0, full, 0);
        ROUNDOFF_UNROLL
        for (unsigned i = 0; i < S::kShareB; i += 64) {
          // Columns beyond the last read some tap; nobody writes their sums.
          const unsigned block = (column0 + i) / 64, last = x.taps[0] * x.taps[1] - 1;
          const unsigned tap = block / x.blocks < last ? block / x.blocks : last;
          const Im2colPlace at(x, step * kStageDepth<T>, tap);
          const int place[4] = {static_cast<int>(u.result * x.channels + block % x.blocks * 64),
                                at.w, at.h, at.n};
          if constexpr (kRanks == 0) {
            tma_load_im2col(to_b + i * kLineBytes, b, place, at.offset, full);
          } else {
            tma_load_im2col_multicast(to_b + i * kLineBytes, b, place, at.offset, full, kRanks);
          }
        }
      } else {
        const unsigned tap = step / x.blocks, depth0 = step % x.blocks * kStageDepth<T>;
        const Im2colPlace at(x, u.row0, tap);
        tma_load_im2col(stage, a,
                        {static_cast<int>(u.result * x.channels + depth0), at.w, at.h, at.n},
                        at.offset, full);
        constexpr unsigned kBox = kMajorB == Major::k ? S::kShareB : 64;
        ROUNDOFF_UNROLL
        for (unsigned i = 0; i < S::kShareB; i += kBox) {
          const unsigned column = column0 + i;
          const unsigned channel = kMajorB == Major::k ? depth0 : column;
          const unsigned filter = u.result * x.other + (kMajorB == Major::k ? column : depth0);
          const int place[3] = {static_cast<int>(channel), static_cast<int>(tap),
                                static_cast<int>(filter)};
          if constexpr (kRanks == 0) {
            tma_load(to_b + i * kLineBytes, b, place, full);
          } else {
            tma_load_multicast(to_b + i * kLineBytes, b, place, full, kRanks);
          }
        }
      }
    }
  };

  template <class S, class T, ConvPass kPass>
  __global__ void __launch_bounds__(S::kThreads, S::kBlocks) conv2d_sm90(
      const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
      const __grid_constant__ TensorMap y, const __grid_constant__ Sm90Grid g,
      const __grid_constant__ Sm90Pixels pixels, const __grid_constant__ ProductOutput out) {
#if ROUNDOFF_HOPPER
    using Load = PixelLoad<S, T, kPass>;
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, full, [S::kStages]);
    ROUNDOFF_SHARED(Mbarrier, empty, [S::kStages]);
    const Sm90Ring<S> ring{shared, full, empty};
    init_ring(ring, g, &a, &b);
    const unsigned rank = S::kCluster > 1 ? cluster_rank() : 0;
    run_block<S, T, Load::kMajorA, Load::kMajorB>(g, ring, rank, &y, out,
                                                  Load{&a, &b, pixels, rank});
#else
    __trap();
#endif
  }

}  // namespace

// A convolution that conv2d_sm90_refuses() has nothing to say to.
struct Sm90Convolution {
  ConvPass pass;
  ProductProblem problem;
  Conv2dShape z;
  Conv2dParams params;
  ConstView images, other;
  Sm90Options options;
};

namespace sm90_detail {

// The images of which patches are taken; extents in the order down, across.
inline Im2colMap image_map(const Sm90Convolution& c, const Sm90Pixels& pixels, unsigned rows) {
  const bool of_y = c.pass == ConvPass::grad_input;
  const std::int64_t sizes[] = {of_y ? c.z.k : c.z.c, of_y ? c.z.q : c.z.w, of_y ? c.z.p : c.z.h,
                                c.z.n};
  Im2colMap map;
  map.dtype = c.images.dtype;
  map.address = c.images.data;
  std::uint64_t stride = size_of(map.dtype);
  for (int i = 0; i < 4; ++i) {
    map.size[i] = static_cast<std::uint64_t>(sizes[i]);
    map.stride_bytes[i] = stride;
    stride *= map.size[i];
  }
  for (int i = 0; i < 2; ++i) {  // across, down
    map.step[i + 1] = static_cast<std::uint32_t>(pixels.stride[1 - i]);
    map.lower[i] = pixels.corner[1 - i];
    map.upper[i] = pixels.last(1 - i) + 1 - static_cast<int>(map.size[i + 1]);
  }
  map.channels = static_cast<std::uint32_t>(kLineBytes / size_of(map.dtype));
  map.pixels = rows;
  map.swizzle = Swizzle::span128;
  map.promotion = L2Promotion::bytes256;
  return map;
}

// Filters [K, R S, C]: `lines` of them (K-major), or 64 (MN-major).
inline TiledMap filter_map(const Sm90Convolution& c, unsigned lines) {
  TiledMap map;
  map.dtype = c.other.dtype;
  map.address = c.other.data;
  map.rank = 3;
  map.size[0] = static_cast<std::uint64_t>(c.z.c / c.params.groups);
  map.size[1] = static_cast<std::uint64_t>(c.z.r * c.z.s);
  map.size[2] = static_cast<std::uint64_t>(c.z.k);
  map.stride_bytes[1] = map.size[0] * size_of(map.dtype);
  map.stride_bytes[2] = map.size[1] * map.stride_bytes[1];
  map.box[0] = static_cast<std::uint32_t>(kLineBytes / size_of(map.dtype));
  map.box[1] = 1;
  map.box[2] = lines;
  map.swizzle = Swizzle::span128;
  map.promotion = L2Promotion::bytes256;
  return map;
}

// dy as [pixels, filters], the depth down.
inline MatrixSource gradients(const Sm90Convolution& c) {
  MatrixSource s;
  s.data = c.other.data;
  s.dtype = c.other.dtype;
  s.depth_contiguous = false;
  s.rows = static_cast<unsigned>(c.z.k);
  s.depth = c.problem.size.depth;
  s.pitch = c.z.k;
  return s;
}

}  // namespace sm90_detail

template <class S, class E, ConvPass kPass, DeviceTarget T>
void launch_conv2d_shape(T target, const Sm90Convolution& c, const ProductOutput& out,
                         Scratch& scratch) {
  using namespace sm90_detail;
  constexpr bool kWeights = kPass == ConvPass::grad_weight;
  const Sm90Pixels pixels = sm90_pixels(kPass, c.z, c.params, c.images.dtype);
  // With the zeros that a tap's channels are padded with.
  ProductProblem problem = c.problem;
  if (!kWeights)
    problem.size.depth = device_extent(
        problem.name, "the length of a sum",
        std::int64_t{pixels.taps[0]} * pixels.taps[1] * pixels.blocks * kStageDepth<E>);
  const ProductSizes& z = problem.size;
  launch_parts<S, kStageDepth<E>>(
      target, problem, matrix_steps<E>(problem), out, scratch,
      [&](Sm90Grid g, const ProductOutput& to) {
        g.by_tma = stores_by_tma(to, z, z.results * g.parts);
        TensorMap map_a{}, map_b{}, map_y{};
        if (g.all_steps != 0) {
          const TensorMap images = encode_im2col(image_map(c, pixels, kWeights ? 64 : S::kM));
          if constexpr (kWeights) {
            map_a = encode_tiled(operand_map(gradients(c), 1, 64));
            map_b = images;
          } else {
            map_a = images;
            map_b = encode_tiled(filter_map(c, kPass == ConvPass::forward ? S::kShareB : 64));
          }
        }
        if (g.by_tma) map_y = encode_tiled(result_map(to, z, z.results * g.parts));
        launch(target, blocks_for<S>(target, problem, g, c.options), conv2d_sm90<S, E, kPass>,
               map_a, map_b, map_y, g, pixels, to);
      });
}

// The kernels of one type of operands, each in a file of its own.
template <class E, DeviceTarget T>
void launch_conv2d_sm90_of(T target, const Sm90Convolution& c, const ProductOutput& out,
                           Scratch& scratch) {
  const auto with_tile = [&]<ConvPass kPass> {
    switch (c.options.tile) {
      case Sm90Tile::large:
        return launch_conv2d_shape<Sm90Large, E, kPass>(target, c, out, scratch);
      case Sm90Tile::medium:
        return launch_conv2d_shape<Sm90Medium, E, kPass>(target, c, out, scratch);
      default:
        return launch_conv2d_shape<Sm90Small, E, kPass>(target, c, out, scratch);
    }
  };
  if constexpr (sizeof(E) == 2) {
    if (c.pass == ConvPass::grad_input)
      return with_tile.template operator()<ConvPass::grad_input>();
    if (c.pass == ConvPass::grad_weight)
      return with_tile.template operator()<ConvPass::grad_weight>();
  }
  with_tile.template operator()<ConvPass::forward>();
}

#define ROUNDOFF_CONV2D_SM90_OF(declaration, E)                                      \
  declaration template void launch_conv2d_sm90_of<E>(Target, const Sm90Convolution&, \
                                                     const ProductOutput&, Scratch&)

}  // namespace roundoff
