// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A number is a function of where it is used and of nothing
// else: not of the device, the launch geometry, or how a batch is cut.
//
// Layout. Element e of sample s of tensor t at step k under a seed is word e mod 4 of the block
//
//   key      = { seed bits 0..31, seed bits 32..63 }
//   counter  = { floor(e / 4), s, k, t }
//
// with s < 2^32 (the position in the epoch's order), k < 2^32, t < 2^32 and e < 2^34. Different
// places never share a counter. A tensor without samples uses s = 0. Operations number their
// tensors below kReservedTensors; numbers from there on are for draws that belong to no operation
// (initialisation, shuffling, stochastic rounding).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/base/target.h"

namespace roundoff {

struct PhiloxBlock {
  std::uint32_t word[4];
};

inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9U;  // the golden ratio
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85U;  // sqrt(3) - 1

inline constexpr std::uint64_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr std::uint64_t kPhiloxMultiplier1 = 0xCD9E8D57U;

// The block function: ten rounds of two 32 x 32 -> 64 bit multiplications.
ROUNDOFF_HD constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                             std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = kPhiloxMultiplier0 * counter.word[0];
    const std::uint64_t b = kPhiloxMultiplier1 * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(a)}};
    key0 += kPhiloxKeyStep0;
    key1 += kPhiloxKeyStep1;
  }
  return counter;
}

inline constexpr std::uint32_t kReservedTensors = 0x80000000U;

// Which draws: those of one tensor at one step under one seed.
struct PhiloxStream {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t tensor = 0;

  // Elements 4 b to 4 b + 3 of a sample.
  ROUNDOFF_HD constexpr PhiloxBlock block(std::uint32_t sample, std::uint32_t b) const {
    return philox4x32({{b, sample, step, tensor}}, static_cast<std::uint32_t>(seed),
                      static_cast<std::uint32_t>(seed >> 32));
  }
  ROUNDOFF_HD constexpr std::uint32_t bits(std::uint32_t sample, std::uint64_t element) const {
    return block(sample, static_cast<std::uint32_t>(element / 4)).word[element % 4];
  }
};

// A stream, from numbers as a program counts them. Throws where one leaves the layout's range.
inline PhiloxStream philox_stream(std::uint64_t seed, std::uint64_t step, std::uint64_t tensor) {
  ROUNDOFF_CHECK(step >> 32 == 0, "philox", "step ", step, ", below 2^32 expected");
  ROUNDOFF_CHECK(tensor >> 32 == 0, "philox", "tensor number ", tensor, ", below 2^32 expected");
  return {seed, static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(tensor)};
}

// Uniform in [0, 1): a multiple of 2^-24, exact in fp32.
ROUNDOFF_HD constexpr float uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

struct NormalPair {
  double first, second;
};
// Two independent standard normal numbers from two words (Box and Muller 1958), in fp64; at most
// 6.67 in magnitude.
ROUNDOFF_HD inline NormalPair normal_pair(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const double angle = 6.283185307179586 * (static_cast<double>(b) * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}
// Element e takes words 2 floor(e/2) and the one after of its block: (0, 1) or (2, 3); the cosine
// for even e, the sine for odd.
ROUNDOFF_HD inline double normal(const PhiloxStream& stream, std::uint32_t sample,
                                 std::uint64_t element) {
  const PhiloxBlock r = stream.block(sample, static_cast<std::uint32_t>(element / 4));
  const bool upper = (element & 2U) != 0;
  const NormalPair pair = normal_pair(r.word[upper ? 2 : 0], r.word[upper ? 3 : 1]);
  return (element & 1U) != 0 ? pair.second : pair.first;
}

}  // namespace roundoff
