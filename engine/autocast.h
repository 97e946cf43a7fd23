// Which dtype an operation computes in. The table of classes is in ops/list.h, one line an
// operation; this is the state that turns a class into a dtype, nestable and exception-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace roundoff {

// How autocast treats the floating inputs of an operation (integers and fp64 are never cast):
enum class CastClass : unsigned char {
  low,     // to the 16-bit type: matmul, linear, convolution
  fp32,    // to fp32: exp, log, softmax, losses, norms, reductions
  widest,  // to the widest of the inputs
  none     // as they come
};

struct Autocast {
  // The 16-bit type; fp32 means that autocast is off.
  DType low = DType::fp32;
  // Weight gradients of cast weights: false keeps the fp32 accumulator's value; true rounds each
  // to the 16-bit type first, as PyTorch has them.
  bool weight_grad_16bit = false;
  // A person's own choices, by operation; they win over the table. fp32 or a 16-bit type.
  std::vector<std::pair<std::string, DType>> overrides;

  bool enabled() const { return low != DType::fp32; }
  // The dtype that inputs of `operation` are cast to; none: no common type is asked for.
  std::optional<DType> target(std::string_view operation, CastClass cast_class) const;
};

// Reads "op=dtype,op=dtype", or nothing; throws UsageError naming what it could not read, or an op
// that is there twice. Whether `op` exists is for the caller to check.
std::vector<std::pair<std::string, DType>> parse_overrides(std::string_view text);

}  // namespace roundoff
