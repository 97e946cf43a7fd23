#include "engine/io/idx.h"

#include <algorithm>
#include <array>
#include <iomanip>

#include "engine/io/file.h"

namespace roundoff {

namespace {

std::uint32_t big_endian(std::span<const std::byte> four) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(four[i]);
  return value;
}

std::string hexadecimal(std::uint32_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << std::setw(8) << std::setfill('0') << value;
  return std::move(out).str();
}

struct Header {
  Shape shape;
  std::size_t size = 0;     // of the header, bytes
  std::uint64_t total = 0;  // of the file, bytes
};

Header parse_header(std::span<const std::byte> prefix, std::uint32_t magic,
                    std::string_view origin) {
  Header header;
  const std::size_t rank = magic & 0xFF;
  header.size = 4 + 4 * rank;
  if (prefix.size() >= 4 && big_endian(prefix) != magic)
    fail_file("idx", origin, "magic number ", hexadecimal(big_endian(prefix)), ", ",
              hexadecimal(magic), " expected");
  if (prefix.size() < header.size)
    fail_file("idx", origin, "truncated: ", prefix.size(), " bytes, the header alone takes ",
              header.size);
  std::array<std::int64_t, kMaxRank> extents{};
  for (std::size_t i = 0; i < rank; ++i) {
    extents[i] = big_endian(prefix.subspan(4 + 4 * i));
    if (extents[i] == 0) fail_file("idx", origin, "extent ", i, " is 0");
  }
  const std::span<const std::int64_t> used(extents.data(), rank);
  const auto elements = byte_count(ElementType::u8, used);
  if (!elements) {
    std::string product;
    for (const std::int64_t extent : used)
      product += (product.empty() ? "" : " x ") + std::to_string(extent);
    fail_file("idx", origin, product, " elements are more than any file holds");
  }
  header.total = header.size + *elements;
  header.shape = Shape(used);
  return header;
}

}  // namespace

HostArray parse_idx(std::span<const std::byte> bytes, std::uint32_t magic,
                    std::string_view origin) {
  const std::size_t rank = magic & 0xFF;
  ROUNDOFF_CHECK((magic & ~0xFFU) == 0x800 && rank >= 1 && rank <= kMaxRank, "idx", "magic number ",
                 hexadecimal(magic), " is not one of uint8 elements");
  Bytes inflated;
  if (is_gzip(bytes)) {
    inflated = gunzip(
        bytes, 4 + 4 * rank,
        [&](std::span<const std::byte> prefix) {
          return parse_header(prefix, magic, origin).total;
        },
        origin);
    bytes = inflated;
  }
  const Header header =
      parse_header(bytes.first(std::min(bytes.size(), 4 + 4 * rank)), magic, origin);
  if (bytes.size() != header.total)
    fail_file("idx", origin, bytes.size(), " bytes, shape ", header.shape, " needs ", header.total);
  HostArray array;
  array.type = ElementType::u8;
  array.shape = header.shape;
  if (inflated.empty()) {
    array.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header.size), bytes.end());
  } else {
    inflated.erase(inflated.begin(), inflated.begin() + static_cast<std::ptrdiff_t>(header.size));
    array.bytes = std::move(inflated);
  }
  return array;
}

}  // namespace roundoff
