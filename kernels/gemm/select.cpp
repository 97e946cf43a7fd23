#include "kernels/gemm/select.h"

#include "kernels/base/check.h"

namespace roundoff {

namespace {

bool modelled_half(const ProductProblem& p) {
  return p.arithmetic.modelled && p.arithmetic.accumulator == Accumulator::fp16;
}

}  // namespace

std::string product_refusal(ProductKernel kernel, const ProductProblem& p, const ProductTraits& t) {
  if (kernel == ProductKernel::automatic) return {};
  if (modelled_half(p))
    return "accumulator fp16 rounds every multiply-add, and has a kernel of its own: automatic";
  if (p.order == SumOrder::in_order && kernel != ProductKernel::naive &&
      kernel != ProductKernel::tiles)
    return "sums in order are for the kernels naive and tiles: tensor cores add in blocks";
  const bool plain = kernel == ProductKernel::naive || kernel == ProductKernel::tiles;
  if (p.order == SumOrder::by_matrix && !plain && kernel != ProductKernel::mma &&
      kernel != ProductKernel::sm80)
    return "sums by matrix are for the kernels naive, tiles, mma and sm80";
  if (plain) {
    if (p.arithmetic.modelled)
      return concat("accumulator ", name(p.arithmetic.accumulator),
                    " is tensor cores', which this kernel does not use");
    if (p.wide && kernel == ProductKernel::naive) return "sums in fp64 are for the kernel tiles";
    return {};
  }
  const bool sm90 = kernel != ProductKernel::mma && kernel != ProductKernel::sm80;
  if (sm90 && t.architecture != Architecture::sm_90a)
    return "it is written for sm_90a, which this device is not";
  if (p.wide) return "sums in fp64 are for the kernel tiles";
  if (p.operand == MmaOperand::none)
    return concat("tensor cores take two operands of fp16 or of bf16, or fp32 ones as tf32; ",
                  name(t.a), " and ", name(t.b), " given");
  return sm90 ? t.sm90 : std::string();
}

ProductKernel select_kernel(const ProductProblem& p, const ProductTraits& t) {
  if (p.wide || p.operand == MmaOperand::none || p.order == SumOrder::in_order)
    return ProductKernel::tiles;
  // The choice below looks at m.
  if (p.order != SumOrder::fastest) return ProductKernel::sm80;
  // Blocks of small results would mostly be empty in tiles of 64 and more, and a sum that is not
  // one stage of 64 deep has nothing to overlap.
  const bool large = p.size.m > 64 && p.size.n > 64 && p.size.depth >= 64;
  if (t.architecture == Architecture::sm_90a && t.sm90.empty() && large) {
    // Where the ends of tiles weigh as much as their products, those of two overlap.
    const std::uint64_t depth = std::uint64_t{p.size.depth} * p.size.terms;
    return depth <= 1024 ? ProductKernel::ping_pong : ProductKernel::sm90;
  }
  return ProductKernel::sm80;
}

ProductTile select_tile(const ProductProblem& p, bool chunked) {
  if (p.tile != ProductTile::automatic) return p.tile;
  const ProductSizes& z = p.size;
  const unsigned parts = product_cut(p).parts;
  const auto blocks = [&](unsigned tile_m, unsigned tile_n) {
    return std::uint64_t{(z.m + tile_m - 1) / tile_m} * ((z.n + tile_n - 1) / tile_n) * z.results *
           parts;
  };
  if (chunked && z.m > 128 && z.n > 64 && blocks(256, 128) >= 96) return ProductTile::m256n128;
  if (chunked && z.m > 64 && z.n > 64 && blocks(128, 128) >= 48) return ProductTile::m128n128;
  if (z.m > 32 && z.n > 32) return ProductTile::m64n64;
  return ProductTile::m32n32;
}

}  // namespace roundoff
