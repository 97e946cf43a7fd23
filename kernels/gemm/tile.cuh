// One block's tile of a product, kM x kN sums in registers, in the arithmetic type C.
//
// A step brings kDepth columns of A and rows of B through registers into shared memory, as [depth]
// [row] with rows padded by one 16-byte access, while the tile of the step before is multiplied;
// two buffers, one barrier a step. A thread holds kRows x kColumns sums, whose rows and columns lie
// in runs of one access, kM / kRows (kN / kColumns) runs apart, so that neighbouring threads read
// neighbouring accesses.
// Banks: accesses of 16 bytes are read contiguously or broadcast. Values that arrive along depth
// are written by 16 rows x 2 runs of depth a warp, 4 (kM + 4) words apart, which is half the banks.
//
// Every sum is one chain of fused multiply-adds over depth, in order, whatever the tile: zeros
// beyond the matrix change nothing.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/gemm/source.cuh"

namespace roundoff {

template <int kM_, int kN_, int kRows_, int kColumns_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kRows = kRows_, kColumns = kColumns_;
  static constexpr int kDepth = 16;
  static constexpr int kAcross = kN / kColumns;  // threads
  static constexpr int kThreads = kM / kRows * kAcross;
  static_assert(kM % 32 == 0 && kN % 32 == 0 && kThreads % 32 == 0);
};

ROUNDOFF_DEVICE_NAMESPACE {
  template <class C>
  struct Lanes {
    C lane[kLanes<C>];
  };
  // What one access of shared memory moves.
  template <class C>
  using Access = std::conditional_t<sizeof(C) == 8, double2, float4>;

  // Elements of one operand's buffer.
  template <class C, int kWidth, int kDepth>
  constexpr int buffer_size() {
    return kDepth * (kWidth + 4);
  }

  // This thread's share of kWidth rows x kDepth values of depth, on its way to shared memory.
  template <class C, int kWidth, int kDepth, int kThreads>
  struct Staged {
    static constexpr int kUnits = kWidth * kDepth / kLanes<C> / kThreads;
    static constexpr int kRuns = kDepth / kLanes<C>;  // of depth
    static_assert(kUnits * kThreads * kLanes<C> == kWidth * kDepth);
    Bits<C> v[kUnits][kLanes<C>];

    // Where unit i of this thread begins.
    struct Place {
      unsigned row, depth;
    };
    static ROUNDOFF_DEVICE Place place(int i, bool contiguous_depth) {
      const unsigned unit = threadIdx.x + static_cast<unsigned>(i * kThreads);
      if (contiguous_depth) {
        const unsigned warp = unit / 32, lane = unit % 32;
        return {warp / (kRuns / 2) * 16 + lane % 16,
                (warp % (kRuns / 2) * 2 + lane / 16) * kLanes<C>};
      }
      return {unit % (kWidth / kLanes<C>)*kLanes<C>, unit / (kWidth / kLanes<C>)};
    }

    template <class Source>
    ROUNDOFF_DEVICE void fetch(const Source& source, unsigned row0, unsigned depth0) {
      ROUNDOFF_UNROLL
      for (int i = 0; i < kUnits; ++i) {
        const Place at = place(i, source.contiguous_depth());
        source.template load<C>(row0 + at.row, depth0 + at.depth, v[i]);
      }
    }

    template <class Source>
    ROUNDOFF_DEVICE void store(const Source& source, C* buffer) const {
      constexpr unsigned kPitch = kWidth + 4;
      ROUNDOFF_UNROLL
      for (int i = 0; i < kUnits; ++i) {
        const Place at = place(i, source.contiguous_depth());
        C* to = buffer + at.depth * kPitch + at.row;
        Lanes<C> lanes;
        ROUNDOFF_UNROLL
        for (int j = 0; j < kLanes<C>; ++j)
          lanes.lane[j] = widen_bits<C>(v[i][j], source.dtype, source.tf32);
        if (source.contiguous_depth()) {
          ROUNDOFF_UNROLL
          for (int j = 0; j < kLanes<C>; ++j) to[static_cast<unsigned>(j) * kPitch] = lanes.lane[j];
        } else {
          store_vector(to, std::bit_cast<Access<C>>(lanes));
        }
      }
    }
  };

  // Values [0, kCount) of this thread in one row of a buffer.
  template <class C, int kCount, int kWidth>
  ROUNDOFF_DEVICE void read_runs(const C* row, unsigned thread, C(&v)[kCount]) {
    constexpr int kApart = kWidth * kLanes<C> / kCount;
    ROUNDOFF_UNROLL
    for (int i = 0; i < kCount / kLanes<C>; ++i) {
      const auto lanes = std::bit_cast<Lanes<C>>(load_vector<Access<C>>(
          row + static_cast<unsigned>(i * kApart) + thread * static_cast<unsigned>(kLanes<C>)));
      ROUNDOFF_UNROLL
      for (int j = 0; j < kLanes<C>; ++j) v[i * kLanes<C> + j] = lanes.lane[j];
    }
  }

  ROUNDOFF_DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
  ROUNDOFF_DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }

  // sums += the products of steps [first, last), which count through the matrices of a sum over a
  // batch, `steps` each. `left` and `right`: two buffers each.
  template <class T, class C, class A, class B>
  ROUNDOFF_DEVICE void multiply_steps(A & a, B & b, unsigned matrix, unsigned first, unsigned last,
                                      unsigned steps, unsigned row0, unsigned column0, C* left,
                                      C* right, C(&sums)[T::kRows][T::kColumns]) {
    constexpr int kLeft = buffer_size<C, T::kM, T::kDepth>();
    constexpr int kRight = buffer_size<C, T::kN, T::kDepth>();
    const unsigned down = threadIdx.x / T::kAcross, across = threadIdx.x % T::kAcross;
    Staged<C, T::kM, T::kDepth, T::kThreads> next_a;
    Staged<C, T::kN, T::kDepth, T::kThreads> next_b;
    unsigned term = first / steps, at = first % steps;
    const auto fetch = [&] {
      a.select(matrix + term);
      b.select(matrix + term);
      next_a.fetch(a, row0, at * T::kDepth);
      next_b.fetch(b, column0, at * T::kDepth);
      if (++at == steps) {
        at = 0;
        ++term;
      }
    };
    if (first < last) {
      fetch();
      next_a.store(a, left);
      next_b.store(b, right);
    }
    __syncthreads();
    ROUNDOFF_NO_UNROLL
    for (unsigned step = first; step < last; ++step) {
      const unsigned buffer = (step - first) % 2;
      if (step + 1 < last) fetch();
      const C* from_a = left + buffer * kLeft;
      const C* from_b = right + buffer * kRight;
      ROUNDOFF_NO_UNROLL
      for (int half = 0; half < T::kDepth; half += T::kDepth / 2) {
        ROUNDOFF_UNROLL
        for (int k = half; k < half + T::kDepth / 2; ++k) {
          C x[T::kRows], y[T::kColumns];
          read_runs<C, T::kRows, T::kM>(from_a + k * (T::kM + 4), down, x);
          read_runs<C, T::kColumns, T::kN>(from_b + k * (T::kN + 4), across, y);
          ROUNDOFF_UNROLL
          for (int i = 0; i < T::kRows; ++i) {
            ROUNDOFF_UNROLL
            for (int j = 0; j < T::kColumns; ++j) sums[i][j] = multiply_add(x[i], y[j], sums[i][j]);
          }
        }
      }
      if (step + 1 < last) {
        next_a.store(a, left + (1 - buffer) * kLeft);
        next_b.store(b, right + (1 - buffer) * kRight);
        __syncthreads();
      }
    }
  }

  // Sums go to their elements, and come from them, through shared memory, a band of rows at a time:
  // the rows of each thread's r-th run. Elements are then taken in the order of memory.
  template <class T, class C>
  struct Band {
    static constexpr int kRows = T::kM * kLanes<C> / T::kRows, kPitch = T::kN + 4;
    static constexpr int kCount = T::kRows / kLanes<C>;
    static_assert(kRows * kPitch <=
                  2 * (buffer_size<C, T::kM, T::kDepth>() + buffer_size<C, T::kN, T::kDepth>()));

    // The run of this thread's sums of row i, columns j to j + kLanes - 1.
    static ROUNDOFF_DEVICE C* run(C* shared, int i, int j) {
      const unsigned down = threadIdx.x / T::kAcross, across = threadIdx.x % T::kAcross;
      return shared + (down * kLanes<C> + static_cast<unsigned>(i)) * kPitch +
             static_cast<unsigned>(j / kLanes<C> * (T::kN * kLanes<C> / T::kColumns)) +
             across * kLanes<C>;
    }
  };

  // sums[i][j] = value(row, column) where that is inside [m, n].
  template <class T, class C, class Value>
  ROUNDOFF_DEVICE void begin_tile(unsigned m, unsigned n, unsigned row0, unsigned column0,
                                  C* shared, C(&sums)[T::kRows][T::kColumns], Value value) {
    using B = Band<T, C>;
    ROUNDOFF_UNROLL
    for (int band = 0; band < B::kCount; ++band) {
      ROUNDOFF_NO_UNROLL
      for (unsigned i = threadIdx.x; i < B::kRows * T::kN; i += T::kThreads) {
        const unsigned down = i / T::kN, across = i % T::kN;
        const unsigned row = row0 + static_cast<unsigned>(band * B::kRows) + down;
        const unsigned column = column0 + across;
        shared[down * B::kPitch + across] = row < m && column < n ? value(row, column) : C(0);
      }
      __syncthreads();
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < T::kColumns; j += kLanes<C>) {
          const auto lanes = std::bit_cast<Lanes<C>>(load_vector<Access<C>>(B::run(shared, i, j)));
          ROUNDOFF_UNROLL
          for (int l = 0; l < kLanes<C>; ++l) sums[band * kLanes<C> + i][j + l] = lanes.lane[l];
        }
      }
      __syncthreads();
    }
  }

  // Calls run(row, column, v) for whole runs of elements where `runs` says so, else
  // single(row, column, v) for every element inside [m, n].
  template <class T, class C, class Run, class Single>
  ROUNDOFF_DEVICE void end_tile(unsigned m, unsigned n, unsigned row0, unsigned column0, C* shared,
                                const C(&sums)[T::kRows][T::kColumns], bool runs, Run run,
                                Single single) {
    using B = Band<T, C>;
    ROUNDOFF_UNROLL
    for (int band = 0; band < B::kCount; ++band) {
      __syncthreads();
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < T::kColumns; j += kLanes<C>) {
          Lanes<C> lanes;
          ROUNDOFF_UNROLL
          for (int l = 0; l < kLanes<C>; ++l) lanes.lane[l] = sums[band * kLanes<C> + i][j + l];
          store_vector(B::run(shared, i, j), std::bit_cast<Access<C>>(lanes));
        }
      }
      __syncthreads();
      const unsigned first = row0 + static_cast<unsigned>(band * B::kRows);
      if (runs) {
        constexpr unsigned kAcross = T::kN / kLanes<C>;
        ROUNDOFF_NO_UNROLL
        for (unsigned i = threadIdx.x; i < B::kRows * kAcross; i += T::kThreads) {
          const unsigned down = i / kAcross, across = i % kAcross * kLanes<C>;
          if (first + down >= m || column0 + across >= n) continue;
          const auto lanes =
              std::bit_cast<Lanes<C>>(load_vector<Access<C>>(shared + down * B::kPitch + across));
          run(first + down, column0 + across, lanes.lane);
        }
      } else {
        ROUNDOFF_NO_UNROLL
        for (unsigned i = threadIdx.x; i < B::kRows * T::kN; i += T::kThreads) {
          const unsigned down = i / T::kN, across = i % T::kN;
          if (first + down < m && column0 + across < n)
            single(first + down, column0 + across, shared[down * B::kPitch + across]);
        }
      }
    }
  }

}  // namespace

}  // namespace roundoff
