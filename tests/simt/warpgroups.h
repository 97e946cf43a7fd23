// Kernels around wgmma.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"
#include "kernels/simt/tensor_map.h"

namespace roundoff {

enum class WgmmaOperand : int { fp16, bf16, tf32 };

// One wgmma on operands that stand in an image of shared memory, which is 1024-byte aligned.
struct WgmmaCase {
  WgmmaOperand operand = WgmmaOperand::bf16;
  int n = 64;
  bool half = false;            // fp16 accumulators
  bool a_in_registers = false;  // a[4] a thread, from a_registers
  bool mn_major_a = false;
  bool mn_major_b = false;
  bool accumulate = true;
  Swizzle swizzle_a = Swizzle::span128, swizzle_b = Swizzle::span128;
  unsigned a = 0, b = 0;  // places in the image
  unsigned leading_a = 16, stride_a = 1024, leading_b = 16, stride_b = 1024;
};
// d[thread * n / 2 + i] in place, for 128 threads; with fp16 accumulators as their values.
template <DeviceTarget T>
void launch_wgmma(T target, const WgmmaCase& c, const std::uint8_t* image, unsigned bytes,
                  const std::uint32_t* a_registers, float* d);

// C = A B^T by TMA, mbarriers and wgmma: A m x k, B n x k, bf16, row pitch a multiple of 16 bytes.
// Tiles of 128 x 64, k in steps of 64 through three stages; one producer and two consumers. With
// `cluster` of 2, two tiles of rows share B by multicast.
template <DeviceTarget T>
void launch_wgmma_gemm(T target, unsigned cluster, const TiledMap& a, const TiledMap& b, int m,
                       int n, int k, float* c);

// Two accumulators in flight at once, with one group left in flight between waits: d[2][128][4].
template <DeviceTarget T>
void launch_two_accumulators(T target, float* d);

enum class WgmmaMisuse : int {
  no_fence,
  fence_too_early,
  write_in_flight,
  read_in_flight,
  no_wait,
  no_commit,
  other_descriptor_in_warp,
  other_descriptor_in_lane,
  warp_is_missing,
  no_warpgroup,
  base_offset,
  beyond_shared,
  other_shape,
  divergent_fence,
  registers_the_wrong_way,
  too_many_registers,
};
template <DeviceTarget T>
void launch_wgmma_misuse(T target, WgmmaMisuse misuse, float* out);

}  // namespace roundoff
