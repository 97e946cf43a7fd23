// Random numbers of the data side: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", 2011), keyed by seed, use and stream, so that every draw is a pure
// function of what it is for.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace roundoff {

// What a stream is for; two uses of one seed never share numbers.
enum class RandomUse : std::uint32_t {
  shuffle = 0x53480001,
  glyphs = 0x474C0001,
  initial_weights = 0x57490001
};

// A sequence of draws: key = seed, counter = (position, use, stream).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, RandomUse use, std::uint64_t stream)
      : seed_(seed), use_(use), stream_(stream) {}

  std::uint32_t bits() {
    if (used_ == 4) {
      block_ = philox();
      ++position_;
      used_ = 0;
    }
    return block_[used_++];
  }
  // Uniform over [0, n), n >= 1, without bias: draws that would favour small values are repeated.
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t threshold = (0 - n) % n;
    for (;;) {
      const std::uint64_t high = bits();
      const std::uint64_t draw = high << 32 | bits();
      if (draw >= threshold) return draw % n;
    }
  }
  // Uniform over [0, 1), 32 bits.
  double uniform() { return bits() * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Standard normal (Box and Muller's cosine).
  double normal() {
    const double radius = std::sqrt(-2 * std::log((bits() + 0.5) * 0x1p-32));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  std::array<std::uint32_t, 4> philox() const {
    std::array<std::uint32_t, 4> x{position_, static_cast<std::uint32_t>(use_),
                                   static_cast<std::uint32_t>(stream_),
                                   static_cast<std::uint32_t>(stream_ >> 32)};
    auto key0 = static_cast<std::uint32_t>(seed_);
    auto key1 = static_cast<std::uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * x[0];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57} * x[2];
      x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key0, static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key1, static_cast<std::uint32_t>(a)};
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    return x;
  }
  std::uint64_t seed_;
  RandomUse use_;
  std::uint64_t stream_;
  std::uint32_t position_ = 0;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
};

}  // namespace roundoff
