// Sums of fp32 products without any rounding but the last: an integer wide enough for every product
// of two fp32 (and hence fp16, bf16, tf32) values, as Kulisch's long accumulator. The oracle of
// sums over samples: what it gives depends on the terms alone, not on their order and not on how
// they are cut.
#pragma once

#include <array>
#include <cstdint>

namespace roundoff {

// U. Kulisch and W. L. Miranker, Computer Arithmetic in Theory and Practice, 1981.
class ExactSum {
 public:
  // Exact for finite values. Infinities and NaN are counted apart, and decide the sum as IEEE 754
  // would have them: infinities of both signs, or 0 times an infinity, are NaN.
  void add(float value) { add_product(value, 1.0F); }
  void add_product(float a, float b);
  void add(const ExactSum& other);

  // The sum rounded once, to nearest with ties to even; 0 is +0.
  float value() const;
  // The same in fp64.
  double to_double() const;

 private:
  // Digits of 32 bits, digit 0 weighing 2^kLow. Products reach from 2^-298 to 2^256; the rest is
  // room for 2^63 of them.
  static constexpr int kLow = -320;
  static constexpr int kDigits = 22;
  // Additions after which a digit may have left 63 bits.
  static constexpr std::int64_t kUncarried = std::int64_t{1} << 29;

  void carry();
  double rounded(int precision, int lowest) const;

  std::array<std::int64_t, kDigits> digits_{};
  std::int64_t uncarried_ = 0;
  bool nan_ = false, plus_infinity_ = false, minus_infinity_ = false;
};

}  // namespace roundoff
