// Numbers: one formula gives the reference and its bound.
#include "verify/number.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tests/verify/rounding.h"

using namespace roundoff;

namespace {

const Arithmetic kFp32Arithmetic{.accumulator = kFp32, .output = kFp32};

}  // namespace

TEST_CASE(
    "numbers: exact where nothing is rounded, and constants are rounded where they have to be") {
  const std::vector<double> values{1.5, -2, 0.25};
  const std::vector<Number> x = numbers(values, kFp32Arithmetic);
  CHECK(x[0].error() == 0);
  CHECK((-x[1]).value() == 2);
  CHECK(max(x[0], x[1]).value() == 1.5);
  CHECK(min(x[0], x[1]).value() == -2);
  CHECK(abs(x[1]).error() == 0);
  CHECK((x[0] * 1).error() == 0);
  CHECK((x[0] + 0).error() == 0);
  // 0.1 is no fp32 number: the product has its error and its own.
  const Number tenth = x[0] * 0.1;
  CHECK(tenth.value() == 1.5 * 0.1);
  CHECK(tenth.error() > 1.5 * 0.1 * 0x1p-24 * 1.9);
  CHECK(tenth.error() < 1.5 * 0.1 * 0x1p-24 * 2.1);
  CHECK(std::isnan(max(x[0], Number(std::nan(""))).value()));
  CHECK(x[1] < x[2]);
  CHECK(sum({}).value() == 0);
  CHECK(exp(Number(1)).value() == std::exp(1.0));
  Number total = x[0];
  total += x[1];
  total *= 2;
  CHECK(total.value() == -1);
  // A fused product is not rounded by itself.
  CHECK(fma(x[0], x[2], x[1]).error() < (x[0] * x[2] + x[1]).error());
}

TEST_CASE("numbers: a formula's bound holds for fp32 code in any order, and is not far off") {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<double> values(37);
    for (double& v : values) v = static_cast<float>(2 * normal(generator));
    Arithmetic a = kFp32Arithmetic;
    a.libm_ulps = 1;
    const std::vector<Number> x = numbers(values, a);
    Number m = x[0];
    for (const Number& v : x) m = max(m, v);
    std::vector<Number> e, y;
    for (const Number& v : x) e.push_back(exp(v - m));
    const Number s = sum(e);
    for (const Number& v : e) y.push_back(v / s);
    const Bound bound = bound_of(y, a);
    CHECK(bound.kind == BoundKind::derived);

    std::vector<float> f(values.begin(), values.end());
    const float fm = *std::max_element(f.begin(), f.end());
    float forward = 0, backward = 0;
    for (std::size_t i = 0; i < f.size(); ++i) {
      forward += std::exp(f[i] - fm);
      backward += std::exp(f[f.size() - 1 - i] - fm);
    }
    for (const float fs : {forward, backward}) {
      std::vector<float> result;
      for (const float v : f) result.push_back(std::exp(v - fm) / fs);
      const Comparison c = check(result, DType::fp32, bound);
      CHECK(c.bound_ratio < 1);
    }
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK(bound.tolerance[i] > 0);
      CHECK(bound.tolerance[i] < 1e-4 * bound.reference[i]);
    }
  }
}

TEST_CASE("numbers: dot, log, tanh, erf and sqrt against fp32 code") {
  std::mt19937 generator(4);
  std::uniform_real_distribution<double> uniform(0.25, 4);
  Arithmetic a = kFp32Arithmetic;
  a.libm_ulps = 2;
  std::vector<double> v(200), w(200);
  for (double& x : v) x = static_cast<float>(uniform(generator));
  for (double& x : w) x = static_cast<float>(uniform(generator) - 2);
  const std::vector<Number> x = numbers(v, a), z = numbers(w, a);
  std::vector<Number> results;
  std::vector<float> code;
  float product = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const auto f = static_cast<float>(v[i]), g = static_cast<float>(w[i]);
    results.push_back(log(x[i]) * tanh(z[i]) + sqrt(x[i]) - erf(z[i]) / 3);
    code.push_back(std::log(f) * std::tanh(g) + std::sqrt(f) - std::erf(g) / 3);
    product += f * g;
  }
  results.push_back(dot(x, z));
  code.push_back(product);
  check(code, DType::fp32, bound_of(results, a));
}
