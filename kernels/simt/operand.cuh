// Operands and results of kernels as kernels see them: of a type that the kernel is compiled for
// (the fast paths), or of a type that is only known at run time.
//
//   TypedIn<T>{p}.get<A>(i)   p[i] as A            AnyOperand{p, dtype}.get<A>(i)   the same
//   TypedOut<T>{p}.put(i, a)  p[i] = a, rounded    AnyResult{...}.put(i, a)       = or +=
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/simt/convert.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  template <class T>
  struct TypedIn {
    const T* data;
    template <class A>
    ROUNDOFF_DEVICE A get(std::int64_t i) const {
      return widen_value<A>(data[i]);
    }
  };
  template <class T>
  struct TypedOut {
    T* data;
    template <class A>
    ROUNDOFF_DEVICE void put(std::int64_t i, A value) const {
      data[i] = narrow_value<T>(value);
    }
  };

  struct AnyOperand {
    const void* data = nullptr;  // null: absent
    DType dtype = DType::fp32;

    AnyOperand() = default;
    explicit AnyOperand(const ConstView& v) : data(v.present ? v.data : nullptr), dtype(v.dtype) {}

    ROUNDOFF_DEVICE bool present() const { return data != nullptr; }
    template <class A>
    ROUNDOFF_DEVICE A get(std::int64_t i) const {
      switch (dtype) {
        case DType::fp64:
          return widen_value<A>(static_cast<const double*>(data)[i]);
        case DType::fp32:
          return widen_value<A>(static_cast<const float*>(data)[i]);
        case DType::fp16:
          return widen_value<A>(static_cast<const Half*>(data)[i]);
        default:
          return widen_value<A>(static_cast<const BFloat16*>(data)[i]);
      }
    }
    template <class A>
    ROUNDOFF_DEVICE A get_or(std::int64_t i, A otherwise) const {
      return present() ? get<A>(i) : otherwise;
    }
  };

  struct AnyResult {
    void* data = nullptr;  // null: not wanted
    DType dtype = DType::fp32;
    bool accumulate = false;

    AnyResult() = default;
    explicit AnyResult(const Out& out)
        : data(out.wanted ? out.view.data : nullptr),
          dtype(out.view.dtype),
          accumulate(out.write == Write::accumulate) {}

    ROUNDOFF_DEVICE bool wanted() const { return data != nullptr; }
    // What is there, as A; of fp32 and fp64.
    template <class A>
    ROUNDOFF_DEVICE A get(std::int64_t i) const {
      return dtype == DType::fp64 ? widen_value<A>(static_cast<const double*>(data)[i])
                                  : widen_value<A>(static_cast<const float*>(data)[i]);
    }
    template <class A>
    ROUNDOFF_DEVICE void put(std::int64_t i, A value) const {
      switch (dtype) {
        case DType::fp64: {
          auto* to = static_cast<double*>(data) + i;
          *to = accumulate ? add_value(*to, value) : narrow_value<double>(value);
          return;
        }
        case DType::fp32: {
          auto* to = static_cast<float*>(data) + i;
          *to = accumulate ? add_value(*to, value) : narrow_value<float>(value);
          return;
        }
        case DType::fp16:
          static_cast<Half*>(data)[i] = narrow_value<Half>(value);
          return;
        default:
          static_cast<BFloat16*>(data)[i] = narrow_value<BFloat16>(value);
      }
    }
  };

  ROUNDOFF_DEVICE bool is_aligned(const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  }
  // A pack from a place that may not be aligned.
  template <class T, class A, int kCount>
  ROUNDOFF_DEVICE void load_values(const T* p, A(&v)[kCount]) {
    if (is_aligned(p)) return load_pack(p, v);
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] = widen_value<A>(p[j]);
  }
  template <class T, class A, int kCount>
  ROUNDOFF_DEVICE void store_values(T * p, const A(&v)[kCount]) {
    if (is_aligned(p)) return store_pack(p, v);
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; ++j) p[j] = narrow_value<T>(v[j]);
  }

  // Elements of a 16-byte pack.
  template <class T>
  inline constexpr int kPackOf = static_cast<int>(16 / sizeof(T));
  // What T is computed in.
  template <class T>
  using ArithmeticOf = std::conditional_t<std::is_same_v<T, double>, double, float>;
}  // namespace

}  // namespace roundoff
