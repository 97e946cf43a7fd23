#include "kernels/simt/emulator/sanitizer/lines.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <thread>
#include <utility>

#include "kernels/base/check.h"

#if defined(ROUNDOFF_LIBDW)
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>
#endif

namespace roundoff::simt {

namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 && plain != nullptr ? plain : symbol;
  std::free(plain);
  return name;
}

}  // namespace

#if defined(ROUNDOFF_LIBDW)

struct SourceLines::Tables {
  Dwfl* dwfl = nullptr;
  Dwfl_Callbacks callbacks{};
  char* debug_path = nullptr;

  // The libraries that are loaded now.
  Tables() {
    callbacks.find_elf = dwfl_linux_proc_find_elf;
    callbacks.find_debuginfo = dwfl_standard_find_debuginfo;
    callbacks.debuginfo_path = &debug_path;
    dwfl = dwfl_begin(&callbacks);
    if (dwfl == nullptr) return;
    dwfl_report_begin(dwfl);
    if (dwfl_linux_proc_report(dwfl, getpid()) != 0 ||
        dwfl_report_end(dwfl, nullptr, nullptr) != 0) {
      dwfl_end(dwfl);
      dwfl = nullptr;
    }
  }
  ~Tables() {
    if (dwfl != nullptr) dwfl_end(dwfl);
  }
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;
};

namespace {

// The language's headers, and those of the 16-bit types.
bool is_ours(const std::string& file) {
  return file.find("kernels/simt/") != std::string::npos ||
         file.find("kernels/base/") != std::string::npos;
}

// Where inlined calls that hold the address were made, the innermost first, until one is outside
// the kernel language's headers.
void leave_our_headers(Dwarf_Die* unit, Dwarf_Addr address, SourcePlace& place) {
  if (!is_ours(place.file)) return;
  Dwarf_Die* scopes = nullptr;
  const int count = dwarf_getscopes(unit, address, &scopes);
  if (count <= 0) return;
  Dwarf_Die* inner = nullptr;
  const int nested = dwarf_getscopes_die(&scopes[0], &inner);
  Dwarf_Files* files = nullptr;
  std::size_t file_count = 0;
  if (nested > 0 && dwarf_getsrcfiles(unit, &files, &file_count) == 0) {
    for (int i = 0; i < nested; ++i) {
      if (dwarf_tag(&inner[i]) != DW_TAG_inlined_subroutine) continue;
      Dwarf_Attribute attribute;
      Dwarf_Word file = 0;
      Dwarf_Word line = 0;
      if (dwarf_formudata(dwarf_attr(&inner[i], DW_AT_call_file, &attribute), &file) != 0 ||
          dwarf_formudata(dwarf_attr(&inner[i], DW_AT_call_line, &attribute), &line) != 0)
        continue;
      const char* name = dwarf_filesrc(files, file, nullptr, nullptr);
      if (name == nullptr) continue;
      place.file = name;
      place.line = static_cast<int>(line);
      if (!is_ours(place.file)) break;
    }
  }
  std::free(inner);
  std::free(scopes);
}

}  // namespace

#else

struct SourceLines::Tables {};

#endif

SourceLines::SourceLines() = default;
SourceLines::~SourceLines() = default;

SourcePlace SourceLines::look_up(const void* code) {
  SourcePlace place;
  // The call itself stands before what it returns to.
  const auto address = reinterpret_cast<std::uintptr_t>(code) - 1;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(address), &info) != 0 && info.dli_sname != nullptr) {
    place.function = concat(demangled(info.dli_sname), "+0x", std::hex,
                            address - reinterpret_cast<std::uintptr_t>(info.dli_saddr));
  } else if (info.dli_fname != nullptr) {
    place.function = concat(info.dli_fname, "+0x", std::hex,
                            address - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  }
#if defined(ROUNDOFF_LIBDW)
  if (tables_ == nullptr) tables_ = std::make_unique<Tables>();
  if (tables_->dwfl == nullptr) return place;
  Dwfl_Module* module = dwfl_addrmodule(tables_->dwfl, address);
  if (module == nullptr) {
    // A library that was loaded since.
    tables_ = std::make_unique<Tables>();
    if (tables_->dwfl == nullptr) return place;
    module = dwfl_addrmodule(tables_->dwfl, address);
    if (module == nullptr) return place;
  }
  if (const char* name = dwfl_module_addrname(module, address); name != nullptr)
    place.function = demangled(name);
  Dwfl_Line* line = dwfl_module_getsrc(module, address);
  if (line == nullptr) return place;
  if (const char* file = dwfl_lineinfo(line, nullptr, &place.line, nullptr, nullptr, nullptr))
    place.file = file;
  Dwarf_Addr bias = 0;
  if (Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias); unit != nullptr)
    leave_our_headers(unit, address - bias, place);
#endif
  return place;
}

const SourcePlace& SourceLines::find(const void* code) {
  const auto known = known_.find(code);
  if (known != known_.end()) return known->second;
  // On a stack of its own: readers of line tables take more than a simulated thread has.
  SourcePlace place;
  std::thread([&] { place = look_up(code); }).join();
  return known_.emplace(code, std::move(place)).first->second;
}

}  // namespace roundoff::simt
