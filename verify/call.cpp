#include "verify/call.h"

#include <algorithm>
#include <cmath>

#include "verify/bound.h"

namespace roundoff::detail {

using oracle::at;

namespace {

std::optional<AlignedSums> core_of(Accumulator gpu, DType operands) {
  std::optional<AlignedSums> core;
  if (gpu == Accumulator::v100) core = kV100;
  if (gpu == Accumulator::a100) core = kA100;
  if (gpu == Accumulator::h100) core = kH100;
  if (core) core->operands = format_of(operands);
  return core;
}

}  // namespace

Call::Call(const OpParameters& parameters, const NamedTensors& inputs, const Tensor& dy,
           const JudgedArithmetic& judged)
    : p(parameters), judged(judged), inputs_(inputs) {
  for (const auto& [name, tensor] : inputs) values_[name] = tensor.to_vector();
  if (dy.defined()) values_["dy"] = dy.to_vector();
  const bool wide = judged.operands == DType::fp64 || judged.accumulator == Accumulator::fp64;
  plain.accumulator = wide ? kFp64 : kFp32;
  plain.output = format_of(judged.output);
  plain.libm_ulps = judged.libm_ulps;
  sums = plain;
  products = plain;
  if (wide) return;
  if (judged.accumulator == Accumulator::fp16) sums.accumulator = kFp16;
  if (is_16bit(judged.operands)) sums.tensor_core = core_of(judged.accumulator, judged.operands);
  products = sums;
  if (!on_device_core(judged)) return;
  products.tensor_core = core_of(*judged.device_core, judged.operands);
  products.or_plain = true;
}

// |x|, raised where tensor cores would align it: verify/bound/linear.h.
Values magnitudes(In x, const Arithmetic& a) {
  Values m(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    m[i] = std::abs(x[i]);
    if (a.tensor_core && m[i] != 0) m[i] = std::max(m[i], a.tensor_core->operands.min_normal());
  }
  return m;
}

// scale times the sums of the elements whose index is the same modulo `columns`: sums of products
// with 1, on tensor cores too.
Bound column_sums(In x, std::int64_t columns, double scale, const Arithmetic& a) {
  const auto sum = [&](In values, double factor) {
    oracle::Sums s = oracle::zeros(columns);
    if (factor != 0)
      for (std::size_t i = 0; i < values.size(); ++i) s[i % at(columns)] += values[i];
    for (long double& v : s) v *= factor;
    return oracle::rounded(s);
  };
  const std::int64_t terms = columns == 0 ? 0 : static_cast<std::int64_t>(x.size()) / columns;
  return bound::products(sum(x, scale), sum(magnitudes(x, a), std::abs(scale)), terms, a,
                         std::abs(scale) == 1 ? 0 : 1);
}

}  // namespace roundoff::detail
