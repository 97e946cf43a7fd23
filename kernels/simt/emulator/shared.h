// Shared memory of the running block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/emulator/api.h"

namespace roundoff::simt {

// A block's shared memory stands in a window of this size; offsets start at 0, dynamic memory
// first.
inline constexpr std::size_t kSharedWindow = 256 * 1024;
// The address of offset 0 as instructions see it. Not 0, as on sm_90, so that an offset that is
// taken for an address is noticed.
inline constexpr std::uint32_t kSharedBase = 1024;
// Blocks of a cluster are this far apart in the 32-bit shared address space.
inline constexpr unsigned kSharedRankShift = 24;

// The variable that `tag` stands for, placed on first use. Faults where the block has no room.
ROUNDOFF_SIMT_API void* static_shared(const void* tag, std::size_t bytes, std::size_t alignment,
                                      const char* name);
ROUNDOFF_SIMT_API void* dynamic_shared();
// The 32-bit address of shared memory of this block or, with its rank, of another of the cluster;
// faults for any other pointer.
ROUNDOFF_SIMT_API std::uint32_t shared_address(const void* p);
// Back; faults for an address outside the cluster's windows.
ROUNDOFF_SIMT_API void* shared_pointer(std::uint32_t address);

}  // namespace roundoff::simt
