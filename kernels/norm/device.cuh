// What the norms' kernels share.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/base/convert.h"
#include "kernels/base/scratch.h"
#include "kernels/norm/common.h"
#include "kernels/simt/operand.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace norms {

  ROUNDOFF_DEVICE float square_root(float x) { return sqrtf(x); }
  ROUNDOFF_DEVICE double square_root(double x) { return sqrt(x); }

  template <class A>
  ROUNDOFF_DEVICE bool finite(A x) {
    return x - x == A(0);
  }

  template <class A>
  struct Moments {
    A mean;
    A var;
    A rstd;
  };

  // From the first mean, and the means of what is left of it and of its square.
  template <class A>
  ROUNDOFF_DEVICE Moments<A> moments(A first, A rest, A squares, double eps) {
    A var = squares - rest * rest;
    if (var < A(0)) var = A(0);
    return {first + rest, var, A(1) / square_root(var + static_cast<A>(eps))};
  }

  // Squares or sums left the range of fp32: to be formed again in fp64.
  template <class A>
  ROUNDOFF_DEVICE bool left_range(const Moments<A>& m) {
    return !(m.rstd > A(0)) || !finite(m.rstd) || !finite(m.mean);
  }

  // Formed again in fp64, by a team of threads that walks over n values: get(i), team(v, Sum).
  template <class A, class Get, class Team>
  ROUNDOFF_DEVICE Moments<A> moments_in_fp64(std::int64_t n, int rank, int size, double eps,
                                             Get get, Team team) {
    const auto count = static_cast<double>(n);
    double sum = 0;
    ROUNDOFF_NO_UNROLL
    for (std::int64_t i = rank; i < n; i += size) sum += get(i);
    const double first = team(sum) / count;
    double rest = 0;
    double squares = 0;
    ROUNDOFF_NO_UNROLL
    for (std::int64_t i = rank; i < n; i += size) {
      const double d = get(i) - first;
      rest += d;
      squares += d * d;
    }
    rest = team(rest) / count;
    squares = team(squares) / count;
    const Moments<double> m = moments(first, rest, squares, eps);
    return {static_cast<A>(m.mean), static_cast<A>(m.var), static_cast<A>(m.rstd)};
  }

  // kPack values of what belongs to columns.
  template <int kPack, class A>
  ROUNDOFF_DEVICE void load_columns(const A* p, A (&v)[kPack]) {
    constexpr int kStep = kPack < kPackOf<A> ? kPack : kPackOf<A>;
    ROUNDOFF_UNROLL
    for (int j = 0; j < kPack; j += kStep) {
      A part[kStep];
      load_values(p + j, part);
      ROUNDOFF_UNROLL
      for (int k = 0; k < kStep; ++k) v[j + k] = part[k];
    }
  }

  // The columns of a pack: neighbours, or one column for all its elements.
  struct Neighbours {
    template <int kPack, class A>
    ROUNDOFF_DEVICE static void load(const A* p, A (&v)[kPack]) {
      load_columns(p, v);
    }
  };
  struct OneColumn {
    template <int kPack, class A>
    ROUNDOFF_DEVICE static void load(const A* p, A (&v)[kPack]) {
      const A value = *p;
      ROUNDOFF_UNROLL
      for (int j = 0; j < kPack; ++j) v[j] = value;
    }
  };

  // kPack values from element i on.
  template <int kPack, class A, class T>
  ROUNDOFF_DEVICE void load(const TypedIn<T>& in, std::int64_t i, A (&v)[kPack]) {
    load_values(in.data + i, v);
  }
  template <int kPack, class A>
  ROUNDOFF_DEVICE void load(const AnyOperand& in, std::int64_t i, A (&v)[kPack]) {
    ROUNDOFF_UNROLL
    for (int j = 0; j < kPack; ++j) v[j] = in.get<A>(i + j);
  }
  template <int kPack, class A, class T>
  ROUNDOFF_DEVICE void store(const TypedOut<T>& out, std::int64_t i, const A (&v)[kPack]) {
    store_values(out.data + i, v);
  }
  template <int kPack, class A>
  ROUNDOFF_DEVICE void store(const AnyResult& out, std::int64_t i, const A (&v)[kPack]) {
    ROUNDOFF_UNROLL
    for (int j = 0; j < kPack; ++j) out.put(i + j, v[j]);
  }

  // All of `v` as A: where it is, or a copy in the workspace; null where it is absent.
  template <class A>
  const A* widened_on_device(Target device, const ConstView& v, Scratch& scratch) {
    if (!v.present) return nullptr;
    if (v.dtype == dtype_of<A>) return v.as<A>();
    A* to = scratch.get<A>(v.numel());
    if (v.numel() > 0) convert(device, v, View{to, dtype_of<A>, v.shape});
    return to;
  }

  }  // namespace norms
}  // namespace

}  // namespace roundoff
