// Which product a pass is, as the launchers see it, and which kernel of the ladder they choose.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/problem.h"
#include "kernels/gemm/kernel.h"

namespace roundoff {
struct ProductProblem;
}

namespace roundoff::bench {

// op(A) op(B) of a pass, [m, k] times [k, n]; of a convolution the sums that a pass forms.
struct PassProduct {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  // An operand is held along its rows; A where sums run over samples.
  bool trans_a = false, trans_b = false;
};
// Throws for a problem that is no product, and for the pass `backward`, which is two.
PassProduct pass_product(const Problem& problem);

// The same for kernels/gemm/problem.h: sizes, types, and whether its sums are cut.
ProductProblem product_problem(const Problem& problem);

// The kernel that `automatic` is on a GPU of that capability (kernels/gemm/select.h). Empty for
// what is no product, and for `backward`.
std::optional<ProductKernel> chosen_kernel(const Problem& problem, int capability);

}  // namespace roundoff::bench
