// A row that a group of threads holds in registers, and threads that walk along a line together.
//
// The group is 8 to 256 threads of a block, or the blocks of a cluster (sm_90), 256 threads each.
// Which thread has which element depends on the row's length and on the group alone, not on where
// the row lies, so that a row's sums have the same bits wherever it stands in a batch. Lengths that
// are whole packs of 16 bytes: pack p is at thread p % threads, in one access where the row is
// aligned. Other lengths: element i is at thread i % threads. Either way neighbours read
// neighbours.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/reduce/block.cuh"
#include "kernels/simt/architecture.h"
#include "kernels/simt/cluster.h"
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
    // f(value, others' values)
    template <class F>
    ROUNDOFF_DEVICE void all(const RowValues& other, F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j], other.at[k][j]);
      }
    }
    template <class F>
    ROUNDOFF_DEVICE void all(RowValues& other, F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j], other.at[k][j]);
      }
    }
    template <class F>
    ROUNDOFF_DEVICE void all(const RowValues& a, const RowValues& b, F f) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) f(at[k][j], a.at[k][j], b.at[k][j]);
      }
    }
  };

  // n <= threads kPacks kPack.
  template <int kPacks, int kPack>
  struct RowMap {
    int n;
    int thread;
    int threads;
    bool packed;

    ROUNDOFF_DEVICE RowMap(int length, int rank, int size)
        : n(length), thread(rank), threads(size), packed(kPack > 1 && length % kPack == 0) {}

    ROUNDOFF_DEVICE int index(int k, int j) const {
      return packed ? (k * threads + thread) * kPack + j : (k * kPack + j) * threads + thread;
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

  // Threads a row and values a thread, of rows that threads of one block hold.
  template <int kThreadsARow, int kValues>
  struct RowShape {
    static constexpr bool cluster = false;
    static constexpr bool here = true;  // this compilation has its instructions
    static constexpr int threads = kThreadsARow;
    static constexpr int values = kValues;
    static constexpr int block = kThreadsARow > 128 ? kThreadsARow : 128;
    static constexpr int rows = block / kThreadsARow;
    static constexpr int shared = shared_size(block);
    static constexpr int most = kThreadsARow * kValues;  // the longest row
    template <class T>
    static constexpr int pack = kPackOf<T>;
    template <class T>
    static constexpr int packs = kValues / pack<T>;
  };

  // Of rows that the blocks of a cluster hold: so many values in each of their 256 threads.
  template <int kValues>
  struct ClusterShape {
    static constexpr bool cluster = true;
    static constexpr bool here = ROUNDOFF_HOPPER != 0;
    static constexpr int block = 256;
    static constexpr int values = kValues;
    static constexpr int rows = 1;
    static constexpr int warps = block / 32;
    static constexpr int most_blocks = 8;  // what every sm_90 device takes
    static constexpr int shared = 2 * warps * most_blocks;
    static constexpr std::int64_t most = std::int64_t{most_blocks} * block * kValues;
    template <class T>
    static constexpr int pack = kPackOf<T>;
    template <class T>
    static constexpr int packs = kValues / pack<T>;
    // Blocks of a cluster for rows of n <= most elements.
    static constexpr unsigned cluster_for(std::int64_t n) {
      unsigned blocks = 2;
      while (blocks * std::int64_t{block} * kValues < n) blocks *= 2;
      return blocks;
    }
  };

  // Blocks a multiprocessor that leave a thread 128 registers, or all 255, for kernels that hold so
  // many rows of T at once.
  template <class Shape, class T, int kArrays>
  struct BlocksFor {
    static constexpr int registers = kArrays * Shape::values * (sizeof(T) == 8 ? 2 : 1);
    static constexpr int value = (registers <= 48 ? 512 : 256) / Shape::block;
  };

  // Which of the rows this thread works on, and its place among the row's threads.
  template <class Shape>
  struct RowPlace {
    std::int64_t row;
    int rank;
    int threads;
    bool joined = false;

    ROUNDOFF_DEVICE RowPlace() {
      if constexpr (Shape::cluster) {
        const unsigned size = cluster_size();
        row = blockIdx.x / size;
        rank = static_cast<int>(cluster_rank() * Shape::block + threadIdx.x);
        threads = static_cast<int>(size) * Shape::block;
        cluster_arrive();
      } else {
        row = static_cast<std::int64_t>(blockIdx.x) * Shape::rows + threadIdx.x / Shape::threads;
        rank = static_cast<int>(threadIdx.x) % Shape::threads;
        threads = Shape::threads;
      }
    }
    // Before the first access to another block's memory: all of them run.
    ROUNDOFF_DEVICE void join() {
      if constexpr (Shape::cluster) {
        if (!joined) cluster_wait();
        joined = true;
      }
    }
  };

  // Combines one value a thread over a row's threads, in a fixed order; every thread gets the same
  // bits. `memory`: Shape::shared elements of shared memory. All threads take part in each call.
  //
  // In a cluster every warp leaves its value with every block; after one barrier of the cluster a
  // warp folds what its block was left: lane l values l, l + 32, ..., then a butterfly. Calls take
  // the halves of the memory in turn, as in Shared; nobody reads another block's memory, so blocks
  // may leave after the last call.
  template <class Shape, class T>
  class RowTotal {
   public:
    ROUNDOFF_DEVICE RowTotal(RowPlace<Shape>& place, T* memory) : place_(place), shared_(memory) {
      if constexpr (Shape::cluster) shared_.other = memory + Shape::shared / 2;
    }
    template <class Op>
    ROUNDOFF_DEVICE T operator()(T v, Op op) {
      if constexpr (!Shape::cluster) {
        return reduce::row<Shape::threads>(v, op, shared_);
      } else {
        v = warp<32>(v, op);
        T* const half = shared_.half;
        shared_.half = shared_.other;
        shared_.other = half;
        const unsigned lane = threadIdx.x % 32;
        const auto blocks = static_cast<unsigned>(place_.threads) / Shape::block;
        const unsigned values = blocks * Shape::warps;
        place_.join();
        if (lane < blocks)
          cluster_store(half + (cluster_rank() * Shape::warps + threadIdx.x / 32), lane, v);
        cluster_sync();
        v = half[lane % values];
        for (unsigned i = 32; i < values; i += 32) v = op(v, half[lane + i]);
        for (unsigned lanes = values < 32 ? values / 2 : 16; lanes > 0; lanes /= 2)
          v = op(v, exchange(v, static_cast<int>(lanes)));
        return v;
      }
    }

   private:
    RowPlace<Shape>& place_;
    Shared<T> shared_;
  };

  // The longest rows that a block holds, one fp32 array of them or two (fp64 counts as two).
  inline constexpr std::int64_t kResident = 16384;
  inline constexpr std::int64_t kResidentPair = 8192;
  using LongRow = ClusterShape<64>;

  // f(RowShape{}) for rows of n <= kResident elements: the fewest threads whose registers hold
  // them, so that most rows need no barrier. (128 values a thread do not fit beside their
  // addresses.)
  template <class F>
  void with_row_shape(std::int64_t n, F&& f) {
    if (n <= 64) return f(RowShape<8, 8>{});
    if (n <= 128) return f(RowShape<16, 8>{});
    if (n <= 1024) return f(RowShape<32, 32>{});
    if (n <= 3072) return f(RowShape<32, 96>{});
    if (n <= 6144) return f(RowShape<64, 96>{});
    return f(RowShape<256, 64>{});
  }
  // The same for n <= kResidentPair.
  template <class F>
  void with_pair_shape(std::int64_t n, F&& f) {
    if (n <= 64) return f(RowShape<8, 8>{});
    if (n <= 128) return f(RowShape<16, 8>{});
    if (n <= 1024) return f(RowShape<32, 32>{});
    if (n <= 4096) return f(RowShape<128, 32>{});
    return f(RowShape<256, 32>{});
  }

  // Whether a row is longer than a block holds and a cluster of the device holds it.
  inline bool takes_cluster(Target target, std::int64_t n, std::int64_t resident) {
    return n > resident && n <= LongRow::most && runs(target, Architecture::sm_90a);
  }

  // Blocks of a grid.
  inline unsigned grid_of(const char* name, std::int64_t blocks) {
    ROUNDOFF_CHECK(blocks < (std::int64_t{1} << 31), name, blocks, " blocks, below 2^31 expected");
    return static_cast<unsigned>(blocks);
  }

  // A launch of a kernel with rows of a shape.
  template <class Shape>
  LaunchConfig row_launch(const char* name, std::int64_t rows, std::int64_t n) {
    LaunchConfig config{.name = name, .block = {Shape::block}};
    if constexpr (Shape::cluster) {
      config.cluster = {Shape::cluster_for(n)};
      config.needs = Architecture::sm_90a;
      config.grid = {grid_of(name, rows * config.cluster.x)};
    } else {
      config.grid = {grid_of(name, (rows + Shape::rows - 1) / Shape::rows)};
    }
    return config;
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
