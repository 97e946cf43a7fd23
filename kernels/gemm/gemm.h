// General matrix product: y = alpha op(A) op(B) + beta C, batched; row-major, contiguous.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"
#include "kernels/gemm/activation.h"
#include "kernels/gemm/kernel.h"

namespace roundoff {

struct GemmParams {
  std::int64_t batch = 1;
  std::int64_t m = 0, n = 0, k = 0;  // y is [m, n], the sum runs over k; each may be 0
  bool trans_a = false;              // A is held as [k, m]
  bool trans_b = false;              // B is held as [n, k]
  double alpha = 1;                  // 0 never reads A and B
  double beta = 0;                   // 0 never reads C
  Accumulator accumulator = Accumulator::fp32;
  bool tf32 = false;  // fp32 operands are first rounded to 11 significant bits (RNE)
  // Tensor cores sum products of fp16 in fp16: from 0, rounded after each block that they add at
  // once; everything else joins afterwards, in fp32. On a device, for fp16 operands, with the
  // accumulators fp32 (the device's tensor cores), v100, a100 and h100.
  bool half_sums = false;
  // Elements from one matrix of the batch to the next; 0 uses the one matrix for the whole batch.
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  // y is one [m, n] matrix, the sum over the batch, instead of one matrix for each.
  bool sum_batch = false;
  // Applied to everything above, before the rounding; not where y is added to.
  Activation activation = Activation::none;
  // On a device. Throws where the one that is named does not take the product; the reference has
  // one way and ignores it.
  ProductKernel kernel = ProductKernel::automatic;
  // Of the kernel sm80; no result depends on it.
  ProductTile tile = ProductTile::automatic;
  // With in_order alpha is 1 (or 0), the accumulator fp32 or fp64, and y, where it is added to, of
  // the type that is summed in.
  SumOrder order = SumOrder::fastest;
  // Parts, of whole blocks of 64 products each, that every sum is cut into on a device; 0: as
  // gemm() says. The reference ignores it.
  std::int64_t split = 0;
};

// a: batch x [m, k]; b: batch x [k, n]; c: absent, [n] (a bias, added to every row), [m, n] or
// batch x [m, n]; y: batch x [m, n]. Any floating types, mixed. c may be y itself, nothing else may
// overlap y.
// Operands are widened exactly, products are summed in fp32 (in fp64 where an operand is fp64 or
// the accumulator says so), alpha, beta C and what y already holds join that sum, and it is rounded
// once to y's type. The other accumulators apply to 16-bit and tf32 operands, see modelled.h; wider
// operands have no tensor-core arithmetic and are summed as above.
// Throws for sizes that the views do not hold and for types that are not floating.
void gemm(Ref, const GemmParams& params, const ConstView& a, const ConstView& b, const ConstView& c,
          const Out& y, Scratch& scratch);

// On a device, with two differences. Every sum is one chain of multiply-adds over k in order that
// begins with beta C and what y holds (with alpha != 1 they come after), whatever the other sizes
// and whatever kernel and tile: a long sum may be cut along k and continued, and a row of y does
// not depend on how many others there are. Where A is transposed, and a sum hence runs over
// samples, long sums of small results are cut into parts of at least 256 products, by the sizes
// alone, and the parts' sums are added in order; with `split` every sum is.
// Operands of one 16-bit type, and fp32 ones with tf32, are multiplied by tensor cores, which add
// in their own way (docs/numerics.md); the emulator's chain fp32 multiply-adds unless a simulated
// GPU or the accumulator says otherwise. Others are multiplied by fused multiply-adds.
// Sizes are below 2^31. The accumulators v100, a100 and h100 run on that GPU only, and on the
// emulator; they give the reference's bits where no sum is cut, as fp16 does.
template <DeviceTarget T>
void gemm(T target, const GemmParams& params, const ConstView& a, const ConstView& b,
          const ConstView& c, const Out& y, Scratch& scratch);

}  // namespace roundoff
