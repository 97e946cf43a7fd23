#include "kernels/base/convert.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr DType kAll[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16,
                          DType::i64,  DType::i32,  DType::u8};
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 31, 32, 33, 255, 256, 257, 1000};

// Rounding ties, overflow, subnormals, signed zeros, infinities and NaN, among ordinary numbers.
std::vector<double> values(std::int64_t n, DType dtype) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double special[] = {1 + 0x1p-11, 1 + 0x3p-11, 65519.99,  65520,    -65536,         0x1p-24,
                            0x1p-25,     0x1.8p-25,   -0x1p-26,  0x1p-133, 0x1p-134,       0x1p-149,
                            0x1p-1074,   0.0,         -0.0,      kInf,     -kInf,          kNan,
                            -kNan,       1 + 0x1p-8,  1 + 3e-16, 3.4e38,   0x1.ffffffp127, 1e300,
                            16777217.0,  4194305.0};
  Uniform uniform(static_cast<std::uint64_t>(n) + 7);
  std::vector<double> v = uniform.take(n, 100);
  if (!is_floating(dtype)) {
    for (double& x : v) x = std::abs(std::floor(x));
    return v;
  }
  for (std::size_t i = 0; i < v.size(); i += 2) v[i] = special[i / 2 % std::size(special)];
  return v;
}

}  // namespace

TEST_CASE("conversions between all types are those of the reference, bit for bit") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const DType from : kAll) {
      for (const DType to : kAll) {
        if (from != to && !is_floating(to)) continue;
        for (const std::int64_t n : kSizes) {
          // Aligned; both off by one element; only one of them.
          for (const int offsets : {0, 3, 1, 2}) {
            if (offsets != 0 && n != 33 && n != 257) continue;
            CAPTURE(name(from));
            CAPTURE(name(to));
            CAPTURE(n);
            const Array x(from, {n}, values(n, from), offsets & 1);
            Array want(to, {n}, offsets / 2);
            Array got(to, {n}, offsets / 2);
            convert(Ref{}, x, want.out());
            const Resident dx(device, x);
            Resident dy(device, got);
            convert(device.target(), dx, dy.out());
            dy.fetch();
            REQUIRE(same_bits(got, want));
          }
        }
      }
    }
  }
}

TEST_CASE("conversions that add do so as the reference does, bit for bit") {
  SimDevice device(3);
  for (const DType from : kAll) {
    for (const DType to : {DType::fp32, DType::fp64}) {
      for (const std::int64_t n : {0, 1, 33, 257}) {
        const Array x(from, {n}, values(n, from), 1);
        Array want(to, {n}, Uniform(5).take(n), 1);
        Array got = want;
        convert(Ref{}, x, want.out(Write::accumulate));
        const Resident dx(device, x);
        Resident dy(device, got);
        convert(device.target(), dx, dy.out(Write::accumulate));
        dy.fetch();
        CAPTURE(name(from));
        CAPTURE(name(to));
        REQUIRE(same_bits(got, want));
      }
    }
  }
}

TEST_CASE("every fp16 and bf16 pattern, NaN with payload included, to every floating type") {
  SimDevice device;
  for (const DType from : {DType::fp16, DType::bf16}) {
    Array x(from, {65536});
    for (int i = 0; i < 65536; ++i) x.view().as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
    const Resident dx(device, x);
    for (const DType to : kFloating) {
      Array want(to, {65536});
      Array got(to, {65536});
      convert(Ref{}, x, want.out());
      Resident dy(device, got);
      convert(device.target(), dx, dy.out());
      dy.fetch();
      CHECK(same_bits(got, want));
    }
  }
}

TEST_CASE("int64 rounds once on its way to every type") {
  SimDevice device;
  Array x(DType::i64, {6});
  const std::int64_t numbers[] = {(std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1,
                                  std::numeric_limits<std::int64_t>::min(),
                                  std::numeric_limits<std::int64_t>::max(),
                                  2049,
                                  (std::int64_t{1} << 53) + 1,
                                  -16777217};
  std::copy(std::begin(numbers), std::end(numbers), x.view().as<std::int64_t>());
  const Resident dx(device, x);
  for (const DType to : kFloating) {
    Array want(to, {6});
    Array got(to, {6});
    convert(Ref{}, x, want.out());
    Resident dy(device, got);
    convert(device.target(), dx, dy.out());
    dy.fetch();
    CHECK(same_bits(got, want));
  }
}

TEST_CASE("fill writes one rounded value, and nothing beside it") {
  SimDevice device;
  for (const DType dtype : kAll) {
    for (const std::int64_t n : kSizes) {
      for (const int offset : {0, 1}) {
        const double value = is_floating(dtype) ? 1.0 / 3 : 7;
        Array got(dtype, {n}, offset);
        Array want(dtype, {n}, offset);
        fill(Ref{}, value, want.view());
        Resident dy(device, got);
        fill(device.target(), value, dy.view());
        dy.fetch();
        CHECK(same_bits(got, want));
        if (n != 0) CHECK(got[n - 1] == Array(dtype, {1}, {value})[0]);
      }
    }
  }
}

TEST_CASE("what convert refuses, it refuses before any launch") {
  SimDevice device;
  Array a(DType::fp32, {4}, ones(4));
  Array b(DType::fp16, {4}, ones(4));
  Array c(DType::i32, {4}, ones(4));
  Array d(DType::fp32, {3}, ones(3));
  const Resident da(device, a), db(device, b), dc(device, c), dd(device, d);
  const auto launches = device.emulator().counters().launches;
  CHECK_THROWS_WITH_AS(convert(device.target(), da, dd.out()),
                       "[convert] shapes [4] and [3] differ in size", Error);
  CHECK_THROWS_WITH_AS(convert(device.target(), da, db.out(Write::accumulate)),
                       "[convert] cannot accumulate into fp16; fp32 or fp64 expected", Error);
  CHECK_THROWS_WITH_AS(convert(device.target(), da, dc.out()),
                       "[convert] cannot write int32; a floating type expected", Error);
  convert(device.target(), da, Out());
  CHECK(device.emulator().counters().launches == launches);
}
