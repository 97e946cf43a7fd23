// Arrays whose type a kernel learns at run time: one kernel for every mixture of types, at the
// price of a branch that all threads take alike. Kernels whose operands mostly agree have an
// instance for each type besides.
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/simt/convert.cuh"

namespace roundoff {

struct AnyArray {
  const void* data = nullptr;
  DType dtype = DType::fp32;

  AnyArray() = default;
  AnyArray(const ConstView& view) : data(view.data), dtype(view.dtype) {}
};

// Overwritten with one rounding, or added to (fp32 and fp64).
struct AnyOut {
  void* data = nullptr;
  DType dtype = DType::fp32;
  bool add = false;

  AnyOut() = default;
  AnyOut(const Out& out)
      : data(out.view.data), dtype(out.view.dtype), add(out.write == Write::accumulate) {}
};

// Elements of a pack of mixed types where arithmetic happens in A; values of 8 bytes go one by one
// in packs of 4.
template <class A>
inline constexpr int kAnyPack = sizeof(A) == 8 ? 2 : 4;

// pack_head() of kernels/simt/convert.cuh, of arrays whose sizes of elements are known at run time.
template <int kCount, class... Array>
int any_pack_head(const Array&... arrays) {
  int head = 0;
  bool first = true;
  const auto take = [&](const void* p, DType dtype) {
    const std::size_t bytes = kCount * size_of(dtype);
    if (bytes > 16 || head == kNoPacks) return;
    const int own = static_cast<int>((bytes - reinterpret_cast<std::uintptr_t>(p) % bytes) % bytes /
                                     size_of(dtype));
    if (!first && own != head) {
      head = kNoPacks;
      return;
    }
    head = own;
    first = false;
  };
  (take(arrays.data, arrays.dtype), ...);
  return head;
}

ROUNDOFF_DEVICE_NAMESPACE {
  // Floating types only.
  template <class A>
  ROUNDOFF_DEVICE A load_any(const AnyArray& x, std::int64_t i) {
    switch (x.dtype) {
      case DType::fp16:
        return widen_value<A>(static_cast<const Half*>(x.data)[i]);
      case DType::bf16:
        return widen_value<A>(static_cast<const BFloat16*>(x.data)[i]);
      case DType::fp64:
        return widen_value<A>(static_cast<const double*>(x.data)[i]);
      default:
        return widen_value<A>(static_cast<const float*>(x.data)[i]);
    }
  }

  template <class A>
  ROUNDOFF_DEVICE void store_any(const AnyOut& y, std::int64_t i, A value) {
    switch (y.dtype) {
      case DType::fp16:
        static_cast<Half*>(y.data)[i] = narrow_value<Half>(value);
        return;
      case DType::bf16:
        static_cast<BFloat16*>(y.data)[i] = narrow_value<BFloat16>(value);
        return;
      case DType::fp64: {
        double& to = static_cast<double*>(y.data)[i];
        to = y.add ? add_value(to, value) : narrow_value<double>(value);
        return;
      }
      default: {
        float& to = static_cast<float*>(y.data)[i];
        to = y.add ? add_value(to, value) : narrow_value<float>(value);
        return;
      }
    }
  }

  template <class A, int kCount>
  ROUNDOFF_DEVICE void load_any_pack(const AnyArray& x, std::int64_t i, A(&values)[kCount]) {
    switch (x.dtype) {
      case DType::fp16:
        return load_pack(static_cast<const Half*>(x.data) + i, values);
      case DType::bf16:
        return load_pack(static_cast<const BFloat16*>(x.data) + i, values);
      case DType::fp64: {
        const double* from = static_cast<const double*>(x.data) + i;
        if constexpr (kCount * sizeof(double) <= 16) {
          load_pack(from, values);
        } else {
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) values[k] = widen_value<A>(from[k]);
        }
        return;
      }
      default:
        return load_pack(static_cast<const float*>(x.data) + i, values);
    }
  }

  template <class T, class A, int kCount>
  ROUNDOFF_DEVICE void store_or_add_pack(T * to, bool add, const A(&values)[kCount]) {
    if constexpr (kCount * sizeof(T) <= 16) {
      if (add)
        add_pack(to, values);
      else
        store_pack(to, values);
    } else {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kCount; ++k)
        to[k] = add ? add_value(to[k], values[k]) : narrow_value<T>(values[k]);
    }
  }

  template <class A, int kCount>
  ROUNDOFF_DEVICE void store_any_pack(const AnyOut& y, std::int64_t i, const A(&values)[kCount]) {
    switch (y.dtype) {
      case DType::fp16:
        return store_pack(static_cast<Half*>(y.data) + i, values);
      case DType::bf16:
        return store_pack(static_cast<BFloat16*>(y.data) + i, values);
      case DType::fp64:
        return store_or_add_pack(static_cast<double*>(y.data) + i, y.add, values);
      default:
        return store_or_add_pack(static_cast<float*>(y.data) + i, y.add, values);
    }
  }

}  // namespace

}  // namespace roundoff
