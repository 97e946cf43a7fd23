// Floating-point formats as data, and correct rounding to any of them.
//
// A format is the set of numbers (-1)^s m 2^(e - p + 1) with 0 <= m < 2^p and emin <= e <= emax
// (m < 2^(p-1), a subnormal, only at e = emin), and what stands at its edges: infinities, NaN,
// saturation. A new format is a row of format_rows().
// Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0 (e4m3, e5m2); OCP
// Microscaling Formats Specification 1.0 (fp6, fp4).
// All rounding is done on integers: it does not depend on the processor's rounding mode, FTZ or
// DAZ.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/dtype.h"

namespace roundoff {

namespace detail {
// 2^exponent, exponent in [-1074, 1023], without arithmetic on floating-point values.
constexpr double exp2_int(int exponent) {
  return exponent >= -1022
             ? std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52)
             : std::bit_cast<double>(std::uint64_t{1} << (exponent + 1074));
}
}  // namespace detail

struct Format {
  int precision = 24;      // p: significant bits, the hidden bit included; 2 to 53
  int emin = -126;         // exponent of the smallest normal number, 2^emin
  int emax = 127;          // exponent of the largest binade
  bool infinities = true;  // without them an overflow gives NaN, or saturates
  bool nan = true;
  bool saturates = false;  // an overflow, and an infinity, give the largest finite number

  // u = 2^-p: half an ulp of 1, the largest relative error of rounding to nearest.
  constexpr double unit_roundoff() const { return detail::exp2_int(-precision); }
  constexpr double min_normal() const { return detail::exp2_int(emin); }
  constexpr int min_subnormal_exponent() const { return emin - precision + 1; }
  constexpr double min_subnormal() const { return detail::exp2_int(min_subnormal_exponent()); }
  // Half the smallest subnormal; fp64's, 2^-1075, is no double and is given as 0.
  constexpr double eta() const {
    return min_subnormal_exponent() > -1074 ? detail::exp2_int(min_subnormal_exponent() - 1) : 0.0;
  }
  // Significand of the largest finite number. A format with NaN but no infinities spends the top
  // pattern of its largest binade on NaN, as e4m3 does.
  constexpr std::uint64_t max_significand() const {
    return (std::uint64_t{1} << precision) - (nan && !infinities ? 2 : 1);
  }
  double max_finite() const;

  // Whether the format fills an IEEE-like layout exactly: sign, exponent with bias 1 - emin, p - 1
  // fraction bits; the top exponent is for infinities and NaN where there are infinities.
  constexpr bool has_layout() const { return exponent_bits() > 0 && width() <= 64; }
  // Width of the exponent field in bits; 0 where no whole number of bits holds the exponents.
  constexpr int exponent_bits() const {
    const auto fields = static_cast<unsigned>(emax - emin + 2 + (infinities ? 1 : 0));
    return std::has_single_bit(fields) ? std::countr_zero(fields) : 0;
  }
  constexpr int fraction_bits() const { return precision - 1; }
  constexpr int width() const { return 1 + exponent_bits() + fraction_bits(); }

  friend constexpr bool operator==(const Format&, const Format&) = default;
};

inline constexpr Format kFp64{53, -1022, 1023};
inline constexpr Format kFp32{24, -126, 127};
inline constexpr Format kTf32{11, -126, 127};
inline constexpr Format kFp16{11, -14, 15};
inline constexpr Format kBf16{8, -126, 127};
inline constexpr Format kFp8E5M2{3, -14, 15};
inline constexpr Format kFp8E4M3{4, -6, 8, false, true, true};
inline constexpr Format kFp6E3M2{3, -2, 4, false, false, true};
inline constexpr Format kFp6E2M3{4, 0, 2, false, false, true};
inline constexpr Format kFp4E2M1{2, 0, 2, false, false, true};

struct FormatRow {
  std::string_view name;
  Format format;
};
// Every named format, widest first.
std::span<const FormatRow> format_rows();

// Reads a name of format_rows() (or the part after its dash, "e4m3"), or "p=P,emin=E,emax=E" with,
// optionally, "infinities=", "nan=" and "saturates=" yes or no (yes, yes, no unless given). Throws
// an Error that says what is wrong. Limits: 2 <= p <= 53, emin <= emax <= 1023, emin - p + 1 >=
// -1074, so that fp64 holds every number.
Format parse_format(std::string_view text);
// The row's name, or the text that parse_format reads.
std::string format_name(const Format& format);
// Throws, naming the field, where `format` leaves the limits above or contradicts itself.
void check_format(const Format& format);
// The format that a floating dtype stores; throws for an integer type.
Format format_of(DType dtype);

// rne: to nearest, ties to even; rz: towards zero; rd, ru: towards minus and plus infinity;
// sr: stochastic, up in magnitude with probability equal to the discarded fraction of an ulp.
enum class RoundingMode : unsigned char { rne, rz, rd, ru, sr };
std::string_view name(RoundingMode mode);
RoundingMode parse_rounding_mode(std::string_view text);

enum class ValueClass : unsigned char { zero, subnormal, normal, infinite, nan };
std::string_view name(ValueClass c);

struct Rounded {
  double value = 0.0;  // exactly the number in the format
  ValueClass value_class = ValueClass::zero;
  bool inexact = false;
  bool overflow = false;  // the rounded value lay beyond the largest finite number
  bool invalid = false;   // NaN asked of a format without NaN; the value is the largest finite one
  // (value - exact) / ulp, ulp being the format's spacing at the exact value, at most that of the
  // largest binade; infinite after an overflow to infinity, NaN for NaN.
  double error_ulp = 0.0;
};

// (-1)^negative (significand + rest) 2^exponent, where rest is 0, or lies in (0, 1) if `sticky`;
// with `sticky` the significand's top bit must be set.
struct ExactValue {
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0;
  bool sticky = false;
};

// Rounds once. `random` is uniform over 64 bits and read only for sr, where the probability is
// exact to 2^-64: exactly the discarded fraction wherever 64 bits hold that fraction (always for a
// result that is normal). The sign of a zero and of a NaN is kept, and as much of a NaN's payload
// as fits. Overflow: as if the exponent had no bound, then to an infinity, NaN or the largest
// finite number, by mode and format.
Rounded round_to_format(double value, const Format& format, RoundingMode mode = RoundingMode::rne,
                        std::uint64_t random = 0);
Rounded round_to_format(float value, const Format& format, RoundingMode mode = RoundingMode::rne,
                        std::uint64_t random = 0);
Rounded round_to_format(const ExactValue& value, const Format& format,
                        RoundingMode mode = RoundingMode::rne, std::uint64_t random = 0);

// The class of a double as a member of `format`, by its magnitude.
ValueClass classify(double value, const Format& format);

// Bit patterns, in the low width() bits. Both throw where the format has no layout; encode throws
// for a value that the format does not hold. NaN is quiet and keeps sign and leading payload.
std::uint64_t encode(double value, const Format& format);
double decode(std::uint64_t bits, const Format& format);

}  // namespace roundoff
