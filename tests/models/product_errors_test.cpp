// What --amp-check allows for products that a GPU's tensor cores sum.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "engine/data/random.h"
#include "kernels/base/tensor_core.h"
#include "models/self_test.h"

namespace roundoff {
namespace {

TEST_CASE("sums on tensor cores are within what --amp-check allows for them") {
  Allocator memory;
  RandomStream random(7, RandomUse::checks, 11);
  const auto values = [&](std::int64_t n, bool positive) {
    std::vector<double> v;
    for (std::int64_t i = 0; i < n; ++i)
      v.push_back(positive ? random.uniform(0.5, 1.5) : random.uniform(-1, 1));
    return v;
  };
  for (const Accumulator gpu : {Accumulator::a100, Accumulator::h100})
    for (const bool positive : {false, true})
      for (const std::int64_t k : {1, 15, 64, 1000}) {
        CAPTURE(name(gpu));
        CAPTURE(k);
        const Tensor x = Tensor::from(memory, values(k, positive), {1, k}, DType::fp16);
        const Tensor w = Tensor::from(memory, values(3 * k, positive), {3, k}, DType::fp16);
        const Tensor inputs[] = {x, w};
        const std::vector<double> errors = product_errors(gpu, DType::fp16, inputs);
        REQUIRE(errors.size() == 3);
        const TensorCore core = tensor_core(gpu, DType::fp16);
        const std::vector<double> xs = x.to_vector(), ws = w.to_vector();
        for (std::size_t j = 0; j < 3; ++j) {
          std::vector<float> a, b;
          long double exact = 0;
          for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
            const double weight = ws[j * static_cast<std::size_t>(k) + i];
            a.push_back(static_cast<float>(xs[i]));
            b.push_back(static_cast<float>(weight));
            exact += static_cast<long double>(xs[i]) * weight;
          }
          const double error = std::abs(
              static_cast<double>(tensor_core_dot(core, a.data(), b.data(), k, 0) - exact));
          CHECK(error <= errors[j]);
          // Truncation adds up where nothing cancels: the bound is not far from what happens.
          if (positive && k == 1000) CHECK(error > errors[j] / 50);
        }
      }
}

TEST_CASE("a bias takes part, and a convolution's blocks may be filled up at every position") {
  Allocator memory;
  const Tensor x = Tensor::from(memory, std::vector<double>{2, -3}, {1, 2}, DType::fp16);
  const Tensor w = Tensor::from(memory, std::vector<double>{1, -4}, {1, 2}, DType::fp16);
  const Tensor b = Tensor::from(memory, std::vector<double>{-10}, {1}, DType::fp16);
  const Tensor plain[] = {x, w}, biased[] = {x, w, b};
  const double g = tensor_core_error(tensor_core(Accumulator::h100, DType::fp16), 2);
  CHECK(product_errors(Accumulator::h100, DType::fp16, plain)[0] == doctest::Approx(g * 3 * 5));
  CHECK(product_errors(Accumulator::h100, DType::fp16, biased)[0] ==
        doctest::Approx(g * (3 * 5 + 10)));

  const Tensor image = Tensor::from(memory, std::vector<double>(9, 1.0), {1, 3, 3, 1}, DType::fp16);
  const Tensor filter =
      Tensor::from(memory, std::vector<double>(9, 1.0), {1, 3, 3, 1}, DType::fp16);
  const Tensor conv[] = {image, filter};
  const double one = tensor_core_error(tensor_core(Accumulator::h100, DType::fp16), 1);
  CHECK(product_errors(Accumulator::h100, DType::fp16, conv)[0] == doctest::Approx(9 * one * 9));
}

}  // namespace
}  // namespace roundoff
