// The kernels that compute a product of 16-bit, tf32 or fp32 operands on a device: the rungs of a
// ladder, each a step faster than the one before. All of them stay; `automatic` is the fastest that
// takes a product (kernels/gemm/select.h).
#pragma once

#include <string_view>

namespace roundoff {

enum class ProductKernel : unsigned char {
  automatic,
  naive,      // a thread an element, operands from memory
  tiles,      // tiles in shared memory, sums in registers, fused multiply-adds; every type
  mma,        // tensor cores: mma.sync, fed by ldmatrix
  sm80,       // the same behind copies of several stages (cp.async)
  wgmma,      // sm_90a: tiles by TMA, mbarriers, wgmma
  sm90,       // warp-specialised, persistent, clusters of two with multicast, stores by TMA
  ping_pong,  // the same with a tile for each consumer, whose ends overlap the other's products
};

inline constexpr ProductKernel kProductKernels[] = {
    ProductKernel::automatic, ProductKernel::naive, ProductKernel::tiles, ProductKernel::mma,
    ProductKernel::sm80,      ProductKernel::wgmma, ProductKernel::sm90,  ProductKernel::ping_pong};

// Tiles of the kernel sm80, rows and columns of the result that a block computes. The two largest
// take operands whose lines begin at multiples of 16 bytes.
enum class ProductTile : unsigned char { automatic, m256n128, m128n128, m64n64, m32n32 };

// The order in which the sums of a product are formed.
enum class SumOrder : unsigned char {
  fastest,
  // No row of the result depends on how many others there are: for sums that belong to a sample.
  by_row,
  // Besides, every sum is one chain of fused multiply-adds over k in order, in fp32 or fp64, which
  // begins with what the result holds (and beta C): for sums over samples. Cut anywhere along k and
  // continued it has the same bits, and it has them on every device.
  in_order,
  // With GemmParams::sum_batch: the sum over each matrix of the batch begins at 0 and is formed
  // by_row; those sums are added in the batch's order, in fp32 or fp64, to what the result holds
  // (and beta C). For sums over samples of which each has a matrix: cut between matrices and
  // continued they have the same bits, and the matrices are summed side by side.
  by_matrix,
};

std::string_view name(ProductKernel kernel);
// Throws, listing the names, for any other text.
ProductKernel parse_product_kernel(std::string_view operation, std::string_view text);

}  // namespace roundoff
