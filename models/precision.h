// The precisions that a model trains in.
#pragma once

#include <string_view>

#include "engine/context.h"
#include "engine/parameters.h"

namespace roundoff {

enum class Precision : unsigned char {
  fp32,
  tf32,       // fp32 storage; GEMM and convolution round their operands to tf32
  fp16,       // mixed: fp32 masters, 16-bit GEMM and convolution, loss scaling by default
  bf16,       // mixed, without loss scaling by default
  pure_fp16,  // fp16 parameters, no masters, no scaling: shows why masters exist
  pure_bf16
};

std::string_view name(Precision precision);
// Reads fp32, tf32, fp16, bf16, pure-fp16, pure-bf16; throws UsageError naming the text.
Precision parse_precision(std::string_view text);

constexpr bool is_pure(Precision p) {
  return p == Precision::pure_fp16 || p == Precision::pure_bf16;
}
constexpr bool is_mixed(Precision p) { return p == Precision::fp16 || p == Precision::bf16; }
// The 16-bit type of a mixed or pure precision, else fp32.
constexpr DType low_dtype(Precision p) {
  if (p == Precision::fp16 || p == Precision::pure_fp16) return DType::fp16;
  if (p == Precision::bf16 || p == Precision::pure_bf16) return DType::bf16;
  return DType::fp32;
}

// Sets a context's autocast and tf32 for `precision`.
void apply_precision(Context& context, Precision precision);
ArenaSettings arena_settings(Precision precision, std::uint64_t seed);

}  // namespace roundoff
