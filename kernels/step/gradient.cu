// The pieces of a step one at a time, for a person who looks at gradients or changes them between
// the backward pass and the update: unscale, a finite check, multiplication by a factor.
//
//   to = fp32(from) * inv_scale;   g *= factor            one rounding in fp32
//
// Layout: 4 elements an access, 4096 neighbours a block. Numerics: those of kernels/step/unscale.h.
#include "kernels/simt/simt.h"
#include "kernels/step/device_step.h"
#include "kernels/step/values.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using step::kPack;
  using step::kThreads;

  // from and to may be the same array.
  __global__ void __launch_bounds__(kThreads)
      multiply_kernel(DType dtype, const void* from, float factor, float* to, std::int64_t n) {
    const std::int64_t begin = std::int64_t{blockIdx.x} * kStepChunk;
    const std::int64_t rest = n - begin;
    const int head = step::head(dtype, from);
    for_each_pack<kPack>(
        rest < kStepChunk ? rest : kStepChunk,
        head == step::head(DType::fp32, to) ? head : kNoPacks, threadIdx.x, kThreads,
        [&](std::int64_t i) {
          float g[kPack];
          step::load(dtype, from, begin + i, g);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kPack; ++k) g[k] *= factor;
          step::store(DType::fp32, to, begin + i, g);
        },
        [&](std::int64_t i) {
          float g[1];
          step::load(dtype, from, begin + i, g);
          to[begin + i] = g[0] * factor;
        });
  }

  __global__ void set_kernel(std::int32_t* to, std::int32_t value) { *to = value; }

  __global__ void __launch_bounds__(kThreads)
      all_finite_kernel(DType dtype, const void* from, std::int64_t n, std::int32_t* finite) {
    const std::int64_t begin = std::int64_t{blockIdx.x} * kStepChunk;
    const std::int64_t rest = n - begin;
    bool bad = false;
    for_each_pack<kPack>(
        rest < kStepChunk ? rest : kStepChunk, step::head(dtype, from), threadIdx.x, kThreads,
        [&](std::int64_t i) {
          float g[kPack];
          step::load(dtype, from, begin + i, g);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kPack; ++k) bad = bad || g[k] - g[k] != 0.0F;
        },
        [&](std::int64_t i) {
          float g[1];
          step::load(dtype, from, begin + i, g);
          bad = bad || g[0] - g[0] != 0.0F;
        });
    if (__syncthreads_or(bad ? 1 : 0) != 0 && threadIdx.x == 0) atomicAnd(finite, 0);
  }

  unsigned blocks(std::int64_t n) {
    return static_cast<unsigned>((n + kStepChunk - 1) / kStepChunk);
  }

  void check_gradient(const ConstView& g, const char* operation) {
    ROUNDOFF_CHECK(is_16bit(g.dtype) || g.dtype == DType::fp32, operation, "gradient of shape ",
                   g.shape, " is ", name(g.dtype), "; fp16, bf16 or fp32 expected");
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void unscale(T target, float inv_scale, const ConstView& from, const View& to) {
  check_gradient(from, "unscale");
  ROUNDOFF_CHECK(to.dtype == DType::fp32, "unscale", "writes fp32, not ", name(to.dtype),
                 ": a small gradient times 1/scale would be lost in 16 bit");
  ROUNDOFF_CHECK(from.numel() == to.numel(), "unscale", "shapes ", from.shape, " and ", to.shape,
                 " differ in size");
  if (from.numel() == 0) return;
  launch(target, {.name = "unscale", .grid = {blocks(from.numel())}, .block = {kThreads}},
         multiply_kernel, from.dtype, from.data, inv_scale, to.as<float>(), from.numel());
}

template <DeviceTarget T>
void all_finite(T target, const ConstView& gradient, std::int32_t* finite) {
  check_gradient(gradient, "all_finite");
  launch(target, {.name = "all_finite_begin", .grid = {1}, .block = {1}}, set_kernel, finite, 1);
  if (gradient.numel() == 0) return;
  launch(target, {.name = "all_finite", .grid = {blocks(gradient.numel())}, .block = {kThreads}},
         all_finite_kernel, gradient.dtype, gradient.data, gradient.numel(), finite);
}

template <DeviceTarget T>
void scale_gradient(T target, float factor, const View& gradient) {
  ROUNDOFF_CHECK(gradient.dtype == DType::fp32, "scale_gradient", "gradient is ",
                 name(gradient.dtype), "; fp32 expected");
  if (factor == 1.0F || gradient.numel() == 0) return;
  launch(target,
         {.name = "scale_gradient", .grid = {blocks(gradient.numel())}, .block = {kThreads}},
         multiply_kernel, DType::fp32, static_cast<const void*>(gradient.data), factor,
         gradient.as<float>(), gradient.numel());
}

template void unscale(Target, float, const ConstView&, const View&);
template void all_finite(Target, const ConstView&, std::int32_t*);
template void scale_gradient(Target, float, const View&);

}  // namespace roundoff
