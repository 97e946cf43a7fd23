// Elements of a type that a kernel learns when it runs: the branch is the same for a whole block.
// Four elements an access: 16 bytes of fp32 or 8 of a 16-bit type, so that all arrays of an update
// keep step.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/simt/convert.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace step {

  inline constexpr int kThreads = 256;
  inline constexpr int kPack = 4;
  // Blocks that an SM has room for, at least: 64 registers a thread, and enough bytes in flight.
  inline constexpr int kBlocks = 4;

  // An index that the compiler takes as it is: nvcc loses the alignment of a place that it sees as
  // a sum, and stores element by element.
  ROUNDOFF_DEVICE std::int64_t opaque(std::int64_t i) {
#if defined(__CUDA_ARCH__)
    asm("" : "+l"(i));
#endif
    return i;
  }

  // values[k] = p[i + k], with p of a 16-bit type or fp32.
  ROUNDOFF_DEVICE void load(DType dtype, const void* p, std::int64_t i, float (&values)[kPack]) {
    if (dtype == DType::fp32)
      load_pack(static_cast<const float*>(p) + i, values);
    else if (dtype == DType::fp16)
      load_pack(static_cast<const Half*>(p) + i, values);
    else
      load_pack(static_cast<const BFloat16*>(p) + i, values);
  }
  ROUNDOFF_DEVICE void load(DType dtype, const void* p, std::int64_t i, float (&value)[1]) {
    if (dtype == DType::fp32)
      value[0] = static_cast<const float*>(p)[i];
    else if (dtype == DType::fp16)
      value[0] = widen_value<float>(static_cast<const Half*>(p)[i]);
    else
      value[0] = widen_value<float>(static_cast<const BFloat16*>(p)[i]);
  }
  ROUNDOFF_DEVICE void store(DType dtype, void* p, std::int64_t i, const float (&values)[kPack]) {
    i = opaque(i);
    if (dtype == DType::fp32)
      store_pack(static_cast<float*>(p) + i, values);
    else if (dtype == DType::fp16)
      store_pack(static_cast<Half*>(p) + i, values);
    else
      store_pack(static_cast<BFloat16*>(p) + i, values);
  }
  ROUNDOFF_DEVICE void store(DType dtype, void* p, std::int64_t i, const float (&value)[1]) {
    if (dtype == DType::fp32)
      static_cast<float*>(p)[i] = value[0];
    else if (dtype == DType::fp16)
      static_cast<Half*>(p)[i] = narrow_value<Half>(value[0]);
    else
      static_cast<BFloat16*>(p)[i] = narrow_value<BFloat16>(value[0]);
  }

  // Elements before the first place where a pack is aligned.
  ROUNDOFF_DEVICE int head(DType dtype, const void* p) {
    return dtype == DType::fp32 ? head_of<kPack>(static_cast<const float*>(p))
                                : head_of<kPack>(static_cast<const Half*>(p));
  }

  // Element i of any floating type.
  ROUNDOFF_DEVICE double value_at(DType dtype, const void* p, std::int64_t i) {
    if (dtype == DType::fp64) return static_cast<const double*>(p)[i];
    float value[1];
    load(dtype, p, i, value);
    return static_cast<double>(value[0]);
  }
  ROUNDOFF_DEVICE std::int64_t label_at(DType dtype, const void* p, std::int64_t i) {
    if (dtype == DType::i64) return static_cast<const std::int64_t*>(p)[i];
    if (dtype == DType::i32) return static_cast<const std::int32_t*>(p)[i];
    return static_cast<const std::uint8_t*>(p)[i];
  }

  }  // namespace step
}  // namespace

}  // namespace roundoff
