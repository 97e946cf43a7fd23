// Small products of fp32 matrices, where packing would cost more than it saves: sums stay in
// vector registers, operands are read where they lie. Internal to the reference path.
#pragma once

#include "kernels/gemm/product.h"

namespace roundoff {

// Whether small_product() takes a product and is the better way: at most 64^3 multiplications, not
// both operands transposed, half a vector of columns (of depth, where B is transposed) or more, a
// target with fused multiply-adds on 256 or 512 bit.
bool small_product_serves(const Product<float>& p);

// As product(), for m, n and k > 0. Each sum is one chain of fused multiply-adds over k in order,
// or, where B is transposed, a chain for each vector lane, added in pairs at the end.
void small_product(const Product<float>& p);

}  // namespace roundoff
