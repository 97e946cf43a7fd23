// Which kernel of the ladder, and which tile, computes a product.
#pragma once

#include <string>

#include "kernels/gemm/problem.h"

namespace roundoff {

// Tiles of the kernels on mma.sync.
enum class MmaTileShape : unsigned char { m256n128, m128n128, m64n64, m32n32 };

// The largest tile that gives every multiprocessor of a large device one, or the smallest that is
// not mostly empty. `chunked`: both operands come in aligned chunks of 16 bytes, which the two
// largest need.
MmaTileShape mma_tile_shape(const ProductSizes& size, unsigned parts, bool chunked);

}  // namespace roundoff
