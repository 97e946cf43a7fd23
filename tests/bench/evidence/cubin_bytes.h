// Cubins, fat binaries and the files around them, made by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace roundoff::testing {

using FileBytesVector = std::vector<std::byte>;

template <class T>
void put(FileBytesVector& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(T));
  std::memcpy(to.data() + at, &value, sizeof(T));
}
inline void put_text(FileBytesVector& to, std::string_view text) {
  for (const char c : text) to.push_back(static_cast<std::byte>(c));
}
template <class T>
void set(FileBytesVector& in, std::size_t at, T value) {
  std::memcpy(in.data() + at, &value, sizeof(T));
}

// One instruction of 16 bytes: an opcode, always executed, and the width of its access.
inline void put_instruction(FileBytesVector& code, std::uint64_t opcode, std::uint64_t width = 0) {
  put(code, opcode | 7ULL << 12);
  put(code, width << 9);
}
// A branch of sm_80 by so many instructions from the next one, taken always or by predicate 0.
inline void put_branch(FileBytesVector& code, std::int64_t instructions, bool always) {
  const auto bytes = static_cast<std::uint64_t>(instructions * 16);
  put(code, 0x947ULL | (always ? 7ULL : 0ULL) << 12 | bytes << 32);
  put(code, (bytes >> 32 & 0x3FFFF) | 7ULL << 23);
}

struct CubinKernel {
  std::string symbol = "kernel";
  FileBytesVector code;
  std::uint32_t registers = 40, stack = 0, max_threads = 0;
  std::uint64_t shared = 0;  // of the section
};

struct ElfSection {
  std::string name;
  std::uint32_t type = 1, link = 0;
  FileBytesVector data;
  std::uint64_t no_bits = 0;  // the size of one that takes no room
};

// An ELF file of these sections behind the empty first one; the last one gets the names.
inline FileBytesVector elf_file(std::vector<ElfSection> sections, std::uint16_t machine,
                                std::uint32_t flags) {
  sections.insert(sections.begin(), ElfSection{.name = "", .type = 0, .data = {}});
  sections.push_back({.name = ".shstrtab", .type = 3, .data = {}});
  FileBytesVector names;
  std::vector<std::uint32_t> name_at;
  for (const ElfSection& section : sections) {
    name_at.push_back(static_cast<std::uint32_t>(names.size()));
    put_text(names, section.name);
    names.push_back(std::byte{0});
  }
  sections.back().data = names;

  FileBytesVector file(64);
  std::vector<std::uint64_t> data_at;
  for (const ElfSection& section : sections) {
    data_at.push_back(file.size());
    file.insert(file.end(), section.data.begin(), section.data.end());
  }
  const std::uint64_t table = file.size();
  for (std::size_t i = 0; i < sections.size(); ++i) {
    put(file, name_at[i]);
    put(file, sections[i].type);
    put<std::uint64_t>(file, 0);
    put<std::uint64_t>(file, 0);
    put(file, data_at[i]);
    put<std::uint64_t>(file, sections[i].no_bits + sections[i].data.size());
    put(file, sections[i].link);
    put<std::uint32_t>(file, 0);
    put<std::uint64_t>(file, 1);
    put<std::uint64_t>(file, 0);
  }
  std::memcpy(file.data(), "\177ELF\2\1\1\101\10", 9);
  set<std::uint16_t>(file, 18, machine);
  set<std::uint64_t>(file, 40, table);
  set<std::uint32_t>(file, 48, flags);
  set<std::uint16_t>(file, 58, 64);
  set<std::uint16_t>(file, 60, static_cast<std::uint16_t>(sections.size()));
  set<std::uint16_t>(file, 62, static_cast<std::uint16_t>(sections.size() - 1));
  return file;
}

inline FileBytesVector cubin(const std::vector<CubinKernel>& kernels,
                             std::uint32_t architecture = 80) {
  ElfSection strings{.name = ".strtab", .type = 3, .data = FileBytesVector(1)};
  ElfSection symbols{.name = ".symtab", .type = 2, .link = 1, .data = FileBytesVector(24)};
  ElfSection info{.name = ".nv.info", .type = 0x70000000, .data = {}};
  std::vector<ElfSection> own;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const CubinKernel& kernel = kernels[i];
    put(symbols.data, static_cast<std::uint32_t>(strings.data.size()));
    put<std::uint8_t>(symbols.data, 0x12);  // a global function
    put<std::uint8_t>(symbols.data, 0x10);  // that is a kernel
    put<std::uint16_t>(symbols.data, 4);
    put<std::uint64_t>(symbols.data, 0);
    put<std::uint64_t>(symbols.data, kernel.code.size());
    put_text(strings.data, kernel.symbol);
    strings.data.push_back(std::byte{0});
    const auto attribute = [](FileBytesVector& to, std::uint8_t number,
                              std::vector<std::uint32_t> values) {
      put<std::uint8_t>(to, 4);
      put(to, number);
      put(to, static_cast<std::uint16_t>(4 * values.size()));
      for (const std::uint32_t value : values) put(to, value);
    };
    const auto index = static_cast<std::uint32_t>(i + 1);
    attribute(info.data, 0x2F, {index, kernel.registers});
    attribute(info.data, 0x11, {index, kernel.stack});
    ElfSection of_kernel{.name = ".nv.info." + kernel.symbol, .type = 0x70000000, .data = {}};
    put<std::uint32_t>(of_kernel.data, 0x00081903);  // the size of its parameters, a value inline
    if (kernel.max_threads != 0) attribute(of_kernel.data, 0x05, {kernel.max_threads, 1, 1});
    own.push_back({.name = ".text." + kernel.symbol, .data = kernel.code});
    own.push_back(std::move(of_kernel));
    own.push_back(
        {.name = ".nv.shared." + kernel.symbol, .type = 8, .data = {}, .no_bits = kernel.shared});
  }
  std::vector<ElfSection> all = {strings, symbols, info};
  all.insert(all.end(), own.begin(), own.end());
  return elf_file(std::move(all), 190, 0x06000004U | architecture << 8);
}

struct FatEntry {
  std::uint16_t kind = 2;
  std::uint32_t architecture = 80;
  std::uint64_t flags = 0x11;
  FileBytesVector payload;
};
inline FileBytesVector fat_binary(const std::vector<FatEntry>& entries) {
  FileBytesVector body;
  for (const FatEntry& entry : entries) {
    put(body, entry.kind);
    put<std::uint16_t>(body, 0x101);
    put<std::uint32_t>(body, 64);
    put<std::uint64_t>(body, entry.payload.size());
    put<std::uint64_t>(body, 0);
    put<std::uint32_t>(body, 0x10008);
    put(body, entry.architecture);
    put<std::uint64_t>(body, 0);
    put(body, entry.flags);
    put<std::uint64_t>(body, 0);
    put<std::uint64_t>(body, 0);
    body.insert(body.end(), entry.payload.begin(), entry.payload.end());
  }
  FileBytesVector file;
  put<std::uint32_t>(file, 0xBA55ED50);
  put<std::uint16_t>(file, 1);
  put<std::uint16_t>(file, 16);
  put<std::uint64_t>(file, body.size());
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

inline FileBytesVector host_object(const FileBytesVector& fat) {
  return elf_file(
      {{.name = ".text", .data = FileBytesVector(32)}, {.name = ".nv_fatbin", .data = fat}}, 62, 0);
}

inline FileBytesVector archive(const std::vector<FileBytesVector>& members) {
  FileBytesVector file;
  put_text(file, "!<arch>\n");
  for (const FileBytesVector& member : members) {
    std::string header = "member.o/";
    header.resize(48, ' ');
    header += std::to_string(member.size());
    header.resize(58, ' ');
    put_text(file, header + "`\n");
    file.insert(file.end(), member.begin(), member.end());
    if (member.size() % 2 != 0) put_text(file, "\n");
  }
  return file;
}

// A kernel with a loop of a product and two loads, for an architecture whose branches are sm_80's.
inline CubinKernel sample_kernel(std::string symbol = "kernel") {
  CubinKernel kernel{.symbol = std::move(symbol), .code = {}};
  put_instruction(kernel.code, 0x981, 6);  // LDG.128
  put_instruction(kernel.code, 0x984, 4);  // LDS
  put_instruction(kernel.code, 0x23C);     // HMMA
  put_branch(kernel.code, -3, false);      // back to the LDS
  put_instruction(kernel.code, 0x986, 5);  // STG.64
  put_instruction(kernel.code, 0x94D);     // EXIT
  put_branch(kernel.code, -1, true);
  put_instruction(kernel.code, 0x918);  // NOP
  return kernel;
}

}  // namespace roundoff::testing
