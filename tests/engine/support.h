// What the engine's tests share: tensors of given values, and arenas with given weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/context.h"
#include "engine/loss_scaler.h"
#include "engine/optimizer.h"
#include "engine/parameters.h"
#include "ops/arithmetic.h"

namespace roundoff::testing {

using Values = std::vector<double>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline Tensor tensor(Context& ctx, const Values& values, const Shape& shape,
                     DType dtype = DType::fp32) {
  return Tensor::from(ctx.allocator, values, shape, dtype);
}
inline Tensor full(Context& ctx, double value, const Shape& shape, DType dtype = DType::fp32) {
  return tensor(ctx, Values(static_cast<std::size_t>(shape.numel()), value), shape, dtype);
}
inline Tensor leaf(Context& ctx, const Values& values, const Shape& shape,
                   DType dtype = DType::fp32, std::string name = "leaf") {
  return make_leaf(ctx.allocator, tensor(ctx, values, shape, dtype), std::move(name));
}
inline Values gradient(const Tensor& t) { return t.leaf()->grad.to_vector(); }

// The bytes of a tensor, to compare NaN, signed zeros and padding too.
inline std::vector<std::byte> bytes(const Tensor& t) {
  if (!t.defined()) return {};
  const auto* first = t.data<std::byte>();
  return {first, first + t.bytes()};
}

// An arena whose parameters hold the values given, under the names w0, w1, ...
inline void declare(ParameterArena& arena, Context& ctx, const std::vector<Values>& weights,
                    const ArenaSettings& settings = {}) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    arena.add(concat("w", i), {static_cast<std::int64_t>(weights[i].size())}, Init::zeros);
  arena.allocate(ctx.allocator, settings);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Tensor& w = arena.entries()[i].tensor;
    const Tensor from = tensor(ctx, weights[i], w.shape(), w.dtype());
    std::memcpy(w.raw(), from.raw(), from.bytes());
  }
  arena.changed(/*copies_written=*/false);
}

// A backward pass that adds `scale` times `gradient` to the leaf's gradient: of y = w * gradient,
// seeded with `scale` everywhere.
inline void add_gradient(Context& ctx, const Tensor& w, const Values& gradient, double scale = 1) {
  const Tensor y = mul(ctx, w, tensor(ctx, gradient, w.shape()));
  ctx.tape.backward(ctx, y, full(ctx, scale, y.shape()));
  ctx.tape.clear();
}

// Everything that an update may change, as bytes.
inline std::vector<std::vector<std::byte>> snapshot(const ParameterArena& arena,
                                                    const Optimizer& optimizer) {
  std::vector<std::vector<std::byte>> state{bytes(arena.flat_master()), bytes(arena.flat_compute()),
                                            bytes(optimizer.first_moment()),
                                            bytes(optimizer.second_moment())};
  for (const ParameterEntry& entry : arena.entries()) {
    std::vector<std::byte> steps(sizeof(entry.steps));
    std::memcpy(steps.data(), &entry.steps, sizeof(entry.steps));
    state.push_back(std::move(steps));
  }
  for (const Buffer& buffer : arena.buffers()) state.push_back(bytes(buffer.value));
  return state;
}

}  // namespace roundoff::testing
