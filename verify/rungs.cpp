#include "verify/rungs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "verify/bound.h"
#include "verify/host_dot.h"

namespace roundoff {

namespace {

using oracle::at;
using oracle::Values;

const Tensor& of(const NamedTensors& tensors, std::string_view name) {
  static const Tensor kAbsent;
  const auto found = tensors.find(name);
  return found == tensors.end() ? kAbsent : found->second;
}

// How many products, or values, each array's sums have.
std::map<std::string, std::int64_t> sum_lengths(const OpParameters& p, const NamedTensors& inputs,
                                                std::int64_t y) {
  const std::string_view op = p.signature().name;
  if (op == "sum") return {{"y", y == 0 ? 0 : of(inputs, "x").numel() / y}};
  if (op == "matmul") {
    const Shape &a = of(inputs, "a").shape(), &b = of(inputs, "b").shape();
    const std::int64_t k = a[p.flag("trans_a") ? -2 : -1], m = a[p.flag("trans_a") ? -1 : -2];
    const std::int64_t n = b[p.flag("trans_b") ? -2 : -1];
    const std::int64_t batch = m * n == 0 ? 0 : y / (m * n);
    const auto positions = [&](std::int64_t elements, std::int64_t matrix) {
      return elements == 0 ? 0 : batch / (elements / matrix);
    };
    return {
        {"y", k}, {"da", n * positions(a.numel(), m * k)}, {"db", m * positions(b.numel(), k * n)}};
  }
  if (op == "linear") {
    const Shape& w = of(inputs, "w").shape();
    const std::int64_t rows = w[0] == 0 ? 0 : y / w[0];
    return {{"y", w[1]}, {"dx", w[0]}, {"dw", rows}, {"db", rows}};
  }
  const Shape& w = of(inputs, "w").shape();  // conv2d
  const std::int64_t window = w[1] * w[2], pixels = w[0] == 0 ? 0 : y / w[0];
  return {{"y", w[3] * window},
          {"dx", w[0] / p.integer("groups") * window},
          {"dw", pixels},
          {"db", pixels}};
}

Tensor squared(Allocator& allocator, const Tensor& t) {
  if (!t.defined()) return t;
  Values v = t.to_vector();
  for (double& x : v) x *= x;
  return Tensor::from(allocator, v, t.shape(), DType::fp64);
}

}  // namespace

std::map<std::string, std::int64_t> accumulated_terms(const OpParameters& p,
                                                      const NamedTensors& inputs, std::int64_t y) {
  const std::string_view op = p.signature().name;
  if (op == "matmul" || op == "linear" || op == "conv2d") {
    auto terms = sum_lengths(p, inputs, y);
    if (const Tensor& c = of(inputs, "c"); op == "matmul" && c.defined() && c.numel() != 0)
      terms["dc"] = y / c.numel();
    return terms;
  }
  if (op == "embedding") return {{"dtable", of(inputs, "index").numel()}};
  if (op == "max_pool2d" || op == "avg_pool2d") {
    const auto kernel = p.pair("kernel");
    return {{"dx", kernel[0] * kernel[1]}};
  }
  const bool broadcasts = op == "add" || op == "sub" || op == "mul" || op == "div";
  std::map<std::string, std::int64_t> terms;
  for (const char* name : broadcasts ? std::array{"a", "b"} : std::array{"gamma", "beta"})
    if (const Tensor& t = of(inputs, name); t.defined() && t.numel() != 0)
      terms[concat("d", name)] = y / t.numel();
  return terms;
}

NamedBounds running_bounds(const OpParameters& p, const NamedTensors& inputs, const Tensor& dy,
                           const JudgedArithmetic& judged, Pass pass) {
  const std::string_view op = p.signature().name;
  const bool product = op == "matmul" || op == "linear" || op == "conv2d";
  if (!product && !(op == "sum" && pass == Pass::forward)) return {};
  if (judged.accumulator != Accumulator::fp32 && judged.accumulator != Accumulator::fp64) return {};
  if (product && on_device_core(judged)) return {};
  const char* added = op == "matmul" ? "c" : "b";
  const bool adds = product && inputs.count(added) != 0;
  if (op == "matmul" && (std::abs(p.number("alpha")) != 1 || (adds && p.number("beta") != 1)))
    return {};

  // The operation of the squared operands, without what is added, sums the squared products.
  Allocator allocator;
  NamedTensors plain, squares;
  for (const auto& [name, t] : inputs) {
    if (adds && name == added && pass == Pass::forward) continue;
    plain[name] = t;
    squares[name] = squared(allocator, t);
  }
  JudgedArithmetic exact{.accumulator = Accumulator::fp64,
                         .operands = DType::fp64,
                         .output = DType::fp64,
                         .saved = DType::fp64};
  NamedBounds whole = op_bounds(p, inputs, dy, judged, pass);
  const NamedBounds sums = op_bounds(p, plain, dy, exact, pass);
  const NamedBounds sizes = op_bounds(p, squares, squared(allocator, dy), exact, pass);

  const bool wide = judged.operands == DType::fp64 || judged.accumulator == Accumulator::fp64;
  const Arithmetic arithmetic{.accumulator = wide ? kFp64 : kFp32,
                              .output = format_of(judged.output)};
  const std::int64_t y_size = pass == Pass::backward
                                  ? dy.numel()
                                  : static_cast<std::int64_t>(whole.at("y").reference.size());
  NamedBounds bounds;
  for (const auto& [name, length] : sum_lengths(p, inputs, y_size)) {
    const auto found = whole.find(name);
    if (found == whole.end()) continue;
    const Values& sum = sums.find(name)->second.reference;
    Values square = sizes.find(name)->second.reference;
    for (double& v : square) v = std::abs(v);
    Values bias;
    if (adds && pass == Pass::forward) {
      const Values v = of(inputs, added).to_vector();
      for (std::size_t i = 0; i < sum.size(); ++i) bias.push_back(v[i % v.size()]);
    }
    Bound bound = bound::products_random_order(found->second.reference, sum, square, length,
                                               arithmetic, 6, bias);
    // The hard bound is the smaller one for short sums.
    for (std::size_t i = 0; i < bound.tolerance.size(); ++i)
      bound.tolerance[i] = std::min(bound.tolerance[i], found->second.tolerance[i]);
    bounds[name] = std::move(bound);
  }
  return bounds;
}

namespace {

NamedBounds modelled_product(const OpParameters& p, const NamedTensors& inputs,
                             const JudgedArithmetic& judged) {
  const bool linear = p.signature().name == "linear";
  const Tensor &a = of(inputs, linear ? "x" : "a"), &b = of(inputs, linear ? "w" : "b");
  if (inputs.count(linear ? "b" : "c") != 0 || a.shape().rank() != 2 || b.shape().rank() != 2)
    return {};
  if (!linear && p.number("alpha") != 1) return {};
  if (!has_host_dot(judged.accumulator, judged.operands)) return {};
  const bool trans_a = !linear && p.flag("trans_a"), trans_b = linear || p.flag("trans_b");
  const std::int64_t m = a.shape()[trans_a ? 1 : 0], k = a.shape()[trans_a ? 0 : 1];
  const std::int64_t n = b.shape()[trans_b ? 0 : 1];
  const Values x = a.to_vector(), w = b.to_vector();
  std::vector<float> row(at(k)), column(at(k));
  const Format output = format_of(judged.output);
  Values y;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        row[at(l)] = static_cast<float>(x[at(trans_a ? l * m + i : i * k + l)]);
        column[at(l)] = static_cast<float>(w[at(trans_b ? j * k + l : l * n + j)]);
      }
      const double dot = host_dot(judged.accumulator, judged.operands, row, column);
      y.push_back(std::isnan(dot) ? dot : round_to_format(dot, output).value);
    }
  return {{"y", exactly(std::move(y))}};
}

}  // namespace

NamedBounds host_model(const OpParameters& p, const NamedTensors& inputs,
                       const JudgedArithmetic& judged) {
  const std::string_view op = p.signature().name;
  const bool modelled =
      judged.accumulator != Accumulator::fp32 && judged.accumulator != Accumulator::fp64;
  if ((op == "matmul" || op == "linear") && modelled) return modelled_product(p, inputs, judged);
  if (op != "add" && op != "sub" && op != "mul" && op != "div") return {};

  const bool wide = judged.operands == DType::fp64;
  const Tensor &a = of(inputs, "a"), &b = of(inputs, "b");
  const Shape result = oracle::broadcast(a.shape(), b.shape());
  const auto from_a = oracle::broadcast_source(a.shape(), result);
  const auto from_b = oracle::broadcast_source(b.shape(), result);
  const Values x = a.to_vector(), z = b.to_vector();
  const auto apply = [op](auto s, auto t) {
    return op == "add" ? s + t : op == "sub" ? s - t : op == "mul" ? s * t : s / t;
  };
  const Format output = format_of(judged.output);
  Values y;
  for (std::size_t i = 0; i < from_a.size(); ++i) {
    const double s = x[from_a[i]], t = z[from_b[i]];
    const double v = wide ? apply(s, t) : apply(static_cast<float>(s), static_cast<float>(t));
    y.push_back(std::isnan(v) ? v : round_to_format(v, output).value);
  }
  return {{"y", exactly(std::move(y))}};
}

}  // namespace roundoff
