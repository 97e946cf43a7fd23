// What LayerNorm's kernels, forward and backward, share: rows in registers beside what belongs to
// columns.
#pragma once

#include "kernels/norm/columns.cuh"
#include "kernels/norm/layer_norm.h"
#include "kernels/reduce/row.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace norms {

  using reduce::RowValues;

  // f(value, a's element) for the elements of a row; a lies in the row's own order.
  template <class Map, class A, int kPacks, int kPack, class F>
  ROUNDOFF_DEVICE void combine(const Map& map, RowValues<A, kPacks, kPack>& v,
                               const A* __restrict__ a, F f) {
    constexpr int kStep = kPack < kPackOf<A> ? kPack : kPackOf<A>;
    if (map.packed && is_aligned(a)) {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        if (map.index(k, 0) >= map.n) continue;
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; j += kStep) {
          A factor[kStep];
          load_pack(a + map.index(k, j), factor);
          ROUNDOFF_UNROLL
          for (int l = 0; l < kStep; ++l) f(v.at[k][j + l], factor[l]);
        }
      }
      return;
    }
    ROUNDOFF_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kPack; ++j)
        if (const int i = map.index(k, j); i < map.n) f(v.at[k][j], a[i]);
    }
  }

  // Rows of fp64 take too many registers to stay in them.
  template <class A>
  bool stays(DType dtype) {
    return std::is_same_v<A, float> && dtype != DType::fp64;
  }
  inline bool overwrites(const Out& out, DType dtype) {
    return !out.wanted || (out.view.dtype == dtype && out.write == Write::overwrite);
  }

  // f.template operator()<T>() for the types of rows that stay in registers.
  template <class F>
  void visit_resident(DType dtype, F&& f) {
    visit_floating(dtype, "layer_norm", [&]<class T>() {
      if constexpr (!std::is_same_v<T, double>) f.template operator()<T>();
    });
  }

  }  // namespace norms
}  // namespace

}  // namespace roundoff
