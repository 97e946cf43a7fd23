// What happens to a sum before and after its products, as kernels see it:
//   y = round(activation(alpha sum + beta c + what y held))
// in the arithmetic type C = float or double, rounded once to y's type.
#pragma once

#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/source.cuh"

namespace roundoff {

enum class Addition : unsigned char { none, bias, matrix };

// Element (result, row, column) of y is y[result * stride + row * pitch + column]; of c likewise,
// a bias having no rows.
struct ProductOutput {
  void* y = nullptr;
  DType dtype = DType::fp32;
  bool accumulate = false;
  bool aligned = false;   // runs of 4 elements (fp64: 2)
  bool aligned8 = false;  // runs of 8
  std::int64_t pitch = 0, stride = 0;
  const void* c = nullptr;
  DType c_dtype = DType::fp32;
  Addition addition = Addition::none;
  bool c_aligned = false;  // runs of 4 and, where y has them, of 8
  std::int64_t c_pitch = 0, c_stride = 0;
  double alpha = 1, beta = 0;
  // The other addends wait until the products are summed; otherwise the sum begins with them, so
  // that a long sum may be cut anywhere along the products and continued.
  bool late = false;
  Activation activation = Activation::none;
};

ROUNDOFF_DEVICE_NAMESPACE {
  template <class C>
  inline constexpr DType kDTypeOf = sizeof(C) == 8 ? DType::fp64 : DType::fp32;

  // Whether the sum begins with what y holds.
  template <class C>
  ROUNDOFF_DEVICE bool begins_with_held(const ProductOutput& out) {
    return out.accumulate && !out.late && out.dtype == kDTypeOf<C>;
  }

  template <class C>
  ROUNDOFF_DEVICE C scaled_addend(const ProductOutput& out, unsigned result, unsigned row,
                                  unsigned column) {
    const std::int64_t line =
        out.addition == Addition::matrix ? static_cast<std::int64_t>(row) * out.c_pitch : 0;
    return static_cast<C>(out.beta) *
           load_one<C>(out.c, out.c_dtype, result * out.c_stride + line + column, false);
  }

  // What the sum of one element begins with.
  template <class C>
  ROUNDOFF_DEVICE C begin_sum(const ProductOutput& out, unsigned result, unsigned row,
                              unsigned column) {
    if (out.late) return C(0);
    const bool held = begins_with_held<C>(out);
    C sum(0);
    if (held)
      sum = static_cast<const C*>(
          out.y)[result * out.stride + static_cast<std::int64_t>(row) * out.pitch + column];
    if (out.addition != Addition::none) {
      const C addend = scaled_addend<C>(out, result, row, column);
      sum = held ? sum + addend : addend;
    }
    return sum;
  }

  template <class C>
  ROUNDOFF_DEVICE C activate(Activation activation, C v) {
    if (activation == Activation::relu) return v <= C(0) ? C(0) : v;
    if (activation == Activation::gelu) {
      constexpr C kHalfRoot = C(0.70710678118654752440);
      // Where the weight has underflowed to 0, -infinity gives the limit.
      if constexpr (sizeof(C) == 8) {
        const C phi = C(0.5) * erfc(-v * kHalfRoot);
        return phi == C(0) ? copysign(C(0), v) : v * phi;
      } else {
        const C phi = C(0.5) * erfcf(-v * kHalfRoot);
        return phi == C(0) ? copysignf(C(0), v) : v * phi;
      }
    }
    return v;
  }

  // The sum with everything but what y holds, not yet rounded.
  template <class C>
  ROUNDOFF_DEVICE C end_sum(const ProductOutput& out, unsigned result, unsigned row,
                            unsigned column, C sum) {
    if (out.late) {
      if (out.alpha != 1) sum *= static_cast<C>(out.alpha);
      if (out.addition != Addition::none) sum += scaled_addend<C>(out, result, row, column);
    }
    return activate(out.activation, sum);
  }

  template <class T, class C>
  ROUNDOFF_DEVICE void store_one(T * to, C v, bool add) {
    if constexpr (sizeof(T) >= 4) {
      if (add) {
        *to = add_value(*to, v);
        return;
      }
    }
    *to = narrow_value<T>(v);
  }

  // Ends the sum of one element and writes it.
  template <class C>
  ROUNDOFF_DEVICE void write_element(const ProductOutput& out, unsigned result, unsigned row,
                                     unsigned column, C sum) {
    const C v = end_sum(out, result, row, column, sum);
    const std::int64_t i =
        result * out.stride + static_cast<std::int64_t>(row) * out.pitch + column;
    const bool add = out.accumulate && !begins_with_held<C>(out);
    switch (out.dtype) {
      case DType::fp16:
        return store_one(static_cast<Half*>(out.y) + i, v, add);
      case DType::bf16:
        return store_one(static_cast<BFloat16*>(out.y) + i, v, add);
      case DType::fp64:
        return store_one(static_cast<double*>(out.y) + i, v, add);
      default:
        return store_one(static_cast<float*>(out.y) + i, v, add);
    }
  }

  // Whether write_run() serves: a sum is rounded and stored, nothing else, and runs are aligned.
  template <class C>
  ROUNDOFF_DEVICE bool writes_runs(const ProductOutput& out) {
    return out.aligned && !out.late && out.activation == Activation::none &&
           (!out.accumulate || begins_with_held<C>(out)) && size_of(out.dtype) <= sizeof(C);
  }

  // kLanes<C> elements of a row, all of them there.
  template <class C>
  ROUNDOFF_DEVICE void write_run(const ProductOutput& out, unsigned result, unsigned row,
                                 unsigned column, const C(&v)[kLanes<C>]) {
    const std::int64_t i =
        result * out.stride + static_cast<std::int64_t>(row) * out.pitch + column;
    switch (out.dtype) {
      case DType::fp16:
        return store_pack(static_cast<Half*>(out.y) + i, v);
      case DType::bf16:
        return store_pack(static_cast<BFloat16*>(out.y) + i, v);
      case DType::fp64:
        if constexpr (sizeof(C) == 8) return store_pack(static_cast<double*>(out.y) + i, v);
        break;
      default:
        return store_pack(static_cast<float*>(out.y) + i, v);
    }
  }

  // values[j] = p[i + j] as fp32, j < kCount = 4 or 8; of fp32 or a 16-bit type, aligned to that.
  template <int kCount>
  ROUNDOFF_DEVICE void load_run(const void* p, DType dtype, std::int64_t i,
                                float(&values)[kCount]) {
    if (dtype == DType::fp16) return load_pack(static_cast<const Half*>(p) + i, values);
    if (dtype == DType::bf16) return load_pack(static_cast<const BFloat16*>(p) + i, values);
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; j += 4) {
      const auto four = load_vector<float4>(static_cast<const float*>(p) + i + j);
      values[j] = four.x;
      values[j + 1] = four.y;
      values[j + 2] = four.z;
      values[j + 3] = four.w;
    }
  }

  // Ends the sums of kCount elements of a row, all of them there, and writes them in accesses of up
  // to 16 bytes; out.aligned (out.aligned8 for 8 of them) and out.c_aligned hold.
  template <int kCount>
  ROUNDOFF_DEVICE void end_run(const ProductOutput& out, unsigned result, unsigned row,
                               unsigned column, float(&v)[kCount]) {
    if (out.late) {
      const auto alpha = static_cast<float>(out.alpha), beta = static_cast<float>(out.beta);
      if (out.alpha != 1) {
        ROUNDOFF_UNROLL
        for (int j = 0; j < kCount; ++j) v[j] *= alpha;
      }
      if (out.addition != Addition::none) {
        float c[kCount];
        const std::int64_t line =
            out.addition == Addition::matrix ? static_cast<std::int64_t>(row) * out.c_pitch : 0;
        load_run(out.c, out.c_dtype, result * out.c_stride + line + column, c);
        ROUNDOFF_UNROLL
        for (int j = 0; j < kCount; ++j) v[j] += beta * c[j];
      }
    }
    if (out.activation != Activation::none) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kCount; ++j) v[j] = activate(out.activation, v[j]);
    }
    const std::int64_t i =
        result * out.stride + static_cast<std::int64_t>(row) * out.pitch + column;
    if (out.dtype == DType::fp16) return store_pack(static_cast<Half*>(out.y) + i, v);
    if (out.dtype == DType::bf16) return store_pack(static_cast<BFloat16*>(out.y) + i, v);
    const bool add = out.accumulate && !begins_with_held<float>(out);
    if (out.dtype == DType::fp64) {
      ROUNDOFF_UNROLL
      for (int j = 0; j < kCount; j += 2) {
        const float pair[2] = {v[j], v[j + 1]};
        if (add)
          add_pack(static_cast<double*>(out.y) + i + j, pair);
        else
          store_pack(static_cast<double*>(out.y) + i + j, pair);
      }
      return;
    }
    ROUNDOFF_UNROLL
    for (int j = 0; j < kCount; j += 4) {
      const float four[4] = {v[j], v[j + 1], v[j + 2], v[j + 3]};
      if (add)
        add_pack(static_cast<float*>(out.y) + i + j, four);
      else
        store_pack(static_cast<float*>(out.y) + i + j, four);
    }
  }

}  // namespace

// Says which runs of y and c are aligned, from what else is known.
inline void align_runs(ProductOutput& out) {
  out.aligned =
      lanes_aligned(out.y, out.dtype, out.dtype == DType::fp64 ? 2 : 4, out.pitch, out.stride);
  out.aligned8 = lanes_aligned(out.y, out.dtype, 8, out.pitch, out.stride);
  const std::int64_t c_pitch = out.addition == Addition::matrix ? out.c_pitch : 0;
  out.c_aligned = out.addition == Addition::none ||
                  (out.c_dtype != DType::fp64 &&
                   lanes_aligned(out.c, out.c_dtype, out.aligned8 && is_16bit(out.dtype) ? 8 : 4,
                                 c_pitch, out.c_stride));
}

}  // namespace roundoff
