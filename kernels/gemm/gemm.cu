// y = activation(alpha op(A) op(B) + beta C + what y held), batched, or summed over the batch.
//
// Layout: row-major, contiguous; each operand is read along whichever of its axes is contiguous.
// Numerics: operands widened exactly (fp32 ones rounded to tf32 where asked for), fp32 sums (fp64
// where an operand is), one chain of fused multiply-adds over k in order, one rounding on the way
// out; see gemm.h for where the chain begins and where it is cut.
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/arguments.h"
#include "kernels/gemm/matrix_source.cuh"
#include "kernels/gemm/mma.cuh"
#include "kernels/gemm/naive.cuh"
#include "kernels/gemm/product.cuh"
#include "kernels/gemm/select.h"
#include "kernels/gemm/sm80.h"
#include "kernels/gemm/sm80_half_sums.h"
#include "kernels/gemm/sm90.h"
#include "kernels/simt/architecture.h"

namespace roundoff {

namespace {

// On mma.sync: f<type of the operands>().
template <class F>
void with_operand(MmaOperand operand, F&& f) {
  if (operand == MmaOperand::fp16) return f(Half{});
  if (operand == MmaOperand::bf16) return f(BFloat16{});
  f(Tf32{});
}

template <class T>
void launch_matrices(T target, const ProductProblem& p, const MatrixSource& a,
                     const MatrixSource& b, const ProductOutput& out, Scratch& scratch) {
  const std::size_t bytes = p.operand == MmaOperand::tf32 ? 4 : 2;
  const ProductTraits traits{
      .architecture = architecture(target),
      .a = a.dtype,
      .b = b.dtype,
      .chunked = a.chunked && b.chunked && size_of(a.dtype) == bytes && size_of(b.dtype) == bytes,
      .sm90 = sm90_refuses(p, a, b, out)};
  const std::string refusal = product_refusal(p.kernel, p, traits);
  ROUNDOFF_CHECK(refusal.empty(), p.name, "kernel ", name(p.kernel),
                 " does not take this product: ", refusal);
  const ProductKernel kernel =
      p.kernel == ProductKernel::automatic ? select_kernel(p, traits) : p.kernel;
  switch (kernel) {
    case ProductKernel::automatic:
    case ProductKernel::tiles:
      return launch_product<true>(target, p, a, b, out, scratch);
    case ProductKernel::naive:
      return launch_naive(target, p, a, b, out, scratch);
    case ProductKernel::mma:
      return with_operand(p.operand,
                          [&]<class O>(O) { launch_mma<O>(target, p, a, b, out, scratch); });
    case ProductKernel::sm80: {
      const ProductTile tile = select_tile(p, traits.chunked);
      if (p.operand == MmaOperand::fp16)
        return launch_sm80_half(target, p, tile, a, b, out, scratch);
      if (p.operand == MmaOperand::bf16)
        return launch_sm80_bfloat16(target, p, tile, a, b, out, scratch);
      return launch_sm80_tf32(target, p, tile, a, b, out, scratch);
    }
    case ProductKernel::wgmma:
      return launch_wgmma(target, p, a, b, out, scratch);
    case ProductKernel::sm90:
      return launch_sm90(target, p, a, b, out, scratch);
    case ProductKernel::ping_pong:
      return launch_ping_pong(target, p, a, b, out, scratch);
  }
}

}  // namespace

template <DeviceTarget T>
void gemm(T target, const GemmParams& params, const ConstView& a, const ConstView& b,
          const ConstView& c, const Out& y, Scratch& scratch) {
  if (!y.wanted) return;
  const GemmAddend addend = check_gemm(params, a, b, c, y);
  const std::int64_t results = params.sum_batch ? 1 : params.batch;
  if (results == 0 || params.m == 0 || params.n == 0) return;
  const GemmParams p = merge_batch(params, addend);
  // Without products A and B are not read.
  const bool multiplies = p.alpha != 0 && p.k != 0 && p.batch != 0;
  const std::int64_t k = multiplies ? p.k : 0;

  ProductProblem problem;
  problem.name = "gemm";
  problem.size = {.m = device_extent("gemm", "m", p.m),
                  .n = device_extent("gemm", "n", p.n),
                  .depth = device_extent("gemm", "k", k),
                  .terms = p.sum_batch ? device_extent("gemm", "batch", p.batch) : 1,
                  .results = p.sum_batch ? 1 : device_extent("gemm", "batch", p.batch)};
  problem.wide = a.dtype == DType::fp64 || b.dtype == DType::fp64 ||
                 (addend.used && c.dtype == DType::fp64) || p.accumulator == Accumulator::fp64;
  if (!problem.wide)
    problem.arithmetic = arithmetic("gemm", p.accumulator, a.dtype, b.dtype, p.tf32);
  if (!problem.wide && p.accumulator != Accumulator::fp16)
    problem.operand = mma_operand(problem.arithmetic, a.dtype, b.dtype, p.tf32);
  // Parts are chosen by m, too.
  problem.may_split = p.trans_a && p.order == SumOrder::fastest;
  problem.order = p.order;
  problem.split = device_extent("gemm", "split", p.split);
  problem.kernel = p.kernel;
  problem.tile = p.tile;

  ProductOutput out;
  out.y = y.view.data;
  out.dtype = y.view.dtype;
  out.accumulate = y.write == Write::accumulate;
  out.pitch = p.n;
  out.stride = p.m * p.n;
  if (addend.used) {
    out.c = c.data;
    out.c_dtype = c.dtype;
    out.addition = addend.bias ? Addition::bias : Addition::matrix;
    out.c_pitch = p.n;
    out.c_stride = p.stride_c;
    out.beta = p.beta;
  }
  out.alpha = multiplies ? p.alpha : 1;
  out.late = out.alpha != 1;
  out.activation = p.activation;
  align_runs(out);
  const MatrixSource left = matrix_source(a, p.m, k, !p.trans_a, p.stride_a, p.tf32);
  const MatrixSource right = matrix_source(b, p.n, k, p.trans_b, p.stride_b, p.tf32);
  if (p.half_sums) {
    ROUNDOFF_CHECK(p.kernel == ProductKernel::automatic || p.kernel == ProductKernel::sm80, "gemm",
                   "kernel ", name(p.kernel), " has no sums in fp16, sm80 has");
    out.late = true;
    problem.may_split = false;
    return launch_half_sums(target, problem, left, right, out);
  }
  each_terms(problem, out, [&](unsigned first, unsigned count, const ProductOutput& to) {
    ProductProblem terms = problem;
    terms.size.terms = count;
    launch_matrices(target, terms, from_term(left, first), from_term(right, first), to, scratch);
  });
}

template void gemm(Target, const GemmParams&, const ConstView&, const ConstView&, const ConstView&,
                   const Out&, Scratch&);

}  // namespace roundoff
