// y[i] = f(x[i]) and y[i] = f(a[i], b[i]) over arrays of one shape.
//
// One read an operand and one write, 16 bytes an access and thread. Where all arrays have one type
// and y is overwritten the kernel has an instance for it; every other mixture goes through
// kernels/simt/any_array.cuh with packs of 4 (2 where arithmetic is in fp64).
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/simt/any_array.cuh"
#include "kernels/simt/convert.cuh"
#include "kernels/simt/grid.h"

namespace roundoff {

// The type that arithmetic on a storage type happens in.
template <class T>
using ArithmeticOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

ROUNDOFF_DEVICE_NAMESPACE {
  inline constexpr unsigned kMapThreads = 256;

  ROUNDOFF_DEVICE std::int64_t grid_thread() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  }
  ROUNDOFF_DEVICE std::int64_t grid_threads() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  }

  // F: a class without state that maps one or two numbers.
  template <class F, class T>
  __global__ void __launch_bounds__(kMapThreads, 4)
      map1(const T* __restrict__ x, T* __restrict__ y, std::int64_t n, int head) {
    using A = ArithmeticOf<T>;
    constexpr int kCount = pack_size<T>();
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          A v[kCount];
          load_pack(x + i, v);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) v[k] = F{}(v[k]);
          store_pack(y + i, v);
        },
        [&](std::int64_t i) { y[i] = narrow_value<T>(F{}(widen_value<A>(x[i]))); });
  }

  template <class F, class T>
  __global__ void __launch_bounds__(kMapThreads, 4)
      map2(const T* a, const T* b, T* y, std::int64_t n, int head) {
    using A = ArithmeticOf<T>;
    constexpr int kCount = pack_size<T>();
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          A v[kCount], w[kCount];
          load_pack(a + i, v);
          load_pack(b + i, w);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) v[k] = F{}(v[k], w[k]);
          store_pack(y + i, v);
        },
        [&](std::int64_t i) {
          y[i] = narrow_value<T>(F{}(widen_value<A>(a[i]), widen_value<A>(b[i])));
        });
  }

  template <class F, class A>
  __global__ void __launch_bounds__(kMapThreads, 4)
      map1_any(AnyArray x, AnyOut y, std::int64_t n, int head) {
    constexpr int kCount = kAnyPack<A>;
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          A v[kCount];
          load_any_pack(x, i, v);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) v[k] = F{}(v[k]);
          store_any_pack(y, i, v);
        },
        [&](std::int64_t i) { store_any(y, i, F{}(load_any<A>(x, i))); });
  }

  template <class F, class A>
  __global__ void __launch_bounds__(kMapThreads, 4)
      map2_any(AnyArray a, AnyArray b, AnyOut y, std::int64_t n, int head) {
    constexpr int kCount = kAnyPack<A>;
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          A v[kCount], w[kCount];
          load_any_pack(a, i, v);
          load_any_pack(b, i, w);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) v[k] = F{}(v[k], w[k]);
          store_any_pack(y, i, v);
        },
        [&](std::int64_t i) { store_any(y, i, F{}(load_any<A>(a, i), load_any<A>(b, i))); });
  }

  inline LaunchConfig map_config(const char* name, std::int64_t n, int head, int count) {
    return {.name = name,
            .grid = grid_for(head < 0 ? n : n / count, kMapThreads),
            .block = {kMapThreads}};
  }

  // y = F(x), rounded once; arithmetic in fp64 where `fp64`.
  template <class F>
  void map(Target target, const char* name, bool fp64, const ConstView& x, const Out& y) {
    const std::int64_t n = x.numel();
    if (n == 0) return;
    if (x.dtype == y.view.dtype && y.write == Write::overwrite &&
        fp64 == (x.dtype == DType::fp64)) {
      return visit_floating(x.dtype, name, [&]<class T>() {
        constexpr int kCount = pack_size<T>();
        const int head = pack_head<kCount>(x.as<T>(), y.view.as<T>());
        launch(target, map_config(name, n, head, kCount), map1<F, T>, x.as<T>(), y.view.as<T>(), n,
               head);
      });
    }
    const auto run = [&]<class A>(A) {
      constexpr int kCount = kAnyPack<A>;
      const int head = any_pack_head<kCount>(AnyArray(x), AnyOut(y));
      launch(target, map_config(name, n, head, kCount), map1_any<F, A>, AnyArray(x), AnyOut(y), n,
             head);
    };
    if (fp64)
      run(double{});
    else
      run(float{});
  }

  // y = F(a, b) of equal shapes.
  template <class F>
  void map(Target target, const char* name, bool fp64, const ConstView& a, const ConstView& b,
           const Out& y) {
    const std::int64_t n = a.numel();
    if (n == 0) return;
    if (a.dtype == b.dtype && a.dtype == y.view.dtype && y.write == Write::overwrite &&
        fp64 == (a.dtype == DType::fp64)) {
      return visit_floating(a.dtype, name, [&]<class T>() {
        constexpr int kCount = pack_size<T>();
        const int head = pack_head<kCount>(a.as<T>(), b.as<T>(), y.view.as<T>());
        launch(target, map_config(name, n, head, kCount), map2<F, T>, a.as<T>(), b.as<T>(),
               y.view.as<T>(), n, head);
      });
    }
    const auto run = [&]<class A>(A) {
      constexpr int kCount = kAnyPack<A>;
      const int head = any_pack_head<kCount>(AnyArray(a), AnyArray(b), AnyOut(y));
      launch(target, map_config(name, n, head, kCount), map2_any<F, A>, AnyArray(a), AnyArray(b),
             AnyOut(y), n, head);
    };
    if (fp64)
      run(double{});
    else
      run(float{});
  }

}  // namespace

}  // namespace roundoff
