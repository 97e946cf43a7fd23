#include "tests/simt_kernels/sm90_products.h"

#include "kernels/gemm/arguments.h"
#include "kernels/gemm/matrix_source.cuh"

namespace roundoff {

namespace {

struct Described {
  ProductProblem problem;
  MatrixSource a, b;
  ProductOutput out;
};

Described describe(const Sm90Call& call, const ConstView& a, const ConstView& b, const ConstView& c,
                   const Out& y) {
  const GemmParams& p = call.gemm;
  const GemmAddend addend = check_gemm(p, a, b, c, y);
  const std::int64_t k = p.alpha != 0 ? p.k : 0;
  Described d;
  d.problem.name = "sm90_gemm";
  const auto batch = static_cast<unsigned>(p.batch);
  d.problem.size = {.m = static_cast<unsigned>(p.m),
                    .n = static_cast<unsigned>(p.n),
                    .depth = static_cast<unsigned>(k),
                    .terms = p.sum_batch ? batch : 1,
                    .results = p.sum_batch ? 1 : batch};
  d.problem.wide = a.dtype == DType::fp64 || p.accumulator == Accumulator::fp64;
  if (!d.problem.wide)
    d.problem.arithmetic = arithmetic("sm90_gemm", p.accumulator, a.dtype, b.dtype, p.tf32);
  d.problem.may_split = call.may_split;
  d.problem.kernel = call.kernel;
  d.a = matrix_source(a, p.m, k, !p.trans_a, p.stride_a, p.tf32);
  d.b = matrix_source(b, p.n, k, p.trans_b, p.stride_b, p.tf32);
  ProductOutput& out = d.out;
  out.y = y.view.data;
  out.dtype = y.view.dtype;
  out.accumulate = y.write == Write::accumulate;
  out.pitch = p.n;
  out.stride = p.m * p.n;
  out.aligned = lanes_aligned(out.y, out.dtype, 4, out.pitch, out.stride);
  if (addend.used) {
    out.c = c.data;
    out.c_dtype = c.dtype;
    out.addition = addend.bias ? Addition::bias : Addition::matrix;
    out.c_pitch = p.n;
    out.c_stride = p.stride_c;
    out.beta = p.beta;
  }
  out.alpha = p.alpha != 0 ? p.alpha : 1;
  out.late = out.alpha != 1;
  out.activation = p.activation;
  return d;
}

}  // namespace

template <DeviceTarget T>
void sm90_gemm(T target, const Sm90Call& call, const ConstView& a, const ConstView& b,
               const ConstView& c, const Out& y, Scratch& scratch) {
  const Described d = describe(call, a, b, c, y);
  if (call.kernel == ProductKernel::wgmma)
    return launch_wgmma(target, d.problem, d.a, d.b, d.out, scratch, call.options);
  if (call.kernel == ProductKernel::ping_pong)
    return launch_ping_pong(target, d.problem, d.a, d.b, d.out, scratch, call.options);
  launch_sm90(target, d.problem, d.a, d.b, d.out, scratch, call.options);
}

template <DeviceTarget T>
std::string sm90_gemm_refuses(T, const Sm90Call& call, const ConstView& a, const ConstView& b,
                              const Out& y) {
  const Described d = describe(call, a, b, ConstView::absent(), y);
  return sm90_refuses(d.problem, d.a, d.b, d.out);
}

template void sm90_gemm(Target, const Sm90Call&, const ConstView&, const ConstView&,
                        const ConstView&, const Out&, Scratch&);
template std::string sm90_gemm_refuses(Target, const Sm90Call&, const ConstView&, const ConstView&,
                                       const Out&);

}  // namespace roundoff
