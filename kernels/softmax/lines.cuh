// What softmax's launchers, forward and backward, share: rows, and lines along any axis.
#pragma once

#include "kernels/elementwise/chunks.h"
#include "kernels/reduce/row.cuh"
#include "kernels/simt/operand.cuh"
#include "kernels/softmax/softmax.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace softmax {

  // [outer, n, inner] around the axis; outer inner lines.
  struct Lines {
    std::int64_t count;
    std::int64_t n;
    std::int64_t inner;
  };

  inline Lines lines_of(const Shape& shape, int axis) {
    Lines lines{1, shape[axis], 1};
    for (int a = 0; a < shape.rank(); ++a) {
      if (a != axis) lines.count *= shape[a];
      if (a > axis) lines.inner *= shape[a];
    }
    return lines;
  }

  template <class Team>
  LaunchConfig line_launch(const char* name, const Lines& lines) {
    return {.name = name,
            .grid = {reduce::grid_of(name, (lines.count + Team::lines - 1) / Team::lines)},
            .block = Team::block};
  }

  // f.template operator()<T>() where everything is of one type and its own arithmetic will do;
  // false otherwise.
  template <class F>
  bool with_one_type(bool fp64, DType dtype, bool same, F&& f) {
    if (!same || (fp64 && dtype != DType::fp64)) return false;
    visit_floating(dtype, "softmax", f);
    return true;
  }

  // f.template operator()<Team>() with a block for a line, or for 32 neighbours.
  template <class A, class In, class F>
  void with_team(const Lines& lines, F&& f) {
    if constexpr (std::is_same_v<In, AnyOperand>) {
      if (lines.inner == 1) return f.template operator()<reduce::RowTeam<A>>();
    }
    f.template operator()<reduce::ColumnTeam<A>>();
  }

  }  // namespace softmax
}  // namespace

}  // namespace roundoff
