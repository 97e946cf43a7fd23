// cp.async, ldmatrix and stmatrix on the emulator (kernels/simt/copy.h says what they do).
#pragma once

#include <cstdint>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

// The copy lands when the configuration says, at the latest at a wait that covers it.
ROUNDOFF_SIMT_API void cp_async(void* shared, const void* global, int bytes, int source_bytes,
                                Site site);
ROUNDOFF_SIMT_API void cp_async_commit(Site site);
ROUNDOFF_SIMT_API void cp_async_wait(unsigned pending, Site site);
ROUNDOFF_SIMT_API void cp_async_wait_all(Site site);

ROUNDOFF_SIMT_API void ldmatrix(std::uint32_t* values, const void* row, int count, bool transpose,
                                Site site);
// values[length][count] from rows[length], at one meeting of the warp.
ROUNDOFF_SIMT_API void ldmatrix_tile(std::uint32_t* values, const void* const* rows, int length,
                                     int count, bool transpose, Site site);
ROUNDOFF_SIMT_API void stmatrix(void* row, const std::uint32_t* values, int count, bool transpose,
                                Site site);

}  // namespace roundoff::simt
