#include "engine/io/safetensors.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <locale>

#include "tests/engine/io/allocation_count.h"
#include "tests/engine/io/bytes.h"
#include "tests/engine/io/temporary_folder.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

Bytes file_with_length(std::uint64_t length, std::string_view header, std::size_t data) {
  Bytes file;
  for (int shift = 0; shift < 64; shift += 8)
    file.push_back(static_cast<std::byte>(length >> shift & 0xFF));
  append(file, bytes_of(header));
  file.resize(file.size() + data);
  return file;
}

Bytes file_of(std::string_view header, std::size_t data) {
  return file_with_length(header.size(), header, data);
}

// Reading it, from memory and from disk, throws this and takes no more than 1 MiB on the way.
void refused(const Bytes& file, const char* why) {
  CAPTURE(why);
  const TemporaryFolder folder;
  write_file_atomically(folder / "f", file);
  const std::size_t peak = peak_during([&] {
    CHECK_THROWS_WITH_AS(parse_safetensors(file, "f"), doctest::Contains(why), FileError);
    CHECK_THROWS_WITH_AS(read_safetensors(folder / "f"), doctest::Contains(why), FileError);
  });
  CHECK(peak < (1 << 20));
}

HostArray patterned(ElementType type, const Shape& shape) {
  HostArray array(type, shape);
  for (std::size_t i = 0; i < array.bytes.size(); ++i)
    array.bytes[i] = static_cast<std::byte>(type == ElementType::boolean ? i % 2 : i * 151 % 256);
  return array;
}

bool same(const SafetensorsFile& a, const SafetensorsFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, array] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second.type != array.type ||
        !(other->second.shape == array.shape) || other->second.bytes != array.bytes)
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("safetensors: every type and odd shapes survive, bit for bit") {
  const TemporaryFolder folder;
  std::vector<HostArray> arrays;
  for (int t = 0; t < kElementTypes; ++t)
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 5}, Shape{2, 1, 3, 2}})
      arrays.push_back(patterned(static_cast<ElementType>(t), shape));
  std::vector<TensorBytes> tensors;
  for (std::size_t i = 0; i < arrays.size(); ++i) tensors.emplace_back(concat("t", i), arrays[i]);
  const Metadata metadata{{"format", "x"}, {"k \"quoted\"\n", "\xC3\xA9\t"}, {"", ""}};
  write_safetensors(folder / "f", tensors, metadata);
  const SafetensorsFile file = read_safetensors(folder / "f");
  CHECK(file.checksummed);
  CHECK(file.metadata == metadata);
  REQUIRE(file.tensors.size() == arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const HostArray& back = file.tensors.at(concat("t", i));
    CHECK(back.type == arrays[i].type);
    CHECK(back.shape == arrays[i].shape);
    CHECK(back.bytes == arrays[i].bytes);
  }
  CHECK(same(file, parse_safetensors(read_file(folder / "f"), "f")));
  // The order in which tensors are handed over does not matter.
  std::reverse(tensors.begin(), tensors.end());
  CHECK(serialize_safetensors(tensors, metadata) == read_file(folder / "f"));
  CHECK(parse_safetensors(serialize_safetensors({}), "f").tensors.empty());
}

TEST_CASE("case 124 [CKPT] a float's bits come back as they were") {
  // 0.1, a signalling NaN with a payload, -0, the smallest subnormal, infinity.
  const std::uint32_t bits[] = {0x3DCCCCCD, 0x7FA00001, 0x80000000, 0x00000001, 0xFF800000};
  HostArray array(ElementType::fp32, {5});
  std::memcpy(array.bytes.data(), bits, sizeof bits);
  const TensorBytes tensors[] = {{"m", array}};
  const auto file = parse_safetensors(serialize_safetensors(tensors), "f");
  CHECK(std::memcmp(file.tensors.at("m").bytes.data(), bits, sizeof bits) == 0);
  CHECK(file.tensors.at("m").type == ElementType::fp32);
}

TEST_CASE("safetensors: data starts at a multiple of 8, each tensor at one of its element") {
  const HostArray a = patterned(ElementType::u8, {3});
  const HostArray b = patterned(ElementType::fp64, {1});
  const HostArray c = patterned(ElementType::fp16, {5});
  const TensorBytes tensors[] = {{"a", a}, {"b", b}, {"c", c}};
  const Bytes file = serialize_safetensors(tensors);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  CHECK((8 + length) % 8 == 0);
  const Bytes data(file.begin() + static_cast<std::ptrdiff_t>(8 + length), file.end());
  Bytes want = b.bytes;
  append(want, c.bytes);
  append(want, a.bytes);
  CHECK(data == want);
}

TEST_CASE("safetensors: what cannot be written is refused, and the old file stays") {
  const TemporaryFolder folder;
  const HostArray a = patterned(ElementType::fp32, {2});
  const TensorBytes good[] = {{"a", a}};
  write_safetensors(folder / "f", good);
  const Bytes before = read_file(folder / "f");
  const TensorBytes twice[] = {{"a", a}, {"a", a}};
  CHECK_THROWS_AS(write_safetensors(folder / "f", twice), Error);
  const TensorBytes reserved[] = {{"__metadata__", a}};
  CHECK_THROWS_AS(write_safetensors(folder / "f", reserved), Error);
  const TensorBytes latin[] = {{"\xE9", a}};
  CHECK_THROWS_WITH_AS(write_safetensors(folder / "f", latin),
                       doctest::Contains("\"\\xe9\" is not UTF-8"), Error);
  const TensorBytes wrong_size[] = {{"a", ElementType::fp32, Shape{3}, a.bytes}};
  CHECK_THROWS_AS(write_safetensors(folder / "f", wrong_size), Error);
  CHECK_THROWS_AS(write_safetensors(folder / "f", good, {{std::string(kChecksumKey), "0"}}), Error);
  CHECK(read_file(folder / "f") == before);
  CHECK(folder.entries() == 1);
}

TEST_CASE("safetensors: files of other programs, without a checksum") {
  const auto file = parse_safetensors(
      file_of(
          R"({"b":{"data_offsets":[4,10],"shape":[3],"dtype":"BF16"},"__metadata__":{"format":"pt"},)"
          R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
          10),
      "f");
  CHECK_FALSE(file.checksummed);
  CHECK(file.metadata == Metadata{{"format", "pt"}});
  CHECK(file.tensors.at("a").shape == Shape{});
  CHECK(file.tensors.at("b").type == ElementType::bf16);
  CHECK(parse_safetensors(file_of("{}", 0), "f").tensors.empty());
}

TEST_CASE(
    "case 127 [CKPT] a truncated or damaged file is refused whole, the one before still loads") {
  const TemporaryFolder folder;
  const HostArray weights = patterned(ElementType::fp32, {7, 5});
  const HostArray empty = patterned(ElementType::i64, {0});
  const HostArray steps = patterned(ElementType::i64, {2});
  const TensorBytes tensors[] = {{"w", weights}, {"empty", empty}, {"steps", steps}};
  const Metadata metadata{{"epoch", "3"}};
  write_safetensors(folder / "previous", tensors, metadata);
  const Bytes good = read_file(folder / "previous");
  const SafetensorsFile want = parse_safetensors(good, "f");
  for (std::size_t eighth = 0; eighth < 8; ++eighth) {
    write_file_atomically(folder / "cut", std::span(good).first(good.size() * eighth / 8));
    CHECK_THROWS_WITH_AS(read_safetensors(folder / "cut"), doctest::Contains("cut"), FileError);
  }
  for (std::size_t n = 0; n < good.size(); ++n)
    CHECK_THROWS_AS(parse_safetensors(std::span(good).first(n), "f"), FileError);
  // Every single flipped bit is seen, or means the same as before (one space of the padding that
  // becomes another kind of white space).
  std::size_t seen = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes damaged = good;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    try {
      const SafetensorsFile file = parse_safetensors(damaged, "f");
      // A damaged key of the checksum leaves a file without one: a checkpoint must ask for it.
      CHECK((!file.checksummed || same(file, want)));
    } catch (const FileError&) {
      ++seen;
    }
  }
  CHECK(seen > 8 * good.size() * 8 / 10);
  CHECK(same(read_safetensors(folder / "previous"), want));
}

TEST_CASE("case 129 [CKPT] hostile header length") {
  const std::string_view header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto size = static_cast<std::uint64_t>(8 + header.size() + 4);
  refused(file_with_length(0xFFFFFFFFFFFFFFFF, header, 4), "18446744073709551615 bytes");
  refused(file_with_length(0xFFFFFFFFFFFFFFFB, header, 4), "18446744073709551611 bytes");
  refused(file_with_length(size - 7, header, 4), "truncated: a header of");
  refused(file_with_length(0, header, 4), "does not start with {");
  refused(file_with_length(100'000'001, header, 4), "at most 100000000 are allowed");
  refused(file_with_length(100'000'000, header, 4), "truncated: a header of 100000000");
  refused({}, "truncated: 0 bytes");
  refused(Bytes(7), "truncated: 7 bytes");
  refused(Bytes(8), "does not start with {");
  CHECK_NOTHROW(parse_safetensors(file_of(header, 4), "f"));
}

TEST_CASE("case 130 [CKPT] hostile offsets") {
  const auto tensor = [](std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets) {
    return concat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                  ",\"data_offsets\":", offsets, "}");
  };
  const auto one = [&](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return file_of(concat("{", tensor("a", dtype, shape, offsets), "}"), 100);
  };
  CHECK_NOTHROW(parse_safetensors(one("F32", "[25]", "[0,100]"), "f"));
  refused(one("F32", "[25]", "[100,0]"), "lies at [100, 0)");
  refused(one("U8", "[18446744073709551516]", "[100,0]"), "extent");
  refused(one("F32", "[26]", "[0,104]"), "has 100 bytes of data");
  refused(one("F32", "[25]", "[18446744073709551516,0]"), "lies at");
  refused(one("F32", "[25]", "[4,104]"), "");
  refused(one("F32", "[24]", "[0,96]"), "4 bytes of data belong to no tensor");
  refused(one("F32", "[24]", "[4,100]"), "a gap of 4 bytes before tensor \"a\"");
  refused(one("F32", "[24]", "[0,100]"), "needs 96 bytes");
  refused(one("F32", "[0]", "[0,100]"), "needs 0 bytes");
  refused(one("F32", "[4611686018427387904,4611686018427387904]", "[0,100]"), "more elements");
  refused(one("F32", "[4611686018427387904]", "[0,0]"), "more elements");
  refused(one("F7", "[25]", "[0,100]"), "the dtype \"F7\"");
  refused(one("f32", "[25]", "[0,100]"), "the dtype \"f32\"");
  refused(one("F32", "[25]", "[0]"), "needs two data_offsets");
  refused(one("F32", "[25]", "[]"), "needs two data_offsets");
  refused(one("F32", "[25]", "[0,100,100]"), "more than two");
  refused(one("F32", "[25]", "[-1,99]"), "a negative number");
  refused(one("F32", "[25]", "[0,1e2]"), "no 64-bit count");
  refused(one("F32", "[25]", "[0,18446744073709551616]"), "no 64-bit count");
  refused(one("F32", "[25]", "[0,\"100\"]"), "a string where none belongs");
  refused(one("F32", "[[25]]", "[0,100]"), "an array where none belongs");
  refused(one("F32", "25", "[0,100]"), "a number where none belongs");
  refused(one("F32", "[1,1,1,1,1,1,1,1,25]", "[0,100]"), "more than 8 axes");
  const auto two = [&](std::string_view a, std::string_view b) {
    return file_of(
        concat("{", tensor("a", "U8", "[100]", a), ",", tensor("b", "U8", "[100]", b), "}"), 200);
  };
  CHECK_NOTHROW(parse_safetensors(two("[0,100]", "[100,200]"), "f"));
  CHECK_NOTHROW(parse_safetensors(two("[100,200]", "[0,100]"), "f"));
  refused(two("[0,100]", "[50,150]"), "\"a\" and \"b\" overlap");
  refused(two("[0,100]", "[0,100]"), "overlap");
  refused(file_of(concat("{", tensor("a", "U8", "[200]", "[0,200]"), ",",
                         tensor("b", "U8", "[0]", "[100,100]"), "}"),
                  200),
          "overlap");
  refused(file_of(concat("{", tensor("a", "U8", "[1]", "[0,1]"), ",",
                         tensor("a", "U8", "[1]", "[1,2]"), "}"),
                  2),
          "\"a\" comes twice");
}

TEST_CASE("safetensors: headers of the wrong form") {
  for (const char* header :
       {"[]",
        " {}",
        "{",
        "{}x",
        "{} {}",
        "{\"a\":1}",
        "{\"a\":null}",
        "{\"a\":true}",
        "{\"a\":[]}",
        "{\"a\":{}}",
        "{\"a\":\"b\"}",
        "{\"__metadata__\":1}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":{}}}",
        "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
        "{\"__metadata__\":\"x\"}",
        "{'a':1}",
        "{\"a\xFF\":1}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}",
        "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},}"}) {
    CAPTURE(header);
    refused(file_of(header, 0), "safetensors");
  }
  refused(file_of(std::string(100000, '['), 0), "does not start with {");
  refused(file_of("{\"a\":" + std::string(100000, '['), 0), "an array where none belongs");
  // What a file says is shown on one line, printable and short.
  refused(file_of("{\"a\\n\":1}", 0), "after the key \"a\\x0a\"");
  Bytes bools = file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1);
  bools.back() = std::byte{2};
  refused(bools, "a BOOL holds 2");
}
