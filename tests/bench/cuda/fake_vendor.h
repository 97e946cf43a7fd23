// What the stand-ins for a vendor's libraries have in common: their work is queued on the
// emulator's streams, and computed in fp64 with one rounding.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/simt/emulator/stream.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace fake {

inline void queue(void* stream, const char* name, std::function<void()> work) {
  static_cast<roundoff::simt::SimStream*>(stream)->launch({.name = name, .grid = {1}, .block = {1}},
                                                          false, std::move(work));
}

enum class Kind : int { fp32, fp64, fp16, bf16 };

inline double load(const void* p, Kind kind, std::int64_t i) {
  switch (kind) {
    case Kind::fp32:
      return static_cast<const float*>(p)[i];
    case Kind::fp64:
      return static_cast<const double*>(p)[i];
    case Kind::fp16:
      return static_cast<double>(static_cast<float>(static_cast<const roundoff::Half*>(p)[i]));
    default:
      return static_cast<double>(static_cast<float>(static_cast<const roundoff::BFloat16*>(p)[i]));
  }
}

inline void store(void* p, Kind kind, std::int64_t i, double v) {
  switch (kind) {
    case Kind::fp32:
      static_cast<float*>(p)[i] = static_cast<float>(v);
      return;
    case Kind::fp64:
      static_cast<double*>(p)[i] = v;
      return;
    case Kind::fp16:
      static_cast<roundoff::Half*>(p)[i] = roundoff::Half(v);
      return;
    default:
      static_cast<roundoff::BFloat16*>(p)[i] = roundoff::BFloat16(v);
  }
}

}  // namespace fake
