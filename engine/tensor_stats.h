// What the values of a tensor do to their format: how their exponents are spread, how many are
// zero, subnormal, infinite or NaN, and how far the largest is from overflow.
#pragma once

#include <array>
#include <cstdint>

#include "engine/tensor.h"
#include "kernels/base/format.h"

namespace roundoff {

struct TensorStats {
  // Exponents that are told apart; what is smaller or larger (fp64 only) is counted at the ends.
  static constexpr int kLowest = -160;
  static constexpr int kHighest = 128;
  static constexpr std::size_t kBins = kHighest - kLowest + 1;

  DType dtype = DType::fp32;  // the tensor's
  std::int64_t elements = 0;
  std::int64_t zeros = 0;
  std::int64_t subnormals = 0;  // of the tensor's format
  std::int64_t infinities = 0;
  std::int64_t nans = 0;
  // Of non-zero values v: |v| < 2^-24, the smallest fp16; and |v| <= 2^-25, which fp16 rounds to 0.
  std::int64_t below_fp16 = 0;
  std::int64_t flushed_fp16 = 0;
  double amax = 0;  // largest finite magnitude
  // exponents[e - kLowest]: finite non-zero values with floor(log2 |v|) = e.
  std::array<std::int64_t, kBins> exponents{};

  bool finite() const { return infinities == 0 && nans == 0; }
  std::int64_t nonzero() const { return elements - zeros - infinities - nans; }
  std::int64_t at_exponent(int e) const { return exponents[static_cast<std::size_t>(e - kLowest)]; }
  // Finite non-zero values below 2^e.
  std::int64_t below_exponent(int e) const;
  // The overflow margin, in powers of two: how often the largest magnitude can be doubled before
  // it overflows the tensor's format; 0 where it is in the highest binade or nothing is finite.
  // For a tensor of zeros it is that of the smallest subnormal.
  int doublings_left() const;
  // Adds another tensor's counts.
  void add(const TensorStats& other);
};

// One pass over the tensor. `factor`, in fp32 and with one rounding as the optimizer unscales:
// counts v * factor in place of v. A tensor of a device is copied to the host, which waits for all
// work of its stream. Throws for an integer tensor.
TensorStats tensor_stats(const Tensor& tensor, float factor = 1.0F);

// Whether all values are finite; stops at the first that is not.
bool all_finite(const Tensor& tensor);

// Whether a value of this magnitude, rounded to nearest, is finite in the format.
bool fits(double magnitude, const Format& format);

}  // namespace roundoff
