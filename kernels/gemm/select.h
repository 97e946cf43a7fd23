// Which kernel of the ladder, and which tile, computes a product: pure functions of what is known
// before a launch.
#pragma once

#include <string>

#include "kernels/gemm/problem.h"
#include "kernels/simt/launch.h"

namespace roundoff {

// What a choice depends on besides the problem.
struct ProductTraits {
  Architecture architecture = Architecture::any;  // of the device
  DType a = DType::fp32, b = DType::fp32;         // as they are stored
  // Both operands come in aligned chunks of 16 bytes, of the type that is multiplied.
  bool chunked = false;
  // Why the kernels for sm_90a do not take the product; empty where they do.
  std::string sm90 = {};
};

// Why a kernel does not take a product; empty where it does. `automatic` takes all.
std::string product_refusal(ProductKernel kernel, const ProductProblem& p, const ProductTraits& t);

// The fastest that takes it.
ProductKernel select_kernel(const ProductProblem& p, const ProductTraits& t);

// The largest tile of which there are enough, parts counted, for most multiprocessors of a large
// GPU, or else the smallest that is not mostly beyond the result. The two largest need chunks. Or
// the one that the problem names.
ProductTile select_tile(const ProductProblem& p, bool chunked);

}  // namespace roundoff
