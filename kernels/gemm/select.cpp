#include "kernels/gemm/select.h"

namespace roundoff {

MmaTileShape mma_tile_shape(const ProductSizes& size, unsigned parts, bool chunked) {
  const auto blocks = [&](unsigned tile_m, unsigned tile_n) {
    return std::uint64_t{(size.m + tile_m - 1) / tile_m} * ((size.n + tile_n - 1) / tile_n) *
           size.results * parts;
  };
  if (chunked && size.m > 128 && size.n > 64 && blocks(256, 128) >= 96)
    return MmaTileShape::m256n128;
  if (chunked && size.m > 64 && size.n > 64 && blocks(128, 128) >= 48)
    return MmaTileShape::m128n128;
  if (size.m > 32 && size.n > 32) return MmaTileShape::m64n64;
  return MmaTileShape::m32n32;
}

}  // namespace roundoff
