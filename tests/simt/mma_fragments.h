// Layouts of mma.sync's fragments from PTX's index formulas, written down once more: element by
// element, not register by register as the emulator has them.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/dtype.h"
#include "kernels/base/half.h"
#include "kernels/simt/tf32.h"
#include "tests/simt/fragments.h"

namespace roundoff::simt_test {

struct Where {
  int row, column;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours: element i of a lane.
inline Where a_element(int lane, int i, int k, bool tf32) {
  const int group = lane >> 2, in_group = lane % 4;
  if (tf32) return {i % 2 == 0 ? group : group + 8, i < 2 ? in_group : in_group + 4};
  if (k == 8) return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
  const bool upper = i < 2 || (i >= 4 && i < 6);
  return {upper ? group : group + 8, in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
inline Where b_element(int lane, int i, int k, bool tf32) {
  const int group = lane >> 2, in_group = lane % 4;
  if (tf32) return {i == 0 ? in_group : in_group + 4, group};
  if (k == 8) return {in_group * 2 + i, group};
  return {in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
}
inline Where c_element(int lane, int i) {
  return {i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}

struct Kind {
  MmaCase which;
  int k;
  DType operand;  // fp32: tf32
  bool half_accumulator;
};
inline constexpr Kind kKinds[] = {
    {MmaCase::fp16_k16, 16, DType::fp16, false}, {MmaCase::bf16_k16, 16, DType::bf16, false},
    {MmaCase::fp16_k8, 8, DType::fp16, false},   {MmaCase::bf16_k8, 8, DType::bf16, false},
    {MmaCase::tf32_k8, 8, DType::fp32, false},   {MmaCase::tf32_k4, 4, DType::fp32, false},
    {MmaCase::half_k16, 16, DType::fp16, true},  {MmaCase::half_k8, 8, DType::fp16, true}};

inline float rounded(DType operand, float v) {
  if (operand == DType::fp16) return static_cast<float>(Half(v));
  if (operand == DType::bf16) return static_cast<float>(BFloat16(v));
  return static_cast<float>(Tf32(v));
}
inline std::uint16_t bits16(DType operand, float v) {
  return operand == DType::fp16 ? Half(v).bits : BFloat16(v).bits;
}

struct Matrices {
  std::vector<float> a, b, c;  // 16 x k, k x 8, 16 x 8
};

inline std::vector<float> run_mma(auto& device, auto target, const Kind& kind, const Matrices& m) {
  const bool tf32 = kind.operand == DType::fp32;
  const int a_elements = 16 * kind.k / 32, b_elements = 8 * kind.k / 32;
  const int per = tf32 ? 1 : 2;
  std::vector<std::uint32_t> a(static_cast<std::size_t>(32 * a_elements / per)),
      b(static_cast<std::size_t>(32 * b_elements / per)), c(kind.half_accumulator ? 64U : 128U);
  const auto put = [&](std::vector<std::uint32_t>& words, int at, float v) {
    if (tf32) {
      words[static_cast<std::size_t>(at)] = std::bit_cast<std::uint32_t>(v);
    } else {
      words[static_cast<std::size_t>(at / 2)] |= static_cast<std::uint32_t>(bits16(kind.operand, v))
                                                 << (at % 2 * 16);
    }
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < a_elements; ++i) {
      const Where w = a_element(lane, i, kind.k, tf32);
      put(a, lane * a_elements + i, m.a[static_cast<std::size_t>(w.row * kind.k + w.column)]);
    }
    for (int i = 0; i < b_elements; ++i) {
      const Where w = b_element(lane, i, kind.k, tf32);
      put(b, lane * b_elements + i, m.b[static_cast<std::size_t>(w.row * 8 + w.column)]);
    }
    for (int i = 0; i < 4; ++i) {
      const Where w = c_element(lane, i);
      const float v = m.c[static_cast<std::size_t>(w.row * 8 + w.column)];
      if (kind.half_accumulator) {
        c[static_cast<std::size_t>(lane * 2 + i / 2)] |= static_cast<std::uint32_t>(Half(v).bits)
                                                         << (i % 2 * 16);
      } else {
        c[static_cast<std::size_t>(lane * 4 + i)] = std::bit_cast<std::uint32_t>(v);
      }
    }
  }
  std::uint32_t* d = device.upload(c);
  launch_mma(target, kind.which, device.upload(a), device.upload(b), d, d);
  const std::vector<std::uint32_t> got = device.download(d, c.size());
  std::vector<float> result(128);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Where w = c_element(lane, i);
      result[static_cast<std::size_t>(w.row * 8 + w.column)] =
          kind.half_accumulator
              ? static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(
                    got[static_cast<std::size_t>(lane * 2 + i / 2)] >> (i % 2 * 16))))
              : std::bit_cast<float>(got[static_cast<std::size_t>(lane * 4 + i)]);
    }
  return result;
}

}  // namespace roundoff::simt_test
