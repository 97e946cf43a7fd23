#include "engine/io/npy.h"

#include <doctest/doctest.h>

#include <cstring>
#include <locale>

#include "kernels/base/half.h"
#include "tests/engine/io/allocation_count.h"
#include "tests/engine/io/bytes.h"
#include "tests/engine/io/temporary_folder.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

// A file with exactly this header text; nothing is padded or ended for the caller.
Bytes npy_file(int version, std::string_view header, std::span<const std::byte> data = {}) {
  Bytes file = bytes_of("\x93NUMPY");
  file.push_back(static_cast<std::byte>(version));
  file.push_back(std::byte{0});
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file.push_back(static_cast<std::byte>(header.size() >> (8 * i) & 0xFF));
  append(file, bytes_of(header));
  append(file, data);
  return file;
}

Bytes counting(std::size_t n) {
  Bytes bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

std::string header_of(const Bytes& file) {
  return {reinterpret_cast<const char*>(file.data()) + 10, 118};
}

void refused(const Bytes& file, const char* why) {
  const std::size_t peak = peak_during(
      [&] { CHECK_THROWS_WITH_AS(parse_npy(file, "f.npy"), doctest::Contains(why), FileError); });
  CHECK(peak < (1 << 20));
}

// Groups digits as many languages do, without needing such a locale on the machine.
struct Grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("case 136 [DATA] npy header variants") {
  const std::string_view plain = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }";
  SUBCASE("versions 1.0, 2.0 and 3.0; from 2.0 on the length takes four bytes") {
    for (int version = 1; version <= 3; ++version) {
      const auto array = parse_npy(npy_file(version, concat(plain, "   \n"), counting(12)), "f");
      CHECK(array.type == ElementType::i16);
      CHECK(array.shape == Shape{2, 3});
      CHECK(array.as<std::int16_t>()[5] == 0x0B0A);
    }
    // A header longer than two bytes can say.
    const std::string padded = concat(plain, std::string(70000, ' '), "\n");
    CHECK(parse_npy(npy_file(2, padded, counting(12)), "f").shape == Shape{2, 3});
    for (const int version : {0, 4, 255})
      refused(npy_file(version, concat(plain, "\n"), counting(12)), "version");
    Bytes minor = npy_file(1, concat(plain, "\n"), counting(12));
    minor[7] = std::byte{1};
    refused(minor, "version 1.1");
  }
  SUBCASE("a header of 300 bytes") {
    const std::string padded = concat(plain, std::string(299 - plain.size(), ' '), "\n");
    CHECK(padded.size() == 300);
    CHECK(parse_npy(npy_file(1, padded, counting(12)), "f").as<std::int16_t>()[0] == 0x0100);
  }
  SUBCASE("fortran_order: element [i, j] is the same in both orders") {
    const auto fortran = parse_npy(
        npy_file(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", counting(6)),
        "f");
    const std::uint8_t want[] = {0, 2, 4, 1, 3, 5};
    CHECK(std::memcmp(fortran.bytes.data(), want, 6) == 0);
    const auto cube =
        parse_npy(npy_file(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4), }\n",
                           counting(24)),
                  "f");
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 3; ++j)
        for (std::size_t k = 0; k < 4; ++k)
          CHECK(cube.as<std::uint8_t>()[(i * 3 + j) * 4 + k] == i + 2 * j + 6 * k);
  }
  SUBCASE("byte orders") {
    const Bytes big{std::byte{0x3F}, std::byte{0xC0}, std::byte{0}, std::byte{0}};
    CHECK(parse_npy(npy_file(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n", big),
                    "f")
              .as<float>()[0] == 1.5F);
    const Bytes half{std::byte{0x00}, std::byte{0x3E}};
    const auto f2 = parse_npy(
        npy_file(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }\n", half), "f");
    CHECK(f2.type == ElementType::fp16);
    CHECK(static_cast<float>(f2.as<Half>()[0]) == 1.5F);
    CHECK(parse_npy(
              npy_file(1, "{'descr': '=u2', 'fortran_order': False, 'shape': (1,), }\n", half), "f")
              .as<std::uint16_t>()[0] == 0x3E00);
  }
  SUBCASE("types that are not taken") {
    for (const char* descr : {"'|O'", "'<c8'", "'<U5'", "'|S5'", "'<M8[ns]'", "'<V2'", "'<f16'",
                              "'f4'", "'|f4'", "'<'", "''", "'<f3'", "[('a', '<f4')]", "'<i9'"})
      refused(
          npy_file(1, concat("{'descr': ", descr, ", 'fortran_order': False, 'shape': (1,), }\n"),
                   counting(8)),
          "its header has");
    refused(npy_file(1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", counting(8)),
            "the type \"|O\"");
  }
  SUBCASE("shapes (), (5,) and (2, 3)") {
    const auto shape_of = [](std::string_view shape, std::size_t n) {
      return parse_npy(npy_file(1,
                                concat("{'descr': '|i1', 'fortran_order': False, 'shape': ", shape,
                                       ", }\n"),
                                counting(n)),
                       "f")
          .shape;
    };
    CHECK(shape_of("()", 1) == Shape{});
    CHECK(shape_of("(5,)", 5) == Shape{5});
    CHECK(shape_of("(2, 3)", 6) == Shape{2, 3});
    CHECK(shape_of("(2,3,)", 6) == Shape{2, 3});
    CHECK(shape_of("(2L, 3L)", 6) == Shape{2, 3});
    CHECK(shape_of("(0, 7)", 0) == Shape{0, 7});
    CHECK(shape_of("(1,1,1,1,1,1,1,2)", 2).rank() == 8);
    CHECK_THROWS_AS(shape_of("(1,1,1,1,1,1,1,1,2)", 2), FileError);
    for (const char* bad : {"(5)", "5", "[5]", "(-5,)", "(5.0,)", "(,)", "(5,,)", "(5 5)", "(0x5,)",
                            "(+5,)", "(5,", "('5',)", "(5_0,)"})
      CHECK_THROWS_AS(shape_of(bad, 5), FileError);
  }
  SUBCASE("large extents are read as 64 bit and must be backed by data") {
    refused(npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648,), }\n",
                     counting(16)),
            "16 bytes of data, fp32 of shape [2147483648] needs 8589934592");
    refused(npy_file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967297,), }\n",
                     counting(1)),
            "needs 4294967297");
    refused(
        npy_file(1,
                 "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n"),
        "more elements");
    refused(npy_file(
                1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }\n"),
            "more elements");
    refused(
        npy_file(1,
                 "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551617,), }\n"),
        "no 63-bit count");
    CHECK(parse_npy(
              npy_file(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2147483648, 0), }\n"),
              "f")
              .shape == Shape{2147483648, 0});
  }
  SUBCASE("truncated anywhere, or with something behind the data") {
    const Bytes good = npy_file(1, concat(plain, "\n"), counting(12));
    for (std::size_t n = 0; n < good.size(); ++n)
      refused(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)), "");
    Bytes longer = good;
    longer.push_back(std::byte{0});
    refused(longer, "13 bytes of data");
    refused(npy_file(2, ""), "newline");
    refused(npy_file(1, concat(plain, " "), counting(12)), "does not end in a newline");
    Bytes lying = npy_file(3, concat(plain, "\n"), counting(12));
    for (std::size_t i = 8; i < 12; ++i) lying[i] = std::byte{0xFF};
    refused(lying, "a header of 4294967295 bytes");
  }
  SUBCASE("dictionaries that are not one") {
    for (const char* bad :
         {"", "{}", "{", "}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False}",
          "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'extra': 1}",
          "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
          "{'descr': '<f4', 'fortran_order': Falsey, 'shape': (1,)}",
          "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
          "{'descr': '<f4\", 'fortran_order': False, 'shape': (1,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\n"}) {
      CAPTURE(bad);
      refused(npy_file(1, concat(bad, "\n"), counting(4)), "its header has");
    }
    // Any order of keys, either kind of quote and no spaces are all Python.
    CHECK(parse_npy(npy_file(1, "{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}\n",
                             counting(4)),
                    "f")
              .shape == Shape{1});
    refused(bytes_of("PK\x03\x04 an .npz is a zip file"), "does not start with");
  }
  SUBCASE("a locale with thousands separators writes no separators") {
    const std::locale before =
        std::locale::global(std::locale(std::locale::classic(), new Grouping));
    const std::string grouped = concat(2621);
    const Bytes file = serialize_npy(ElementType::u8, {2621, 401}, Bytes(2621 * 401));
    const auto back = parse_npy(file, "f");
    std::locale::global(before);
    CHECK(grouped == "2,621");  // the trap was armed
    CHECK(header_of(file).starts_with(
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2621, 401), }"));
    CHECK(back.shape == Shape{2621, 401});
  }
}

TEST_CASE("every type, version, byte order and array order survives a file") {
  const TemporaryFolder folder;
  const Shape shapes[] = {Shape{}, Shape{5}, Shape{2, 3}, Shape{3, 1, 4}, Shape{0, 3}};
  for (int t = 0; t < kElementTypes; ++t) {
    const auto type = static_cast<ElementType>(t);
    for (const Shape& shape : shapes) {
      HostArray array(type, shape);
      for (std::size_t i = 0; i < array.bytes.size(); ++i)
        array.bytes[i] =
            static_cast<std::byte>(type == ElementType::boolean ? i % 2 : i * 89 % 256);
      for (int version = 1; version <= 3; ++version)
        for (const bool big : {false, true})
          for (const bool fortran : {false, true}) {
            const NpyOptions options{version, big, fortran};
            const auto back = parse_npy(serialize_npy(type, shape, array.bytes, options), "f");
            CHECK(back.type == (type == ElementType::bf16 ? ElementType::u16 : type));
            CHECK(back.shape == shape);
            CHECK(back.bytes == array.bytes);
          }
      write_npy(folder / "a.npy", array);
      CHECK(read_npy(folder / "a.npy").bytes == array.bytes);
      CHECK(read_file(folder / "a.npy") == serialize_npy(type, shape, array.bytes));
    }
  }
  CHECK_THROWS_AS(serialize_npy(ElementType::fp32, {2}, Bytes(7)), Error);
  CHECK_THROWS_AS(serialize_npy(ElementType::fp32, {2}, Bytes(8), {.version = 4}), Error);
  const float values[] = {1, 2, 3};
  write_npy(folder / "v.npy", ConstView{values, DType::fp32, {3}});
  CHECK(read_npy(folder / "v.npy").as<float>()[2] == 3);
}

TEST_CASE("npy files: errors name the file, and bools hold 0 or 1") {
  const TemporaryFolder folder;
  const Bytes good = serialize_npy(ElementType::fp32, {4}, Bytes(16));
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{9}, std::size_t{11}, std::size_t{100}, good.size() - 1}) {
    write_file_atomically(folder / "short.npy", std::span(good).first(n));
    CHECK_THROWS_WITH_AS(read_npy(folder / "short.npy"), doctest::Contains("short.npy"), FileError);
  }
  CHECK_THROWS_AS(read_npy(folder / "absent.npy"), FileError);
  CHECK_THROWS_WITH_AS(
      parse_npy(serialize_npy(ElementType::boolean, {2}, Bytes(2, std::byte{2})), "f"),
      doctest::Contains("a bool holds 2"), FileError);
}
