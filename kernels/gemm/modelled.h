// Matrix products in modelled arithmetic: every multiply-add rounded to fp16, or a GPU's tensor
// cores. Bit exact in the order of the operands, and slow: for studies, not for training at speed.
#pragma once

#include "kernels/base/dtype.h"
#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/gemm/in_order.h"
#include "kernels/gemm/product.h"

namespace roundoff {

// How a product of float operands is computed: plain (product()), or modelled.
struct ProductArithmetic {
  bool modelled = false;
  Accumulator accumulator = Accumulator::fp32;
  DType operand = DType::fp32;  // what the values were rounded to; fp32 stands for tf32
  bool in_order = false;        // where not modelled: product_in_order() in place of product()

  // Whether a sum may begin with a value that another addend left in C. Tensor cores chain through
  // C; an fp16 sum begins at 0, and what is added to it (a bias, a held gradient) joins in fp32.
  bool chains() const { return !modelled || accumulator != Accumulator::fp16; }
};

// What `accumulator` means for operands of these types.
// fp16: one fused multiply-add for each product, rounded once to fp16, in order; any operands.
// v100, a100, h100: kernels/base/tensor_core.h, for operands of the same 16-bit type, and as tf32
// where `tf32` is set. fp32 and mixed operands have no tensor cores on those GPUs and are summed
// plainly. Throws, naming `operation`, for a type that the GPU's tensor cores lack (V100: all but
// fp16).
ProductArithmetic arithmetic(std::string_view operation, Accumulator accumulator, DType a, DType b,
                             bool tf32);

// C = op(A) op(B), or, continuing what C holds, C += op(A) op(B): the sum of one element runs over
// k in order, from 0 or from C. alpha must be 1.
void modelled_product(const ProductArithmetic& arithmetic, const Product<float>& p,
                      Scratch& scratch);

inline void multiply(const ProductArithmetic& arithmetic, const Product<float>& p,
                     Scratch& scratch) {
  if (arithmetic.modelled) {
    modelled_product(arithmetic, p, scratch);
  } else if (arithmetic.in_order) {
    product_in_order(p, scratch);
  } else {
    product(p);
  }
}
inline void multiply(const ProductArithmetic& arithmetic, const Product<double>& p,
                     Scratch& scratch) {
  arithmetic.in_order ? product_in_order(p, scratch) : product(p);
}

}  // namespace roundoff
