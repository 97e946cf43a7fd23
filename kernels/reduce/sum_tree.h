// The one order in which sums are formed on the reference path.
//
// A sum of n terms is cut into leaves (kLeaf contiguous terms in kLanes interleaved partial sums,
// or kLeafRows rows that are added element by element), and the leaves are added in pairs, as a
// binary counter carries. The order depends on the extents alone: not on the values, the types or
// threads. The depth h of this tree is at most sum_depth(n), about log2 n + 37 where a plain loop
// has n, and the error of a sum is at most gamma_h sum |x|  (Higham, Accuracy and Stability,
// chapter 4).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/base/view.h"

namespace roundoff {

// Number of roundings that a term of a sum of n terms passes through, at most.
constexpr int sum_depth(std::int64_t n) {
  if (n <= 1) return 0;
  const auto log2 = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
  return static_cast<int>(std::min<std::int64_t>(n - 1, 37 + log2));
}

namespace detail {

inline constexpr int kLanes = 16;
inline constexpr std::int64_t kLeaf = 512;
inline constexpr std::int64_t kLeafRows = 32;
inline constexpr std::int64_t kTile = 256;  // columns that are summed side by side
inline constexpr int kLevels = 48;

// Sum of n <= kLeaf contiguous terms.
template <class T>
T sum_leaf(const T* x, std::int64_t n) {
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  for (int j = 0; i + j < n; ++j) lanes[j] += x[i + j];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

// Adds leaves in pairs: level i holds the sum of 2^i leaves where bit i of count_ is set.
template <class T>
class Cascade {
 public:
  void push(T leaf) {
    int level = 0;
    for (std::uint64_t c = count_; (c & 1) != 0; c >>= 1) leaf = levels_[level++] + leaf;
    levels_[level] = leaf;
    ++count_;
  }
  T total() const {
    T sum = T(0);
    bool first = true;
    int level = 0;
    for (std::uint64_t c = count_; c != 0; c >>= 1, ++level) {
      if ((c & 1) == 0) continue;
      sum = first ? levels_[level] : levels_[level] + sum;
      first = false;
    }
    return sum;
  }

 private:
  T levels_[kLevels];
  std::uint64_t count_ = 0;
};

// The same over rows of up to kTile columns. A leaf of zero rows is never pushed.
template <class T>
class RowCascade {
 public:
  void reset(std::int64_t width) {
    width_ = width;
    count_ = 0;
  }
  // Where the next leaf is to be built; begin() sets it to zero.
  T* begin() {
    std::fill_n(leaf_, width_, T(0));
    return leaf_;
  }
  void push() {
    int level = 0;
    for (std::uint64_t c = count_; (c & 1) != 0; c >>= 1, ++level)
      for (std::int64_t j = 0; j < width_; ++j) leaf_[j] = levels_[level][j] + leaf_[j];
    std::copy_n(leaf_, width_, levels_[level]);
    ++count_;
  }
  const T* total() {
    begin();
    bool first = true;
    int level = 0;
    for (std::uint64_t c = count_; c != 0; c >>= 1, ++level) {
      if ((c & 1) == 0) continue;
      if (first) {
        std::copy_n(levels_[level], width_, leaf_);
      } else {
        for (std::int64_t j = 0; j < width_; ++j) leaf_[j] = levels_[level][j] + leaf_[j];
      }
      first = false;
    }
    return leaf_;
  }

 private:
  std::int64_t width_ = 0;
  std::uint64_t count_ = 0;
  T leaf_[kTile];
  T levels_[kLevels][kTile];
};

// Sum of n contiguous terms: load(offset, n, buffer) returns up to kLeaf of them.
template <class T, class Load>
T sum_contiguous(std::int64_t n, Load load) {
  T buffer[kLeaf];
  if (n <= kLeaf) return n == 0 ? T(0) : sum_leaf(load(std::int64_t{0}, n, buffer), n);
  Cascade<T> cascade;
  for (std::int64_t i = 0; i < n; i += kLeaf) {
    const std::int64_t m = std::min(kLeaf, n - i);
    cascade.push(sum_leaf(load(i, m, buffer), m));
  }
  return cascade.total();
}

// A tensor's axes as a reduction sees them: neighbours that are both kept or both reduced are one,
// axes of extent 1 are gone. Strides are in elements of the row-major input.
struct ReduceGeometry {
  struct Axis {
    std::int64_t extent = 1;
    std::int64_t stride = 0;
  };
  Axis kept[kMaxRank];
  Axis reduced[kMaxRank];
  int kept_rank = 0;
  int reduced_rank = 0;
  std::int64_t outputs = 1;  // product of the kept extents
  std::int64_t terms = 1;    // product of the reduced extents
  bool inner_kept = false;   // whether the innermost axis is kept

  ReduceGeometry(const Shape& shape, std::uint32_t axes) {
    std::int64_t stride = 1;
    int last = -1;  // 1: the axis inside this one is reduced, 0: it is kept
    for (int a = shape.rank() - 1; a >= 0; --a) {
      const std::int64_t extent = shape[a];
      const bool is_reduced = ((axes >> a) & 1U) != 0;
      (is_reduced ? terms : outputs) *= extent;
      if (extent != 1) {
        if (last < 0) inner_kept = !is_reduced;
        Axis* list = is_reduced ? reduced : kept;
        int& rank = is_reduced ? reduced_rank : kept_rank;
        if (last == (is_reduced ? 1 : 0))
          list[rank - 1].extent *= extent;
        else
          list[rank++] = {extent, stride};
        last = is_reduced ? 1 : 0;
      }
      stride *= extent;
    }
    // Index 0 is the innermost axis of its list.
  }
};

// Counts through axes [first, rank) of a list, the innermost fastest.
class Odometer {
 public:
  Odometer(const ReduceGeometry::Axis* axes, int first, int rank)
      : axes_(axes), first_(first), rank_(rank) {}
  std::int64_t offset() const { return offset_; }
  // False once every index was visited; the offset is 0 again then.
  bool next() {
    for (int a = first_; a < rank_; ++a) {
      offset_ += axes_[a].stride;
      if (++index_[a] < axes_[a].extent) return true;
      offset_ -= axes_[a].extent * axes_[a].stride;
      index_[a] = 0;
    }
    return false;
  }

 private:
  const ReduceGeometry::Axis* axes_;
  int first_;
  int rank_;
  std::int64_t offset_ = 0;
  std::int64_t index_[kMaxRank] = {};
};

// Sums over the reduced axes. load(offset, n, buffer) returns n <= kLeaf contiguous terms of the
// input as T (in `buffer`, or in place); store(values, n, output) takes n <= kTile sums.
template <class T, class Load, class Store>
void reduce_sum(const ReduceGeometry& g, Load load, Store store) {
  if (g.outputs == 0) return;
  if (g.terms == 0) {
    const T zeros[kTile] = {};
    for (std::int64_t o = 0; o < g.outputs; o += kTile)
      store(zeros, std::min(kTile, g.outputs - o), o);
    return;
  }
  T buffer[kLeaf];
  std::int64_t output = 0;
  if (g.inner_kept) {
    const std::int64_t columns = g.kept[0].extent;
    RowCascade<T> cascade;
    Odometer outer(g.kept, 1, g.kept_rank);
    do {
      for (std::int64_t j = 0; j < columns; j += kTile) {
        const std::int64_t width = std::min(kTile, columns - j);
        cascade.reset(width);
        Odometer blocks(g.reduced, 1, g.reduced_rank);
        const std::int64_t rows = g.reduced_rank == 0 ? 1 : g.reduced[0].extent;
        const std::int64_t stride = g.reduced_rank == 0 ? 0 : g.reduced[0].stride;
        do {
          const std::int64_t base = outer.offset() + blocks.offset() + j;
          for (std::int64_t r = 0; r < rows; r += kLeafRows) {
            T* leaf = cascade.begin();
            const std::int64_t end = std::min(rows, r + kLeafRows);
            for (std::int64_t i = r; i < end; ++i) {
              const T* x = load(base + i * stride, width, buffer);
              for (std::int64_t c = 0; c < width; ++c) leaf[c] += x[c];
            }
            cascade.push();
          }
        } while (blocks.next());
        store(cascade.total(), width, output);
        output += width;
      }
    } while (outer.next());
    return;
  }
  T sums[kTile];
  std::int64_t pending = 0;
  Odometer outer(g.kept, 0, g.kept_rank);
  do {
    Odometer blocks(g.reduced, 1, g.reduced_rank);
    const std::int64_t run = g.reduced_rank == 0 ? 1 : g.reduced[0].extent;
    Cascade<T> cascade;
    do {
      const std::int64_t base = outer.offset() + blocks.offset();
      for (std::int64_t i = 0; i < run; i += kLeaf) {
        const std::int64_t m = std::min(kLeaf, run - i);
        cascade.push(sum_leaf(load(base + i, m, buffer), m));
      }
    } while (blocks.next());
    sums[pending++] = cascade.total();
    if (pending == kTile) {
      store(sums, pending, output);
      output += pending;
      pending = 0;
    }
  } while (outer.next());
  if (pending != 0) store(sums, pending, output);
}

}  // namespace detail
}  // namespace roundoff
