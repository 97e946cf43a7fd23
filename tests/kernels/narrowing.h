// Every route from fp32 or fp64 to a 16-bit type, side by side: scalar, bulk, and as a format.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "kernels/base/convert.h"
#include "kernels/base/format.h"

namespace roundoff::test {

// Longer than any vector and no multiple of one, so that bodies and tails are both run.
inline constexpr std::int64_t kBulk = 43;

inline double exact_double(std::uint32_t fp32_bits) {
  return std::bit_cast<double>(detail::widen_fp32_bits(fp32_bits));
}

template <class T, class From>
std::uint16_t narrow_bulk(From value) {
  std::array<From, kBulk> from;
  from.fill(value);
  std::array<T, kBulk> to{};
  narrow(from.data(), kBulk, View{to.data(), dtype_of<T>, Shape{kBulk}}, 0);
  for (const T& t : to) REQUIRE(t.bits == to[0].bits);
  return to[0].bits;
}

// Checks that every route takes the fp32 number `from` to the pattern `want`.
template <class T>
void check_narrowing(std::uint32_t from, std::uint16_t want) {
  CAPTURE(from);
  const auto f = std::bit_cast<float>(from);
  const double d = exact_double(from);
  CHECK(T(f).bits == want);
  CHECK(T(d).bits == want);
  CHECK(narrow_bulk<T>(f) == want);
  CHECK(narrow_bulk<T>(d) == want);
  const Format format = format_of(dtype_of<T>);
  CHECK(encode(round_to_format(f, format).value, format) == want);
  CHECK(encode(round_to_format(d, format).value, format) == want);
}

}  // namespace roundoff::test
