#include "kernels/base/tensor_core.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/bfloat16.h"

using namespace roundoff;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Accumulator kGpus[] = {Accumulator::v100, Accumulator::a100, Accumulator::h100};

float dot(Accumulator gpu, DType operand, const std::vector<float>& a, const std::vector<float>& b,
          float c) {
  return tensor_core_dot(tensor_core(gpu, operand), a.data(), b.data(),
                         static_cast<std::int64_t>(a.size()), c);
}

// One block by the definition, in fp64, which holds every step exactly for exponents this close.
double exponent_of(double value, double emin) {
  return std::max(static_cast<double>(std::ilogb(value)), emin);
}
float by_definition(const TensorCore& core, const std::vector<float>& a,
                    const std::vector<float>& b, float c) {
  double emax = -1e9;
  if (c != 0) emax = exponent_of(c, -126);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != 0 && b[i] != 0)
      emax = std::max(emax, exponent_of(a[i], core.emin) + exponent_of(b[i], core.emin));
  if (emax < -1e8) return 0;
  const double unit = std::exp2(emax - core.kept_bits);
  double sum = std::trunc(c / unit);
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += std::trunc(static_cast<double>(a[i]) * static_cast<double>(b[i]) / unit);
  sum *= unit;
  const auto nearest = static_cast<float>(sum);
  return std::abs(static_cast<double>(nearest)) > std::abs(sum) ? std::nextafter(nearest, 0.0F)
                                                                : nearest;
}

}  // namespace

TEST_CASE("tensor cores keep 23, 24 or 25 bits below the largest addend") {
  // 1 + n 2^-25, as products 2^-12 2^-13: the bits that are kept add up to the last bit of fp32.
  const auto small = [](Accumulator gpu, std::size_t n, float one_factor, float c) {
    return dot(gpu, DType::fp16, std::vector<float>(n, 0x1p-12F), std::vector<float>(n, one_factor),
               c);
  };
  CHECK(small(Accumulator::h100, 4, 0x1p-13F, 1) == 1 + 0x1p-23F);
  CHECK(small(Accumulator::h100, 3, 0x1p-13F, 1) == 1);
  CHECK(small(Accumulator::a100, 8, 0x1p-13F, 1) == 1);
  CHECK(small(Accumulator::a100, 2, 0x1p-12F, 1) == 1 + 0x1p-23F);
  CHECK(small(Accumulator::v100, 4, 0x1p-12F, 1) == 1);
  CHECK(small(Accumulator::v100, 1, 0x1p-11F, 1) == 1 + 0x1p-23F);
  // Truncation, not rounding, on either side of zero.
  CHECK(small(Accumulator::h100, 3, -0x1p-13F, -1) == -1);
  CHECK(small(Accumulator::h100, 1, -0x1p-12F, 1) == 1 - 0x1p-24F);
  CHECK(small(Accumulator::v100, 1, -0x1p-12F, 1) == 1);
}

TEST_CASE("a subnormal operand counts with its format's smallest exponent") {
  // 2^-24 * 1 stands at exponent -14, so 2^-40 lies below its 25 bits; as bf16 it does not.
  const std::vector<float> a = {0x1p-24F, 0x1p-20F}, b = {1, 0x1p-20F};
  CHECK(dot(Accumulator::h100, DType::fp16, a, b, 0) == 0x1p-24F);
  CHECK(dot(Accumulator::h100, DType::bf16, a, b, 0) == 0x1p-24F + 0x1p-40F);
}

TEST_CASE("blocks chain through c") {
  // Four products a block on V100: 2^-24 is lost against 1 in one block, kept in a block of its
  // own.
  const std::vector<float> together = {1, 0x1p-12F, 0, 0};
  CHECK(dot(Accumulator::v100, DType::fp16, together, {1, 0x1p-12F, 0, 0}, -1) == 0);
  const std::vector<float> apart = {1, 0, 0, 0, 0x1p-12F};
  CHECK(dot(Accumulator::v100, DType::fp16, apart, {1, 0, 0, 0, 0x1p-12F}, -1) == 0x1p-24F);
  CHECK(dot(Accumulator::h100, DType::fp16, {}, {}, 3) == 3);
}

TEST_CASE("zeros, infinities and NaN") {
  for (const Accumulator gpu : kGpus) {
    CHECK(std::bit_cast<std::uint32_t>(dot(gpu, DType::fp16, {0, -0.0F}, {5, 0}, -0.0F)) == 0);
    CHECK(dot(gpu, DType::fp16, {kInf}, {2}, 1) == kInf);
    CHECK(dot(gpu, DType::fp16, {1}, {2}, -kInf) == -kInf);
    const auto bits = [&](float a, float b, float c) {
      return std::bit_cast<std::uint32_t>(dot(gpu, DType::fp16, {a}, {b}, c));
    };
    CHECK(bits(kInf, 0, 1) == 0x7FFFFFFFU);
    CHECK(bits(kInf, 1, -kInf) == 0x7FFFFFFFU);
    CHECK(bits(std::nanf(""), 1, 1) == 0x7FFFFFFFU);
    CHECK(bits(1, 1, -std::nanf("")) == 0x7FFFFFFFU);
  }
  // An overflow of the sum, and an underflow below fp32's last bit.
  CHECK(dot(Accumulator::h100, DType::bf16, {0x1p127F}, {2}, 0) == kInf);
  CHECK(dot(Accumulator::h100, DType::bf16, {-0x1p127F, 1}, {2, 1}, 0) == -kInf);
  CHECK(dot(Accumulator::h100, DType::bf16, {0x1p-75F}, {0x1.8p-75F}, 0) == 0);
  CHECK(dot(Accumulator::h100, DType::bf16, {0x1p-75F}, {0x1.8p-74F}, 0) == 0x1p-149F);
}

TEST_CASE("tensor-core blocks agree with the definition bit for bit") {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const Accumulator gpu : kGpus) {
    for (const DType operand : {DType::fp16, DType::bf16, DType::fp32}) {
      CHECK(has_tensor_core(gpu, operand) == (gpu != Accumulator::v100 || operand == DType::fp16));
      if (!has_tensor_core(gpu, operand)) {
        CHECK_THROWS_AS(tensor_core(gpu, operand), Error);
        continue;
      }
      const TensorCore core = tensor_core(gpu, operand);
      const auto rounded = [&](float v) {
        if (operand == DType::fp16) return static_cast<float>(Half(v));
        if (operand == DType::bf16) return static_cast<float>(BFloat16(v));
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & ~0x1FFFU);
      };
      int differ = 0;
      for (int trial = 0; trial < 3000; ++trial) {
        std::vector<float> a(static_cast<std::size_t>(core.block)), b(a.size());
        const auto draw = [&] {
          // Zeros, and exponents down to fp16's subnormals.
          if (random() % 8 == 0) return 0.0F;
          return rounded(std::ldexp(normal(random), -static_cast<int>(random() % 22)));
        };
        for (float& v : a) v = draw();
        for (float& v : b) v = draw();
        const float c =
            random() % 8 == 0 ? 0.0F : std::ldexp(normal(random), -static_cast<int>(random() % 30));
        const float got = dot(gpu, operand, a, b, c);
        if (std::bit_cast<std::uint32_t>(got) !=
            std::bit_cast<std::uint32_t>(by_definition(core, a, b, c)))
          ++differ;
      }
      CHECK(differ == 0);
    }
  }
}
