// Products whose sums are one chain each: fused multiply-adds over k in order, beginning with what
// C holds. No element depends on how many others there are, nor on the vectors and caches of the
// machine, and a sum over samples that is cut and continued has the bits of the whole one. Internal
// to the reference path.
#pragma once

#include "kernels/base/scratch.h"
#include "kernels/gemm/product.h"

namespace roundoff {

// As product(), with alpha = 1: c[i][j] becomes fma(a[i][k - 1], b[k - 1][j], ... fma(a[i][0],
// b[0][j], held)), held being c[i][j] where p.accumulate, else 0.
void product_in_order(const Product<float>& p, Scratch& scratch);
void product_in_order(const Product<double>& p, Scratch& scratch);

}  // namespace roundoff
