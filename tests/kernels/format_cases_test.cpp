// Public bug reports on number formats as tests: the same inputs through every route.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/kernels/narrowing.h"

using namespace roundoff;
using test::check_narrowing;

namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// (from, want) and the same with the sign bit of both set.
template <class T>
void check_both_signs(std::uint32_t from, std::uint16_t want) {
  check_narrowing<T>(from, want);
  check_narrowing<T>(from | 0x80000000U, static_cast<std::uint16_t>(want | 0x8000U));
}

}  // namespace

TEST_CASE("case 1 [FMT] fp32 just above half the smallest fp16 subnormal") {
  check_both_signs<Half>(0x33000000, 0x0000);
  check_both_signs<Half>(0x33000001, 0x0001);
  check_both_signs<Half>(0x33BFFFFF, 0x0001);
  check_both_signs<Half>(0x33C00000, 0x0002);
  check_both_signs<Half>(bits(6.0e-8F), 0x0001);
  CHECK(static_cast<double>(Half::from_bits(1)) == 5.960464477539063e-08);
  // The neighbours that only fp64 has.
  const double tie = std::ldexp(1.0, -25);
  CHECK(Half(std::nextafter(tie, 1.0)).bits == 0x0001);
  CHECK(Half(std::nextafter(tie, 0.0)).bits == 0x0000);
  CHECK(test::narrow_bulk<Half>(std::nextafter(tie, 1.0)) == 0x0001);
  CHECK(round_to_format(std::nextafter(tie, 1.0), kFp16).value == 2 * tie);
  CHECK(round_to_format(tie, kFp16).value_class == ValueClass::zero);
}

TEST_CASE("case 2 [FMT] fp16 ties go to even, not away") {
  check_both_signs<Half>(0x34200000, 0x0002);
  check_both_signs<Half>(0x34600000, 0x0004);
  check_both_signs<Half>(0x40001000, 0x4000);
  check_both_signs<Half>(0x40003000, 0x4002);
  check_both_signs<Half>(0x3F801000, 0x3C00);
  check_both_signs<Half>(0x3F803000, 0x3C02);
  check_both_signs<Half>(bits(2049.0F), 0x6800);
  check_both_signs<Half>(bits(2051.0F), 0x6802);
  CHECK(static_cast<float>(Half::from_bits(0x6800)) == 2048.0F);
  CHECK(static_cast<float>(Half::from_bits(0x6802)) == 2052.0F);
}

TEST_CASE("case 3 [FMT] fp16 overflow threshold") {
  check_both_signs<Half>(0x477FE000, 0x7BFF);
  check_both_signs<Half>(0x477FEFFF, 0x7BFF);
  check_both_signs<Half>(0x477FF000, 0x7C00);
  check_both_signs<Half>(bits(70000.0F), 0x7C00);
  check_both_signs<Half>(bits(std::numeric_limits<float>::max()), 0x7C00);
  CHECK(Half(std::nextafter(65520.0, 0.0)).bits == 0x7BFF);
  CHECK(Half(std::numeric_limits<double>::max()).bits == 0x7C00);
  CHECK(round_to_format(65520.0, kFp16).overflow);
  CHECK_FALSE(round_to_format(std::nextafter(65520.0, 0.0), kFp16).overflow);
}

TEST_CASE("case 6 [FMT] bf16 conversion must round, not truncate") {
  check_both_signs<BFloat16>(0x3E89CCD5, 0x3E8A);
  check_both_signs<BFloat16>(0x3F808000, 0x3F80);
  check_both_signs<BFloat16>(0x3F818000, 0x3F82);
  check_both_signs<BFloat16>(0x3F808001, 0x3F81);
  check_both_signs<BFloat16>(0x3DCCCCCD, 0x3DCD);
  check_both_signs<BFloat16>(bits(257.0F), 0x4380);
  check_both_signs<BFloat16>(bits(259.0F), 0x4382);
  CHECK(static_cast<float>(BFloat16::from_bits(0x3E8A)) == 0.26953125F);
  CHECK(static_cast<float>(BFloat16::from_bits(0x3DCD)) == 0.10009765625F);
  CHECK(static_cast<float>(BFloat16::from_bits(0x4380)) == 256.0F);
  CHECK(static_cast<float>(BFloat16::from_bits(0x4382)) == 260.0F);
}

TEST_CASE("case 7 [FMT] bf16 NaN must stay NaN") {
  const std::pair<std::uint32_t, std::uint16_t> cases[] = {{0x7F800001, 0x7FC0},
                                                           {0xFF800001, 0xFFC0},
                                                           {0x7FFFFFFF, 0x7FFF},
                                                           {0xFFFFFFFF, 0xFFFF},
                                                           {0x7FFF8000, 0x7FFF}};
  for (const auto& [from, want] : cases) {
    check_narrowing<BFloat16>(from, want);
    CHECK(std::isnan(static_cast<float>(BFloat16::from_bits(want))));
    CHECK(round_to_format(std::bit_cast<float>(from), kBf16).value_class == ValueClass::nan);
  }
  // The same kind in fp16: a payload that lives only in the bits that are dropped.
  check_both_signs<Half>(0x7F800001, 0x7E00);
  check_both_signs<Half>(0x7FFFFFFF, 0x7FFF);
  CHECK(std::isnan(static_cast<float>(Half(std::bit_cast<double>(0x7FF0000000000001ULL)))));
  CHECK(std::isnan(static_cast<float>(BFloat16(std::bit_cast<double>(0xFFF0000000000001ULL)))));
}

TEST_CASE("case 8 [FMT] bf16 top and bottom of range") {
  check_both_signs<BFloat16>(0x7F7F7FFF, 0x7F7F);
  check_both_signs<BFloat16>(0x7F7F8000, 0x7F80);
  check_both_signs<BFloat16>(0x7F7FFFFF, 0x7F80);
  check_both_signs<BFloat16>(0x00008000, 0x0000);
  check_both_signs<BFloat16>(0x00008001, 0x0001);
  check_both_signs<BFloat16>(0x00018000, 0x0002);
  CHECK(static_cast<double>(BFloat16::from_bits(0x7F7F)) == 3.3895313892515355e+38);
}

TEST_CASE("case 10 [FMT] sign of NaN, -0 and inf through both conversions") {
  check_narrowing<Half>(0xFFC00000, 0xFE00);
  check_narrowing<BFloat16>(0xFFC00000, 0xFFC0);
  check_both_signs<Half>(0x00000000, 0x0000);
  check_both_signs<BFloat16>(0x00000000, 0x0000);
  check_both_signs<Half>(0x7F800000, 0x7C00);
  check_both_signs<BFloat16>(0x7F800000, 0x7F80);
  check_narrowing<Half>(bits(-std::ldexp(1.0F, -26)), 0x8000);
  // And back.
  for (const int p : {0x8000, 0x0000, 0x7C00, 0xFC00, 0xFE00, 0x7E00}) {
    const auto pattern = static_cast<std::uint16_t>(p);
    const auto wide = static_cast<float>(Half::from_bits(pattern));
    CHECK(std::signbit(wide) == (pattern >= 0x8000));
    CHECK(std::isnan(wide) == ((pattern & 0x3FF) != 0));
    CHECK(Half(wide).bits == pattern);
    CHECK(Half(static_cast<double>(Half::from_bits(pattern))).bits == pattern);
  }
  for (const int p : {0x8000, 0x0000, 0x7F80, 0xFF80, 0xFFC0, 0x7FC0}) {
    const auto pattern = static_cast<std::uint16_t>(p);
    const auto wide = static_cast<float>(BFloat16::from_bits(pattern));
    CHECK(std::signbit(wide) == (pattern >= 0x8000));
    CHECK(BFloat16(wide).bits == pattern);
    CHECK(BFloat16(static_cast<double>(BFloat16::from_bits(pattern))).bits == pattern);
  }
}
