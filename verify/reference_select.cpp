#include <cmath>

#include "kernels/base/philox.h"
#include "verify/bound.h"
#include "verify/call.h"

namespace roundoff::detail {

using oracle::at;

// The mask by its definition in kernels/dropout/dropout.h.
NamedBounds dropout_bounds(const Call& call, Pass pass) {
  const Shape& shape = call.shape("x");
  const double p = call.p.number("p");
  const PhiloxStream stream =
      philox_stream(call.p.natural("seed"), call.p.natural("step"), call.p.natural("tensor"));
  const double threshold = std::ceil(p * 0x1p32);
  const std::int64_t samples = shape.rank() == 0 ? 1 : shape[0];
  const std::int64_t elements = samples == 0 ? 0 : shape.numel() / samples;
  std::vector<std::uint8_t> kept;
  for (std::int64_t s = 0; s < samples; ++s)
    for (std::int64_t e = 0; e < elements; ++e) {
      const auto sample =
          static_cast<std::uint32_t>(call.p.natural("sample0") + static_cast<std::uint64_t>(s));
      kept.push_back(stream.bits(sample, static_cast<std::uint64_t>(e)) < threshold ? 0 : 1);
    }
  const bool forward = pass == Pass::forward;
  return {
      {forward ? "y" : "dx", bound::dropout(p, call.of(forward ? "x" : "dy"), kept, call.plain)}};
}

NamedBounds unscale_clip_bounds(const Call& call) {
  std::vector<std::string> names;
  std::vector<Values> gradients;
  for (const auto& [name, tensor] : call.inputs()) {
    names.push_back(name);
    gradients.push_back(call.of(name));
  }
  // The scale is held in fp32.
  const oracle::UnscaleClipParams p{
      .scale = static_cast<double>(static_cast<float>(call.p.number("scale"))),
      .max_norm = call.p.number("max_norm")};
  auto b = bound::unscale_clip(p, gradients, call.plain);
  NamedBounds bounds;
  for (std::size_t i = 0; i < names.size(); ++i) bounds[names[i]] = std::move(b.grads[i]);
  bounds["norm"] = std::move(b.norm);
  bounds["clip"] = std::move(b.clip);
  return bounds;
}

NamedBounds embedding_bounds(const Call& call, Pass pass) {
  const Shape& table = call.shape("table");
  std::vector<std::int64_t> index;
  for (const double i : call.of("index")) index.push_back(static_cast<std::int64_t>(i));
  const std::int64_t rows = table[0], width = table[1];
  if (pass == Pass::forward)
    return {{"y", bound::embedding(rows, width, call.of("table"), index, call.plain)}};
  const std::vector<std::int64_t> padding = call.p.axes("padding_index");
  // Rows are added onto what the gradient holds: in fp32, or in fp64 where it is fp64, whatever the
  // accumulator.
  Arithmetic rows_sum = call.plain;
  if (call.judged.operands != DType::fp64) rows_sum.accumulator = kFp32;
  std::optional<std::int64_t> none;
  if (!padding.empty()) none = padding[0] < 0 ? padding[0] + rows : padding[0];
  return {{"dtable", bound::embedding_backward(rows, width, index, call.of("dy"), rows_sum, none)}};
}

NamedBounds shape_bounds(const Call& call, Pass pass) {
  const bool forward = pass == Pass::forward;
  const Values& from = call.of(forward ? "x" : "dy");
  Values moved = from;
  if (call.name() == "transpose") {
    const Shape& x = call.shape("x");
    std::vector<int> axes;
    for (const std::int64_t axis : call.p.axes("axes"))
      axes.push_back(x.normalize_axis(axis, "transpose"));
    if (axes.empty())
      for (int i = x.rank(); i-- > 0;) axes.push_back(i);
    // Strides, in x, of the result's axes.
    std::vector<std::int64_t> stride(axes.size(), 1);
    for (std::size_t i = 0; i < axes.size(); ++i)
      for (int j = axes[i] + 1; j < x.rank(); ++j) stride[i] *= x[j];
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      std::int64_t rest = i, source = 0;
      for (std::size_t j = axes.size(); j-- > 0;) {
        source += rest % x[axes[j]] * stride[j];
        rest /= x[axes[j]];
      }
      if (forward)
        moved[at(i)] = from[at(source)];
      else
        moved[at(source)] = from[at(i)];
    }
  }
  Bound bound{moved, Values(moved.size()), BoundKind::proven, 0};
  // Moved bits are exact; another output type rounds them once.
  for (std::size_t i = 0; i < moved.size(); ++i)
    if (std::isfinite(moved[i]))
      bound.tolerance[i] = rounded_tolerance(moved[i], 0, call.plain.output);
  return {{forward ? "y" : "dx", std::move(bound)}};
}

}  // namespace roundoff::detail
