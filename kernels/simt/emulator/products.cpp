#include "kernels/simt/emulator/products.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/base/check.h"

namespace roundoff::simt {

namespace {

Accumulator accumulator(TensorCoreModel model) {
  switch (model) {
    case TensorCoreModel::fp32:
      return Accumulator::fp32;
    case TensorCoreModel::v100:
      return Accumulator::v100;
    case TensorCoreModel::a100:
      return Accumulator::a100;
    case TensorCoreModel::h100:
      return Accumulator::h100;
  }
  return Accumulator::fp32;
}

DType dtype(Operand operand) {
  if (operand == Operand::fp16) return DType::fp16;
  return operand == Operand::bf16 ? DType::bf16 : DType::fp32;
}

}  // namespace

void multiply(TensorCoreModel model, Operand operand, const TensorCoreTile& tile) {
  if (model == TensorCoreModel::fp32) {
    fma_tile(tile);
  } else {
    tensor_core_tile(tensor_core(accumulator(model), dtype(operand)), tile);
  }
}

void multiply_half(TensorCoreModel model, const TensorCoreTile& tile) {
  if (model != TensorCoreModel::fp32) {
    tensor_core_tile_half(tensor_core(accumulator(model), DType::fp16), tile);
    return;
  }
  fma_tile(tile);
  for (int i = 0; i < tile.m; ++i)
    for (int j = 0; j < tile.n; ++j) {
      float& c = tile.c[i * tile.ldc + j];
      c = static_cast<float>(Half(c));
    }
}

void widen(Operand operand, const std::uint16_t* from, int n, float* to) {
  int i = 0;
  if (operand == Operand::bf16) {
    for (; i < n; ++i) to[i] = static_cast<float>(BFloat16::from_bits(from[i]));
    return;
  }
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  for (; i < n; ++i) to[i] = static_cast<float>(Half::from_bits(from[i]));
}

}  // namespace roundoff::simt
