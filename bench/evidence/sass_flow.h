// Loops of machine code, from its branches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace roundoff::evidence {

// One instruction.
struct SassWord {
  std::uint64_t low, high;
  unsigned opcode() const { return static_cast<unsigned>(low & 0xFFF); }
  unsigned operation() const { return static_cast<unsigned>(low & 0x1FF); }
};
std::vector<SassWord> sass_words(std::span<const std::byte> code);

struct SassLoop {
  std::size_t first, last;  // instructions, from the branch's target to the branch
};

struct SassFlow {
  std::vector<bool> in_loop;  // each instruction: whether it can come to itself again
  std::vector<SassLoop> loops;
};
SassFlow sass_flow(std::span<const SassWord> code, int architecture);

}  // namespace roundoff::evidence
