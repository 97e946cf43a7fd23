// A row's maximum with the sum of its shifted exponentials in one pass: when the maximum grows,
// what was summed is scaled by exp(old - new).
#pragma once

#include <limits>

#include "kernels/elementwise/math.cuh"
#include "kernels/reduce/block.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  using math::exponential;
  using math::logarithm;

  template <class A>
  inline constexpr A kInfinity = std::numeric_limits<A>::infinity();

  // at[0]: the maximum so far, -inf for none, NaN once there was one; at[1]: the sum.
  template <class A>
  using ExponentialSum = reduce::Values<A, 2>;

  template <class A>
  ROUNDOFF_DEVICE ExponentialSum<A> no_exponentials() {
    return {{-kInfinity<A>, A(0)}};
  }

  // A sum that belongs to `from`, for the maximum `to` >= from. Nothing but -inf so far sums to 0.
  template <class A>
  ROUNDOFF_DEVICE A rescaled(A sum, A from, A to) {
    return from == to ? sum : sum * exponential(from - to);
  }

  template <int kCount, class A>
  ROUNDOFF_DEVICE void add_exponentials(ExponentialSum<A> & s, const A(&x)[kCount]) {
    A max = s.at[0];
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; ++j) max = reduce::Max{}(x[j], max);
    s.at[1] = rescaled(s.at[1], s.at[0], max);
    s.at[0] = max;
    if (max == -kInfinity<A>) return;
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; ++j) s.at[1] += exponential(x[j] - max);
  }

  struct MergeExponentials {
    template <class A>
    ROUNDOFF_DEVICE ExponentialSum<A> operator()(const ExponentialSum<A>& a,
                                                 const ExponentialSum<A>& b) const {
      const A max = reduce::Max{}(a.at[0], b.at[0]);
      return {{max, rescaled(a.at[1], a.at[0], max) + rescaled(b.at[1], b.at[0], max)}};
    }
  };
}  // namespace

}  // namespace roundoff
