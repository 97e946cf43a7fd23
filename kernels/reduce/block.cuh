// Reductions over a row that 1 to 1024 neighbouring threads of a block hold together, in a fixed
// order. Every thread of the row gets the same bits.
//
// Inside a warp a butterfly of shuffles; then one value a warp through shared memory, folded in
// pairs. Both operands of every combination are the same two partial results on each lane, and the
// combinations are commutative, so lanes agree. Depth: log2(threads) combinations.
//
//   ROUNDOFF_SHARED(float, partial, [reduce::shared_size(256)]);
//   reduce::Shared<float> shared(partial);
//   const float max = reduce::row<64>(v, reduce::Max{}, shared);   // 4 rows of 64 threads
//   const float sum = reduce::row<64>(w, reduce::Sum{}, shared);   // no barrier needed between
//
// Threads of a row are neighbours, rows start at multiples of their width. Above a warp the whole
// block takes part in each call: there is one __syncthreads() in it.
#pragma once

#include <cstdint>

#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace reduce {

  // N values that are reduced side by side.
  template <class T, int N>
  struct Values {
    T at[N];
  };

  // A value and where it stood.
  template <class T>
  struct Indexed {
    T value;
    std::int64_t index;
  };

  struct Sum {
    template <class T>
    ROUNDOFF_DEVICE T operator()(T a, T b) const {
      return a + b;
    }
    template <class T, int N>
    ROUNDOFF_DEVICE Values<T, N> operator()(Values<T, N> a, Values<T, N> b) const {
      ROUNDOFF_UNROLL
      for (int i = 0; i < N; ++i) a.at[i] += b.at[i];
      return a;
    }
  };

  // A NaN wins.
  struct Max {
    template <class T>
    ROUNDOFF_DEVICE T operator()(T a, T b) const {
      return a > b || a != a ? a : b;
    }
  };
  struct Min {
    template <class T>
    ROUNDOFF_DEVICE T operator()(T a, T b) const {
      return a < b || a != a ? a : b;
    }
  };

  // The extreme value that comes first; a NaN wins, the first of several.
  template <class Better>
  struct First {
    template <class T>
    ROUNDOFF_DEVICE Indexed<T> operator()(Indexed<T> a, Indexed<T> b) const {
      const bool a_nan = a.value != a.value;
      const bool b_nan = b.value != b.value;
      const bool tie = a_nan == b_nan && (a_nan || a.value == b.value);
      const bool take_a =
          tie ? a.index < b.index : (a_nan || (!b_nan && Better{}(a.value, b.value)));
      return take_a ? a : b;
    }
  };
  struct Greater {
    template <class T>
    ROUNDOFF_DEVICE bool operator()(T a, T b) const {
      return a > b;
    }
  };
  struct Less {
    template <class T>
    ROUNDOFF_DEVICE bool operator()(T a, T b) const {
      return a < b;
    }
  };
  using FirstMax = First<Greater>;
  using FirstMin = First<Less>;

  // What the lane `lane ^ lanes` holds. Every lane of the warp takes part.
  template <class T>
  ROUNDOFF_DEVICE T exchange(T v, int lanes) {
    return __shfl_xor_sync(0xFFFFFFFFU, v, lanes);
  }
  template <class T, int N>
  ROUNDOFF_DEVICE Values<T, N> exchange(Values<T, N> v, int lanes) {
    ROUNDOFF_UNROLL
    for (int i = 0; i < N; ++i) v.at[i] = __shfl_xor_sync(0xFFFFFFFFU, v.at[i], lanes);
    return v;
  }
  template <class T>
  ROUNDOFF_DEVICE Indexed<T> exchange(Indexed<T> v, int lanes) {
    return {__shfl_xor_sync(0xFFFFFFFFU, v.value, lanes),
            __shfl_xor_sync(0xFFFFFFFFU, v.index, lanes)};
  }

  // Over groups of kLanes neighbouring lanes, a power of two up to 32. Every lane of the warp takes
  // part.
  template <int kLanes, class T, class Op>
  ROUNDOFF_DEVICE T warp(T v, Op op) {
    static_assert(kLanes >= 1 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
    ROUNDOFF_UNROLL
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) v = op(v, exchange(v, lanes));
    return v;
  }

  // Elements of shared memory for rows in a block of so many threads.
  constexpr int shared_size(int threads) { return threads > 32 ? 2 * (threads / 32) : 1; }

  // The shared memory of row(), which the kernel declares. Calls take its halves in turn: whoever
  // writes a half has passed the barrier that all readers of its last use came to after reading.
  template <class T>
  struct Shared {
    ROUNDOFF_DEVICE explicit Shared(T* memory) : half(memory), other(memory) {
      other += blockDim.x * blockDim.y / 32;
    }
    T* half;
    T* other;
  };

  // v[0] to v[n - 1], folded in pairs.
  template <int n, class T, class Op>
  ROUNDOFF_DEVICE T fold(const T* v, Op op) {
    if constexpr (n == 1) {
      return v[0];
    } else {
      return op(fold<n / 2>(v, op), fold<n / 2>(v + n / 2, op));
    }
  }

  // Over the kThreads threads of a row, a power of two up to 1024.
  template <int kThreads, class T, class Op>
  ROUNDOFF_DEVICE T row(T v, Op op, Shared<T>& shared) {
    static_assert(kThreads >= 1 && kThreads <= 1024 && (kThreads & (kThreads - 1)) == 0);
    if constexpr (kThreads <= 32) {
      return warp<kThreads>(v, op);
    } else {
      constexpr int kWarps = kThreads / 32;
      const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
      const unsigned place = thread / 32;
      v = warp<32>(v, op);
      T* const half = shared.half;
      shared.half = shared.other;
      shared.other = half;
      if (thread % 32 == 0) half[place] = v;
      __syncthreads();
      return fold<kWarps>(half + place / kWarps * kWarps, op);
    }
  }

  }  // namespace reduce
}  // namespace

}  // namespace roundoff
