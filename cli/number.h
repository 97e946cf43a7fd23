// Numbers as people write them, kept exactly: no decimal passes through fp64 before it is rounded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/format.h"

namespace roundoff::cli {

// (-1)^negative mantissa 10^exponent10 2^exponent2, an infinity, or NaN.
class ExactNumber {
 public:
  // Reads an optional sign and then "inf", "infinity" or "nan" (any case), decimal digits with an
  // optional point and exponent (1, .5, 1e-7), or a C hexadecimal number (0x1.8p-3). Throws
  // UsageError, naming `text`, for anything else and for more than 5,000 characters.
  static ExactNumber parse(std::string_view text);

  bool is_nan() const { return kind_ == Kind::nan; }
  bool is_infinite() const { return kind_ == Kind::infinite; }
  bool is_zero() const { return kind_ == Kind::finite && mantissa_.empty(); }
  bool negative() const { return negative_; }

  // Times a finite number other than 0, exactly.
  ExactNumber times(const ExactNumber& factor) const;
  // Times 2^k, exactly.
  ExactNumber times_exp2(int k) const;

  // Rounded once, whatever the format.
  Rounded round(const Format& format, RoundingMode mode = RoundingMode::rne,
                std::uint64_t random = 0) const;
  // The nearest double, ties to even.
  double nearest_double() const { return round(kFp64).value; }
  // floor(log2 |x|) of a finite number other than 0. Beyond +-30,000 only the sign is meant.
  int exponent() const;

 private:
  enum class Kind : unsigned char { finite, infinite, nan };
  // Leading 64 bits, and whether anything follows them. Finite and not 0 only.
  ExactValue leading_bits() const;

  Kind kind_ = Kind::finite;
  bool negative_ = false;
  std::vector<std::uint32_t> mantissa_;  // little-endian, no leading zero limb; empty is 0
  int exponent10_ = 0;
  int exponent2_ = 0;
};

}  // namespace roundoff::cli
