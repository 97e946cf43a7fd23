// Reordering of axes (kernels/elementwise/permute.h). Bytes: x and y once.
//
// y's axes, innermost first, after merging: where the innermost one is contiguous in x as well,
// rows are copied in packs. Otherwise x's innermost axis is another one of y's, and tiles of 32 x
// 32 of the two go through shared memory: read along x's, written along y's. A row of the tile is
// an odd number of 4-byte words (an odd number of values of 8 bytes), so that neither way two lanes
// meet in one bank.
//
// Values of one type are moved as words; others are widened and rounded once.
#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/elementwise/move.cuh"
#include "kernels/elementwise/permute.h"
#include "kernels/simt/divide.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr int kTile = 32;
  constexpr unsigned kTileRows = 8;  // warps of a block

  // y's axes but the one or two that a block walks along, as one number.
  struct Outer {
    int axes = 0;
    Divisor extent[kMaxRank];
    std::int64_t x[kMaxRank] = {};
    std::int64_t y[kMaxRank] = {};
  };

  struct Tiles {
    Outer outer;
    Divisor across, along;     // tiles along x's innermost axis, along y's
    std::int64_t columns = 1;  // extent of x's innermost axis, and its step in y
    std::int64_t column_step = 1;
    std::int64_t rows = 1;  // extent of y's innermost axis, and its step in x
    std::int64_t row_step = 1;
    std::int64_t tiles = 1;
  };

  ROUNDOFF_DEVICE void locate(const Outer& outer, std::int64_t i, std::int64_t& x,
                              std::int64_t& y) {
    for (int axis = 0; axis < outer.axes; ++axis) {
      const std::int64_t rest = divide(i, outer.extent[axis]);
      const std::int64_t index = i - rest * outer.extent[axis].extent;
      x += index * outer.x[axis];
      y += index * outer.y[axis];
      i = rest;
    }
  }

  // Rows of `extent` elements that are contiguous in both.
  template <class Move>
  __global__ void __launch_bounds__(kMapThreads, 4)
      permute_rows(Move move, const __grid_constant__ Outer outer, Divisor row, std::int64_t n,
                   int head) {
    const auto place = [&](std::int64_t i) {
      const std::int64_t r = divide(i, row);
      std::int64_t x = i - r * row.extent;
      std::int64_t y = 0;
      locate(outer, r, x, y);
      return x;
    };
    for_each_pack<Move::kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) { move.copy_pack(place(i), i); },
        [&](std::int64_t i) { move.store(i, move.load(place(i))); });
  }

  template <class Move>
  __global__ void __launch_bounds__(kTile* kTileRows)
      permute_tiles(Move move, const __grid_constant__ Tiles t) {
    constexpr int kValueBytes = static_cast<int>(sizeof(typename Move::Value));
    constexpr int kPitch = kTile + (kValueBytes < 4 ? 4 / kValueBytes : 1);
    ROUNDOFF_SHARED(typename Move::Value, tile, [kTile][kPitch]);
    const auto lane = static_cast<int>(threadIdx.x);
    for (std::int64_t block = blockIdx.x; block < t.tiles; block += gridDim.x) {
      const std::int64_t line = divide(block, t.across);
      const std::int64_t outer = divide(line, t.along);
      const std::int64_t column = (block - line * t.across.extent) * kTile;
      const std::int64_t row = (line - outer * t.along.extent) * kTile;
      std::int64_t x = 0, y = 0;
      locate(t.outer, outer, x, y);
      x += row * t.row_step + column;
      y += row + column * t.column_step;
      const std::int64_t rows = t.rows - row, columns = t.columns - column;
      ROUNDOFF_UNROLL
      for (int i = 0; i < kTile; i += static_cast<int>(kTileRows)) {
        const int r = i + static_cast<int>(threadIdx.y);
        if (r < rows && lane < columns) tile[r][lane] = move.load(x + r * t.row_step + lane);
      }
      __syncthreads();
      ROUNDOFF_UNROLL
      for (int i = 0; i < kTile; i += static_cast<int>(kTileRows)) {
        const int c = i + static_cast<int>(threadIdx.y);
        if (lane < rows && c < columns) move.store(y + c * t.column_step + lane, tile[lane][c]);
      }
      __syncthreads();
    }
  }

  template <class Move>
  void launch_permute(Target target, const Move& move, const detail::PermuteGeometry& g,
                      std::int64_t n) {
    const auto extent = [&](int a) { return g.extent[static_cast<std::size_t>(a)]; };
    const auto stride = [&](int a) { return g.stride[static_cast<std::size_t>(a)]; };
    // The other axes, with their steps in y.
    const auto outer_of = [&](int skip) {
      Outer outer;
      std::int64_t step = g.axes == 0 ? 1 : extent(0);
      for (int a = 1; a < g.axes; ++a) {
        if (a != skip) {
          outer.extent[outer.axes] = Divisor(extent(a));
          outer.x[outer.axes] = stride(a);
          outer.y[outer.axes++] = step;
        }
        step *= extent(a);
      }
      return outer;
    };
    if (g.axes == 0 || stride(0) == 1) {
      const std::int64_t row = g.axes == 0 ? 1 : extent(0);
      int head = move.head();
      if (g.axes > 1 && (row % Move::kCount != 0 || head != 0)) head = kNoPacks;
      launch(target, map_config("permute_rows", n, head, Move::kCount), permute_rows<Move>, move,
             outer_of(0), Divisor(row), n, head);
      return;
    }
    // x's innermost axis: it has step 1 there, and more than one element.
    int inner = 1;
    while (stride(inner) != 1) ++inner;
    Tiles t;
    t.outer = outer_of(inner);
    t.columns = extent(inner);
    t.column_step = 1;
    for (int a = 0; a < inner; ++a) t.column_step *= extent(a);
    t.rows = extent(0);
    t.row_step = stride(0);
    const std::int64_t across = (t.columns + kTile - 1) / kTile;
    const std::int64_t along = (t.rows + kTile - 1) / kTile;
    t.across = Divisor(across);
    t.along = Divisor(along);
    t.tiles = n / (t.columns * t.rows) * across * along;
    launch(target,
           {.name = "permute_tiles", .grid = grid_for(t.tiles, 1), .block = {kTile, kTileRows}},
           permute_tiles<Move>, move, t);
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void permute(T target, const PermuteParams& params, const ConstView& x, const Out& y) {
  if (!y.wanted) return;
  detail::check_permute(params, x, y);
  const std::int64_t n = x.numel();
  if (n == 0) return;
  const detail::PermuteGeometry g(params, x.shape);
  with_move(x, y, [&](const auto& move) { launch_permute(target, move, g, n); });
}

template void permute(Target, const PermuteParams&, const ConstView&, const Out&);

}  // namespace roundoff
