// A row that a group of threads holds in registers, and threads that walk along a line together.
//
// Which thread has which element depends on the row's length alone, not on where it lies, so that a
// row's sums have the same bits wherever it stands in a batch. Lengths that are whole packs of 16
// bytes: pack p is at thread p % kThreads, in one access where the row is aligned. Other lengths:
// element i is at thread i % kThreads. Either way neighbours read neighbours.
#pragma once

#include <cstdint>

#include "kernels/reduce/block.cuh"
#include "kernels/simt/operand.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace reduce {

  template <class A, int kPacks, int kPack>
  struct RowValues {
    A at[kPacks][kPack];

    // f(value) for every register, those without an element too.
    template <class F>
    ROUNDOFF_DEVICE void all(F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j]);
      }
    }
    // f(value, other's value)
    template <class F>
    ROUNDOFF_DEVICE void all(const RowValues& other, F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j], other.at[k][j]);
      }
    }
  };

  // n <= kThreads kPacks kPack.
  template <int kThreads, int kPacks, int kPack>
  struct RowMap {
    int n;
    int thread;
    bool packed;

    ROUNDOFF_DEVICE RowMap(int length, int rank)
        : n(length), thread(rank), packed(kPack > 1 && length % kPack == 0) {}

    ROUNDOFF_DEVICE int index(int k, int j) const {
      return packed ? (k * kThreads + thread) * kPack + j : (k * kPack + j) * kThreads + thread;
    }

    template <class T, class A>
    ROUNDOFF_DEVICE void load(const T* row, A otherwise, RowValues<A, kPacks, kPack>& v) const {
      if (packed && is_aligned(row)) {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k) {
          if (index(k, 0) < n) {
            load_pack(row + index(k, 0), v.at[k]);
          } else {
            ROUNDOFF_UNROLL
            for (int j = 0; j < kPack; ++j) v.at[k][j] = otherwise;
          }
        }
        return;
      }
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) {
          const int i = index(k, j);
          v.at[k][j] = i < n ? widen_value<A>(row[i]) : otherwise;
        }
      }
    }

    template <class T, class A>
    ROUNDOFF_DEVICE void store(T* row, const RowValues<A, kPacks, kPack>& v) const {
      if (packed && is_aligned(row)) {
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPacks; ++k)
          if (index(k, 0) < n) store_pack(row + index(k, 0), v.at[k]);
        return;
      }
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j)
          if (const int i = index(k, j); i < n) row[i] = narrow_value<T>(v.at[k][j]);
      }
    }

    // f(value, other's value) for every element.
    template <class A, class F>
    ROUNDOFF_DEVICE void each(RowValues<A, kPacks, kPack>& v, RowValues<A, kPacks, kPack>& other,
                              F f) const {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j)
          if (index(k, j) < n) f(v.at[k][j], other.at[k][j]);
      }
    }
    template <class A, class F>
    ROUNDOFF_DEVICE void each(RowValues<A, kPacks, kPack>& v, F f) const {
      each(v, v, [&](A& value, A&) { f(value); });
    }
  };

  // A row of any length, `kThreads` threads: pack(i) for whole packs where n is a multiple of one,
  // else single(i) for each element; as in RowMap, so that sums do not depend on the row's place.
  template <int kThreads, int kPack, class Pack, class Single>
  ROUNDOFF_DEVICE void walk_row(std::int64_t n, int rank, Pack pack, Single single) {
    if (n % kPack == 0) {
      for (std::int64_t i = rank * kPack; i < n; i += kThreads * kPack) pack(i);
    } else {
      for (std::int64_t i = rank; i < n; i += kThreads) single(i);
    }
  }

  // Threads and values a thread of a resident row of T, by its length.
  template <int kThreadsARow, int kValues>
  struct RowShape {
    static constexpr int threads = kThreadsARow;
    static constexpr int block = kThreadsARow > 128 ? kThreadsARow : 128;
    static constexpr int rows = block / kThreadsARow;
    // So many blocks a multiprocessor leave a thread 128 registers; fp64 takes more.
    static constexpr int blocks = 512 / block;
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
