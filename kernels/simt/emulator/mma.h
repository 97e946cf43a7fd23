// mma.sync on the emulator (kernels/simt/mma.h says what it does).
#pragma once

#include <cstdint>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/emulator/operand.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

struct MmaKind {
  Operand operand;
  int k;
};

ROUNDOFF_SIMT_API void mma(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c,
                           MmaKind kind, Site site);
ROUNDOFF_SIMT_API void mma_half(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b,
                                const std::uint32_t* c, int k, Site site);
// c[m][n][4] += a[m][] b[n][], at one meeting of the warp.
ROUNDOFF_SIMT_API void mma_tile(float* c, const std::uint32_t* a, const std::uint32_t* b, int m,
                                int n, MmaKind kind, Site site);

}  // namespace roundoff::simt
