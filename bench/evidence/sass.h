// A census of a kernel's machine code (SASS): how many instructions of which kind and width, and
// how many of them in loops. What it says is counted in the code, not executed.
//
// An instruction takes 16 bytes. Its low 12 bits are the opcode, whose upper three say where the
// operands are; the width of a memory access is in bits 73 to 75. No public document describes the
// encoding: a test compiles kernels of known instructions with this build's nvcc and compares.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace roundoff::evidence {

enum class Sass : unsigned char {
  ldg,    // global loads
  stg,    // global stores
  red,    // global atomics without a result
  atomg,  // and with one
  ld,     // loads and stores by generic addresses
  st,
  lds,  // shared memory
  sts,
  atoms,
  ldl,  // local memory: spills, stack frames
  stl,
  ldgsts,    // cp.async
  ldsm,      // ldmatrix
  stsm,      // stmatrix
  hmma,      // mma.sync
  hgmma,     // wgmma
  utmaldg,   // TMA: tensor to shared memory
  utmastg,   // and back
  utmaredg,  // and back, adding
  ublkcp,    // bulk copies
  syncs,     // mbarrier
  bar,       // barriers of a block
  shfl,
  mufu,  // 2^x, 1/x, square roots ...
  ffma,
  fadd,
  fmul,
  dfma,
  usetmaxreg,  // setmaxnreg
  ucgabar,     // barriers of a cluster: arriving and waiting are two
  nanosleep,
  other,
};
inline constexpr int kSassKinds = static_cast<int>(Sass::other) + 1;
// The name in NVIDIA's listings, "LDG" and so on.
std::string_view name(Sass kind);

struct SassCount {
  std::size_t total = 0;
  std::size_t in_loops = 0;
  // Of memory accesses: narrower than 32 bits a thread, 32, 64, 128. ldmatrix and stmatrix move
  // 32, 64 or 128 bits a thread with 1, 2 or 4 matrices.
  std::array<std::size_t, 4> narrow_32_64_128{};
  std::size_t narrow() const { return narrow_32_64_128[0]; }
  std::size_t of_32() const { return narrow_32_64_128[1]; }
  std::size_t of_64() const { return narrow_32_64_128[2]; }
  std::size_t of_128() const { return narrow_32_64_128[3]; }
};

struct Census {
  std::array<SassCount, kSassKinds> kinds{};
  std::size_t instructions = 0;  // without the padding behind the last one
  std::size_t loops = 0;
  const SassCount& of(Sass kind) const { return kinds[static_cast<std::size_t>(kind)]; }
  SassCount& of(Sass kind) { return kinds[static_cast<std::size_t>(kind)]; }
};

// `code` is the text section of one kernel, a multiple of 16 bytes; architecture 80 or 90 says how
// branches are encoded. Anything else gives counts of no meaning, never a failure.
Census census(std::span<const std::byte> code, int architecture);

// The loop that holds the most products (HMMA, HGMMA; where there is none FFMA), the smallest of
// those that hold as many; none where no loop multiplies.
std::optional<Census> main_loop(std::span<const std::byte> code, int architecture);

}  // namespace roundoff::evidence
