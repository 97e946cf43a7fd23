#include "kernels/base/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"

namespace roundoff {

namespace {

constexpr int kMaxBlock = 32;

struct Row {
  Accumulator gpu;
  DType operand;
  TensorCore core;
};
constexpr Row kRows[] = {
    {Accumulator::v100, DType::fp16, {23, 4, -14}},
    {Accumulator::a100, DType::fp16, {24, 8, -14}},
    {Accumulator::a100, DType::bf16, {24, 8, -126}},
    {Accumulator::a100, DType::fp32, {24, 4, -126}},
    {Accumulator::h100, DType::fp16, {25, 16, -14}},
    {Accumulator::h100, DType::bf16, {25, 16, -126}},
    {Accumulator::h100, DType::fp32, {25, 8, -126}},
};

const Row* find(Accumulator gpu, DType operand) {
  for (const Row& row : kRows)
    if (row.gpu == gpu && row.operand == operand) return &row;
  return nullptr;
}

// sum * 2^exponent, truncated to fp32 with that many fraction bits.
float truncated(std::int64_t sum, int exponent, int fraction_bits) {
  if (sum == 0) return 0.0F;
  auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int top = exponent + 63 - std::countl_zero(magnitude);  // exponent of the leading bit
  if (top >= 128)
    return sum < 0 ? -std::numeric_limits<float>::infinity()
                   : std::numeric_limits<float>::infinity();
  const int lowest = std::max(top - fraction_bits, -149);  // of the last bit that is kept
  const int drop = lowest - exponent;
  if (drop > 63) return sum < 0 ? -0.0F : 0.0F;
  if (drop > 0) {
    magnitude >>= drop;
    exponent = lowest;
  }
  const float value = std::ldexp(static_cast<float>(magnitude), exponent);
  return sum < 0 ? -value : value;
}

}  // namespace

bool has_tensor_core(Accumulator gpu, DType operand) { return find(gpu, operand) != nullptr; }

TensorCore tensor_core(Accumulator gpu, DType operand) {
  const Row* row = find(gpu, operand);
  ROUNDOFF_CHECK(row != nullptr, "tensor_core", "this GPU's tensor cores do not take ",
                 operand == DType::fp32 ? "tf32" : name(operand));
  return row->core;
}

double tensor_core_error(const TensorCore& core, std::int64_t terms) {
  const double blocks = std::ceil(static_cast<double>(terms) / core.block);
  return blocks * ((core.block + 1) * std::ldexp(1.0, core.fraction_bits - core.kept_bits) + 1) *
         std::ldexp(1.0, -core.fraction_bits);
}

TensorCore tensor_core_e4m3() { return {13, 32, -6, 13}; }

TensorCoreOperand tensor_core_operand(float value, const TensorCore& core) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto field = static_cast<int>((bits >> 23) & 0xFFU);
  const auto fraction = static_cast<std::int32_t>(bits & 0x7FFFFFU);
  // value = significand * 2^(exponent - 23)
  std::int32_t significand = field == 0 ? fraction : fraction | 0x800000;
  int exponent = field == 0 ? -126 : field - 127;
  if (significand == 0) return {0, kZeroExponent};
  if (exponent < core.emin) {
    significand >>= std::min(core.emin - exponent, 31);
    exponent = core.emin;
  }
  significand >>= 13;
  if (significand == 0) return {0, kZeroExponent};  // below the format: not one of its numbers
  return {(bits >> 31) != 0 ? -significand : significand, exponent};
}

namespace {

// sum * 2^exponent is the exact sum of a block's truncated addends.
struct BlockSum {
  std::int64_t sum = 0;
  int exponent = 0;
};

std::int64_t shifted(std::int64_t magnitude, int left) {
  return left >= 0 ? magnitude << left : magnitude >> std::min(-left, 63);
}

BlockSum block_sum(const TensorCore& core, const std::int32_t* a_significand,
                   const std::int32_t* a_exponent, const std::int32_t* b_significand,
                   const std::int32_t* b_exponent, int n, float c) {
  const auto c_bits = std::bit_cast<std::uint32_t>(c);
  const auto c_field = static_cast<int>((c_bits >> 23) & 0xFFU);
  std::int32_t c_significand = static_cast<std::int32_t>(c_bits & 0x7FFFFFU);
  if (c_field != 0) c_significand |= 0x800000;
  const int c_exponent = c_field == 0 ? -126 : c_field - 127;

  int emax = c_significand == 0 ? 2 * kZeroExponent : c_exponent;
  for (int i = 0; i < n; ++i) emax = std::max(emax, a_exponent[i] + b_exponent[i]);
  // Nothing but zeros. (A zero beside a number stays far below every sum of two exponents.)
  if (emax < kZeroExponent / 2) return {};

  // Addends in units of 2^(emax - F): a product has 20 fraction bits, c has 23.
  std::int64_t sum = 0;
  for (int i = 0; i < n; ++i) {
    const std::int32_t product = a_significand[i] * b_significand[i];
    const int right = std::min(emax - a_exponent[i] - b_exponent[i], 63);
    const std::int64_t magnitude =
        shifted(product < 0 ? -product : product, core.kept_bits - 20 - right);
    sum += product < 0 ? -magnitude : magnitude;
  }
  // A c of 0 may stand above emax.
  const std::int64_t c_aligned =
      shifted(c_significand, core.kept_bits - 23 - std::clamp(emax - c_exponent, 0, 63));
  sum += (c_bits >> 31) != 0 ? -c_aligned : c_aligned;
  return {sum, emax - core.kept_bits};
}

constexpr float kNaN = std::bit_cast<float>(0x7FFFFFFFU);

// The chain of blocks; finish(BlockSum) rounds a block's sum to the accumulator.
template <class Finish>
float chained(const TensorCore& core, const float* a, const float* b, std::int64_t k, float c,
              Finish finish) {
  std::int32_t values[4][kMaxBlock];
  for (std::int64_t first = 0; first < k; first += core.block) {
    const int n = static_cast<int>(std::min<std::int64_t>(core.block, k - first));
    // Infinities and NaN need no alignment: their sum is that of any floating-point unit.
    float special = 0;
    bool finite = std::isfinite(c);
    if (!finite) special = c;
    for (int i = 0; i < n; ++i) {
      const float x = a[first + i], y = b[first + i];
      if (!std::isfinite(x) || !std::isfinite(y)) {
        finite = false;
        special += x * y;
        continue;
      }
      const TensorCoreOperand left = tensor_core_operand(x, core);
      const TensorCoreOperand right = tensor_core_operand(y, core);
      values[0][i] = left.significand;
      values[1][i] = left.exponent;
      values[2][i] = right.significand;
      values[3][i] = right.exponent;
    }
    c = finite ? finish(block_sum(core, values[0], values[1], values[2], values[3], n, c))
               : special;
    if (std::isnan(c)) return kNaN;
  }
  return c;
}

}  // namespace

float tensor_core_block(const TensorCore& core, const std::int32_t* a_significand,
                        const std::int32_t* a_exponent, const std::int32_t* b_significand,
                        const std::int32_t* b_exponent, int n, float c) {
  const BlockSum block =
      block_sum(core, a_significand, a_exponent, b_significand, b_exponent, n, c);
  return truncated(block.sum, block.exponent, core.fraction_bits);
}

float tensor_core_dot(const TensorCore& core, const float* a, const float* b, std::int64_t k,
                      float c) {
  return chained(core, a, b, k, c, [&](const BlockSum& block) {
    return truncated(block.sum, block.exponent, core.fraction_bits);
  });
}

Half tensor_core_dot_half(const TensorCore& core, const float* a, const float* b, std::int64_t k,
                          Half c) {
  // A sum has at most 34 bits, so a double holds it.
  return Half(chained(core, a, b, k, static_cast<float>(c), [](const BlockSum& block) {
    return static_cast<float>(Half(std::ldexp(static_cast<double>(block.sum), block.exponent)));
  }));
}

}  // namespace roundoff
