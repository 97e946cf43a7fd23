// Softmax of rows, a block a row: y_i = exp(x_i - m) / s with m = max x and s = sum exp(x - m). The
// row is read three times; the point here is to be right.
#include "my_softmax.h"

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/simt/simt.h"

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  constexpr int kThreads = 128;
  constexpr unsigned kAllLanes = 0xFFFFFFFFU;

  // Combines one number a thread over the block, in a fixed order; every thread gets the result.
  template <class F>
  ROUNDOFF_DEVICE float over_block(float* partial, float v, F combine) {
    for (int o = 16; o > 0; o /= 2) v = combine(v, __shfl_xor_sync(kAllLanes, v, o));
    __syncthreads();  // the last call's partial results have been read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    v = partial[0];
    for (int w = 1; w < kThreads / 32; ++w) v = combine(v, partial[w]);
    return v;
  }

  template <class E>
  __global__ void __launch_bounds__(kThreads) softmax_rows(const E* x, E* y, int n) {
    ROUNDOFF_SHARED(float, partial, [kThreads / 32]);
    const E* row = x + static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(n);
    E* out = y + static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(n);
    const int first = static_cast<int>(threadIdx.x);
    const auto larger = [](float a, float b) { return b > a || b != b ? b : a; };  // NaN wins
    const auto plus = [](float a, float b) { return a + b; };

    float m = -INFINITY;
    for (int i = first; i < n; i += kThreads) m = larger(m, static_cast<float>(row[i]));
    m = over_block(partial, m, larger);
    float s = 0;
    for (int i = first; i < n; i += kThreads) s += expf(static_cast<float>(row[i]) - m);
    s = over_block(partial, s, plus);
    for (int i = first; i < n; i += kThreads)
      out[i] = static_cast<E>(expf(static_cast<float>(row[i]) - m) / s);
  }

  template <class E>
  __global__ void __launch_bounds__(kThreads)
      softmax_rows_backward(const E* y, const E* dy, E* dx, int n) {
    ROUNDOFF_SHARED(float, partial, [kThreads / 32]);
    const std::size_t at = static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(n);
    const int first = static_cast<int>(threadIdx.x);
    float s = 0;
    for (int i = first; i < n; i += kThreads) {
      const std::size_t j = at + static_cast<std::size_t>(i);
      s += static_cast<float>(dy[j]) * static_cast<float>(y[j]);
    }
    s = over_block(partial, s, [](float a, float b) { return a + b; });
    for (int i = first; i < n; i += kThreads) {
      const std::size_t j = at + static_cast<std::size_t>(i);
      dx[j] = static_cast<E>(static_cast<float>(y[j]) * (static_cast<float>(dy[j]) - s));
    }
  }
}
}  // namespace roundoff

using namespace roundoff;

namespace {
struct Rows {
  unsigned count = 0;
  int length = 0;
};
Rows rows_of(const Shape& shape) {
  const std::int64_t length = shape[-1];
  return {length == 0 ? 0U : static_cast<unsigned>(shape.numel() / length),
          static_cast<int>(length)};
}
// Calls f<E>() with the storage type.
template <class F>
void with_element(DType dtype, F&& f) {
  if (dtype == DType::fp32) return f.template operator()<float>();
  if (dtype == DType::fp16) return f.template operator()<Half>();
  if (dtype == DType::bf16) return f.template operator()<BFloat16>();
  fail("my_softmax", "does not take ", name(dtype));
}
}  // namespace

template <DeviceTarget T>
void my_softmax(T target, const ConstView& x, const View& y) {
  const Rows rows = rows_of(x.shape);
  if (rows.count == 0) return;
  with_element(x.dtype, [&]<class E>() {
    launch(target, {.name = "softmax_rows", .grid = {rows.count}, .block = {kThreads}},
           softmax_rows<E>, x.as<E>(), y.as<E>(), rows.length);
  });
}

template <DeviceTarget T>
void my_softmax_backward(T target, const ConstView& y, const ConstView& dy, const View& dx) {
  const Rows rows = rows_of(y.shape);
  if (rows.count == 0) return;
  with_element(y.dtype, [&]<class E>() {
    launch(target, {.name = "softmax_rows_backward", .grid = {rows.count}, .block = {kThreads}},
           softmax_rows_backward<E>, y.as<E>(), dy.as<E>(), dx.as<E>(), rows.length);
  });
}

template void my_softmax(Target, const ConstView&, const View&);
template void my_softmax_backward(Target, const ConstView&, const ConstView&, const View&);
