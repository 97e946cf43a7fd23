// Copies of simple kernels with faults to plant in them.
//
// matmul: one fused multiply-add a product, in order. softmax: a warp a row, each lane its columns
// in order, then a butterfly of shuffles. fp32 inside, one rounding on the way out.
#include "tests/verify/planted.h"

#include "kernels/simt/operand.cuh"
#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  ROUNDOFF_DEVICE std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
  ROUNDOFF_DEVICE float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

  // The fp32 number next to an exact value, towards 0.
  ROUNDOFF_DEVICE float cut(double exact) {
    const float f = static_cast<float>(exact);
    return fabs(static_cast<double>(f)) > fabs(exact) ? float_of(bits_of(f) - 1) : f;
  }

  // A value of the result's type, rounded or cut.
  ROUNDOFF_DEVICE float prepared(Fault fault, DType dtype, float x) {
    // The mask is a variable: g++ 12 drops a constant 0xFFFF0000 from a float in a branch.
    const std::uint32_t mask = fault != Fault::truncation ? ~0U
                               : dtype == DType::fp16     ? 0xFFFFE000U
                               : dtype == DType::bf16     ? 0xFFFF0000U
                                                          : ~0U;
    return float_of(bits_of(x) & mask);
  }

  __global__ void matmul_kernel(Fault fault, AnyOperand a, AnyOperand b, AnyResult y, DType dtype,
                                std::int64_t m, std::int64_t n, std::int64_t k) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    const std::int64_t row = i / n, column = i % n;
    float sum = 0;
    for (std::int64_t l = 0; l < k; ++l) {
      if (fault == Fault::dropped_product && i == m * n - 1 && l == k / 2) continue;
      const float s = a.get<float>(row * k + l), t = b.get<float>(l * n + column);
      if (fault == Fault::truncation && dtype == DType::fp32)
        sum = cut(static_cast<double>(s) * t + sum);
      else
        sum = fmaf(s, t, sum);
      if (fault == Fault::narrow_partial_sum) sum = static_cast<float>(Half(sum));
    }
    y.put(i, prepared(fault, dtype, sum));
  }

  // Sums or takes the largest of a warp's values; every lane gets the result.
  ROUNDOFF_DEVICE float warp_sum(Fault fault, float x) {
    for (unsigned step = 16; step != 0; step /= 2)
      x += __shfl_xor_sync(0xFFFFFFFFU, x,
                           static_cast<int>(fault == Fault::wrong_lane && step == 4 ? 2 : step));
    return x;
  }
  ROUNDOFF_DEVICE float warp_max(float x) {
    for (unsigned step = 16; step != 0; step /= 2)
      x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, static_cast<int>(step)));
    return x;
  }
  // Every addition of a row's sum, rounded or cut.
  ROUNDOFF_DEVICE float added(Fault fault, DType dtype, float sum, float x) {
    if (fault == Fault::narrow_partial_sum) return static_cast<float>(Half(sum + x));
    if (fault == Fault::truncation && dtype == DType::fp32)
      return cut(static_cast<double>(sum) + x);
    return sum + x;
  }

  __global__ void softmax_kernel(Fault fault, AnyOperand x, AnyResult y, DType dtype,
                                 std::int64_t n) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * n;
    const std::int64_t summed = fault == Fault::mask_off_by_one ? n - 1 : n;
    bool nan = false;
    float largest = -INFINITY;
    for (std::int64_t i = threadIdx.x; i < n; i += 32) {
      const float v = x.get<float>(row + i);
      nan = nan || v != v;
      largest = fmaxf(largest, v);
    }
    largest = warp_max(largest);
    if (__any_sync(0xFFFFFFFFU, nan)) largest = NAN;
    float sum = 0;
    for (std::int64_t i = threadIdx.x; i < summed; i += 32)
      sum = added(fault, dtype, sum, expf(x.get<float>(row + i) - largest));
    sum = warp_sum(fault, sum);
    for (std::int64_t i = threadIdx.x; i < n; i += 32)
      y.put(row + i, prepared(fault, dtype, expf(x.get<float>(row + i) - largest) / sum));
  }

  __global__ void softmax_backward_kernel(Fault fault, AnyOperand y, AnyOperand dy, AnyResult dx,
                                          DType dtype, std::int64_t n) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * n;
    const std::int64_t summed = fault == Fault::mask_off_by_one ? n - 1 : n;
    float sum = 0;
    for (std::int64_t i = threadIdx.x; i < summed; i += 32) {
      if (fault == Fault::dropped_product && i == n / 2 && blockIdx.x == 0) continue;
      sum = added(fault, dtype, sum, dy.get<float>(row + i) * y.get<float>(row + i));
    }
    sum = warp_sum(fault, sum);
    for (std::int64_t i = threadIdx.x; i < n; i += 32)
      dx.put(row + i,
             prepared(fault, dtype, y.get<float>(row + i) * (dy.get<float>(row + i) - sum)));
  }
}

template <DeviceTarget T>
void planted_matmul(T target, Fault fault, const ConstView& a, const ConstView& b, const Out& y) {
  const std::int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  if (m * n == 0) return;
  launch(
      target,
      {.name = "planted_matmul", .grid = {static_cast<unsigned>((m * n + 63) / 64)}, .block = {64}},
      matmul_kernel, fault, AnyOperand(a), AnyOperand(b), AnyResult(y), y.view.dtype, m, n, k);
}
template <DeviceTarget T>
void planted_softmax(T target, Fault fault, const ConstView& x, const Out& y) {
  const std::int64_t n = x.shape[-1];
  if (x.numel() == 0) return;
  launch(target,
         {.name = "planted_softmax", .grid = {static_cast<unsigned>(x.numel() / n)}, .block = {32}},
         softmax_kernel, fault, AnyOperand(x), AnyResult(y), y.view.dtype, n);
}
template <DeviceTarget T>
void planted_softmax_backward(T target, Fault fault, const ConstView& y, const ConstView& dy,
                              const Out& dx) {
  const std::int64_t n = y.shape[-1];
  if (y.numel() == 0) return;
  launch(target,
         {.name = "planted_softmax_backward",
          .grid = {static_cast<unsigned>(y.numel() / n)},
          .block = {32}},
         softmax_backward_kernel, fault, AnyOperand(y), AnyOperand(dy), AnyResult(dx),
         dx.view.dtype, n);
}

template void planted_matmul(Target, Fault, const ConstView&, const ConstView&, const Out&);
template void planted_softmax(Target, Fault, const ConstView&, const Out&);
template void planted_softmax_backward(Target, Fault, const ConstView&, const ConstView&,
                                       const Out&);

}  // namespace roundoff
