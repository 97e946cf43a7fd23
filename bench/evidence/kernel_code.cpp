#include "bench/evidence/kernel_code.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <unordered_set>

#include "bench/evidence/elf.h"
#include "bench/evidence/fat_binary.h"

namespace roundoff::evidence {
namespace {

constexpr std::uint8_t kFunction = 2, kEntry = 0x10;  // a symbol's type, and that it is a kernel
constexpr std::string_view kText = ".text.", kInfo = ".nv.info", kShared = ".nv.shared.";
// From sm_90 on the section of shared memory begins with what the system takes.
constexpr std::uint64_t kReservedShared = 1024;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;  // no resource is larger
constexpr std::uintmax_t kLargestFile = std::uintmax_t{4} << 30;
constexpr std::size_t kLongestSymbol = 16384;

// Attributes of .nv.info: format, attribute, 16 bits that are the value or the size of the value
// that follows (format 4).
constexpr std::uint8_t kMaxThreads = 0x05, kRequiredThreads = 0x10, kFrameSize = 0x11,
                       kRegisters = 0x2F;
constexpr std::uint8_t kSized = 4;

template <class Visit>
void visit_attributes(const Elf::Section& section, const std::string& origin, Visit visit) {
  const FileBytes info(section.data, origin);
  for (std::uint64_t at = 0; at + 4 <= info.size();) {
    const std::uint32_t head = info.u32(at);
    const auto format = static_cast<std::uint8_t>(head & 0xFF);
    const auto attribute = static_cast<std::uint8_t>(head >> 8 & 0xFF);
    const std::uint64_t size = format == kSized ? head >> 16 : 0;
    visit(attribute, FileBytes(info.part(at + 4, size, "an attribute"), origin));
    at += 4 + size;
  }
}

int bounded(std::uint64_t value, std::string_view what, std::string_view origin) {
  if (value > kLargest) fail_cubin(origin, what, " of ", value, " cannot be");
  return static_cast<int>(value);
}

std::string demangled(const std::string& symbol) {
  if (symbol.size() > kLongestSymbol) return symbol;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : symbol;
}

void remove_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

// Without what is the same in every kernel's name: the result, parameters, the project's
// namespaces.
std::string short_name(const std::string& symbol) {
  std::string text = demangled(symbol);
  if (text == symbol) return text;
  for (const std::string_view part : {"roundoff::", "on_cuda::", "(anonymous namespace)::"})
    remove_all(text, part);
  if (text.starts_with("void ")) text.erase(0, 5);
  // The parameters begin at the first parenthesis outside template arguments.
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth == 0) {
      text.resize(i);
      break;
    }
  }
  return text;
}

class Cubin {
 public:
  Cubin(const DeviceImage& image, std::string_view origin)
      : image_(image), origin_(origin), elf_(image.cubin, origin), symbols_(elf_.symbols()) {}

  std::vector<KernelCode> kernels() {
    std::vector<KernelCode> result;
    std::vector<std::size_t> of_symbol(symbols_.size(), kNone);
    std::unordered_set<std::string_view> seen;
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      const Elf::Symbol& symbol = symbols_[i];
      if (symbol.type != kFunction || (symbol.other & kEntry) == 0) continue;
      const Elf::Section* text = elf_.find(std::string(kText).append(symbol.name));
      if (text == nullptr) fail_cubin(origin_, "no code of the kernel that symbol ", i, " names");
      if (!seen.insert(symbol.name).second) fail_cubin(origin_, "a kernel that is there twice");
      of_symbol[i] = result.size();
      result.push_back(kernel(symbol, *text));
    }
    if (const Elf::Section* info = elf_.find(kInfo); info != nullptr) {
      visit_attributes(*info, origin_, [&](std::uint8_t attribute, const FileBytes& value) {
        if (attribute != kRegisters && attribute != kFrameSize) return;
        const std::uint32_t index = value.u32(0);
        if (index >= of_symbol.size() || of_symbol[index] == kNone) return;  // a device function
        int& field = attribute == kRegisters ? result[of_symbol[index]].registers
                                             : result[of_symbol[index]].stack;
        field = bounded(value.u32(4), attribute == kRegisters ? "registers" : "a stack", origin_);
      });
    }
    return result;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  KernelCode kernel(const Elf::Symbol& symbol, const Elf::Section& text) const {
    KernelCode result;
    result.symbol = symbol.name;
    result.name = short_name(result.symbol);
    result.architecture = image_.architecture;
    result.specific = image_.specific;
    result.code_bytes = text.data.size();
    result.census = census(text.data, image_.architecture);
    result.main_loop = main_loop(text.data, image_.architecture);
    if (const Elf::Section* info = elf_.find(std::string(kInfo) + "." + result.symbol);
        info != nullptr) {
      visit_attributes(*info, origin_, [&](std::uint8_t attribute, const FileBytes& value) {
        if (attribute != kMaxThreads && attribute != kRequiredThreads) return;
        std::uint64_t threads = 1;
        for (int i = 0; i < 3; ++i)
          threads = std::min(threads * value.u32(4 * static_cast<std::uint64_t>(i)), 2 * kLargest);
        result.max_threads = bounded(threads, "a block", origin_);
      });
    }
    if (const Elf::Section* shared = elf_.find(std::string(kShared) + result.symbol);
        shared != nullptr) {
      const std::uint64_t reserved = image_.architecture >= 90 ? kReservedShared : 0;
      result.shared =
          bounded(std::max(shared->size, reserved) - reserved, "shared memory", origin_);
    }
    return result;
  }

  DeviceImage image_;
  std::string origin_;
  Elf elf_;
  std::vector<Elf::Symbol> symbols_;
};

}  // namespace

Occupancy KernelCode::occupancy(int threads, int dynamic_shared) const {
  return evidence::occupancy(
      sm_limits(architecture),
      {.threads = threads, .registers = registers, .shared = shared + dynamic_shared});
}

std::string_view base_name(std::string_view name) { return name.substr(0, name.find('<')); }

std::vector<KernelCode> read_kernels(std::span<const std::byte> file, std::string_view origin) {
  std::vector<KernelCode> result;
  for (const DeviceImage& image : device_images(file, origin)) {
    std::vector<KernelCode> kernels = Cubin(image, origin).kernels();
    std::move(kernels.begin(), kernels.end(), std::back_inserter(result));
  }
  return result;
}

std::vector<KernelCode> read_kernels(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail_cubin(path.string(), error.message());
  if (size > kLargestFile)
    fail_cubin(path.string(), size, " bytes, at most ", kLargestFile, " expected");
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size)))
    fail_cubin(path.string(), "cannot be read");
  return read_kernels(bytes, path.string());
}

}  // namespace roundoff::evidence
