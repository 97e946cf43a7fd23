// What BatchNorm adds over the batch, and what it maps it to (kernels/norm/columns.cuh).
#pragma once

#include "kernels/norm/columns.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace norms {

  // What a pass needs of channels: table[row * channels + c].
  enum Row : int { kFirst, kMean, kFactor, kShift, kMeanDy, kMeanDyXhat, kRows };

  template <class A>
  struct Table {
    A* data;
    std::int64_t channels;
    ROUNDOFF_DEVICE A& operator()(int row, std::int64_t c) const {
      return data[row * channels + c];
    }
    template <class Columns, int kPack>
    ROUNDOFF_DEVICE void load(int row, std::int64_t c, A (&v)[kPack]) const {
      Columns::load(data + row * channels + c, v);
    }
  };

  template <class A, class In>
  struct ValueTerms {
    static constexpr bool kPlanes = true;
    static constexpr int kSums = 1;
    In x;
    template <class Columns, int kPack>
    struct State {
      ROUNDOFF_DEVICE State(const ValueTerms&, std::int64_t) {}
      ROUNDOFF_DEVICE void add(const ValueTerms& t, std::int64_t at, std::int64_t,
                               A (&sums)[1][kPack]) const {
        A xs[kPack];
        norms::load(t.x, at, xs);
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) sums[0][j] += xs[j];
      }
    };
  };

  template <class A, class In>
  struct DeviationTerms {
    static constexpr bool kPlanes = true;
    static constexpr int kSums = 2;
    In x;
    Table<A> table;
    template <class Columns, int kPack>
    struct State {
      A first[kPack];
      ROUNDOFF_DEVICE State(const DeviationTerms& t, std::int64_t c) {
        t.table.template load<Columns>(kFirst, c, first);
      }
      ROUNDOFF_DEVICE void add(const DeviationTerms& t, std::int64_t at, std::int64_t,
                               A (&sums)[2][kPack]) const {
        A xs[kPack];
        norms::load(t.x, at, xs);
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) {
          const A d = xs[j] - first[j];
          sums[0][j] += d;
          sums[1][j] += d * d;
        }
      }
    };
  };

  // dy xhat, dy.
  template <class A, class In>
  struct GradientTerms {
    static constexpr bool kPlanes = true;
    static constexpr int kSums = 2;
    In x;
    In dy;
    const A* mean;
    const A* rstd;
    template <class Columns, int kPack>
    struct State {
      A mean[kPack];
      A rstd[kPack];
      ROUNDOFF_DEVICE State(const GradientTerms& t, std::int64_t c) {
        Columns::load(t.mean + c, mean);
        Columns::load(t.rstd + c, rstd);
      }
      ROUNDOFF_DEVICE void add(const GradientTerms& t, std::int64_t at, std::int64_t,
                               A (&sums)[2][kPack]) const {
        A xs[kPack];
        A gs[kPack];
        norms::load(t.x, at, xs);
        norms::load(t.dy, at, gs);
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) {
          sums[0][j] += gs[j] * ((xs[j] - mean[j]) * rstd[j]);
          sums[1][j] += gs[j];
        }
      }
    };
  };

  // y = (x - mean) factor + shift
  template <class A, class In, class To>
  struct Normalize {
    In x;
    To y;
    Table<A> table;
    template <class Columns, int kPack>
    struct State {
      A mean[kPack];
      A factor[kPack];
      A shift[kPack];
      ROUNDOFF_DEVICE State(const Normalize& map, std::int64_t c) {
        map.table.template load<Columns>(kMean, c, mean);
        map.table.template load<Columns>(kFactor, c, factor);
        map.table.template load<Columns>(kShift, c, shift);
      }
      ROUNDOFF_DEVICE void put(const Normalize& map, std::int64_t at) const {
        A v[kPack];
        norms::load(map.x, at, v);
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) v[j] = (v[j] - mean[j]) * factor[j] + shift[j];
        norms::store(map.y, at, v);
      }
    };
  };

  // dx = factor (dy - mean(dy) - xhat mean(dy xhat)), or factor dy for given statistics.
  template <class A, class In, class To>
  struct InputGradient {
    In x;
    In dy;
    To dx;
    Table<A> table;
    const A* mean;
    const A* rstd;
    bool training;
    template <class Columns, int kPack>
    struct State {
      A mean[kPack];
      A rstd[kPack];
      A factor[kPack];
      A mean_dy[kPack];
      A mean_dyx[kPack];
      ROUNDOFF_DEVICE State(const InputGradient& map, std::int64_t c) {
        map.table.template load<Columns>(kFactor, c, factor);
        if (!map.training) return;
        Columns::load(map.mean + c, mean);
        Columns::load(map.rstd + c, rstd);
        map.table.template load<Columns>(kMeanDy, c, mean_dy);
        map.table.template load<Columns>(kMeanDyXhat, c, mean_dyx);
      }
      ROUNDOFF_DEVICE void put(const InputGradient& map, std::int64_t at) const {
        A v[kPack];
        A g[kPack];
        norms::load(map.dy, at, g);
        if (map.training) {
          norms::load(map.x, at, v);
          ROUNDOFF_UNROLL
          for (int j = 0; j < kPack; ++j)
            g[j] = g[j] - mean_dy[j] - ((v[j] - mean[j]) * rstd[j]) * mean_dyx[j];
        }
        ROUNDOFF_UNROLL
        for (int j = 0; j < kPack; ++j) g[j] *= factor[j];
        norms::store(map.dx, at, g);
      }
    };
  };

  }  // namespace norms
}  // namespace

}  // namespace roundoff
