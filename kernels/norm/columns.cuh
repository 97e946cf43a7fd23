// Sums and maps over the columns of a matrix [outer, channels, inner]: a channel is what is summed
// over. BatchNorm's statistics and gradients, LayerNorm's dgamma and dbeta.
//
// inner = 1 (channels last): a block is bx packs of columns by 256 / bx rows, so that a warp reads
// whole runs of a row; each thread keeps its columns and walks down its chunk of the rows. Other
// layouts: a block for a channel and a chunk of the planes, each read along its run of `inner`, in
// packs where they make up the run.
// Sums in a fixed order: a thread's own rows, the threads of a block, then the chunks, which stand
// as partial[chunk][sum][channel] in the workspace (fold_columns). The grid depends on the shape
// alone. Depth: rows of a thread + 256 / bx / 8 + 3, then chunks / 8 + 3.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/norm/arguments.h"
#include "kernels/norm/device.cuh"
#include "kernels/reduce/row.cuh"

namespace roundoff {

struct ColumnTiling {
  unsigned bx = 1;
  unsigned by = 1;
  unsigned columns = 1;    // blocks along the channels
  unsigned chunks = 1;     // of outer
  std::int64_t outer = 1;  // of a chunk
};

// A thread has at least 16 rows, where there are so many: what it loads for its columns is few
// then.
inline ColumnTiling tile_columns(const NormMatrix& m, int pack, bool sums) {
  ColumnTiling t;
  const auto round_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const auto power = [](std::int64_t n, unsigned most) {
    return n >= most ? most : std::bit_ceil(static_cast<unsigned>(std::max<std::int64_t>(n, 1)));
  };
  const std::int64_t packs = round_up(m.channels, pack);
  t.bx = m.inner == 1 ? power(packs, 32) : power(round_up(m.inner, pack), 256);
  t.by = 256 / t.bx;
  const std::int64_t columns = m.inner == 1 ? round_up(packs, t.bx) : m.channels;
  ROUNDOFF_CHECK(columns < (std::int64_t{1} << 31), "norm", m.channels, " channels are too many");
  t.columns = static_cast<unsigned>(columns);
  const std::int64_t most = std::clamp<std::int64_t>((sums ? 2048 : 8192) / columns, 1, 256);
  const std::int64_t chunks = std::clamp<std::int64_t>(m.outer / (t.by * 16), 1, most);
  t.outer = round_up(std::max<std::int64_t>(m.outer, 1), chunks);
  t.chunks = static_cast<unsigned>(round_up(std::max<std::int64_t>(m.outer, 1), t.outer));
  return t;
}

ROUNDOFF_DEVICE_NAMESPACE {
  namespace norms {

  // f(at, row) for the thread's packs of columns: element `at` is (row, column).
  template <class F>
  ROUNDOFF_DEVICE void walk_rows(const NormMatrix& m, const ColumnTiling& t, std::int64_t column,
                                 F f) {
    const std::int64_t first = blockIdx.y * t.outer;
    const std::int64_t end = first + t.outer < m.outer ? first + t.outer : m.outer;
    for (std::int64_t row = first + threadIdx.y; row < end; row += t.by)
      f(row * m.channels + column, row);
  }
  // f(at) for the thread's packs of the block's channel.
  template <int kPack, class F>
  ROUNDOFF_DEVICE void walk_planes(const NormMatrix& m, const ColumnTiling& t, F f) {
    const std::int64_t first = blockIdx.y * t.outer;
    const std::int64_t end = first + t.outer < m.outer ? first + t.outer : m.outer;
    for (std::int64_t o = first + threadIdx.y; o < end; o += t.by)
      for (std::int64_t i = threadIdx.x * kPack; i < m.inner; i += t.bx * kPack)
        f((o * m.channels + blockIdx.x) * m.inner + i);
  }

  // Terms::State<Columns, kPack>(terms, column) holds what belongs to columns; its add(terms, at,
  // row, sums) adds Terms::kSums terms a column.
  template <int kPack, class A, class Terms>
  __global__ void __launch_bounds__(256, 2)
      sum_columns(Terms terms, NormMatrix m, ColumnTiling t, A* partial) {
    constexpr int kValues = Terms::kSums * kPack;
    ROUNDOFF_DYNAMIC_SHARED(bytes);
    A* const shared = reinterpret_cast<A*>(bytes);
    const unsigned thread = threadIdx.y * t.bx + threadIdx.x;
    const unsigned stride = 256 + t.bx;  // so that reads fall into different banks
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * t.bx;
    const std::int64_t column = (first + threadIdx.x) * kPack;
    A sums[Terms::kSums][kPack] = {};
    if (column < m.channels) {
      const typename Terms::template State<Neighbours, kPack> state(terms, column);
      walk_rows(m, t, column,
                [&](std::int64_t at, std::int64_t row) { state.add(terms, at, row, sums); });
    }
    ROUNDOFF_UNROLL
    for (int v = 0; v < kValues; ++v)
      shared[static_cast<unsigned>(v) * stride + thread] = sums[v / kPack][v % kPack];
    __syncthreads();
    for (unsigned o = thread; o < static_cast<unsigned>(kValues) * t.bx; o += 256) {
      const unsigned v = o / t.bx;
      const unsigned x = o % t.bx;
      const std::int64_t c = (first + x) * kPack + v % kPack;
      if (c >= m.channels) continue;
      const A* from = shared + v * stride + x;
      A lane[8] = {};
      for (unsigned y = 0; y < t.by; y += 8) {
        ROUNDOFF_UNROLL
        for (unsigned j = 0; j < 8; ++j) lane[j] += from[(y + j) * t.bx];
      }
      partial[(static_cast<std::int64_t>(blockIdx.y) * Terms::kSums + v / kPack) * m.channels + c] =
          reduce::fold<8>(lane, reduce::Sum{});
    }
  }

  template <int kPack, class A, class Terms>
  __global__ void __launch_bounds__(256, 2)
      sum_planes(Terms terms, NormMatrix m, ColumnTiling t, A* partial) {
    using Sums = reduce::Values<A, Terms::kSums>;
    ROUNDOFF_SHARED(Sums, memory, [reduce::shared_size(256)]);
    reduce::Shared<Sums> shared(memory);
    A sums[Terms::kSums][kPack] = {};
    const typename Terms::template State<OneColumn, kPack> state(terms, blockIdx.x);
    walk_planes<kPack>(m, t, [&](std::int64_t at) { state.add(terms, at, 0, sums); });
    Sums all;
    ROUNDOFF_UNROLL
    for (int s = 0; s < Terms::kSums; ++s) all.at[s] = reduce::fold<kPack>(sums[s], reduce::Sum{});
    all = reduce::row<256>(all, reduce::Sum{}, shared);
    if (threadIdx.x + threadIdx.y != 0) return;
    ROUNDOFF_UNROLL
    for (int s = 0; s < Terms::kSums; ++s)
      partial[(static_cast<std::int64_t>(blockIdx.y) * Terms::kSums + s) * m.channels +
              blockIdx.x] = all.at[s];
  }

  // finish(c, sums, whether c is a channel and this thread is its first): called by all threads of
  // the block, 8 of them for each of its 32 channels.
  template <int kSums, class A, class Finish>
  __global__ void __launch_bounds__(256, 2)
      fold_columns(const A* partial, unsigned chunks, std::int64_t channels, Finish finish) {
    ROUNDOFF_SHARED(A, memory, [reduce::ColumnTeam<A>::shared]);
    reduce::ColumnTeam<A> team(memory);
    const std::int64_t c = team.line;
    A sums[kSums] = {};
    ROUNDOFF_UNROLL
    for (int s = 0; s < kSums; ++s) {
      if (c < channels)
        for (unsigned k = threadIdx.y; k < chunks; k += 8)
          sums[s] += partial[(static_cast<std::int64_t>(k) * kSums + s) * channels + c];
      sums[s] = team(sums[s], reduce::Sum{});
    }
    ROUNDOFF_SHARED(double, wide, [reduce::ColumnTeam<double>::shared]);
    finish(c, sums, c < channels && threadIdx.y == 0, wide);
  }

  // Map::State<Columns, kPack>(map, column).put(map, at) writes the pack at `at`.
  template <int kPack, class A, class Map>
  __global__ void __launch_bounds__(256) map_columns(Map map, NormMatrix m, ColumnTiling t) {
    const std::int64_t column =
        (static_cast<std::int64_t>(blockIdx.x) * t.bx + threadIdx.x) * kPack;
    if (column >= m.channels) return;
    const typename Map::template State<Neighbours, kPack> state(map, column);
    walk_rows(m, t, column, [&](std::int64_t at, std::int64_t) { state.put(map, at); });
  }
  template <int kPack, class A, class Map>
  __global__ void __launch_bounds__(256) map_planes(Map map, NormMatrix m, ColumnTiling t) {
    const typename Map::template State<OneColumn, kPack> state(map, blockIdx.x);
    walk_planes<kPack>(m, t, [&](std::int64_t at) { state.put(map, at); });
  }

  template <class A>
  struct Partial {
    A* sums;
    unsigned chunks;
  };

  // Partial sums of every channel, in the workspace.
  template <int kPack, class A, class Terms>
  Partial<A> launch_sums(Target device, const char* name, const NormMatrix& m, const Terms& terms,
                         Scratch& scratch) {
    const ColumnTiling t = tile_columns(m, kPack, true);
    A* partial = scratch.get<A>(t.chunks * Terms::kSums * m.channels);
    LaunchConfig config{.name = name, .grid = {t.columns, t.chunks}, .block = {t.bx, t.by}};
    if constexpr (Terms::kPlanes) {
      if (m.inner != 1) {
        launch(device, config, sum_planes<kPack, A, Terms>, terms, m, t, partial);
        return {partial, t.chunks};
      }
    }
    config.shared = sizeof(A) * static_cast<std::size_t>(Terms::kSums * kPack) * (256 + t.bx);
    launch(device, config, sum_columns<kPack, A, Terms>, terms, m, t, partial);
    return {partial, t.chunks};
  }

  template <int kSums, class A, class Finish>
  void launch_fold(Target device, const char* name, const Partial<A>& partial,
                   std::int64_t channels, const Finish& finish) {
    launch(device,
           {.name = name, .grid = {static_cast<unsigned>((channels + 31) / 32)}, .block = {32, 8}},
           fold_columns<kSums, A, Finish>, static_cast<const A*>(partial.sums), partial.chunks,
           channels, finish);
  }

  template <int kPack, class A, class Map>
  void launch_map(Target device, const char* name, const NormMatrix& m, const Map& map) {
    const ColumnTiling t = tile_columns(m, kPack, false);
    const LaunchConfig config{.name = name, .grid = {t.columns, t.chunks}, .block = {t.bx, t.by}};
    if (m.inner != 1) return launch(device, config, map_planes<kPack, A, Map>, map, m, t);
    launch(device, config, map_columns<kPack, A, Map>, map, m, t);
  }

  // Whether packs of T make up every row, or every run of a channel: of the shape alone, so that
  // sums do not depend on places.
  template <class T>
  bool packs_fit(const NormMatrix& m) {
    return (m.inner == 1 ? m.channels : m.inner) % kPackOf<T> == 0;
  }

  }  // namespace norms
}  // namespace

}  // namespace roundoff
