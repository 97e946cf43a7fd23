#include "kernels/gemm/modelled.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/tensor_core.h"

namespace roundoff {

namespace {

// ---- fp16 sums

// The double nearest to value on fp16's grid (RNE), infinite from 65520 up. Branch-free, so that
// compilers vectorise it: adding and taking away 1.5 * 2^52 quanta rounds to a multiple of one.
double round_to_half(double value) {
  constexpr std::uint64_t kExponent = 0x7FF0000000000000U;
  const double binade =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & kExponent);  // 2^e
  const double quantum = std::max(binade * 0x1p-10, 0x1p-24);
  const double shift = quantum * 0x1.8p52;
  const double rounded = (value + shift) - shift;
  const double limited = std::abs(rounded) > 65504.0
                             ? std::copysign(std::numeric_limits<double>::infinity(), value)
                             : std::copysign(rounded, value);
  return std::abs(value) <= std::numeric_limits<double>::max() ? limited : value;
}

// x + y rounded to odd: a later rounding to fewer bits is then the only one (Boldo & Melquiond).
double add_to_odd(double x, double y) {
  const double sum = x + y;
  const double y_part = sum - x;
  const double error = (x - (sum - y_part)) + (y - y_part);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  if (error == 0 || !std::isfinite(sum) || (bits & 1) != 0) return sum;
  // The exact sum lies between `sum` and its neighbour towards the error's sign; the odd one of the
  // two is the neighbour.
  const bool away_from_zero = (error > 0) == (sum > 0);
  return std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1);
}

// One row of C at a time: sums[j] = fp16(a * b[j] + sums[j]). Products of two floats are exact in
// double. With 16-bit operands so is every sum that can lie near a tie of fp16's grid (a term too
// small for 53 bits is too small to matter); with fp32 operands the sum is rounded to odd first.
template <bool kWide>
void half_product(const Product<float>& p, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  double* sums = scratch.get<double>(p.n);
  float* row = scratch.get<float>(p.trans_b ? p.n * p.k : 0);
  if (p.trans_b)
    for (std::int64_t j = 0; j < p.n; ++j)
      for (std::int64_t l = 0; l < p.k; ++l) row[l * p.n + j] = p.b[j * p.ldb + l];
  const float* b = p.trans_b ? row : p.b;
  const std::int64_t ldb = p.trans_b ? p.n : p.ldb;
  for (std::int64_t i = 0; i < p.m; ++i) {
    float* c = p.c + i * p.ldc;
    for (std::int64_t j = 0; j < p.n; ++j) sums[j] = p.accumulate ? static_cast<double>(c[j]) : 0.0;
    for (std::int64_t l = 0; l < p.k; ++l) {
      const auto a = static_cast<double>(p.trans_a ? p.a[l * p.lda + i] : p.a[i * p.lda + l]);
      const float* from = b + l * ldb;
      for (std::int64_t j = 0; j < p.n; ++j) {
        const double term = a * static_cast<double>(from[j]);
        sums[j] = round_to_half(kWide ? add_to_odd(term, sums[j]) : term + sums[j]);
      }
    }
    for (std::int64_t j = 0; j < p.n; ++j) c[j] = static_cast<float>(sums[j]);
  }
}

// ---- tensor cores

// One operand with its sums' axis contiguous, split into significands and exponents.
struct Split {
  const float* values;
  const std::int32_t* significands;
  const std::int32_t* exponents;
  const bool* finite;  // of each row
};

Split split(const TensorCore& core, const float* from, std::int64_t rows, std::int64_t row_step,
            std::int64_t k, std::int64_t k_step, Scratch& scratch) {
  auto* values = scratch.get<float>(rows * k);
  auto* significands = scratch.get<std::int32_t>(rows * k);
  auto* exponents = scratch.get<std::int32_t>(rows * k);
  auto* finite = scratch.get<bool>(rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    finite[i] = true;
    for (std::int64_t l = 0; l < k; ++l) {
      const float value = from[i * row_step + l * k_step];
      values[i * k + l] = value;
      if (!std::isfinite(value)) {
        finite[i] = false;
        continue;
      }
      const TensorCoreOperand x = tensor_core_operand(value, core);
      significands[i * k + l] = x.significand;
      exponents[i * k + l] = x.exponent;
    }
  }
  return {values, significands, exponents, finite};
}

void tensor_core_product(const TensorCore& core, const Product<float>& p, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const Split a = split(core, p.a, p.m, p.trans_a ? 1 : p.lda, p.k, p.trans_a ? p.lda : 1, scratch);
  const Split b = split(core, p.b, p.n, p.trans_b ? p.ldb : 1, p.k, p.trans_b ? 1 : p.ldb, scratch);
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      float& c = p.c[i * p.ldc + j];
      float sum = p.accumulate ? c : 0.0F;
      if (a.finite[i] && b.finite[j] && std::isfinite(sum)) {
        for (std::int64_t l = 0; l < p.k; l += core.block) {
          const auto n = static_cast<int>(std::min<std::int64_t>(core.block, p.k - l));
          // An overflow on the way: the rest of the chain knows infinities.
          if (!std::isfinite(sum)) {
            sum =
                tensor_core_dot(core, a.values + i * p.k + l, b.values + j * p.k + l, p.k - l, sum);
            break;
          }
          sum = tensor_core_block(core, a.significands + i * p.k + l, a.exponents + i * p.k + l,
                                  b.significands + j * p.k + l, b.exponents + j * p.k + l, n, sum);
        }
      } else {
        sum = tensor_core_dot(core, a.values + i * p.k, b.values + j * p.k, p.k, sum);
      }
      c = sum;
    }
  }
}

}  // namespace

ProductArithmetic arithmetic(std::string_view operation, Accumulator accumulator, DType a, DType b,
                             bool tf32) {
  switch (accumulator) {
    case Accumulator::fp32:
    case Accumulator::fp64:
      return {};
    case Accumulator::fp16:
      return {true, accumulator, a == b ? a : DType::fp32};
    case Accumulator::v100:
    case Accumulator::a100:
    case Accumulator::h100:
      break;
  }
  if (a == DType::fp64 || b == DType::fp64) return {};
  const DType operand = a == b ? a : DType::fp32;
  if (operand == DType::fp32 && !tf32) return {};
  ROUNDOFF_CHECK(has_tensor_core(accumulator, operand), operation,
                 "accumulator v100 takes fp16 operands, ",
                 operand == DType::fp32 ? "tf32" : name(operand), " given");
  return {true, accumulator, operand};
}

void modelled_product(const ProductArithmetic& arithmetic, const Product<float>& p,
                      Scratch& scratch) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    if (p.accumulate) return;
    for (std::int64_t i = 0; i < p.m; ++i) std::fill_n(p.c + i * p.ldc, p.n, 0.0F);
    return;
  }
  if (arithmetic.accumulator != Accumulator::fp16) {
    tensor_core_product(tensor_core(arithmetic.accumulator, arithmetic.operand), p, scratch);
  } else if (is_16bit(arithmetic.operand)) {
    half_product<false>(p, scratch);
  } else {
    half_product<true>(p, scratch);
  }
}

}  // namespace roundoff
