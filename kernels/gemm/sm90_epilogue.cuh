// The beginning and the end of a warpgroup's sums, 64 rows x kN columns in wgmma's layout
// (kernels/simt/wgmma.h): what a sum begins with comes, and results go, through a buffer of shared
// memory, 64 rows x 128 bytes at a time, so that device memory sees whole rows of 128 bytes.
//
// Layout: a row's 16-byte pieces are permuted as TMA's 128-byte swizzle does, piece ^= row % 8.
// Banks: stmatrix writes eight rows of one piece, which the swizzle spreads over all banks. fp32
// pairs of columns (8 bytes) go by half warps of four rows; rows g and g + 1 would meet in the same
// two pieces, so odd rows take the blocks of columns in another order. 16-byte accesses are whole
// rows.
// Numerics: output.cuh; one rounding.
#pragma once

#include <cstdint>

#include "kernels/gemm/output.cuh"
#include "kernels/simt/copy.h"
#include "kernels/simt/tma.h"

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  inline constexpr unsigned kStagingBytes = 64 * 128;  // of one buffer

  // A warpgroup's two buffers, which it uses in turn.
  struct Sm90Staging {
    unsigned char* memory;  // 1024-byte aligned
    unsigned barrier;       // a named barrier of the group's own
    unsigned thread;        // 0 .. 127
    unsigned turn = 0;

    ROUNDOFF_DEVICE void meet() const { bar_sync(barrier, 128); }
    ROUNDOFF_DEVICE unsigned char* next() { return memory + (turn++ & 1U) * kStagingBytes; }
  };

  ROUNDOFF_DEVICE unsigned char* staging_piece(unsigned char* buffer, unsigned row,
                                               unsigned piece) {
    return buffer + row * 128 + (piece ^ (row % 8)) * 16;
  }

  // Where a thread's pairs of 32 fp32 columns lie: of block `step` of 8 columns in the thread's own
  // order, row g + 8 half.
  struct PairPlace {
    unsigned row, piece, offset;
    bool odd;
    explicit ROUNDOFF_DEVICE PairPlace(unsigned thread)
        : row(thread / 32 * 16 + thread % 32 / 4),
          piece(thread % 4 / 2),
          offset(thread % 2 * 8),
          odd((row & 1U) != 0) {}
    ROUNDOFF_DEVICE unsigned char* at(unsigned char* buffer, unsigned step, unsigned half) const {
      const unsigned block = odd ? step ^ 2U : step;
      return staging_piece(buffer, row + 8 * half, 2 * block + piece) + offset;
    }
  };

  // v[4 j + e] is element e (rows g, g, g + 8, g + 8) of block j of 8 columns.
  ROUNDOFF_DEVICE void put_pairs(unsigned char* buffer, unsigned thread, const float(&v)[16]) {
    const PairPlace place(thread);
    ROUNDOFF_UNROLL
    for (unsigned step = 0; step < 4; ++step) {
      ROUNDOFF_UNROLL
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned i = 4 * step + 2 * half, j = 4 * (step ^ 2U) + 2 * half;
        store_vector(place.at(buffer, step, half),
                     place.odd ? make_float2(v[j], v[j + 1]) : make_float2(v[i], v[i + 1]));
      }
    }
  }
  ROUNDOFF_DEVICE void take_pairs(unsigned char* buffer, unsigned thread, float(&v)[16]) {
    const PairPlace place(thread);
    ROUNDOFF_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      float2 pair[4];
      ROUNDOFF_UNROLL
      for (unsigned step = 0; step < 4; ++step)
        pair[step] = load_vector<float2>(place.at(buffer, step, half));
      ROUNDOFF_UNROLL
      for (unsigned block = 0; block < 4; ++block) {
        v[4 * block + 2 * half] = place.odd ? pair[block ^ 2U].x : pair[block].x;
        v[4 * block + 2 * half + 1] = place.odd ? pair[block ^ 2U].y : pair[block].y;
      }
    }
  }

  // Registers [chunk * kCount, + kCount) of the sums, `chunk` known at run time: the code that
  // follows exists once.
  template <int kCount, int kAll>
  ROUNDOFF_DEVICE void take_chunk(const float(&sums)[kAll], unsigned chunk, float(&v)[kCount]) {
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] = sums[j];
    ROUNDOFF_UNROLL
    for (int i = 1; i < kAll / kCount; ++i) {
      if (chunk == static_cast<unsigned>(i)) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kCount; ++j) v[j] = sums[i * kCount + j];
      }
    }
  }
  template <int kCount, int kAll>
  ROUNDOFF_DEVICE void put_chunk(float(&sums)[kAll], unsigned chunk, const float(&v)[kCount]) {
    ROUNDOFF_UNROLL
    for (int i = 0; i < kAll / kCount; ++i) {
      if (chunk == static_cast<unsigned>(i)) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kCount; ++j) sums[i * kCount + j] = v[j];
      }
    }
  }

  // Where a group's sums stand in the result.
  struct Sm90Place {
    unsigned m, n;  // of the result
    unsigned matrix, row0, column0;
  };

  // v = begin_sum() of four columns, 0 beyond the last. `runs`: c is aligned to them, as y is where
  // it says so.
  ROUNDOFF_DEVICE void begin_run(const ProductOutput& out, bool runs, const Sm90Place& at,
                                 unsigned row, unsigned column, float(&v)[4]) {
    const int count = row >= at.m || column >= at.n ? 0
                      : at.n - column < 4           ? static_cast<int>(at.n - column)
                                                    : 4;
    const bool held = begins_with_held<float>(out);
    Bits<float> bits[4] = {};
    ROUNDOFF_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = 0;
    if (count == 0) return;
    if (held) {
      load_bits<float>(out.y, DType::fp32,
                       at.matrix * out.stride + static_cast<std::int64_t>(row) * out.pitch + column,
                       count, out.aligned, bits);
      ROUNDOFF_UNROLL
      for (int j = 0; j < 4; ++j) v[j] = __uint_as_float(bits[j]);
    }
    if (out.addition == Addition::none) return;
    const std::int64_t line =
        out.addition == Addition::matrix ? static_cast<std::int64_t>(row) * out.c_pitch : 0;
    load_bits<float>(out.c, out.c_dtype, at.matrix * out.c_stride + line + column, count, runs,
                     bits);
    ROUNDOFF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float addend =
          static_cast<float>(out.beta) * widen_bits<float>(bits[j], out.c_dtype, false);
      v[j] = held ? v[j] + addend : addend;
    }
  }

  // Before the first product of a tile; all of the group's threads. TMA stores that still read the
  // staging are those of its first thread.
  template <int kN>
  ROUNDOFF_DEVICE void begin_sums(const ProductOutput& out, bool runs, const Sm90Place& at,
                                  Sm90Staging& staging, float(&sums)[kN / 2]) {
    ROUNDOFF_UNROLL
    for (int i = 0; i < kN / 2; ++i) sums[i] = 0;
    if (out.late || (out.addition == Addition::none && !begins_with_held<float>(out))) return;
    if (staging.thread == 0) tma_store_wait_read<0>();
    staging.meet();
    ROUNDOFF_NO_UNROLL
    for (unsigned chunk = 0; chunk < kN / 32; ++chunk) {
      unsigned char* const buffer = staging.next();
      const unsigned piece = staging.thread % 8;
      ROUNDOFF_NO_UNROLL
      for (unsigned row = staging.thread / 8; row < 64; row += 16) {
        float v[4];
        begin_run(out, runs, at, at.row0 + row, at.column0 + chunk * 32 + piece * 4, v);
        store_vector(staging_piece(buffer, row, piece), make_float4(v[0], v[1], v[2], v[3]));
      }
      staging.meet();
      float v[16];
      take_pairs(buffer, staging.thread, v);
      put_chunk(sums, chunk, v);
    }
    staging.meet();
  }

  // Results by ordinary stores: everything that output.cuh describes.
  template <int kN>
  ROUNDOFF_DEVICE void end_sums(const ProductOutput& out, const Sm90Place& at, Sm90Staging& staging,
                                const float(&sums)[kN / 2]) {
    const bool adds = out.accumulate && !begins_with_held<float>(out);
    const bool runs = out.aligned && !adds && size_of(out.dtype) <= 4;
    ROUNDOFF_NO_UNROLL
    for (unsigned chunk = 0; chunk < kN / 32; ++chunk) {
      if (at.column0 + chunk * 32 >= at.n || at.row0 >= at.m) break;
      unsigned char* const buffer = staging.next();
      float v[16];
      take_chunk(sums, chunk, v);
      put_pairs(buffer, staging.thread, v);
      staging.meet();
      const unsigned piece = staging.thread % 8;
      const unsigned column = at.column0 + chunk * 32 + piece * 4;
      ROUNDOFF_NO_UNROLL
      for (unsigned i = staging.thread / 8; i < 64; i += 16) {
        const unsigned row = at.row0 + i;
        if (row >= at.m || column >= at.n) break;
        const auto four = load_vector<float4>(staging_piece(buffer, i, piece));
        float run[4] = {four.x, four.y, four.z, four.w};
        if (runs && column + 4 <= at.n) {
          ROUNDOFF_UNROLL
          for (unsigned j = 0; j < 4; ++j)
            run[j] = end_sum(out, at.matrix, row, column + j, run[j]);
          write_run(out, at.matrix, row, column, run);
        } else {
          ROUNDOFF_NO_UNROLL
          for (unsigned j = 0; j < 4 && column + j < at.n; ++j)
            write_element(out, at.matrix, row, column + j,
                          j == 0   ? run[0]
                          : j == 1 ? run[1]
                          : j == 2 ? run[2]
                                   : run[3]);
        }
      }
    }
    staging.meet();
  }

  // What remains to be done in registers where TMA stores: alpha, and relu.
  template <int kCount>
  ROUNDOFF_DEVICE void finish_values(const ProductOutput& out, float(&v)[kCount]) {
    if (out.late) {
      const auto alpha = static_cast<float>(out.alpha);
      ROUNDOFF_UNROLL
      for (int j = 0; j < kCount; ++j) v[j] *= alpha;
    }
    if (out.activation == Activation::relu) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kCount; ++j) v[j] = activate(Activation::relu, v[j]);
    }
  }

  // 64 columns of 16-bit results, by stmatrix.
  template <class T>
  ROUNDOFF_DEVICE void put_narrow(unsigned char* buffer, unsigned thread, const float(&v)[32]) {
    const unsigned lane = thread % 32;
    const unsigned row = thread / 32 * 16 + lane % 8 + (lane / 8 & 1U) * 8;
    ROUNDOFF_UNROLL
    for (unsigned p = 0; p < 4; ++p) {
      std::uint32_t pairs[4];
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        pairs[i] = narrow_value<T>(v[8 * p + 2 * i]).bits |
                   static_cast<std::uint32_t>(narrow_value<T>(v[8 * p + 2 * i + 1]).bits) << 16;
      stmatrix(staging_piece(buffer, row, 2 * p + lane / 16), pairs);
    }
  }

  // Results by TMA, whose boxes are clipped at the tensor's ends: rounded to 16 bit or kept in fp32
  // after finish_values(). The stores end while the next tile's products run.
  template <int kN>
  ROUNDOFF_DEVICE void store_sums(const TensorMap* map, const ProductOutput& out,
                                  const Sm90Place& at, Sm90Staging& staging,
                                  const float(&sums)[kN / 2]) {
    const unsigned width = out.dtype == DType::fp32 ? 32 : 64;  // columns of a box
    ROUNDOFF_NO_UNROLL
    for (unsigned chunk = 0; chunk < kN / width; ++chunk) {
      const unsigned column = at.column0 + chunk * width;
      if (column >= at.n || at.row0 >= at.m) break;
      unsigned char* const buffer = staging.next();
      // The store before the last one has read this buffer.
      if (staging.thread == 0) tma_store_wait_read<1>();
      staging.meet();
      if (out.dtype == DType::fp32) {
        float v[16];
        take_chunk(sums, chunk, v);
        finish_values(out, v);
        put_pairs(buffer, staging.thread, v);
      } else {
        float v[32];
        take_chunk(sums, chunk, v);
        finish_values(out, v);
        if (out.dtype == DType::fp16) {
          put_narrow<Half>(buffer, staging.thread, v);
        } else {
          put_narrow<BFloat16>(buffer, staging.thread, v);
        }
      }
      fence_proxy_async();
      staging.meet();
      if (staging.thread == 0) {
        tma_store(
            map, {static_cast<int>(column), static_cast<int>(at.row0), static_cast<int>(at.matrix)},
            buffer);
        tma_store_commit();
      }
    }
  }

}  // namespace
}  // namespace roundoff
