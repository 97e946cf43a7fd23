// What nvcc made of a kernel, read from the file it lies in: registers, shared memory, stack,
// launch bounds and a census of its instructions. Reads
//   cubins (ELF for a GPU), fat binaries (what nvcc embeds), object files, programs and shared
//   libraries (their sections .nv_fatbin), and archives of such objects (ar).
// PTX and code for other vendors are passed over. No public document describes fat binaries or
// .nv.info; both were read off what nvcc 13 writes and are calibrated by a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/evidence/occupancy.h"
#include "bench/evidence/sass.h"

namespace roundoff::evidence {

struct KernelCode {
  std::string symbol;     // mangled
  std::string name;       // demangled, without parameters and namespaces: "softmax_rows<Half, 32>"
  int architecture = 0;   // 80, 90
  bool specific = false;  // of this architecture alone (sm_90a)

  int registers = 0;    // of a thread
  int shared = 0;       // static, bytes
  int stack = 0;        // bytes of a thread's stack frame; spills lie in it
  int max_threads = 0;  // of a block, by __launch_bounds__; 0: none stated
  std::size_t code_bytes = 0;
  Census census;
  std::optional<Census> main_loop;

  // Loads and stores of local memory in the code.
  std::size_t local_accesses() const {
    return census.of(Sass::ldl).total + census.of(Sass::stl).total;
  }
  // With so many threads and bytes of dynamic shared memory.
  Occupancy occupancy(int threads, int dynamic_shared = 0) const;
};

// The kernel's name up to its template arguments: "softmax_rows".
std::string_view base_name(std::string_view name);

// All kernels, in the order of the file. `origin` names it in errors. Throws Error for anything
// that is none of the above or contradicts itself, and for compressed code (nvcc's
// --compress-mode=none writes it plain).
std::vector<KernelCode> read_kernels(std::span<const std::byte> file, std::string_view origin);
std::vector<KernelCode> read_kernels(const std::filesystem::path& path);

}  // namespace roundoff::evidence
