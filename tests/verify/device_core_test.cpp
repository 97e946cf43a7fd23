// Products that a GPU's tensor cores may have summed are judged by their bound.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "engine/data/random.h"
#include "kernels/base/architecture.h"
#include "verify/bound.h"
#include "verify/host_dot.h"
#include "verify/reference.h"

namespace roundoff {
namespace {

TEST_CASE("whose tensor cores a device has") {
  CHECK_FALSE(device_tensor_core(Device::cpu, 90));
  CHECK_FALSE(device_tensor_core(Device::sim, 80));
  CHECK(device_tensor_core(Device::cuda, 80) == Accumulator::a100);
  CHECK(device_tensor_core(Device::cuda, 89) == Accumulator::a100);
  CHECK(device_tensor_core(Device::cuda, 90) == Accumulator::h100);
  CHECK(device_tensor_core(Device::cuda, 100) == Accumulator::h100);
  CHECK_FALSE(device_tensor_core(Device::cuda, 75));
  CHECK_FALSE(device_tensor_core(Device::sim));

  // What may be asked for by name.
  CHECK(adds_as(Accumulator::a100, 80));
  CHECK_FALSE(adds_as(Accumulator::a100, 86));
  CHECK_FALSE(adds_as(Accumulator::a100, 90));
  CHECK(adds_as(Accumulator::h100, 90));
  CHECK(adds_as(Accumulator::h100, 100));
  CHECK_FALSE(adds_as(Accumulator::h100, 80));
  CHECK_FALSE(adds_as(Accumulator::v100, 70));
  CHECK_FALSE(adds_as(Accumulator::fp32, 90));
}

NamedBounds bounds(std::string_view operation, const NamedTensors& inputs, const Tensor& dy,
                   const JudgedArithmetic& judged, Pass pass,
                   std::map<std::string, std::string> given = {}) {
  return op_bounds(OpParameters(op_signature(operation), std::move(given)), inputs, dy, judged,
                   pass);
}

double largest(const Bound& b) {
  double t = 0;
  for (const double v : b.tolerance) t = std::max(t, v);
  return t;
}

// The sum of k fp16 products as A100's cores form it, whose operands are made so that every block
// loses as much as it can.
TEST_CASE("what tensor cores cut off at worst is within the bound, and not far within it") {
  Allocator allocator;
  constexpr std::int64_t k = 8;
  // One large product, and seven whose bits below 2^-24 of it are all lost.
  std::vector<double> a(k), b(k);
  a[0] = 1, b[0] = 1;
  for (std::size_t i = 1; i < k; ++i) {
    a[i] = 0x1p-12;
    b[i] = 0x1.ffcp-13;  // the product is a little less than 2^-24
  }
  const std::vector<float> af(a.begin(), a.end()), bf(b.begin(), b.end());
  const double got = host_dot(Accumulator::a100, DType::fp16, af, bf);

  const NamedTensors inputs{{"a", Tensor::from(allocator, a, {1, k}, DType::fp16)},
                            {"b", Tensor::from(allocator, b, {k, 1}, DType::fp16)}};
  JudgedArithmetic judged{.operands = DType::fp16, .output = DType::fp32};
  const auto error = [&](const NamedBounds& n) {
    const Bound& y = n.at("y");
    return std::abs(got - y.reference[0]) / y.tolerance[0];
  };
  judged.device_core = Accumulator::a100;
  CHECK(error(bounds("matmul", inputs, {}, judged, Pass::forward)) <= 1);
  CHECK(error(bounds("matmul", inputs, {}, judged, Pass::forward)) > 0.2);
}

TEST_CASE("a device's products may also have been summed in plain fp32") {
  Allocator allocator;
  RandomStream random(3, RandomUse::checks, 1);
  const auto normal = [&](const Shape& shape) {
    std::vector<double> v(static_cast<std::size_t>(shape.numel()));
    for (double& x : v) x = random.normal();
    return Tensor::from(allocator, v, shape, DType::bf16);
  };
  for (const std::int64_t k : {1, 2, 7, 16, 17, 300}) {
    CAPTURE(k);
    const NamedTensors inputs{{"a", normal({3, k})}, {"b", normal({k, 2})}};
    const Tensor dy = normal({3, 2});
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      JudgedArithmetic judged{.operands = DType::bf16, .output = DType::fp32};
      const NamedBounds plain = bounds("matmul", inputs, dy, judged, pass);
      for (const Accumulator gpu : {Accumulator::a100, Accumulator::h100}) {
        judged.accumulator = gpu;
        judged.device_core.reset();
        const NamedBounds modelled = bounds("matmul", inputs, dy, judged, pass);
        judged.accumulator = Accumulator::fp32;
        judged.device_core = gpu;
        const NamedBounds either = bounds("matmul", inputs, dy, judged, pass);
        for (const auto& [name, bound] : either) {
          for (std::size_t i = 0; i < bound.tolerance.size(); ++i) {
            CHECK(bound.tolerance[i] >= plain.at(name).tolerance[i]);
            CHECK(bound.tolerance[i] >= modelled.at(name).tolerance[i]);
          }
          CHECK(bound.kind == BoundKind::derived);
        }
      }
    }
  }
}

TEST_CASE("what runs on no tensor core keeps its bound") {
  Allocator allocator;
  const std::vector<double> values{1, 2, 3, 4, 5, 6};
  const Tensor x16 = Tensor::from(allocator, values, {2, 3}, DType::fp16);
  const Tensor x32 = Tensor::from(allocator, values, {2, 3}, DType::fp32);
  const Tensor w16 = Tensor::from(allocator, values, {2, 3}, DType::fp16);
  const Tensor w32 = Tensor::from(allocator, values, {2, 3}, DType::fp32);
  const Tensor b16 = Tensor::from(allocator, std::vector<double>{1, 2}, {2}, DType::fp16);
  const Tensor dy = Tensor::from(allocator, std::vector<double>{1, 2, 3, 4}, {2, 2}, DType::fp16);
  JudgedArithmetic plain{.operands = DType::fp16, .output = DType::fp32};
  JudgedArithmetic gpu = plain;
  gpu.device_core = Accumulator::h100;
  CHECK(on_device_core(gpu));
  // Sums of operands: the reductions, and a bias's gradient.
  CHECK(largest(bounds("sum", {{"x", x16}}, {}, gpu, Pass::forward, {{"axis", "1"}}).at("y")) ==
        largest(bounds("sum", {{"x", x16}}, {}, plain, Pass::forward, {{"axis", "1"}}).at("y")));
  const NamedTensors layer{{"x", x16}, {"w", w16}, {"b", b16}};
  CHECK(largest(bounds("linear", layer, dy, gpu, Pass::backward).at("db")) ==
        largest(bounds("linear", layer, dy, plain, Pass::backward).at("db")));
  CHECK(largest(bounds("linear", layer, dy, gpu, Pass::backward).at("dw")) >
        largest(bounds("linear", layer, dy, plain, Pass::backward).at("dw")));
  // fp32 operands, and an accumulator that was asked for.
  plain.operands = gpu.operands = DType::fp32;
  CHECK_FALSE(on_device_core(gpu));
  CHECK(largest(bounds("linear", {{"x", x32}, {"w", w32}}, {}, gpu, Pass::forward).at("y")) ==
        largest(bounds("linear", {{"x", x32}, {"w", w32}}, {}, plain, Pass::forward).at("y")));
  gpu.operands = DType::fp16;
  gpu.accumulator = Accumulator::fp64;
  CHECK_FALSE(on_device_core(gpu));
}

// A convolution's kernel may fill up a block at every filter position.
TEST_CASE("blocks that are filled up count") {
  Allocator allocator;
  const std::vector<double> x(16, 1.0), w(9, 1.0);
  const NamedTensors inputs{{"x", Tensor::from(allocator, x, {1, 4, 4, 1}, DType::fp16)},
                            {"w", Tensor::from(allocator, w, {1, 3, 3, 1}, DType::fp16)}};
  JudgedArithmetic judged{.operands = DType::fp16, .output = DType::fp32};
  judged.device_core = Accumulator::h100;
  const double filled = largest(bounds("conv2d", inputs, {}, judged, Pass::forward).at("y"));
  judged.device_core.reset();
  judged.accumulator = Accumulator::h100;
  const double linear = largest(bounds("conv2d", inputs, {}, judged, Pass::forward).at("y"));
  CHECK(filled > 8 * linear);
}

}  // namespace
}  // namespace roundoff
