// Products on sm_90a by warpgroups with one task each: the main loop of the rungs sm90 and
// ping_pong, and of convolution.
//
// The two numbers: 2 m n k flop; bytes, each operand and the result once. A tile of 128 x 256 reads
// (128 + 256) 2 k bytes from L2 for 2 128 256 k flop: 48 bytes a clock and multiprocessor at the
// tensor cores' peak, which is about what L2 gives. Two blocks of a cluster that take rows below
// each other read B's columns once for both: 32.
//
// Layout: a block has one group of 128 threads that copies (one thread of it works) and one or two
// that multiply. A stage of shared memory holds kM lines of A and kN of B, 128 bytes of depth each
// (64 16-bit or 32 tf32 elements), in TMA's 128-byte swizzle; an operand that is contiguous along
// its rows comes as boxes of 64 rows x 64 of depth, which take the same room. Barriers of a stage:
//   full   one arrival (the copying thread's, which announces the bytes) and the bytes
//   empty  one arrival of every group that reads it, from every block of the cluster: each block
//          copies its share of B to all of them, so a stage is refilled when all are done with it
// A block takes units (tiles; pairs of them in a cluster) in turn, as many as there are: the next
// unit's copies run while results are written. Units go down bands of rows before they go across,
// so that those that run together share operands in L2.
// Ping-pong: a unit belongs to one group, the other one's products run while it begins or ends its
// own; named barriers make the main loops take turns.
//
// Numerics: every sum is one chain over depth, 16 products (tf32: 8) a step, in order, beginning
// with begin_sum(). Zeros beyond the matrices change nothing. tf32: the tensor cores would cut off
// 13 bits, so the groups round what landed, to nearest even, in place.
#pragma once

#include "kernels/gemm/product.cuh"
#include "kernels/gemm/sm90_epilogue.cuh"
#include "kernels/simt/cluster.h"
#include "kernels/simt/tma.h"
#include "kernels/simt/wgmma.h"

namespace roundoff {

// How units are laid out: through columns of clusters, parts and results.
struct Sm90Grid {
  ProductSizes size;
  unsigned bands = 1, tiles_n = 1;  // rows of clusters, columns of tiles
  unsigned units = 1;
  unsigned steps = 1;  // along the depth of one matrix
  unsigned all_steps = 0;
  unsigned parts = 1, steps_a_part = 0;
  bool one_a = false, one_b = false;  // one matrix serves the whole batch
  bool by_tma = false;                // results
  bool addend_runs = false;           // c is aligned to four elements
};

ROUNDOFF_DEVICE_NAMESPACE {
  // Bytes of a line of a stage, and elements of depth in it.
  inline constexpr unsigned kLineBytes = 128;
  template <class T>
  inline constexpr unsigned kStageDepth = kLineBytes / (sizeof(T) == 2 ? 2 : 4);

  // kSubtiles x 64 rows and kN columns a group, kGroups of them.
  template <int kSubtiles_, int kGroups_, int kN_, int kCluster_, int kStages_, int kBlocks_,
            bool kPingPong_>
  struct Sm90Shape {
    static constexpr int kSubtiles = kSubtiles_, kGroups = kGroups_, kN = kN_;
    static constexpr int kCluster = kCluster_, kStages = kStages_;
    static constexpr int kBlocks = kBlocks_;  // that share a multiprocessor
    static constexpr bool kPingPong = kPingPong_;
    static constexpr int kUsers = kPingPong ? 1 : kGroups;  // groups that read a stage
    static constexpr int kM = 64 * kSubtiles * kUsers;
    static constexpr unsigned kShareB = kN / kCluster;  // columns that a block copies
    static constexpr unsigned kBytesA = kM * kLineBytes;
    static constexpr unsigned kStageBytes = (kM + kN) * kLineBytes;
    static constexpr unsigned kStaging = 2 * kStagingBytes;  // of a group
    static constexpr std::size_t kShared = kStages * kStageBytes + kGroups * kStaging;
    static constexpr int kThreads = 128 * (kGroups + 1);
    // Registers move from the copying group to the others, whose sums alone take 128.
    static constexpr bool kMovesRegisters = kSubtiles * kN >= 256;
    static constexpr std::uint16_t kAll = (1U << kCluster) - 1U;
    static_assert(kShared <= 226 * 1024 && kShareB % 64 == 0);
  };

  struct Sm90Unit {
    unsigned row0, column0, result, part;
    unsigned first, last;  // steps
  };

  template <class S>
  ROUNDOFF_DEVICE Sm90Unit unit_at(const Sm90Grid& g, unsigned unit, unsigned rank) {
    constexpr unsigned kBands = 8;
    const unsigned matrix = unit / (g.bands * g.tiles_n);
    unsigned index = unit % (g.bands * g.tiles_n);
    const unsigned first = index / (kBands * g.tiles_n) * kBands;
    const unsigned height = g.bands - first < kBands ? g.bands - first : kBands;
    index -= first * g.tiles_n;
    Sm90Unit u;
    u.row0 = ((first + index % height) * S::kCluster + rank) * S::kM;
    u.column0 = index / height * S::kN;
    u.part = matrix % g.parts;
    u.result = matrix / g.parts;
    u.first = u.part * g.steps_a_part;
    u.last = u.first + g.steps_a_part < g.all_steps ? u.first + g.steps_a_part : g.all_steps;
    return u;
  }

  // A ring of stages, as each thread that goes round it counts.
  template <class S>
  struct Sm90Ring {
    unsigned char* stages;
    Mbarrier* full;
    Mbarrier* empty;
    unsigned stage = 0, parity = 0;

    ROUNDOFF_DEVICE unsigned char* memory() const { return stages + stage * S::kStageBytes; }
    ROUNDOFF_DEVICE void advance() {
      if (++stage == S::kStages) {
        stage = 0;
        parity ^= 1U;
      }
    }
    ROUNDOFF_DEVICE void advance(unsigned steps) {
      stage += steps;
      parity ^= stage / S::kStages & 1U;
      stage %= S::kStages;
    }
  };

  // ---- copying

  // kRows rows (from row0) x one stage of depth (from depth0) of matrix `matrix`.
  template <class T, Major kMajor, unsigned kRows>
  ROUNDOFF_DEVICE void load_rows(unsigned char* to, const TensorMap* map, unsigned row0,
                                 unsigned depth0, unsigned matrix, Mbarrier* full,
                                 std::uint16_t ranks) {
    constexpr unsigned kBox = kMajor == Major::k ? kRows : 64;
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < kRows; i += kBox) {
      const int row = static_cast<int>(row0 + i), depth = static_cast<int>(depth0);
      const int at[3] = {kMajor == Major::k ? depth : row, kMajor == Major::k ? row : depth,
                         static_cast<int>(matrix)};
      if (ranks == 0) {
        tma_load(to + i * kLineBytes, map, at, full);
      } else {
        tma_load_multicast(to + i * kLineBytes, map, at, full, ranks);
      }
    }
  }

  // A stage of two matrices.
  template <class S, class T, Major kMajorA, Major kMajorB>
  struct MatrixLoad {
    const TensorMap* a;
    const TensorMap* b;
    const Sm90Grid& g;
    unsigned rank;

    ROUNDOFF_DEVICE void operator()(unsigned char* stage, Mbarrier* full, const Sm90Unit& u,
                                    unsigned step) const {
      const unsigned matrix = u.result + step / g.steps;
      const unsigned depth0 = step % g.steps * kStageDepth<T>;
      load_rows<T, kMajorA, S::kM>(stage, a, u.row0, depth0, g.one_a ? 0 : matrix, full, 0);
      load_rows<T, kMajorB, S::kShareB>(stage + S::kBytesA + rank * S::kShareB * kLineBytes, b,
                                        u.column0 + rank * S::kShareB, depth0, g.one_b ? 0 : matrix,
                                        full, S::kCluster > 1 ? S::kAll : std::uint16_t{0});
    }
  };

  // One thread: every step of every unit of this block.
  template <class S, class Load>
  ROUNDOFF_DEVICE void copy_units(const Sm90Grid& g, Sm90Ring<S> ring, unsigned rank,
                                  const Load& load) {
    for (unsigned unit = blockIdx.x / S::kCluster; unit < g.units;
         unit += gridDim.x / S::kCluster) {
      const Sm90Unit u = unit_at<S>(g, unit, rank);
      for (unsigned step = u.first; step < u.last; ++step) {
        if constexpr (S::kCluster > 1) {
          mbarrier_wait_cluster(&ring.empty[ring.stage], ring.parity ^ 1U);
        } else {
          mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1U);
        }
        mbarrier_arrive_expect_tx(&ring.full[ring.stage], S::kStageBytes);
        load(ring.memory(), &ring.full[ring.stage], u, step);
        ring.advance();
      }
    }
  }

  // ---- multiplying

  // A stage's fp32 values rounded to tf32 by `threads` threads, which meet afterwards. Later reads
  // by wgmma see it.
  template <unsigned kBytes>
  ROUNDOFF_DEVICE void round_stage(unsigned char* stage, unsigned thread, unsigned threads,
                                   unsigned barrier) {
    ROUNDOFF_NO_UNROLL
    for (unsigned i = thread * 16; i < kBytes; i += threads * 16) {
      auto v = load_vector<uint4>(stage + i);
      v.x = Tf32(__uint_as_float(v.x)).bits;
      v.y = Tf32(__uint_as_float(v.y)).bits;
      v.z = Tf32(__uint_as_float(v.z)).bits;
      v.w = Tf32(__uint_as_float(v.w)).bits;
      store_vector(stage + i, v);
    }
    fence_proxy_async();
    bar_sync(barrier, threads);
  }

  // The descriptor of kRows rows of an operand.
  template <Major kMajor>
  ROUNDOFF_DEVICE std::uint64_t operand_at(const unsigned char* shared) {
    // K-major: 8 rows of 128 bytes after each other. MN-major: spans of 64 rows x 64 of depth.
    return wgmma_descriptor(shared, Swizzle::span128, kMajor == Major::k ? 16 : 64 * kLineBytes,
                            8 * kLineBytes);
  }
  // From one wgmma's depth (32 bytes) to the next.
  template <Major kMajor>
  inline constexpr unsigned kNextDepth = kMajor == Major::k ? 32 : 16 * kLineBytes;

  // A stage's products, as one group of wgmma.
  template <class S, class T, Major kMajorA, Major kMajorB>
  ROUNDOFF_DEVICE void multiply_stage(const unsigned char* a, const unsigned char* b,
                                      float(&sums)[S::kSubtiles][S::kN / 2]) {
    const std::uint64_t left = operand_at<kMajorA>(a), right = operand_at<kMajorB>(b);
    wgmma_fence();
    ROUNDOFF_UNROLL
    for (unsigned l = 0; l < 4; ++l) {
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < S::kSubtiles; ++i)
        wgmma<T, S::kN, kMajorA, kMajorB>(
            sums[i], wgmma_advance(left, l * kNextDepth<kMajorA> + i * 64 * kLineBytes),
            wgmma_advance(right, l * kNextDepth<kMajorB>), true);
    }
    wgmma_commit();
  }

  // This group has read a stage. One thread arrives for it: wgmma is the group's as a whole.
  template <class S>
  ROUNDOFF_DEVICE void release_stage(Mbarrier * empty, unsigned thread) {
    if constexpr (S::kCluster > 1) {
      if (thread < S::kCluster) mbarrier_arrive_cluster(empty, thread);
    } else {
      if (thread == 0) mbarrier_arrive(empty);
    }
  }

  // Named barriers: a group's own, all that multiply, and whose turn it is.
  inline constexpr unsigned kBarrierGroup = 1, kBarrierAll = 3, kBarrierTurn = 4;

  template <class S, class T, Major kMajorA, Major kMajorB>
  ROUNDOFF_DEVICE void multiply_units(const Sm90Grid& g, Sm90Ring<S> ring, const TensorMap* map_y,
                                      const ProductOutput& out, unsigned rank, unsigned group,
                                      Sm90Staging staging) {
    const unsigned thread = staging.thread;
    const unsigned stride = gridDim.x / S::kCluster;
    unsigned turn = 0;
    for (unsigned unit = blockIdx.x / S::kCluster; unit < g.units; unit += stride, ++turn) {
      const Sm90Unit u = unit_at<S>(g, unit, rank);
      if (S::kPingPong && turn % 2 != group) {
        ring.advance(u.last - u.first);
        continue;
      }
      const unsigned row_in_tile = S::kPingPong ? 0 : group * S::kSubtiles * 64;
      Sm90Place at{g.size.m, g.size.n, u.result * g.parts + u.part, u.row0 + row_in_tile,
                   u.column0};
      float sums[S::kSubtiles][S::kN / 2];
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < S::kSubtiles; ++i) {
        Sm90Place sub = at;
        sub.row0 += 64 * i;
        begin_sums<S::kN>(out, g.addend_runs, sub, staging, sums[i]);
      }

      const bool passes_on = S::kPingPong && unit + stride < g.units;
      if (S::kPingPong && turn > 0) bar_sync(kBarrierTurn + group, 256);
      if (u.first < u.last) {
        unsigned step = u.first, before = 0;  // the stage of the step before
        do {
          mbarrier_wait(&ring.full[ring.stage], ring.parity);
          unsigned char* const stage = ring.memory();
          if constexpr (sizeof(T) == 4)
            round_stage<S::kStageBytes>(stage, S::kPingPong ? thread : threadIdx.x, S::kUsers * 128,
                                        S::kPingPong ? kBarrierGroup + group : kBarrierAll);
          multiply_stage<S, T, kMajorA, kMajorB>(stage + row_in_tile * kLineBytes,
                                                 stage + S::kBytesA, sums);
          wgmma_wait<1>();
          if (step != u.first) release_stage<S>(&ring.empty[before], thread);
          before = ring.stage;
          ring.advance();
        } while (++step < u.last);
        // The other group's products may queue behind the last of these.
        if (passes_on) bar_arrive(kBarrierTurn + (group ^ 1U), 256);
        wgmma_wait<0>();
        release_stage<S>(&ring.empty[before], thread);
      } else if (passes_on) {
        bar_arrive(kBarrierTurn + (group ^ 1U), 256);
      }

      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < S::kSubtiles; ++i) {
        Sm90Place sub = at;
        sub.row0 += 64 * i;
        if (g.by_tma) {
          store_sums<S::kN>(map_y, out, sub, staging, sums[i]);
        } else {
          end_sums<S::kN>(out, sub, staging, sums[i]);
        }
      }
    }
    if (thread == 0) tma_store_wait_read<0>();
  }

  // ---- a block

  // Barriers of the ring, known to all of the cluster; the maps on their way.
  template <class S>
  ROUNDOFF_DEVICE void init_ring(const Sm90Ring<S>& ring, const Sm90Grid& g, const TensorMap* a,
                                 const TensorMap* b) {
    if (threadIdx.x == 0) {
      if (g.all_steps != 0) {
        tma_prefetch(a);
        tma_prefetch(b);
      }
      for (int i = 0; i < S::kStages; ++i) {
        mbarrier_init(&ring.full[i], 1);
        mbarrier_init(&ring.empty[i], S::kUsers * S::kCluster);
      }
      fence_mbarrier_init();
    }
    if constexpr (S::kCluster > 1) {
      cluster_sync();
    } else {
      __syncthreads();
    }
  }

  template <class S, class T, Major kMajorA, Major kMajorB, class Load>
  ROUNDOFF_DEVICE void run_block(const Sm90Grid& g, const Sm90Ring<S>& ring, unsigned rank,
                                 const TensorMap* map_y, const ProductOutput& out,
                                 const Load& load) {
    const unsigned group = __shfl_sync(~0U, threadIdx.x / 128, 0);
    if (group == S::kGroups) {
      if constexpr (S::kMovesRegisters) registers_decrease<40>();
      if (threadIdx.x == S::kGroups * 128) copy_units<S>(g, ring, rank, load);
    } else {
      if constexpr (S::kMovesRegisters) registers_increase<232>();
      const Sm90Staging staging{ring.stages + S::kStages * S::kStageBytes + group * S::kStaging,
                                kBarrierGroup + group, threadIdx.x % 128};
      multiply_units<S, T, kMajorA, kMajorB>(g, ring, map_y, out, rank, group, staging);
    }
    // Others still copy to this block, and arrive here.
    if constexpr (S::kCluster > 1) {
      __syncwarp();
      cluster_sync();
    }
  }

  template <class S, class T, Major kMajorA, Major kMajorB>
  __global__ void __launch_bounds__(S::kThreads, S::kBlocks)
      product_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                   const __grid_constant__ TensorMap y, const __grid_constant__ Sm90Grid g,
                   const __grid_constant__ ProductOutput out) {
#if ROUNDOFF_HOPPER
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, full, [S::kStages]);
    ROUNDOFF_SHARED(Mbarrier, empty, [S::kStages]);
    const Sm90Ring<S> ring{shared, full, empty};
    init_ring(ring, g, &a, &b);
    const unsigned rank = S::kCluster > 1 ? cluster_rank() : 0;
    run_block<S, T, kMajorA, kMajorB>(g, ring, rank, &y, out,
                                      MatrixLoad<S, T, kMajorA, kMajorB>{&a, &b, g, rank});
#else
    __trap();
#endif
  }

}  // namespace
}  // namespace roundoff
