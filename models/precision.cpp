#include "models/precision.h"

namespace roundoff {

namespace {
constexpr Precision kAll[] = {Precision::fp32, Precision::tf32,      Precision::fp16,
                              Precision::bf16, Precision::pure_fp16, Precision::pure_bf16};
}

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::fp16:
      return "fp16";
    case Precision::bf16:
      return "bf16";
    case Precision::pure_fp16:
      return "pure-fp16";
    case Precision::pure_bf16:
      return "pure-bf16";
  }
  return "?";
}

Precision parse_precision(std::string_view text) {
  for (const Precision p : kAll)
    if (name(p) == text) return p;
  throw UsageError(concat("[precision] unknown precision '", text,
                          "'; fp32, tf32, fp16, bf16, pure-fp16 or pure-bf16 expected"));
}

void apply_precision(Context& context, Precision precision) {
  context.autocast.low = is_mixed(precision) ? low_dtype(precision) : DType::fp32;
  context.tf32 = precision == Precision::tf32;
}

ArenaSettings arena_settings(Precision precision, std::uint64_t seed) {
  return {.master = is_pure(precision) ? low_dtype(precision) : DType::fp32,
          .compute = is_mixed(precision) ? low_dtype(precision) : DType::fp32,
          .seed = seed};
}

}  // namespace roundoff
