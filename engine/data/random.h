// Draws in sequence from Philox (kernels/base/philox.h): every sequence is a pure function of seed,
// use and where it is used.
#pragma once

#include <cstdint>

#include "kernels/base/philox.h"

namespace roundoff {

// What a sequence is for; two uses of one seed never share numbers, nor do operations' tensors.
enum class RandomUse : std::uint32_t {
  shuffle = 0xDA7A0001,
  glyphs = 0xDA7A0002,
  initial_weights = 0xDA7A0003,
  checks = 0xDA7A0004,
  rounding = 0xDA7A0005,  // kRoundingTensor of kernels/base/stochastic.h
  corruption = 0xDA7A0006
};
static_assert(static_cast<std::uint32_t>(RandomUse::shuffle) >= kReservedTensors);

class RandomStream {
 public:
  // Both step and sample below 2^32.
  RandomStream(std::uint64_t seed, RandomUse use, std::uint64_t step, std::uint32_t sample = 0)
      : stream_(philox_stream(seed, step, static_cast<std::uint64_t>(use))), sample_(sample) {}

  // At most 2^34 words.
  std::uint32_t bits() {
    if (used_ == 4) {
      block_ = stream_.block(sample_, next_block_++);
      used_ = 0;
    }
    return block_.word[used_++];
  }
  // Uniform over [0, n), n >= 1, without bias: draws that would favour small values are repeated.
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t unfair = (0 - n) % n;  // 2^64 mod n
    for (;;) {
      const std::uint64_t high = bits();
      const std::uint64_t draw = high << 32 | bits();
      if (draw >= unfair) return draw % n;
    }
  }
  // Uniform over [0, 1), 32 bits.
  double uniform() { return bits() * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Standard normal; takes two words.
  double normal() {
    const std::uint32_t a = bits();
    return normal_pair(a, bits()).first;
  }

 private:
  PhiloxStream stream_;
  std::uint32_t sample_;
  std::uint32_t next_block_ = 0;
  PhiloxBlock block_{};
  unsigned used_ = 4;
};

}  // namespace roundoff
