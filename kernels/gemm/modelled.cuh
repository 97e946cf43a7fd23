// Products in modelled arithmetic on a device (kernels/gemm/modelled.h): bit exact in the order of
// the operands.
//
// Tensor cores: a block of two warps computes a 64 x 64 tile by mma.sync m16n8k16 (m16n8k8 for
// tf32), a step of one instruction's depth at a time; each sum chains through the instructions in
// order. Operands lie in shared memory as words, two 16-bit values along depth or one tf32 value,
// as [word][row] with a pitch of 72: lanes of a fragment read 8 t + g, all banks once. Values that
// arrive along depth are written by 32 neighbouring rows.
#pragma once

#include <cstdint>

#include "kernels/gemm/modelled.h"
#include "kernels/gemm/output.cuh"
#include "kernels/simt/mma.h"

namespace roundoff {

// Results [m, n] of sums over depth, and over `terms` matrices.
struct ModelledSizes {
  unsigned m = 0, n = 0, depth = 0, terms = 1, results = 1;
};

ROUNDOFF_DEVICE_NAMESPACE {
  // The double nearest to value on fp16's grid (RNE), infinite from 65520 up: adding and taking
  // away 1.5 * 2^52 quanta rounds to a multiple of one.
  ROUNDOFF_DEVICE double rounded_to_half(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    if ((bits & 0x7FF0000000000000U) == 0x7FF0000000000000U) return value;
    const double binade = std::bit_cast<double>(bits & 0x7FF0000000000000U);
    const double quantum = binade * 0x1p-10 > 0x1p-24 ? binade * 0x1p-10 : 0x1p-24;
    const double shift = quantum * 0x1.8p52;
    const double rounded = (value + shift) - shift;
    const double magnitude = rounded < 0 ? -rounded : rounded;
    const std::uint64_t sign = bits & 0x8000000000000000U;
    const std::uint64_t limited = magnitude > 65504.0 ? std::uint64_t{0x7FF0000000000000U}
                                                      : std::bit_cast<std::uint64_t>(magnitude);
    return std::bit_cast<double>(sign | limited);
  }

  // x + y rounded to odd: a later rounding to fewer bits is then the only one (Boldo and Melquiond,
  // IEEE Trans. Computers 57(4), 2008).
  ROUNDOFF_DEVICE double add_to_odd(double x, double y) {
    const double sum = x + y;
    const double y_part = sum - x;
    const double error = (x - (sum - y_part)) + (y - y_part);
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    if (error == 0 || (bits & 0x7FF0000000000000U) == 0x7FF0000000000000U || (bits & 1) != 0)
      return sum;
    const bool away_from_zero = (error > 0) == (sum > 0);
    return std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1);
  }

  // An fp16 accumulator: each multiply-add rounded once to fp16, in order. One element a thread;
  // for studies, not for speed.
  template <class A, class B>
  __global__ void __launch_bounds__(128) half_chains(ModelledSizes z, A a, B b, ProductOutput out) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= static_cast<std::int64_t>(z.m) * z.n * z.results) return;
    const auto column = static_cast<unsigned>(index % z.n);
    const auto row = static_cast<unsigned>(index / z.n % z.m);
    const auto result = static_cast<unsigned>(index / z.n / z.m);
    double sum = 0;
    for (unsigned term = 0; term < z.terms; ++term) {
      a.select(result + term);
      b.select(result + term);
      for (unsigned k = 0; k < z.depth; ++k) {
        const auto x = static_cast<double>(a.value(row, k));
        const auto y = static_cast<double>(b.value(column, k));
        sum = rounded_to_half(add_to_odd(x * y, sum));
      }
    }
    write_element(out, result, row, column, static_cast<float>(sum));
  }

  struct MmaTile {
    static constexpr unsigned kSide = 64, kPitch = 72, kWords = 8, kThreads = 64;
    static constexpr unsigned kBuffer = kWords * kPitch;
  };

  // One operand's words of a step, four along depth or along rows for each of two units a thread.
  struct StagedWords {
    std::uint32_t words[2][4];

    static ROUNDOFF_DEVICE unsigned unit(unsigned i) { return threadIdx.x + i * MmaTile::kThreads; }

    template <class Source>
    ROUNDOFF_DEVICE void fetch(const Source& source, DType operand, unsigned row0,
                               unsigned depth0) {
      const bool along_depth = source.contiguous_depth();
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned row = row0 + (along_depth ? unit(i) % 64 : unit(i) % 16 * 4);
        const unsigned word = along_depth ? unit(i) / 64 * 4 : unit(i) / 16;
        std::uint32_t x[4], y[4];
        if (operand == DType::fp32) {
          source.template load<float>(row, depth0 + word, x);
          ROUNDOFF_UNROLL
          for (int j = 0; j < 4; ++j)
            words[i][j] = __float_as_uint(widen_bits<float>(x[j], source.dtype, true));
        } else if (along_depth) {
          source.template load<float>(row, depth0 + 2 * word, x);
          source.template load<float>(row, depth0 + 2 * word + 4, y);
          words[i][0] = x[0] | x[1] << 16;
          words[i][1] = x[2] | x[3] << 16;
          words[i][2] = y[0] | y[1] << 16;
          words[i][3] = y[2] | y[3] << 16;
        } else {
          source.template load<float>(row, depth0 + 2 * word, x);
          source.template load<float>(row, depth0 + 2 * word + 1, y);
          ROUNDOFF_UNROLL
          for (int j = 0; j < 4; ++j) words[i][j] = x[j] | y[j] << 16;
        }
      }
    }

    ROUNDOFF_DEVICE void store(bool along_depth, std::uint32_t* buffer) const {
      ROUNDOFF_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        if (along_depth) {
          std::uint32_t* to = buffer + unit(i) / 64 * 4 * MmaTile::kPitch + unit(i) % 64;
          ROUNDOFF_UNROLL
          for (unsigned j = 0; j < 4; ++j) to[j * MmaTile::kPitch] = words[i][j];
        } else {
          store_vector(buffer + unit(i) / 16 * MmaTile::kPitch + unit(i) % 16 * 4,
                       make_uint4(words[i][0], words[i][1], words[i][2], words[i][3]));
        }
      }
    }
  };

  // `operand`: fp16, bf16, or fp32, which stands for tf32.
  template <class A, class B>
  __global__ void __launch_bounds__(MmaTile::kThreads, 1)
      product_mma(ModelledSizes z, DType operand, A a, B b, ProductOutput out) {
    constexpr unsigned kSide = MmaTile::kSide, kPitch = MmaTile::kPitch;
    constexpr unsigned kBuffer = MmaTile::kBuffer;
    ROUNDOFF_SHARED(uint4, memory, [kSide * kPitch / 4]);
    auto* const words = reinterpret_cast<std::uint32_t*>(memory);
    auto* const tile = reinterpret_cast<float*>(memory);
    const unsigned across = (z.n + kSide - 1) / kSide, down = (z.m + kSide - 1) / kSide;
    const unsigned column0 = blockIdx.x % across * kSide;
    const unsigned row0 = blockIdx.x / across % down * kSide;
    const unsigned result = blockIdx.x / across / down;
    const unsigned lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;
    const unsigned first_row = threadIdx.x / 32 * 32 + group;
    const unsigned step = operand == DType::fp32 ? 8 : 16;
    const unsigned steps = (z.depth + step - 1) / step, all_steps = steps * z.terms;

    // sums[i][j][e]: row first_row + 16 i + 8 (e / 2), column 8 j + 2 t + e % 2.
    float sums[2][8][4];
    ROUNDOFF_NO_UNROLL
    for (unsigned i = threadIdx.x; i < kSide * kSide; i += MmaTile::kThreads) {
      const unsigned row = row0 + i / kSide, column = column0 + i % kSide;
      tile[i / kSide * kPitch + i % kSide] =
          row < z.m && column < z.n ? begin_sum<float>(out, result, row, column) : 0.0F;
    }
    __syncthreads();
    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      ROUNDOFF_UNROLL
      for (unsigned j = 0; j < 8; ++j) {
        ROUNDOFF_UNROLL
        for (unsigned e = 0; e < 4; e += 2) {
          const auto pair =
              load_vector<float2>(tile + (first_row + 16 * i + 4 * e) * kPitch + 8 * j + 2 * t);
          sums[i][j][e] = pair.x;
          sums[i][j][e + 1] = pair.y;
        }
      }
    }
    __syncthreads();

    StagedWords next_a, next_b;
    unsigned term = 0, at = 0;
    const auto fetch = [&] {
      a.select(result + term);
      b.select(result + term);
      next_a.fetch(a, operand, row0, at * step);
      next_b.fetch(b, operand, column0, at * step);
      if (++at == steps) {
        at = 0;
        ++term;
      }
    };
    const auto store = [&](unsigned buffer) {
      next_a.store(a.contiguous_depth(), words + buffer * 2 * kBuffer);
      next_b.store(b.contiguous_depth(), words + (buffer * 2 + 1) * kBuffer);
    };
    if (all_steps != 0) {
      fetch();
      store(0);
    }
    __syncthreads();
    ROUNDOFF_NO_UNROLL
    for (unsigned i = 0; i < all_steps; ++i) {
      if (i + 1 < all_steps) fetch();
      const std::uint32_t* left = words + i % 2 * 2 * kBuffer;
      const std::uint32_t* right = left + kBuffer;
      std::uint32_t x[2][4], y[8][2];
      ROUNDOFF_UNROLL
      for (unsigned r = 0; r < 2; ++r) {
        ROUNDOFF_UNROLL
        for (unsigned e = 0; e < 4; ++e)
          x[r][e] = left[(t + 4 * (e / 2)) * kPitch + first_row + 16 * r + 8 * (e % 2)];
      }
      ROUNDOFF_UNROLL
      for (unsigned r = 0; r < 8; ++r) {
        ROUNDOFF_UNROLL
        for (unsigned e = 0; e < 2; ++e) y[r][e] = right[(t + 4 * e) * kPitch + 8 * r + group];
      }
      if (operand == DType::fp16) {
        mma_tile<Half, 16>(sums, x, y);
      } else if (operand == DType::bf16) {
        mma_tile<BFloat16, 16>(sums, x, y);
      } else {
        mma_tile<Tf32, 8>(sums, x, y);
      }
      if (i + 1 < all_steps) store(1 - i % 2);
      __syncthreads();
    }

    ROUNDOFF_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      ROUNDOFF_UNROLL
      for (unsigned j = 0; j < 8; ++j) {
        ROUNDOFF_UNROLL
        for (unsigned e = 0; e < 4; e += 2)
          store_vector(tile + (first_row + 16 * i + 4 * e) * kPitch + 8 * j + 2 * t,
                       make_float2(sums[i][j][e], sums[i][j][e + 1]));
      }
    }
    __syncthreads();
    ROUNDOFF_NO_UNROLL
    for (unsigned i = threadIdx.x; i < kSide * kSide; i += MmaTile::kThreads) {
      const unsigned row = row0 + i / kSide, column = column0 + i % kSide;
      if (row < z.m && column < z.n)
        write_element(out, result, row, column, tile[i / kSide * kPitch + i % kSide]);
    }
  }

}  // namespace

template <class T, class A, class B>
void launch_modelled(T target, const char* name, const Arithmetic& arithmetic,
                     const ModelledSizes& z, const A& a, const B& b, const ProductOutput& out) {
  if (arithmetic.accumulator == Accumulator::fp16) {
    const std::int64_t elements = static_cast<std::int64_t>(z.m) * z.n * z.results;
    launch(target,
           {.name = name,
            .grid = {device_extent(name, "the number of blocks", (elements + 127) / 128)},
            .block = {128}},
           half_chains<A, B>, z, a, b, out);
    return;
  }
  constexpr std::int64_t kSide = MmaTile::kSide;
  const std::int64_t tiles = (z.m + kSide - 1) / kSide * ((z.n + kSide - 1) / kSide) * z.results;
  const std::int64_t step = arithmetic.operand == DType::fp32 ? 8 : 16;
  device_extent(name, "a sum's length", (z.depth + step - 1) / step * z.terms);
  launch(target,
         {.name = name,
          .grid = {device_extent(name, "the number of blocks", tiles)},
          .block = {MmaTile::kThreads},
          .tensor_core = arithmetic.accumulator},
         product_mma<A, B>, z, arithmetic.operand, a, b, out);
}

}  // namespace roundoff
