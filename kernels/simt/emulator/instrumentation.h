// What instrumented kernels call by hand: accesses that must stay whole are made out of line, by
// code that is not instrumented, and say so themselves. `code`: where they were called.
#pragma once

#include <cstddef>

#include "kernels/simt/emulator/api.h"

namespace roundoff::simt {

ROUNDOFF_SIMT_API void vector_load(const void* p, std::size_t bytes, const void* code);
ROUNDOFF_SIMT_API void vector_store(void* p, std::size_t bytes, const void* code);
// Not seen by anybody.
ROUNDOFF_SIMT_API void copy_arguments(void* to, const void* from, std::size_t bytes);

}  // namespace roundoff::simt
