// A row that a group of threads holds in registers: loaded once, in 16-byte accesses where the row
// allows it, and at the place where it lies.
//
// With packs: elements before the first aligned place and behind the last whole pack (at most 14)
// go to the first threads, one each; pack p is at thread p % kThreads. One by one: element i is at
// thread i % kThreads. Either way neighbours read neighbours.
#pragma once

#include <cstdint>

#include "kernels/reduce/block.cuh"
#include "kernels/simt/convert.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace reduce {

  template <class A, int kPacks, int kPack>
  struct RowValues {
    A at[kPacks][kPack];
    A extra;

    // f(value) for every register, those without an element too.
    template <class F>
    ROUNDOFF_DEVICE void all(F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j]);
      }
      if constexpr (kPack > 1) f(extra);
    }
    // f(value, other's value)
    template <class F>
    ROUNDOFF_DEVICE void all(const RowValues& other, F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j], other.at[k][j]);
      }
      if constexpr (kPack > 1) f(extra, other.extra);
    }
  };

  // n <= kThreads kPacks kPack; head: of pack_head(), kNoPacks for one by one.
  template <int kThreads, int kPacks, int kPack>
  struct RowMap {
    static_assert(kThreads >= 16 || kPack == 1, "a thread for every element outside packs");
    int n;
    int thread;
    int head;
    int packs;

    ROUNDOFF_DEVICE RowMap(int length, int rank, int first)
        : n(length), thread(rank), head(kPack == 1 ? kNoPacks : first), packs(0) {
      if (head > n) head = kNoPacks;
      if (head >= 0) packs = (n - head) / kPack;
    }

    // Index of the element in RowValues::extra, or -1.
    ROUNDOFF_DEVICE int extra() const {
      if (thread < head) return thread;
      const int i = packs * kPack + thread;
      return i < n ? i : -1;
    }

    template <class T, class A>
    ROUNDOFF_DEVICE void load(const T* row, A otherwise, RowValues<A, kPacks, kPack>& v) const {
      v.extra = otherwise;
      if (head >= 0) {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          const int p = k * kThreads + thread;
          if (p < packs) {
            load_pack(row + head + p * kPack, v.at[k]);
          } else {
            ROUNDOFF_UNROLL
            for (int j = 0; j < kPack; ++j) v.at[k][j] = otherwise;
          }
        }
        if (const int i = extra(); i >= 0) v.extra = widen_value<A>(row[i]);
      } else {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) {
            const int i = (k * kPack + j) * kThreads + thread;
            v.at[k][j] = i < n ? widen_value<A>(row[i]) : otherwise;
          }
        }
      }
    }

    template <class T, class A>
    ROUNDOFF_DEVICE void store(T* row, const RowValues<A, kPacks, kPack>& v) const {
      if (head >= 0) {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          const int p = k * kThreads + thread;
          if (p < packs) store_pack(row + head + p * kPack, v.at[k]);
        }
        if (const int i = extra(); i >= 0) row[i] = narrow_value<T>(v.extra);
      } else {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) {
            const int i = (k * kPack + j) * kThreads + thread;
            if (i < n) row[i] = narrow_value<T>(v.at[k][j]);
          }
        }
      }
    }

    // f(value, index) for every element.
    template <class A, class F>
    ROUNDOFF_DEVICE void each(RowValues<A, kPacks, kPack>& v, F f) const {
      if (head >= 0) {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          const int p = k * kThreads + thread;
          if (p < packs) {
            ROUNDOFF_UNROLL
            for (int j = 0; j < kPack; ++j) f(v.at[k][j], head + p * kPack + j);
          }
        }
        if (const int i = extra(); i >= 0) f(v.extra, i);
      } else {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j) {
            const int i = (k * kPack + j) * kThreads + thread;
            if (i < n) f(v.at[k][j], i);
          }
        }
      }
    }
  };

  // Threads and values a thread of a resident row of T, by its length.
  template <int kThreadsARow, int kValues>
  struct RowShape {
    static constexpr int threads = kThreadsARow;
    static constexpr int block = kThreadsARow > 128 ? kThreadsARow : 128;
    static constexpr int rows = block / kThreadsARow;
    template <class T>
    static constexpr int pack = kValues < 8 ? 1 : 16 / static_cast<int>(sizeof(T));
    template <class T>
    static constexpr int packs = kValues / pack<T>;
  };
  inline constexpr std::int64_t kResident = 8192;

  // f(RowShape{}) for rows of n <= kResident elements.
  template <class F>
  void with_row_shape(std::int64_t n, F&& f) {
    if (n <= 16) return f(RowShape<16, 1>{});
    if (n <= 128) return f(RowShape<16, 8>{});
    if (n <= 1024) return f(RowShape<32, 32>{});
    if (n <= 4096) return f(RowShape<128, 32>{});
    return f(RowShape<256, 32>{});
  }

  // Threads that walk along one line together: line l of [outer, n, inner] begins at base and has
  // its elements `stride` apart. Member `rank` of `size` takes elements rank, rank + size, ...

  // A block for a line; inner is 1.
  template <class A>
  struct RowTeam {
    static constexpr int size = 256;
    static constexpr unsigned lines = 1;
    static constexpr Dim block{256};
    static constexpr int shared = shared_size(256);
    Shared<A> partial;
    int rank;
    std::int64_t line;
    ROUNDOFF_DEVICE explicit RowTeam(A* memory)
        : partial(memory), rank(static_cast<int>(threadIdx.x)), line(blockIdx.x) {}
    template <class Op>
    ROUNDOFF_DEVICE A operator()(A v, Op op) {
      return row<256>(v, op, partial);
    }
  };

  // 32 neighbouring lines a block, so that a request reads neighbours; 8 threads for each.
  template <class A>
  struct ColumnTeam {
    static constexpr int size = 8;
    static constexpr unsigned lines = 32;
    static constexpr Dim block{32, 8};
    static constexpr int shared = 2 * 256;
    A* half;
    A* other;
    int rank;
    std::int64_t line;
    ROUNDOFF_DEVICE explicit ColumnTeam(A* memory)
        : half(memory),
          other(memory + 256),
          rank(static_cast<int>(threadIdx.y)),
          line(static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x) {}
    template <class Op>
    ROUNDOFF_DEVICE A operator()(A v, Op op) {
      A* const mine = half;
      half = other;
      other = mine;
      mine[threadIdx.y * 32 + threadIdx.x] = v;
      __syncthreads();
      const A* at = mine + threadIdx.x;
      return op(op(op(at[0], at[32]), op(at[64], at[96])),
                op(op(at[128], at[160]), op(at[192], at[224])));
    }
  };

  // Where line l begins. Lines beyond the last one have no elements.
  struct Line {
    std::int64_t base;
    std::int64_t n;
    ROUNDOFF_DEVICE Line(std::int64_t line, std::int64_t lines, std::int64_t length,
                         std::int64_t inner)
        : base(line / inner * length * inner + line % inner), n(line < lines ? length : 0) {}
  };

  }  // namespace reduce
}  // namespace

}  // namespace roundoff
