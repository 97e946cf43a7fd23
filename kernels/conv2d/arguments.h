// What the launchers of conv2d check before they run, on every target.
#pragma once

#include <string>

#include "kernels/base/check.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/depthwise.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/select.h"

namespace roundoff {

// Each throws for what its launcher refuses.
Conv2dShape check_conv2d_forward(const Conv2dParams& params, const ConstView& x, const ConstView& w,
                                 const ConstView& bias, const Out& y);
Conv2dShape check_conv2d_grad_input(const Conv2dParams& params, const ConstView& dy,
                                    const ConstView& w, const Out& dx);
Conv2dShape check_conv2d_grad_weight(const Conv2dParams& params, const ConstView& x,
                                     const ConstView& dy, const Out& dw);
void check_conv2d_grad_bias(const ConstView& dy, const Out& db);

// Why a kernel does not take a convolution's product; empty where it does.
std::string conv2d_refusal(ProductKernel kernel, const ProductProblem& p, const ProductTraits& t);

// Why the kernel for sm_90a, which pads the channels that a sum runs over, would add other blocks
// of products than the other kernels; empty where it would not. That matters where a model's bits
// are asked for, or the kernel is chosen by sizes.
inline std::string shifts_blocks(const ProductProblem& p, std::int64_t channels) {
  const std::int64_t block = p.operand == MmaOperand::tf32 ? 8 : 16;
  if (!(p.arithmetic.modelled || p.kernel == ProductKernel::automatic) || channels % block == 0)
    return {};
  return concat("tensor cores add blocks of ", block,
                " products, which its channels, padded to whole ones, would shift");
}

// A 1x1 kernel that visits every pixel is a plain product over pixels.
inline bool is_pointwise(const Conv2dShape& z, const Conv2dParams& p) {
  return z.r == 1 && z.s == 1 && p.groups == 1 && p.stride[0] == 1 && p.stride[1] == 1 &&
         p.padding[0] == 0 && p.padding[1] == 0;
}

// Whether dw in order is summed sample by sample. Looks at nothing that depends on the batch.
inline bool sums_by_sample(const Conv2dShape& z, const Conv2dParams& p) {
  return p.in_order && z.p * z.q >= kSamplePixels &&
         (p.groups == 1 || (is_depthwise(z, p) && p.kernel == ProductKernel::automatic));
}

// db: the sums of dy's columns.
ColumnSumsParams grad_bias_sums(const Conv2dParams& params, const ConstView& dy, const Out& db);
// dw of a pointwise convolution: dy^T x, as a batch of samples where they are summed on their own.
GemmParams grad_weight_product(const Conv2dShape& z, const Conv2dParams& params);

}  // namespace roundoff
