#include "bench/evidence/elf.h"

#include <algorithm>
#include <cstring>

namespace roundoff::evidence {
namespace {

constexpr std::string_view kMagic = "\177ELF";
constexpr std::uint64_t kHeader = 64, kSectionHeader = 64, kSymbol = 24;
constexpr std::ptrdiff_t kLongestName = 32768;
constexpr std::uint32_t kNoBits = 8, kSymbolTable = 2;

}  // namespace

std::span<const std::byte> FileBytes::part(std::uint64_t offset, std::uint64_t size,
                                           std::string_view what) const {
  if (offset > bytes_.size() || size > bytes_.size() - offset)
    fail_cubin(origin_, "truncated: ", what, " ends at byte ", offset, " + ", size, ", there are ",
               bytes_.size());
  return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

template <class T>
T FileBytes::number(std::uint64_t offset) const {
  T value;
  std::memcpy(&value, part(offset, sizeof(T), "a header").data(), sizeof(T));
  return value;
}
std::uint16_t FileBytes::u16(std::uint64_t offset) const { return number<std::uint16_t>(offset); }
std::uint32_t FileBytes::u32(std::uint64_t offset) const { return number<std::uint32_t>(offset); }
std::uint64_t FileBytes::u64(std::uint64_t offset) const { return number<std::uint64_t>(offset); }

bool is_elf(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Elf::Elf(std::span<const std::byte> bytes, std::string_view origin) : file_(bytes, origin) {
  if (!is_elf(bytes)) fail_cubin(origin, "no ELF file");
  const auto header = file_.part(0, kHeader, "the ELF header");
  if (header[4] != std::byte{2} || header[5] != std::byte{1})
    fail_cubin(origin, "an ELF file that is not 64-bit little-endian");
  machine_ = file_.u16(18);
  flags_ = file_.u32(48);
  const std::uint64_t table = file_.u64(40);
  const std::uint64_t count = file_.u16(60);
  const std::uint64_t names = file_.u16(62);
  if (count == 0) return;
  if (file_.u16(58) != kSectionHeader)
    fail_cubin(origin, "section headers of ", file_.u16(58), " bytes, ", kSectionHeader,
               " expected");
  if (names >= count)
    fail_cubin(origin, "section ", names, " of ", count, " should hold the names");
  file_.part(table, count * kSectionHeader, "the section table");
  sections_.resize(count);
  std::vector<std::uint32_t> name_offsets(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = table + i * kSectionHeader;
    Section& section = sections_[i];
    name_offsets[i] = file_.u32(at);
    section.type = file_.u32(at + 4);
    section.link = file_.u32(at + 40);
    section.info = file_.u32(at + 44);
    section.size = file_.u64(at + 32);
    // The first is none, whatever its fields say.
    if (i != 0 && section.type != kNoBits)
      section.data = file_.part(file_.u64(at + 24), section.size, "a section");
  }
  // Sections do not share bytes, so that whatever looks at each of them once stays linear.
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    total += sections_[i].data.size();
    sections_[i].name = text(sections_[names], name_offsets[i]);
    by_name_.emplace(sections_[i].name, i);
  }
  if (total > bytes.size())
    fail_cubin(origin, "sections of ", total, " bytes in a file of ", bytes.size());
}

std::string_view Elf::text(const Section& strings, std::uint64_t offset) const {
  const auto& data = strings.data;
  if (offset >= data.size())
    fail_cubin(file_.origin(), "a name at byte ", offset, " of ", data.size());
  const auto begin = data.begin() + static_cast<std::ptrdiff_t>(offset);
  const auto limit = std::min<std::ptrdiff_t>(data.end() - begin, kLongestName);
  const auto end = std::find(begin, begin + limit, std::byte{0});
  if (end == begin + limit) fail_cubin(file_.origin(), "a name without an end, or a very long one");
  return {reinterpret_cast<const char*>(&*begin), static_cast<std::size_t>(end - begin)};
}

const Elf::Section* Elf::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &sections_[found->second];
}

std::vector<Elf::Symbol> Elf::symbols() const {
  std::vector<Symbol> result;
  for (const Section& section : sections_) {
    if (section.type != kSymbolTable) continue;
    if (section.link >= sections_.size())
      fail_cubin(file_.origin(), "symbols whose names are in section ", section.link, " of ",
                 sections_.size());
    const FileBytes table(section.data, file_.origin());
    for (std::uint64_t at = 0; at + kSymbol <= table.size(); at += kSymbol) {
      const auto bytes = table.part(at, kSymbol, "a symbol");
      result.push_back({.name = text(sections_[section.link], table.u32(at)),
                        .type = static_cast<std::uint8_t>(bytes[4] & std::byte{0xF}),
                        .other = std::to_integer<std::uint8_t>(bytes[5]),
                        .section = table.u16(at + 6),
                        .value = table.u64(at + 8),
                        .size = table.u64(at + 16)});
    }
    break;
  }
  return result;
}

}  // namespace roundoff::evidence
