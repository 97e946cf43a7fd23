// Two operands that are repeated along axes of the result, on kernels/elementwise/broadcast.h.
//
// Packs where the innermost axis is a whole number of them, and where there is one axis only; a
// pack lies inside the innermost axis, so one place in each operand serves all of it. Integer
// division is by multiplication (kernels/simt/divide.cuh).
#pragma once

#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/simt/divide.cuh"

namespace roundoff {

struct BroadcastPlan {
  int rank = 1;
  Divisor extent[kMaxRank];
  std::int64_t a[kMaxRank] = {};
  std::int64_t b[kMaxRank] = {};

  explicit BroadcastPlan(const detail::Broadcast& plan) : rank(plan.rank) {
    for (int i = 0; i < rank; ++i) {
      const auto& axis = plan.axes[static_cast<std::size_t>(i)];
      extent[i] = Divisor(axis.extent > 0 ? axis.extent : 1);
      a[i] = axis.a;
      b[i] = axis.b;
    }
  }
};

ROUNDOFF_DEVICE_NAMESPACE {
  // Where the operands of element i of the result are.
  ROUNDOFF_DEVICE void locate(const BroadcastPlan& plan, std::int64_t i, std::int64_t& a,
                              std::int64_t& b) {
    a = b = 0;
    for (int axis = 0; axis + 1 < plan.rank; ++axis) {
      const std::int64_t rest = divide(i, plan.extent[axis]);
      const std::int64_t index = i - rest * plan.extent[axis].extent;
      a += index * plan.a[axis];
      b += index * plan.b[axis];
      i = rest;
    }
    a += i * plan.a[plan.rank - 1];
    b += i * plan.b[plan.rank - 1];
  }

  template <class A, int kCount>
  ROUNDOFF_DEVICE void load_repeated(const AnyArray& x, std::int64_t i, bool repeat,
                                     A(&values)[kCount]) {
    if (!repeat) return load_any_pack(x, i, values);
    const A value = load_any<A>(x, i);
    ROUNDOFF_UNROLL
    for (int k = 0; k < kCount; ++k) values[k] = value;
  }

  template <class F, class A>
  __global__ void __launch_bounds__(kMapThreads, 4)
      broadcast_map(AnyArray a, AnyArray b, AnyOut y, const __grid_constant__ BroadcastPlan plan,
                    std::int64_t n, int head) {
    constexpr int kCount = kAnyPack<A>;
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          std::int64_t ia = 0, ib = 0;
          locate(plan, i, ia, ib);
          A v[kCount], w[kCount];
          load_repeated(a, ia, plan.a[0] == 0, v);
          load_repeated(b, ib, plan.b[0] == 0, w);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) v[k] = F{}(v[k], w[k]);
          store_any_pack(y, i, v);
        },
        [&](std::int64_t i) {
          std::int64_t ia = 0, ib = 0;
          locate(plan, i, ia, ib);
          store_any(y, i, F{}(load_any<A>(a, ia), load_any<A>(b, ib)));
        });
  }

  // head of for_each_pack() over the result.
  template <int kCount>
  int broadcast_head(const detail::Broadcast& plan, const ConstView& a, const ConstView& b,
                     const View& y) {
    const auto& inner = plan.inner();
    if (plan.rank != 1 && inner.extent % kCount != 0) return kNoPacks;
    const AnyArray to{ConstView(y)};
    const int head =
        any_pack_head<kCount>(to, inner.a == 0 ? to : AnyArray(a), inner.b == 0 ? to : AnyArray(b));
    return plan.rank == 1 || head == 0 ? head : kNoPacks;
  }

  // y = F(a, b), of shapes that broadcast to y's.
  template <class F>
  void map_broadcast(Target target, const char* name, bool fp64, const ConstView& a,
                     const ConstView& b, const Out& y) {
    if (a.shape == b.shape) return map<F>(target, name, fp64, a, b, y);
    const std::int64_t n = y.view.numel();
    if (n == 0) return;
    const detail::Broadcast plan(a.shape, b.shape, y.view.shape);
    const auto run = [&]<class A>(A) {
      constexpr int kCount = kAnyPack<A>;
      const int head = broadcast_head<kCount>(plan, a, b, y.view);
      launch(target, map_config(name, n, head, kCount), broadcast_map<F, A>, AnyArray(a),
             AnyArray(b), AnyOut(y), BroadcastPlan(plan), n, head);
    };
    if (fp64)
      run(double{});
    else
      run(float{});
  }

}  // namespace

}  // namespace roundoff
