#include "kernels/base/format.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace roundoff {

namespace {

constexpr std::array kRows = std::to_array<FormatRow>({
    {"fp64", kFp64},
    {"fp32", kFp32},
    {"tf32", kTf32},
    {"fp16", kFp16},
    {"bf16", kBf16},
    {"fp8-e5m2", kFp8E5M2},
    {"fp8-e4m3", kFp8E4M3},
    {"fp6-e3m2", kFp6E3M2},
    {"fp6-e2m3", kFp6E2M3},
    {"fp4-e2m1", kFp4E2M1},
});

constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
constexpr std::uint64_t kInfinityBits = std::uint64_t{0x7FF} << 52;
constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
constexpr std::uint64_t kQuiet = std::uint64_t{1} << 51;

// significand * 2^exponent as a double, which must hold it exactly; significand < 2^53.
double pack(bool negative, std::uint64_t significand, int exponent) {
  const std::uint64_t sign = negative ? kSign : 0;
  if (significand == 0) return std::bit_cast<double>(sign);
  const int left = std::countl_zero(significand) - 11;  // to bring the top bit to bit 52
  const int field = exponent - left + 52 + 1023;
  if (field >= 1) {
    const std::uint64_t fraction = (significand << left) & kFraction;
    return std::bit_cast<double>(sign | (static_cast<std::uint64_t>(field) << 52) | fraction);
  }
  const int up = exponent + 1074;  // a subnormal double counts 2^-1074
  return std::bit_cast<double>(sign | (up >= 0 ? significand << up : significand >> -up));
}

ExactValue unpack(std::uint64_t bits) {
  const auto field = static_cast<int>((bits >> 52) & 0x7FF);
  ExactValue x;
  x.negative = (bits & kSign) != 0;
  x.significand = field == 0 ? bits & kFraction : (bits & kFraction) | (kFraction + 1);
  x.exponent = (field == 0 ? 1 : field) - 1075;
  return x;
}

Rounded largest(bool negative, const Format& f) {
  Rounded r;
  r.value = pack(negative, f.max_significand(), f.emax - f.precision + 1);
  r.value_class = ValueClass::normal;
  return r;
}

Rounded not_a_number(std::uint64_t bits, const Format& f) {
  Rounded r;
  if (!f.nan) {
    r = largest(false, f);
    r.invalid = true;
  } else {
    r.value = std::bit_cast<double>(bits | kQuiet);
    r.value_class = ValueClass::nan;
  }
  r.error_ulp = std::numeric_limits<double>::quiet_NaN();
  return r;
}

// What stands beyond the largest finite number.
Rounded beyond(bool negative, const Format& f) {
  const std::uint64_t sign = negative ? kSign : 0;
  if (f.saturates) return largest(negative, f);
  if (!f.infinities) return not_a_number(sign | kInfinityBits | kQuiet, f);
  Rounded r;
  r.value = std::bit_cast<double>(sign | kInfinityBits);
  r.value_class = ValueClass::infinite;
  return r;
}

bool stays_finite(RoundingMode mode, bool negative) {
  return mode == RoundingMode::rz || (mode == RoundingMode::rd && !negative) ||
         (mode == RoundingMode::ru && negative);
}

Rounded round_special(std::uint64_t bits, const Format& f) {
  if ((bits & kFraction) != 0) return not_a_number(bits, f);
  Rounded r = beyond((bits & kSign) != 0, f);
  r.overflow = r.inexact = r.value_class != ValueClass::infinite;
  if (r.overflow) {
    r.error_ulp = r.value_class == ValueClass::nan
                      ? std::numeric_limits<double>::quiet_NaN()
                      : std::copysign(std::numeric_limits<double>::infinity(), -r.value);
  }
  return r;
}

}  // namespace

double Format::max_finite() const { return largest(false, *this).value; }

std::span<const FormatRow> format_rows() { return kRows; }

Rounded round_to_format(const ExactValue& x, const Format& f, RoundingMode mode,
                        std::uint64_t random) {
  const int p = f.precision;
  if (x.significand == 0) {
    ROUNDOFF_CHECK(!x.sticky, "round", "a sticky rest below an empty significand");
    Rounded r;
    r.value = pack(x.negative, 0, 0);
    return r;
  }
  const int lead = std::countl_zero(x.significand);
  ROUNDOFF_CHECK(lead == 0 || !x.sticky, "round", "a sticky rest needs all 64 bits above it");
  const std::uint64_t m = x.significand << lead;  // value = m 2^e
  const int e = x.exponent - lead;
  const int top = e + 63;  // floor(log2 |value|)
  int quantum = (top < f.emin ? f.emin : top) - p + 1;
  const int drop = quantum - e;  // >= 11 bits leave the significand

  std::uint64_t kept = drop < 64 ? m >> drop : 0;
  const bool half = drop <= 64 && ((m >> (drop - 1)) & 1) != 0;
  const bool below = x.sticky || drop > 64 || (m & ((std::uint64_t{1} << (drop - 1)) - 1)) != 0;
  const bool inexact = half || below;
  // The discarded fraction of a quantum, in units of 2^-64.
  const std::uint64_t discarded = drop < 64 ? m << (64 - drop) : drop < 128 ? m >> (drop - 64) : 0;
  bool up = false;
  switch (mode) {
    case RoundingMode::rne:
      up = half && (below || (kept & 1) != 0);
      break;
    case RoundingMode::rz:
      break;
    case RoundingMode::rd:
      up = inexact && x.negative;
      break;
    case RoundingMode::ru:
      up = inexact && !x.negative;
      break;
    case RoundingMode::sr:
      up = random < discarded;
      break;
  }
  kept += up ? 1 : 0;

  const int max_quantum = f.emax - p + 1;
  const std::uint64_t carried = std::uint64_t{1} << p;
  const bool carry = kept == carried;
  if (carry) {
    kept >>= 1;
    ++quantum;
  }
  const double sign = x.negative ? -1.0 : 1.0;
  if (quantum > max_quantum || (quantum == max_quantum && kept > f.max_significand())) {
    Rounded r = stays_finite(mode, x.negative) ? largest(x.negative, f) : beyond(x.negative, f);
    r.overflow = r.inexact = true;
    if (r.value_class == ValueClass::infinite) {
      r.error_ulp = r.value;
    } else if (r.value_class != ValueClass::nan) {
      const double exact = std::ldexp(static_cast<double>(m), e - max_quantum);
      r.error_ulp = sign * (static_cast<double>(f.max_significand()) - exact);
    }
    return r;
  }
  Rounded r;
  r.value = pack(x.negative, kept, quantum);
  r.value_class = kept == 0               ? ValueClass::zero
                  : kept < (carried >> 1) ? ValueClass::subnormal
                                          : ValueClass::normal;
  r.inexact = inexact;
  const double fraction = std::ldexp(static_cast<double>(discarded), -64);
  r.error_ulp = inexact ? sign * ((up ? 1.0 : 0.0) - fraction) : 0.0;
  return r;
}

Rounded round_to_format(double value, const Format& f, RoundingMode mode, std::uint64_t random) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  if ((bits & kInfinityBits) == kInfinityBits) return round_special(bits, f);
  return round_to_format(unpack(bits), f, mode, random);
}

Rounded round_to_format(float value, const Format& f, RoundingMode mode, std::uint64_t random) {
  const std::uint64_t bits = detail::widen_fp32_bits(std::bit_cast<std::uint32_t>(value));
  return round_to_format(std::bit_cast<double>(bits), f, mode, random);
}

ValueClass classify(double value, const Format& f) {
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(value) & ~kSign;
  if (magnitude > kInfinityBits) return ValueClass::nan;
  if (magnitude == kInfinityBits) return ValueClass::infinite;
  if (magnitude == 0) return ValueClass::zero;
  // Magnitudes of doubles are ordered as their patterns are.
  return magnitude < std::bit_cast<std::uint64_t>(f.min_normal()) ? ValueClass::subnormal
                                                                  : ValueClass::normal;
}

std::uint64_t encode(double value, const Format& f) {
  ROUNDOFF_CHECK(f.has_layout(), "encode", format_name(f), " has no bit layout");
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = (bits >> 63) << (f.width() - 1);
  const std::uint64_t all_ones = ((std::uint64_t{1} << f.exponent_bits()) - 1) << f.fraction_bits();
  if ((bits & ~kSign) > kInfinityBits) {
    ROUNDOFF_CHECK(f.nan, "encode", format_name(f), " has no NaN");
    if (!f.infinities) return sign | ((std::uint64_t{1} << (f.width() - 1)) - 1);
    return sign | all_ones | (((bits & kFraction) | kQuiet) >> (52 - f.fraction_bits()));
  }
  if ((bits & ~kSign) == kInfinityBits) {
    ROUNDOFF_CHECK(f.infinities, "encode", format_name(f), " has no infinities");
    return sign | all_ones;
  }
  const Rounded r = round_to_format(value, f, RoundingMode::rz);
  ROUNDOFF_CHECK(!r.inexact, "encode", value, " is not a number of ", format_name(f));
  const ExactValue x = unpack(bits);
  if (x.significand == 0) return sign;
  const int top = x.exponent + 63 - std::countl_zero(x.significand);
  const int quantum = (top < f.emin ? f.emin : top) - f.precision + 1;
  const std::uint64_t m = x.significand >> (quantum - x.exponent);
  // The hidden bit of a normal number runs on into the exponent field.
  const auto below = static_cast<std::uint64_t>(top < f.emin ? 0 : top - f.emin);
  return sign | ((below << f.fraction_bits()) + m);
}

double decode(std::uint64_t bits, const Format& f) {
  ROUNDOFF_CHECK(f.has_layout(), "decode", format_name(f), " has no bit layout");
  ROUNDOFF_CHECK(f.width() == 64 || (bits >> f.width()) == 0, "decode", "a pattern wider than the ",
                 f.width(), " bits of ", format_name(f));
  const bool negative = ((bits >> (f.width() - 1)) & 1) != 0;
  const std::uint64_t sign = negative ? kSign : 0;
  const std::uint64_t top_field = (std::uint64_t{1} << f.exponent_bits()) - 1;
  const std::uint64_t field = (bits >> f.fraction_bits()) & top_field;
  const std::uint64_t hidden = std::uint64_t{1} << f.fraction_bits();
  const std::uint64_t fraction = bits & (hidden - 1);
  if (field == top_field) {
    if (f.infinities && fraction == 0) return std::bit_cast<double>(sign | kInfinityBits);
    if (f.infinities || (f.nan && fraction == hidden - 1)) {
      const std::uint64_t payload = fraction << (52 - f.fraction_bits());
      return std::bit_cast<double>(sign | kInfinityBits | kQuiet | payload);
    }
  }
  const int exponent = f.min_subnormal_exponent() + (field == 0 ? 0 : static_cast<int>(field) - 1);
  return pack(negative, field == 0 ? fraction : fraction | hidden, exponent);
}

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return kFp64;
    case DType::fp32:
      return kFp32;
    case DType::fp16:
      return kFp16;
    case DType::bf16:
      return kBf16;
    default:
      fail("format", name(dtype), " is no floating-point format");
  }
}

void check_format(const Format& f) {
  ROUNDOFF_CHECK(f.precision >= 2 && f.precision <= 53, "format", "p = ", f.precision,
                 ", 2 to 53 expected");
  ROUNDOFF_CHECK(f.emax <= 1023, "format", "emax = ", f.emax, ", at most 1023 expected");
  ROUNDOFF_CHECK(f.emin <= f.emax, "format", "emin = ", f.emin, " above emax = ", f.emax);
  ROUNDOFF_CHECK(f.emin >= f.precision - 1075, "format", "emin = ", f.emin,
                 " with p = ", f.precision,
                 ", at least p - 1075 expected (a smallest subnormal of 2^-1074)");
  ROUNDOFF_CHECK(f.nan || !f.infinities, "format",
                 "infinities without NaN (inf - inf has no result)");
  ROUNDOFF_CHECK(f.nan || f.saturates, "format",
                 "without infinities and NaN an overflow can only saturate");
}

namespace {

int parse_int(std::string_view key, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ROUNDOFF_CHECK(error == std::errc{} && end == text.data() + text.size(), "format", key, " = '",
                 text, "', an integer expected");
  return value;
}

bool parse_yes(std::string_view key, std::string_view text) {
  ROUNDOFF_CHECK(text == "yes" || text == "no", "format", key, " = '", text,
                 "', yes or no expected");
  return text == "yes";
}

std::string known_names() {
  std::string names;
  for (const FormatRow& row : kRows) names += std::string(row.name) + ", ";
  return names + "or p=P,emin=E,emax=E";
}

}  // namespace

Format parse_format(std::string_view text) {
  for (const FormatRow& row : kRows)
    if (row.name == text || row.name.substr(row.name.find('-') + 1) == text) return row.format;
  ROUNDOFF_CHECK(text.find('=') != std::string_view::npos, "format", "unknown format '", text,
                 "'; ", known_names(), " expected");
  static constexpr std::array<std::string_view, 6> kKeys = {"p",          "emin", "emax",
                                                            "infinities", "nan",  "saturates"};
  std::array<bool, kKeys.size()> seen{};
  Format f;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = item.find('=');
    ROUNDOFF_CHECK(equals != std::string_view::npos, "format", "'", item, "' in '", text,
                   "', KEY=VALUE expected");
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    std::size_t which = 0;
    while (which < kKeys.size() && kKeys[which] != key) ++which;
    ROUNDOFF_CHECK(which < kKeys.size(), "format", "unknown field '", key,
                   "'; p, emin, emax, infinities, nan or saturates expected");
    ROUNDOFF_CHECK(!seen[which], "format", "field '", key, "' given twice");
    seen[which] = true;
    switch (which) {
      case 0:
        f.precision = parse_int(key, value);
        break;
      case 1:
        f.emin = parse_int(key, value);
        break;
      case 2:
        f.emax = parse_int(key, value);
        break;
      case 3:
        f.infinities = parse_yes(key, value);
        break;
      case 4:
        f.nan = parse_yes(key, value);
        break;
      default:
        f.saturates = parse_yes(key, value);
    }
  }
  for (std::size_t i = 0; i < 3; ++i)
    ROUNDOFF_CHECK(seen[i], "format", "'", text, "' lacks ", kKeys[i]);
  check_format(f);
  return f;
}

std::string format_name(const Format& f) {
  for (const FormatRow& row : kRows)
    if (row.format == f) return std::string(row.name);
  return concat("p=", f.precision, ",emin=", f.emin, ",emax=", f.emax,
                f.infinities ? "" : ",infinities=no", f.nan ? "" : ",nan=no",
                f.saturates ? ",saturates=yes" : "");
}

std::string_view name(RoundingMode mode) {
  switch (mode) {
    case RoundingMode::rne:
      return "rne";
    case RoundingMode::rz:
      return "rz";
    case RoundingMode::rd:
      return "rd";
    case RoundingMode::ru:
      return "ru";
    case RoundingMode::sr:
      return "sr";
  }
  return "?";
}

RoundingMode parse_rounding_mode(std::string_view text) {
  for (const RoundingMode m :
       {RoundingMode::rne, RoundingMode::rz, RoundingMode::rd, RoundingMode::ru, RoundingMode::sr})
    if (name(m) == text) return m;
  fail("rounding mode", "unknown mode '", text, "'; rne, rz, rd, ru or sr expected");
}

std::string_view name(ValueClass c) {
  switch (c) {
    case ValueClass::zero:
      return "zero";
    case ValueClass::subnormal:
      return "subnormal";
    case ValueClass::normal:
      return "normal";
    case ValueClass::infinite:
      return "infinite";
    case ValueClass::nan:
      return "nan";
  }
  return "?";
}

}  // namespace roundoff
