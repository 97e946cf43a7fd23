// A product, its operands apart, and how its sums are cut: what the launchers of every kernel of
// the ladder (kernel.h) take.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/kernel.h"
#include "kernels/gemm/modelled.h"

namespace roundoff {

// Results [m, n] of sums over depth, and over `terms` matrices; all of them below 2^31.
struct ProductSizes {
  unsigned m = 0, n = 0, depth = 0;
  unsigned terms = 1;    // matrices that one sum runs through
  unsigned results = 1;  // matrices of results; one of the two is 1
};

// What tensor cores multiply; none: operands that they do not take.
enum class MmaOperand : unsigned char { none, fp16, bf16, tf32 };

struct ProductProblem {
  const char* name = "product";  // of the operation, in messages and profiles
  ProductSizes size;
  bool wide = false;             // in fp64
  ProductArithmetic arithmetic;  // where not wide
  MmaOperand operand = MmaOperand::none;
  // The sum may be cut into parts: for sums over samples. A sum that belongs to one sample must not
  // depend on how many others there are, nor on how they are cut.
  bool may_split = false;
  SumOrder order = SumOrder::fastest;
  unsigned split = 0;  // parts that were asked for; 0: as may_split says
  ProductKernel kernel = ProductKernel::automatic;
  ProductTile tile = ProductTile::automatic;  // of sm80
};

// Tensor cores take operands of one 16-bit type, and fp32 ones as tf32; modelled arithmetic takes
// mixed ones as tf32 too.
inline MmaOperand mma_operand(const ProductArithmetic& arithmetic, DType a, DType b, bool tf32) {
  if (a == b && a == DType::fp16) return MmaOperand::fp16;
  if (a == b && a == DType::bf16) return MmaOperand::bf16;
  const bool narrow = size_of(a) <= 4 && size_of(b) <= 4;
  if (narrow && tf32 && (a == b || arithmetic.modelled)) return MmaOperand::tf32;
  return MmaOperand::none;
}

// Sums are cut along depth between whole blocks of 64 places, whatever kernel runs, so that the
// parts of a sum, and hence its bits, depend on the product's sizes alone.
struct ProductCut {
  static constexpr unsigned kBlock = 64;
  unsigned blocks = 1;  // of one matrix
  unsigned all_blocks = 0;
  unsigned parts = 1, blocks_a_part = 0;
  bool folded = false;  // the parts' sums begin at 0 and are added by a launch of their own
};

// At least 4 blocks (256 products) a part, no more parts than give a large device something to do,
// and 64 at most.
inline ProductCut product_cut(const ProductProblem& p) {
  constexpr std::uint64_t kLeastBlocks = 4, kTile = 128, kTiles = 256, kMost = 64;
  ProductCut cut;
  cut.blocks = std::max(1U, (p.size.depth + ProductCut::kBlock - 1) / ProductCut::kBlock);
  const std::uint64_t all =
      p.size.depth == 0 ? 0 : static_cast<std::uint64_t>(cut.blocks) * p.size.terms;
  cut.all_blocks = static_cast<unsigned>(all);
  std::uint64_t parts = 1;
  if (p.order == SumOrder::in_order) {
    parts = 1;
  } else if (p.order == SumOrder::by_matrix) {
    parts = std::max(p.size.terms, 1U);
  } else if (p.split != 0) {
    parts = std::clamp<std::uint64_t>(p.split, 1, std::max<std::uint64_t>(all, 1));
  } else if (p.may_split && !p.arithmetic.modelled) {
    const std::uint64_t tiles =
        (p.size.m + kTile - 1) / kTile * ((p.size.n + kTile - 1) / kTile) * p.size.results;
    parts = std::clamp<std::uint64_t>(
        std::min(all / kLeastBlocks, kTiles / std::max<std::uint64_t>(tiles, 1)), 1, kMost);
  }
  cut.blocks_a_part = static_cast<unsigned>((all + parts - 1) / parts);
  cut.parts = cut.blocks_a_part == 0
                  ? 1
                  : static_cast<unsigned>((all + cut.blocks_a_part - 1) / cut.blocks_a_part);
  // One matrix alone is folded too, as it would be among others.
  cut.folded = cut.parts != 1 || (p.order == SumOrder::by_matrix && all != 0);
  return cut;
}

}  // namespace roundoff
