#include "engine/autocast.h"

namespace roundoff {

std::optional<DType> Autocast::target(std::string_view operation, CastClass cast_class) const {
  if (enabled()) {
    for (const auto& [name, dtype] : overrides)
      if (name == operation) return dtype;
    if (cast_class == CastClass::low) return low;
    if (cast_class == CastClass::fp32) return DType::fp32;
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, DType>> parse_overrides(std::string_view text) {
  std::vector<std::pair<std::string, DType>> overrides;
  for (bool more = !text.empty(); more;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw UsageError(concat("[autocast] '", item, "' is not of the form operation=dtype"));
    const std::string_view operation = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    if (value != "fp32" && value != "fp16" && value != "bf16")
      throw UsageError(
          concat("[autocast] '", value, "' for ", operation, "; fp32, fp16 or bf16 expected"));
    for (const auto& [name, dtype] : overrides)
      if (name == operation) throw UsageError(concat("[autocast] two choices for ", operation));
    overrides.emplace_back(std::string(operation), parse_dtype(value));
  }
  return overrides;
}

}  // namespace roundoff
