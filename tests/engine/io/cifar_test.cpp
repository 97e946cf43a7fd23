#include "engine/io/cifar.h"

#include <doctest/doctest.h>

#include "engine/io/file.h"

using namespace roundoff;

namespace {

// n records; label i mod 10, and a pixel's value tells its record, colour and place.
Bytes records(std::size_t n) {
  Bytes file(n * 3073);
  for (std::size_t i = 0; i < n; ++i) {
    file[i * 3073] = static_cast<std::byte>(i % 10);
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t p = 0; p < 1024; ++p)
        file[i * 3073 + 1 + c * 1024 + p] = static_cast<std::byte>((100 * i + 50 * c + p) % 256);
  }
  return file;
}

}  // namespace

TEST_CASE("CIFAR-10 records become NHWC") {
  const Cifar10 batch = parse_cifar10(records(2), "f");
  CHECK(batch.labels == std::vector<std::int64_t>{0, 1});
  CHECK(batch.images.shape == Shape{2, 32, 32, 3});
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t p = 0; p < 1024; ++p)
      for (std::size_t c = 0; c < 3; ++c)
        REQUIRE(batch.images.as<std::uint8_t>()[(i * 1024 + p) * 3 + c] ==
                (100 * i + 50 * c + p) % 256);
}

TEST_CASE("CIFAR-10 files that are not whole records, or hold other labels") {
  CHECK_THROWS_WITH_AS(parse_cifar10({}, "f"), doctest::Contains("0 bytes, a multiple of 3073"),
                       FileError);
  Bytes file = records(3);
  for (const std::size_t n :
       {std::size_t{1}, std::size_t{3072}, std::size_t{3074}, file.size() - 1})
    CHECK_THROWS_AS(parse_cifar10(std::span(file).first(n), "f"), FileError);
  file[2 * 3073] = std::byte{10};
  CHECK_THROWS_WITH_AS(parse_cifar10(file, "f"),
                       "[cifar10] f: label 10 of record 2 is outside [0, 10)", FileError);
}
