// What the wrappers of single instructions share. Each has two bodies: the instruction, for nvcc,
// and a call into the emulator. Hopper's own instructions exist for sm_90a only; elsewhere their
// wrappers trap, so that a kernel that was not refused before its launch does not seem to have run.
#pragma once

#include <cstdint>

#include "kernels/simt/simt.h"

#if defined(__CUDACC__)
// Where a wrapper is called: for the emulator's messages alone.
#define ROUNDOFF_SITE ::roundoff::simt::Site site = ::roundoff::simt::Site::here()

namespace roundoff {
ROUNDOFF_DEVICE_NAMESPACE {
  namespace instruction {

  ROUNDOFF_DEVICE std::uint32_t shared_address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  ROUNDOFF_DEVICE std::uint64_t generic_address(const void* p) {
    return reinterpret_cast<std::uint64_t>(p);
  }

  }  // namespace instruction
}  // inline namespace
}  // namespace roundoff
#endif
