#include "engine/io/idx.h"

#include <doctest/doctest.h>

#include "tests/engine/io/allocation_count.h"
#include "tests/engine/io/bytes.h"

using namespace roundoff;
using namespace roundoff::testing;

TEST_CASE("IDX images and labels, plain and gzip") {
  const Bytes images = idx_file(kIdxImages, {2, 3, 5}, 30);
  for (const Bytes& file : {images, gzip_of(images)}) {
    const HostArray array = parse_idx(file, kIdxImages, "f");
    CHECK(array.type == ElementType::u8);
    CHECK(array.shape == Shape{2, 3, 5});
    REQUIRE(array.bytes.size() == 30);
    for (std::size_t i = 0; i < 30; ++i) CHECK(array.as<std::uint8_t>()[i] == i);
  }
  CHECK(parse_idx(idx_file(kIdxLabels, {1}, 1), kIdxLabels, "f").shape == Shape{1});
}

TEST_CASE("case 134 [DATA] IDX header and size checks") {
  const auto refused = [](const Bytes& file, const char* why) {
    const Bytes compressed = gzip_of(file);
    const std::size_t peak = peak_during([&] {
      CHECK_THROWS_WITH_AS(parse_idx(file, kIdxImages, "file"), doctest::Contains(why), FileError);
      CHECK_THROWS_WITH_AS(parse_idx(compressed, kIdxImages, "file"), doctest::Contains(why),
                           FileError);
    });
    CHECK(peak < (1 << 20));
  };
  const Bytes good = idx_file(kIdxImages, {2, 3, 5}, 30);
  SUBCASE("short files") {
    refused({}, "truncated: 0 bytes");
    refused(Bytes(good.begin(), good.begin() + 4), "truncated: 4 bytes, the header alone takes 16");
    refused(Bytes(good.begin(), good.begin() + 15), "truncated: 15 bytes");
  }
  SUBCASE("a labels file where images are due, and the other way round") {
    refused(idx_file(kIdxLabels, {12}, 12), "magic number 0x00000801, 0x00000803 expected");
    CHECK_THROWS_WITH_AS(parse_idx(good, kIdxLabels, "file"),
                         doctest::Contains("magic number 0x00000803, 0x00000801 expected"),
                         FileError);
  }
  SUBCASE("one byte short, one byte long") {
    refused(idx_file(kIdxImages, {2, 3, 5}, 29), "");
    refused(idx_file(kIdxImages, {2, 3, 5}, 31), "");
    CHECK_THROWS_WITH_AS(parse_idx(idx_file(kIdxImages, {2, 3, 5}, 31), kIdxImages, "file"),
                         "[idx] file: 47 bytes, shape [2, 3, 5] needs 46", FileError);
  }
  SUBCASE("claims without data") {
    const std::uint32_t most = 0xFFFFFFFF;
    refused(idx_file(kIdxImages, {most, most, most}, 16), "4294967295 x 4294967295 x 4294967295");
    refused(idx_file(kIdxImages, {most, most, 1}, 16), "");
    refused(idx_file(kIdxImages, {1U << 21, 1U << 21, 1U << 21}, 16), "");  // 2^63
    refused(idx_file(kIdxImages, {60000, 28, 28}, 16), "47040016");
    refused(idx_file(kIdxImages, {0, 28, 28}, 0), "extent 0 is 0");
    refused(idx_file(kIdxImages, {28, 0, 28}, 0), "extent 1 is 0");
  }
  SUBCASE("extents are big-endian: 60,000 labels take 60,008 bytes") {
    const Bytes labels = idx_file(kIdxLabels, {60000}, 60000, 10);
    CHECK(labels.size() == 60008);
    CHECK(labels[6] == std::byte{0xEA});
    CHECK(parse_idx(labels, kIdxLabels, "file").shape == Shape{60000});
    // Written little-endian, the same count reads as 1625948160 and cannot be met.
    Bytes swapped = labels;
    std::reverse(swapped.begin() + 4, swapped.begin() + 8);
    CHECK_THROWS_WITH_AS(parse_idx(swapped, kIdxLabels, "file"),
                         doctest::Contains("shape [1625948160]"), FileError);
  }
}
