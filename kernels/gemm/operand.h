// Operands of a product in the type that it computes in. Internal to the reference path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/base/convert.h"
#include "kernels/base/scratch.h"
#include "kernels/base/view.h"

namespace roundoff {

// Values [offset, offset + n) of v in T: in place where they are held so, else widened into
// scratch. tf32 rounds those that are held in fp32.
template <class T>
const T* operand(const ConstView& v, std::int64_t offset, std::int64_t n, bool tf32,
                 Scratch& scratch) {
  const bool round = tf32 && v.dtype == DType::fp32;
  if (v.dtype == dtype_of<T> && !round) return v.as<T>() + offset;
  T* values = scratch.get<T>(n);
  if (!round) {
    widen(v, offset, n, values);
  } else if constexpr (std::is_same_v<T, float>) {
    std::copy_n(v.as<float>() + offset, n, values);
    round_to_tf32(values, n);
  } else {
    Scratch::Frame frame(scratch);
    float* rounded = scratch.get<float>(n);
    std::copy_n(v.as<float>() + offset, n, rounded);
    round_to_tf32(rounded, n);
    std::copy_n(rounded, n, values);
  }
  return values;
}

}  // namespace roundoff
