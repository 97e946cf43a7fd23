#include "bench/evidence/fat_binary.h"

#include <charconv>
#include <cstring>

#include "bench/evidence/elf.h"

namespace roundoff::evidence {
namespace {

constexpr std::uint16_t kGpu = 190;  // the ELF machine of NVIDIA's GPUs

// A container: magic, version, the header's size (16), the size of the entries behind it.
constexpr std::uint32_t kMagic = 0xBA55ED50;
constexpr std::uint64_t kContainerHeader = 16;
// An entry: a header whose fields lie at these bytes, then the payload.
constexpr std::uint64_t kEntryHeader = 64;
constexpr std::uint64_t kHeaderSizeAt = 4, kPayloadSizeAt = 8, kArchitectureAt = 28, kFlagsAt = 40;
constexpr std::uint16_t kCubin = 2;                     // the kind; PTX is 1
constexpr std::uint64_t kCompressed = 0x2000 | 0x8000;  // LZ4, zstd
constexpr std::uint64_t kSpecific = 0x100000;

constexpr std::string_view kArchive = "!<arch>\n";
constexpr std::uint64_t kMemberHeader = 60, kMemberSizeAt = 48, kMemberSizeDigits = 10;

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

class Reader {
 public:
  explicit Reader(std::string_view origin) : origin_(origin) {}

  std::vector<DeviceImage> images;

  // Containers, one behind the other, with zeros between them.
  void containers(std::span<const std::byte> bytes) {
    const FileBytes file(bytes, origin_);
    std::uint64_t at = 0;
    while (at + 4 <= bytes.size()) {
      if (file.u32(at) == 0) {
        at += 4;
        continue;
      }
      if (file.u32(at) != kMagic)
        fail_cubin(origin_, "no fat binary at byte ", at, " of its section");
      const std::uint64_t header = file.u16(at + 6);
      if (header < kContainerHeader)
        fail_cubin(origin_, "a fat binary's header of ", header, " bytes, ", kContainerHeader,
                   " expected");
      const std::uint64_t size = file.u64(at + 8);
      entries(file.part(at + header, size, "a fat binary"));
      at += header + size;
    }
  }

  // A file by itself: a cubin, or a host's file with fat binaries in it.
  void elf(std::span<const std::byte> bytes) {
    const Elf file(bytes, origin_);
    if (file.machine() == kGpu) return cubin(file, bytes, 0, false);
    for (const Elf::Section& section : file.sections())
      if (section.name == ".nv_fatbin" || section.name == "__nv_relfatbin")
        containers(section.data);
  }

  void archive(std::span<const std::byte> bytes) {
    const FileBytes file(bytes, origin_);
    for (std::uint64_t at = kArchive.size(); at < bytes.size();) {
      const auto header = file.part(at, kMemberHeader, "an archive's member");
      const char* digits = reinterpret_cast<const char*>(header.data()) + kMemberSizeAt;
      std::uint64_t size = 0;
      const auto [end, error] = std::from_chars(digits, digits + kMemberSizeDigits, size);
      if (error != std::errc() || end == digits)
        fail_cubin(origin_, "an archive's member of no size, at byte ", at);
      const auto member = file.part(at + kMemberHeader, size, "an archive's member");
      if (is_elf(member)) elf(member);
      at += kMemberHeader + size + size % 2;
    }
  }

  void any(std::span<const std::byte> bytes) {
    if (is_elf(bytes)) return elf(bytes);
    if (starts_with(bytes, kArchive)) return archive(bytes);
    if (bytes.size() >= 4 && FileBytes(bytes, origin_).u32(0) == kMagic) return containers(bytes);
    fail_cubin(origin_, "neither a cubin nor a fat binary, an ELF file or an archive");
  }

 private:
  void cubin(const Elf& file, std::span<const std::byte> bytes, int architecture, bool specific) {
    // e_flags hold the architecture in bits 8 to 15, before ABI version 8 in bits 0 to 7.
    const std::uint32_t of_file =
        std::to_integer<std::uint8_t>(bytes[8]) >= 8 ? file.flags() >> 8 : file.flags();
    if (architecture == 0) architecture = static_cast<int>(of_file & 0xFF);
    images.push_back({architecture, specific, bytes});
  }

  void entries(std::span<const std::byte> bytes) {
    const FileBytes file(bytes, origin_);
    for (std::uint64_t at = 0; at < bytes.size();) {
      file.part(at, kEntryHeader, "an entry of a fat binary");
      const std::uint64_t header = file.u32(at + kHeaderSizeAt);
      if (header < kEntryHeader)
        fail_cubin(origin_, "an entry's header of ", header, " bytes, ", kEntryHeader, " expected");
      const std::uint64_t size = file.u64(at + kPayloadSizeAt);
      const auto payload = file.part(at + header, size, "an entry of a fat binary");
      const auto architecture = static_cast<int>(file.u32(at + kArchitectureAt) & 0xFFFF);
      const std::uint64_t flags = file.u64(at + kFlagsAt);
      if (file.u16(at) == kCubin) {
        if ((flags & kCompressed) != 0)
          fail_cubin(origin_, "its code for sm_", architecture,
                     " is compressed; nvcc --compress-mode=none writes it plain");
        const Elf code(payload, origin_);
        if (code.machine() != kGpu) fail_cubin(origin_, "an entry that should hold a cubin");
        cubin(code, payload, architecture, (flags & kSpecific) != 0);
      }
      at += header + size;
    }
  }

  std::string origin_;
};

}  // namespace

std::vector<DeviceImage> device_images(std::span<const std::byte> file, std::string_view origin) {
  Reader reader(origin);
  reader.any(file);
  return std::move(reader.images);
}

}  // namespace roundoff::evidence
