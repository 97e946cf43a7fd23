// The main loop of the tensor-core kernels of sm_80: one block's tile of a product of two sources
// (source.cuh), kM x kN sums in the registers of its warps.
//
// A step is 64 bytes of depth: 32 values of 16 bit, or 16 of tf32, which are two mma.sync deep. It
// arrives in one of kStages buffers by cp.async, 16 bytes a thread at a time, kStages - 1 steps
// ahead of the products; rows and depth beyond the matrix arrive as zeros. One barrier a step: it
// shows the step that has landed to all warps, and frees the buffer of the step before. Fragments
// are read one mma ahead of the products that use them.
//
// Layout of a buffer: lines of 16-byte chunks, in the order in which they lie in memory. Where the
// sum's axis is contiguous (Along::depth) a line is a row of the tile and has 4 chunks of depth;
// else (Along::rows) it is one place along depth and has the tile's rows. Chunk c of line l stands
// at place c ^ swizzle(l), so that the eight rows that ldmatrix reads at once (eight lines, one
// chunk each) fall into eight different groups of four banks, and so do eight neighbouring chunks
// on their way in. ldmatrix transposes 16-bit values that lie along rows; tf32 values that do are
// read one by one, 4 lines x 8 rows an access, for which lines are swizzled by pairs of chunks.
//
// Where a source is not `chunked` its values come through registers by load(), four at a time,
// into the same places: slower, for any alignment.
//
// Numerics: each sum is one chain of mma.sync over depth in order, from what `sums` held, whatever
// the tile. tf32 operands are rounded (RNE, by integers) as they become fragments.
#pragma once

#include <cstdint>

#include "kernels/gemm/source.cuh"
#include "kernels/simt/copy.h"
#include "kernels/simt/mma.h"

namespace roundoff {

// Which axis of an operand is contiguous, as far as a kernel knows when it is compiled.
enum class Along : unsigned char { depth, rows, either };

// A block's tile: kM x kN, in warps of kWarpM x kWarpN, all of them powers of two. kAnySource:
// sources need not be `chunked`. (Large tiles have no registers to spare for that.) kSwizzled:
// without it, to show what it is for, chunks stand in shared memory as they lie in memory.
template <int kM_, int kN_, int kWarpM_, int kWarpN_, int kStages_, int kBlocks_, bool kAnySource_,
          bool kSwizzled_ = true>
struct MmaBlock {
  static constexpr bool kSwizzled = kSwizzled_;
  static constexpr bool kAnySource = kAnySource_;
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // that share a multiprocessor
  static constexpr int kAcross = kN / kWarpN;
  static constexpr int kWarps = kM / kWarpM * kAcross, kThreads = 32 * kWarps;
  static constexpr int kTilesM = kWarpM / 16, kTilesN = kWarpN / 8;  // of mma.sync
  static constexpr unsigned kLineBytes = 64;                         // of depth a step
  static constexpr unsigned kStageBytes = (kM + kN) * kLineBytes;
  // Of dynamic shared memory, for the loop.
  static constexpr unsigned kLoopBytes = kStages * kStageBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0);
};

// Values of depth that a step brings.
template <class T>
inline constexpr unsigned kMmaDepth = 64 / sizeof(T);

ROUNDOFF_DEVICE_NAMESPACE {
  template <class Source>
  ROUNDOFF_DEVICE void settle(Source & source, Along along) {
    if constexpr (requires { source.depth_contiguous = true; }) {
      if (along != Along::either) source.depth_contiguous = along == Along::depth;
    }
  }

  // Where chunks stand in a buffer of kLines lines of kChunks chunks.
  template <int kChunks, bool kPairs, bool kSwizzled>
  struct ChunkLayout {
    static ROUNDOFF_DEVICE unsigned swizzle(unsigned line) {
      if constexpr (!kSwizzled) {
        return 0;
      } else if constexpr (kPairs) {
        return line % 4 * 2;
      } else if constexpr (kChunks >= 8) {
        return line % 8;
      } else {
        return line / (8 / kChunks) % kChunks;
      }
    }
    static ROUNDOFF_DEVICE unsigned byte(unsigned line, unsigned chunk) {
      return (line * kChunks + (chunk ^ swizzle(line))) * 16;
    }
  };
  // Of kRows rows, their depth contiguous or not.
  template <class Block>
  using DepthLayout = ChunkLayout<4, false, Block::kSwizzled>;
  template <class T, class Block, int kRows>
  using RowsLayout =
      ChunkLayout<kRows* static_cast<int>(sizeof(T)) / 16, sizeof(T) == 4, Block::kSwizzled>;

  // The units of kRows rows of one operand that a thread brings, and any source's way in.
  template <class T, class Block, int kRows, Along kAlong, class Source>
  struct MmaUnits {
    static constexpr unsigned kFull = 16 / sizeof(T);  // values of a chunk
    static constexpr unsigned kUnits = kRows * 4 / Block::kThreads;
    static constexpr unsigned kAcross = kRows / kFull;  // chunks of a line along rows
    static constexpr unsigned kLines = Block::kThreads / kAcross;
    static_assert(kUnits * Block::kThreads == kRows * 4 && kLines * kAcross == Block::kThreads);

    static ROUNDOFF_DEVICE bool along_depth(const Source& source) {
      return kAlong == Along::either ? source.contiguous_depth() : kAlong == Along::depth;
    }
    // Unit i is chunk `thread % 4` of a row's depth, or chunk `thread % kAcross` of the rows.
    static ROUNDOFF_DEVICE unsigned row_of(unsigned i) {
      return threadIdx.x / 4 + i * (Block::kThreads / 4);
    }
    static ROUNDOFF_DEVICE unsigned line_of(unsigned i) {
      return threadIdx.x / kAcross + i * kLines;
    }

    // The same through registers, from any source.
    static ROUNDOFF_DEVICE void fetch_values(const Source& source, unsigned row0, unsigned depth0,
                                             unsigned char* buffer) {
      const bool by_depth = along_depth(source);
      ROUNDOFF_NO_UNROLL
      for (unsigned i = 0; i < kUnits; ++i) {
        const unsigned row = by_depth ? row_of(i) : threadIdx.x % kAcross * kFull;
        const unsigned depth = by_depth ? threadIdx.x % 4 * kFull : line_of(i);
        std::uint32_t words[4];
        source.template load<float>(row0 + row, depth0 + depth, words);
        if constexpr (sizeof(T) == 4) {
          ROUNDOFF_UNROLL
          for (int j = 0; j < 4; ++j)
            words[j] = __float_as_uint(widen_bits<float>(words[j], source.dtype, false));
        } else {
          std::uint32_t more[4];
          source.template load<float>(row0 + row + (by_depth ? 0 : 4),
                                      depth0 + depth + (by_depth ? 4 : 0), more);
          words[0] |= words[1] << 16;
          words[1] = words[2] | words[3] << 16;
          words[2] = more[0] | more[1] << 16;
          words[3] = more[2] | more[3] << 16;
        }
        const unsigned at = by_depth
                                ? DepthLayout<Block>::byte(row, threadIdx.x % 4)
                                : RowsLayout<T, Block, kRows>::byte(depth, threadIdx.x % kAcross);
        store_vector(buffer + at, make_uint4(words[0], words[1], words[2], words[3]));
      }
    }
  };

  // This thread's part in bringing kRows rows of one operand.
  template <class T, class Block, int kRows, Along kAlong, class Source>
  struct MmaFeed : MmaUnits<T, Block, kRows, kAlong, Source> {
    using Units = MmaUnits<T, Block, kRows, kAlong, Source>;
    using Units::along_depth, Units::row_of, Units::line_of, Units::fetch_values;
    static constexpr unsigned kUnits = Units::kUnits, kFull = Units::kFull;
    static constexpr unsigned kAcross = Units::kAcross, kLines = Units::kLines;
    static constexpr bool kMayDepth = kAlong != Along::rows, kMayRows = kAlong != Along::depth;

    // Places that follow from others are not kept.
    static constexpr bool kFollow =
        requires(const Source& s, typename Source::Row r, typename Source::Depth d) {
      s.further_row(r, 1U);
      s.further_depth(d, 1U);
    };
    static constexpr unsigned kKeptRows = kMayDepth && !kFollow ? kUnits : 1;
    static constexpr unsigned kKeptDepths = kMayRows && !kFollow ? kUnits : 1;

    typename Source::Row rows[kKeptRows];
    typename Source::Depth depths[kKeptDepths];

    // The place of unit i, once the one before is done: the same distance each time.
    ROUNDOFF_DEVICE void next_row(const Source& source, typename Source::Row& row,
                                  unsigned i) const {
      if constexpr (kFollow)
        row = source.further_row(row, Block::kThreads / 4);
      else if (i < kUnits)
        row = rows[i % kKeptRows];
    }
    ROUNDOFF_DEVICE void next_depth(const Source& source, typename Source::Depth& depth,
                                    unsigned i) const {
      if constexpr (kFollow)
        depth = source.further_depth(depth, kLines);
      else if (i < kUnits)
        depth = depths[i % kKeptDepths];
    }

    ROUNDOFF_DEVICE void begin(const Source& source, unsigned row0) {
      if (Block::kAnySource && !source.chunked) return;
      if (along_depth(source)) {
        ROUNDOFF_UNROLL
        for (unsigned i = 0; i < kKeptRows; ++i) rows[i] = source.row_at(row0 + row_of(i));
      } else {
        rows[0] = source.row_at(row0 + threadIdx.x % kAcross * kFull);
      }
    }
    // What is fetched next begins at depth0.
    ROUNDOFF_DEVICE void seek(const Source& source, unsigned depth0) {
      if (Block::kAnySource && !source.chunked) return;
      if (along_depth(source)) {
        depths[0] = source.depth_at(depth0 + threadIdx.x % 4 * kFull);
      } else {
        ROUNDOFF_UNROLL
        for (unsigned i = 0; i < kKeptDepths; ++i) depths[i] = source.depth_at(depth0 + line_of(i));
      }
    }

    // Brings the step at depth0 into `buffer`.
    ROUNDOFF_DEVICE void fetch(const Source& source, unsigned row0, unsigned depth0,
                               unsigned char* buffer) {
      if constexpr (Block::kAnySource) {
        if (!source.chunked) return fetch_values(source, row0, depth0, buffer);
      }
      if (along_depth(source)) {
        if constexpr (kMayDepth) {
          typename Source::Row row = rows[0];
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kUnits; next_row(source, row, ++i)) {
            const Chunk c = source.template chunk<T>(row, depths[0]);
            cp_async<16, CacheLevel::l2>(
                buffer + DepthLayout<Block>::byte(row_of(i), threadIdx.x % 4), c.from, c.bytes);
          }
          source.advance(depths[0], kMmaDepth<T>);
        }
      } else {
        if constexpr (kMayRows) {
          typename Source::Depth depth = depths[0];
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kUnits; next_depth(source, depth, ++i)) {
            const Chunk c = source.template chunk<T>(rows[0], depth);
            cp_async<16, CacheLevel::l2>(
                buffer + RowsLayout<T, Block, kRows>::byte(line_of(i), threadIdx.x % kAcross),
                c.from, c.bytes);
          }
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kKeptDepths; ++i) source.advance(depths[i], kMmaDepth<T>);
        }
      }
    }
  };

  // A warp's fragments of kWarpRows rows of an operand, for one mma: kTiles tiles of 16 rows (A) or
  // 8 (B), two of which one ldmatrix reads.
  template <class T, class Block, int kRows, int kWarpRows, bool kLeft, Along kAlong>
  struct MmaFragments {
    static constexpr unsigned kTileRows = kLeft ? 16 : 8;
    static constexpr int kTiles = kWarpRows / static_cast<int>(kTileRows);
    static constexpr int kRegisters = kLeft ? 4 : 2;
    static constexpr unsigned kDeep = 32 / sizeof(T);  // of one mma
    static constexpr unsigned kLine = kRows * sizeof(T);
    using ByRows = RowsLayout<T, Block, kRows>;
    std::uint32_t x[kTiles][kRegisters];

    // Where this lane reads the warp's first matrices. Those further on differ in bits of the chunk
    // that are 0 here, or in whole groups of eight lines, which the swizzle does not see.
    static ROUNDOFF_DEVICE unsigned begin(unsigned row0, bool along_depth) {
      const unsigned lane = threadIdx.x % 32, low = lane % 8, half = lane / 8 % 2,
                     quarter = lane / 16;
      const unsigned tile = kLeft ? half : quarter, deep = kLeft ? quarter : half;
      if (along_depth) return DepthLayout<Block>::byte(row0 + tile * 8 + low, deep);
      if constexpr (sizeof(T) == 2) return ByRows::byte(deep * 8 + low, row0 / 8 + tile);
      return ByRows::byte(lane % 4, row0 / 4 + lane / 16) + lane / 4 % 4 * 4;
    }

    ROUNDOFF_DEVICE void load(const unsigned char* buffer, unsigned begin, unsigned step,
                              bool along_depth) {
      if (along_depth) {
        if constexpr (kAlong != Along::rows) {
          const void* from[kWarpRows / 16];
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kWarpRows / 16; ++i)
            from[i] = buffer + (begin ^ (step * 32)) + i * 16 * 64;
          std::uint32_t v[kWarpRows / 16][4];
          ldmatrix_tile<4>(v, from);
          keep(v);
        }
      } else {
        if constexpr (kAlong != Along::depth && sizeof(T) == 2) {
          const void* from[kWarpRows / 16];
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kWarpRows / 16; ++i)
            from[i] = buffer + (begin ^ (i * 32)) + step * kDeep * kLine;
          std::uint32_t v[kWarpRows / 16][4];
          ldmatrix_tile<4, true>(v, from);
          keep(v);
        } else if constexpr (kAlong != Along::depth) {
          ROUNDOFF_UNROLL
          for (unsigned i = 0; i < kWarpRows / 8; ++i) {
            ROUNDOFF_UNROLL
            for (unsigned e = 0; e < 2; ++e) {
              const std::uint32_t v = *reinterpret_cast<const std::uint32_t*>(
                  buffer + (begin ^ (i * 32)) + (step * kDeep + 4 * e) * kLine);
              if constexpr (kLeft)
                x[i / 2][i % 2 + 2 * e] = v;
              else
                x[i][e] = v;
            }
          }
        }
      }
      if constexpr (sizeof(T) == 4) {
        ROUNDOFF_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          ROUNDOFF_UNROLL
          for (int e = 0; e < kRegisters; ++e)
            x[i][e] = __float_as_uint(rounded_to_tf32(__uint_as_float(x[i][e])));
        }
      }
    }

    // v[i]: of the i-th sixteen rows.
    ROUNDOFF_DEVICE void keep(const std::uint32_t (&v)[kWarpRows / 16][4]) {
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < kWarpRows / 16; ++i) {
        ROUNDOFF_UNROLL
        for (unsigned e = 0; e < 4; ++e) {
          if constexpr (kLeft)
            x[i][e] = v[i][e];
          else
            x[2 * i + e / 2][e % 2] = v[i][e];
        }
      }
    }
  };

  // Where a warp's part of the block's tile begins.
  template <class Block>
  ROUNDOFF_DEVICE unsigned mma_warp_row() {
    return threadIdx.x / 32 / Block::kAcross * Block::kWarpM;
  }
  template <class Block>
  ROUNDOFF_DEVICE unsigned mma_warp_column() {
    return threadIdx.x / 32 % Block::kAcross * Block::kWarpN;
  }

  // Calls multiply(x, y) with the fragments of each mma, x[i] those of the warp's i-th 16 rows of A
  // and y[j] of its j-th 8 of B, over steps [first, last) of kMmaDepth<T>, which count through the
  // matrices of a sum over a batch, `steps` each. `shared`: Block::kLoopBytes, 128-byte aligned; a
  // barrier must follow before it is written again.
  template <class T, class Block, Along kAlongA, Along kAlongB, class A, class B, class Multiply>
  ROUNDOFF_DEVICE void multiply_stages(A & a, B & b, unsigned matrix, unsigned first, unsigned last,
                                       unsigned steps, unsigned row0, unsigned column0,
                                       unsigned char* shared, Multiply multiply) {
    constexpr unsigned kStages = Block::kStages, kDepth = kMmaDepth<T>;
    constexpr unsigned kLeft = Block::kM * Block::kLineBytes;
    settle(a, kAlongA);
    settle(b, kAlongB);
    using FeedA = MmaFeed<T, Block, Block::kM, kAlongA, A>;
    using FeedB = MmaFeed<T, Block, Block::kN, kAlongB, B>;
    FeedA feed_a;
    FeedB feed_b;
    const bool depth_a = FeedA::along_depth(a), depth_b = FeedB::along_depth(b);
    feed_a.begin(a, row0);
    feed_b.begin(b, column0);
    unsigned at = first % steps;
    matrix += first / steps;
    const auto select = [&] {
      a.select(matrix);
      b.select(matrix);
      feed_a.seek(a, at * kDepth);
      feed_b.seek(b, at * kDepth);
    };
    select();
    const auto fetch = [&](unsigned stage) {
      unsigned char* to = shared + stage * Block::kStageBytes;
      feed_a.fetch(a, row0, at * kDepth, to);
      feed_b.fetch(b, column0, at * kDepth, to + kLeft);
      if (++at == steps) {
        at = 0;
        ++matrix;
        select();
      }
    };
    ROUNDOFF_NO_UNROLL
    for (unsigned i = 0; i + 1 < kStages; ++i) {
      if (first + i < last) fetch(i);
      cp_async_commit();
    }

    using Left = MmaFragments<T, Block, Block::kM, Block::kWarpM, true, kAlongA>;
    using Right = MmaFragments<T, Block, Block::kN, Block::kWarpN, false, kAlongB>;
    Left left[2];
    Right right[2];
    const unsigned left0 = Left::begin(mma_warp_row<Block>(), depth_a);
    const unsigned right0 = kLeft + Right::begin(mma_warp_column<Block>(), depth_b);
    unsigned stage = 0;
    unsigned left_over = last - first;
    if (left_over != 0) {
      cp_async_wait<kStages - 2>();
      __syncthreads();
      left[0].load(shared, left0, 0, depth_a);
      right[0].load(shared, right0, 0, depth_b);
    }
    ROUNDOFF_NO_UNROLL
    for (; left_over != 0; --left_over) {
      const unsigned char* buffer = shared + stage * Block::kStageBytes;
      left[1].load(buffer, left0, 1, depth_a);
      right[1].load(buffer, right0, 1, depth_b);
      multiply(left[0].x, right[0].x);
      // Here, where only one mma's fragments are held, there are registers for it.
      if (left_over > kStages - 1) fetch(stage == 0 ? kStages - 1 : stage - 1);
      cp_async_commit();
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (left_over > 1) {
        cp_async_wait<kStages - 2>();
        __syncthreads();
        buffer = shared + stage * Block::kStageBytes;
        left[0].load(buffer, left0, 0, depth_a);
        right[0].load(buffer, right0, 0, depth_b);
      }
      multiply(left[1].x, right[1].x);
    }
  }

}  // namespace

}  // namespace roundoff
