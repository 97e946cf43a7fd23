// What the machine code of each kernel has to be: a row for each family.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/evidence/kernel_code.h"

namespace roundoff::testing {

// Properties of one instantiation's code. Every kernel, in a row or not, has no stack frame and
// touches no local memory, and a block of its launch bounds (else of 1024 threads) fits.
enum class Needs : unsigned {
  nothing = 0,
  wide_loads = 1,         // loads of 128 bits, of global memory or by generic addresses
  wide_stores = 2,        // and stores
  mma = 4,                // its main loop multiplies by mma.sync
  wgmma = 8,              // by wgmma
  async_copies = 16,      // its main loop copies 16 bytes a thread past the registers (cp.async)
  ldmatrix = 32,          // its main loop reads shared memory by ldmatrix, four matrices at once
  tensor_copies = 64,     // operands come by TMA
  tensor_stores = 128,    // results go by TMA
  whole_stores = 512,     // its main loop stores at least 64 bits at once
  no_global_loads = 256,  // its main loop does not load global memory into registers
};
constexpr Needs operator|(Needs a, Needs b) {
  return static_cast<Needs>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(Needs all, Needs one) {
  return (static_cast<unsigned>(all) & static_cast<unsigned>(one)) != 0;
}

struct Expectation {
  std::string_view kernel;        // base_name()
  std::string_view with = "";     // what its name holds as well; "" for all
  std::string_view also = "";     // and this
  std::string_view without = "";  // instantiations whose name holds this are not meant
  int architecture = 0;           // 80, 90; 0 for both
  int registers = 255;            // at most
  Needs needs = Needs::nothing;
  bool may_be_absent = false;  // from this build

  bool covers(const evidence::KernelCode& code) const;
};

std::span<const Expectation> expectations();

// What of the expectation the code does not meet, one a line; empty where it meets all.
std::vector<std::string> failures(const Expectation& expected, const evidence::KernelCode& code);
// What every kernel has to meet.
std::vector<std::string> failures_of_any(const evidence::KernelCode& code);

// A kernel that another architecture has is empty on this one: a trap, or an exit.
bool is_hollow(const evidence::KernelCode& code);

}  // namespace roundoff::testing
