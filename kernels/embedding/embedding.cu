// Rows of a table by index, and their gradient (kernels/embedding/embedding.h).
//
// Forward reads each row that is asked for and writes y once. Backward has to add rows in the order
// of the indices, so it groups them first: the indices of a table's row are counted, the counts are
// summed up to where each row's group begins, positions are dropped into the groups in any order,
// and each one finds its place by counting the smaller ones in its group. Integer atomics only; the
// sum itself is one thread's, position after position. Bytes: dy once, dtable once (twice where it
// is added to), four integers an index.
#include "kernels/embedding/embedding.h"

#include "kernels/base/convert.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/elementwise/move.cuh"
#include "kernels/simt/divide.cuh"
#include "kernels/simt/report.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  // int64 or int32 indices into `rows` rows.
  struct Index {
    const void* data;
    bool wide;
    std::int64_t rows;

    Index(const ConstView& view, std::int64_t rows_of_table)
        : data(view.data), wide(view.dtype == DType::i64), rows(rows_of_table) {}
    ROUNDOFF_DEVICE std::int64_t at(std::int64_t i) const {
      return wide ? static_cast<const std::int64_t*>(data)[i]
                  : static_cast<const std::int32_t*>(data)[i];
    }
    ROUNDOFF_DEVICE std::int32_t detail() const { return static_cast<std::int32_t>(rows); }
    ROUNDOFF_DEVICE bool holds(std::int64_t row) const { return row >= 0 && row < rows; }
  };

  template <class Move>
  __global__ void __launch_bounds__(kMapThreads, 4)
      embedding_gather(Move move, Index index, Divisor width, std::int64_t n, int head,
                       DeviceErrors* errors) {
    // Where element i comes from; below 0 where its index is bad.
    const auto source = [&](std::int64_t i) {
      const std::int64_t position = divide(i, width);
      const std::int64_t column = i - position * width.extent;
      const std::int64_t row = index.at(position);
      if (index.holds(row)) return row * width.extent + column;
      if (column == 0) report(errors, DeviceError::embedding_index, position, row, index.detail());
      return std::int64_t{-1};
    };
    for_each_pack<Move::kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          const std::int64_t from = source(i);
          if (from >= 0) return move.copy_pack(from, i);
          for (int k = 0; k < Move::kCount; ++k) move.store(i + k, typename Move::Value(0));
        },
        [&](std::int64_t i) {
          const std::int64_t from = source(i);
          move.store(i, from >= 0 ? move.load(from) : typename Move::Value(0));
        });
  }

  __global__ void __launch_bounds__(kMapThreads)
      embedding_count(Index index, std::int64_t n, int* counts, DeviceErrors* errors) {
    for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
      const std::int64_t row = index.at(i);
      if (index.holds(row))
        atomicAdd(&counts[row], 1);
      else
        report(errors, DeviceError::embedding_backward_index, i, row, index.detail());
    }
  }

  constexpr unsigned kScanThreads = 1024;

  // starts[r] = counts[0] + ... + counts[r - 1], for r up to `rows`; counts becomes a copy of it.
  // One block, a run of neighbouring rows a thread.
  __global__ void __launch_bounds__(kScanThreads)
      embedding_starts(std::int64_t rows, int* counts, int* starts) {
    ROUNDOFF_SHARED(int, sums, [kScanThreads]);
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t run = (rows + kScanThreads - 1) / kScanThreads;
    const std::int64_t first = thread * run;
    const std::int64_t past = first + run < rows ? first + run : rows;
    int sum = 0;
    for (std::int64_t r = first; r < past; ++r) sum += counts[r];
    sums[thread] = sum;
    __syncthreads();
    // Hillis and Steele's scan: sums[t] becomes the sum of runs 0 to t.
    for (int distance = 1; distance < static_cast<int>(kScanThreads); distance *= 2) {
      const int before = thread >= distance ? sums[thread - distance] : 0;
      __syncthreads();
      sums[thread] += before;
      __syncthreads();
    }
    int start = sums[thread] - sum;
    for (std::int64_t r = first; r < past; ++r) {
      const int count = counts[r];
      starts[r] = start;
      counts[r] = start;
      start += count;
    }
    if (thread == static_cast<int>(kScanThreads) - 1) starts[rows] = sums[thread];
  }

  // Puts each position into its row's group; `next` holds the groups' starts.
  __global__ void __launch_bounds__(kMapThreads)
      embedding_group(Index index, std::int64_t n, int* next, int* grouped) {
    for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
      const std::int64_t row = index.at(i);
      if (index.holds(row)) grouped[atomicAdd(&next[row], 1)] = static_cast<int>(i);
    }
  }

  // Positions in rising order inside each group: a warp a position counts the smaller ones.
  __global__ void __launch_bounds__(kMapThreads)
      embedding_order(Index index, const int* __restrict__ starts, const int* __restrict__ grouped,
                      int* __restrict__ ordered) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int all = starts[index.rows];
    for (std::int64_t place = grid_thread() / 32; place < all; place += grid_threads() / 32) {
      const int position = grouped[place];
      const std::int64_t row = index.at(position);
      const int first = starts[row], past = starts[row + 1];
      unsigned smaller = 0;
      for (int at = first + lane; at < past; at += 32) smaller += grouped[at] < position ? 1U : 0U;
      smaller = __reduce_add_sync(0xFFFFFFFFU, smaller);
      if (lane == 0) ordered[first + static_cast<int>(smaller)] = position;
    }
  }

  struct Groups {
    const int* starts;
    const int* ordered;
    std::int64_t padding_row;  // -1: none
  };

  template <class A>
  __global__ void __launch_bounds__(kMapThreads, 4)
      embedding_sum(AnyArray dy, AnyArray held, AnyOut dtable, Groups groups, Divisor width,
                    bool accumulate, std::int64_t n, int head) {
    constexpr int kCount = kAnyPack<A>;
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          const std::int64_t row = divide(i, width);
          const std::int64_t column = i - row * width.extent;
          const int first = groups.starts[row];
          const int past = row == groups.padding_row ? first : groups.starts[row + 1];
          A sums[kCount];
          if (accumulate) {
            if (first == past) return;
            load_any_pack(held, i, sums);
          } else {
            ROUNDOFF_UNROLL
            for (int k = 0; k < kCount; ++k) sums[k] = A(0);
          }
          ROUNDOFF_NO_UNROLL
          for (int at = first; at < past; ++at) {
            A terms[kCount];
            load_any_pack(dy, groups.ordered[at] * width.extent + column, terms);
            ROUNDOFF_UNROLL
            for (int k = 0; k < kCount; ++k) sums[k] += terms[k];
          }
          store_any_pack(dtable, i, sums);
        },
        [&](std::int64_t i) {
          const std::int64_t row = divide(i, width);
          const std::int64_t column = i - row * width.extent;
          const int first = groups.starts[row];
          const int past = row == groups.padding_row ? first : groups.starts[row + 1];
          if (accumulate && first == past) return;
          A sum = accumulate ? load_any<A>(held, i) : A(0);
          ROUNDOFF_NO_UNROLL
          for (int at = first; at < past; ++at)
            sum += load_any<A>(dy, groups.ordered[at] * width.extent + column);
          store_any(dtable, i, sum);
        });
  }

  template <class A>
  void launch_sum(Target target, const Groups& groups, const ConstView& dy, const View& dtable,
                  bool accumulate) {
    const std::int64_t n = dtable.numel(), width = dtable.shape[1];
    if (n == 0) return;
    constexpr int kCount = kAnyPack<A>;
    const AnyOut to{Out(dtable)};
    const bool packs = width % kCount == 0 && any_pack_head<kCount>(AnyArray(dy), to) == 0;
    const int head = packs ? 0 : kNoPacks;
    launch(target, map_config("embedding_sum", n, head, kCount), embedding_sum<A>, AnyArray(dy),
           AnyArray(dtable), to, groups, Divisor(width), accumulate, n, head);
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void embedding_forward(T target, const ConstView& table, const ConstView& index, const Out& y) {
  detail::check_embedding_forward(table, index, y);
  if (!y.wanted) return;
  const std::int64_t n = y.view.numel();
  if (n == 0) return;
  const std::int64_t width = table.shape[1];
  with_move(table, y, [&](const auto& move) {
    using Move = std::remove_cvref_t<decltype(move)>;
    const int head = width % Move::kCount == 0 && move.head() == 0 ? 0 : kNoPacks;
    launch(target, map_config("embedding", n, head, Move::kCount), embedding_gather<Move>, move,
           Index(index, table.shape[0]), Divisor(width), n, head, target.errors);
  });
}

template <DeviceTarget T>
void embedding_backward(T target, const EmbeddingParams& params, const ConstView& index,
                        const ConstView& dy, const Out& dtable, Scratch& scratch) {
  if (!dtable.wanted) return;
  detail::check_embedding_backward(index, dy, dtable);
  const std::int64_t rows = dtable.view.shape[0], width = dtable.view.shape[1];
  const std::int64_t n = index.numel();
  const bool accumulate = dtable.write == Write::accumulate;
  if (rows * width == 0 && n == 0) return;
  if (n == 0) return accumulate ? void() : fill(target, 0.0, dtable.view);
  ROUNDOFF_CHECK(n >> 31 == 0 && rows >> 31 == 0, "embedding_backward", n, " indices of ", rows,
                 " rows, below 2^31 of each expected");
  const Scratch::Frame frame(scratch);
  int* counts = scratch.get<int>(rows);
  int* starts = scratch.get<int>(rows + 1);
  int* grouped = scratch.get<int>(n);
  int* ordered = scratch.get<int>(n);
  const Index indices(index, rows);
  fill(target, 0.0, View{counts, DType::i32, Shape{rows}});
  launch(target, map_config("embedding_count", n, kNoPacks, 1), embedding_count, indices, n, counts,
         target.errors);
  launch(target, {.name = "embedding_starts", .block = {kScanThreads}}, embedding_starts, rows,
         counts, starts);
  launch(target, map_config("embedding_group", n, kNoPacks, 1), embedding_group, indices, n, counts,
         grouped);
  launch(target, map_config("embedding_order", 32 * n, kNoPacks, 1), embedding_order, indices,
         starts, grouped, ordered);
  const Groups groups{starts, ordered, params.padding_index};
  if (dtable.view.dtype == DType::fp64 || dy.dtype == DType::fp64)
    launch_sum<double>(target, groups, dy, dtable.view, accumulate);
  else
    launch_sum<float>(target, groups, dy, dtable.view, accumulate);
}

template void embedding_forward(Target, const ConstView&, const ConstView&, const Out&);
template void embedding_backward(Target, const EmbeddingParams&, const ConstView&, const ConstView&,
                                 const Out&, Scratch&);

}  // namespace roundoff
