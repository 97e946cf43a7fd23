// Sections and symbols of a 64-bit little-endian ELF file, of a host or a GPU. Every offset is
// checked before it is followed. Source: System V ABI, "ELF-64 Object File Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/base/check.h"

namespace roundoff::evidence {

// Throws Error "[cubin] origin: parts...", where origin says which file.
template <class... Parts>
[[noreturn]] void fail_cubin(std::string_view origin, const Parts&... parts) {
  fail("cubin", origin, ": ", parts...);
}

// Bounded access to bytes of a file; throws Error beyond their end.
class FileBytes {
 public:
  FileBytes(std::span<const std::byte> bytes, std::string_view origin)
      : bytes_(bytes), origin_(origin) {}

  std::size_t size() const { return bytes_.size(); }
  const std::string& origin() const { return origin_; }
  std::span<const std::byte> all() const { return bytes_; }
  // `what` is named in the error.
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size,
                                  std::string_view what) const;
  std::uint16_t u16(std::uint64_t offset) const;
  std::uint32_t u32(std::uint64_t offset) const;
  std::uint64_t u64(std::uint64_t offset) const;

 private:
  template <class T>
  T number(std::uint64_t offset) const;
  std::span<const std::byte> bytes_;
  std::string origin_;
};

bool is_elf(std::span<const std::byte> bytes);

class Elf {
 public:
  struct Section {
    std::string_view name;
    std::uint32_t type, link, info;
    std::uint64_t size;
    std::span<const std::byte> data;  // empty for what takes no room in the file
  };
  struct Symbol {
    std::string_view name;
    std::uint8_t type, other;
    std::uint16_t section;
    std::uint64_t value, size;
  };

  // Keeps views of `bytes`.
  Elf(std::span<const std::byte> bytes, std::string_view origin);

  std::uint16_t machine() const { return machine_; }
  std::uint32_t flags() const { return flags_; }
  const std::vector<Section>& sections() const { return sections_; }
  // The first of that name, or null.
  const Section* find(std::string_view name) const;
  // Of the section .symtab, in its order; none where it has none.
  std::vector<Symbol> symbols() const;

 private:
  std::string_view text(const Section& strings, std::uint64_t offset) const;
  FileBytes file_;
  std::uint16_t machine_ = 0;
  std::uint32_t flags_ = 0;
  std::vector<Section> sections_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

}  // namespace roundoff::evidence
