#include "bench/chosen.h"

#include <algorithm>

#include "kernels/conv2d/arguments.h"
#include "kernels/conv2d/sm90.h"
#include "kernels/gemm/select.h"
#include "kernels/gemm/sm90.h"

namespace roundoff::bench {

namespace {

// Of matrices: dA = dY op(B)^T, dB = op(A)^T dY, each transposed where the operand is held so
// (ops/matmul.cpp).
PassProduct of_matrices(BenchPass pass, std::int64_t m, std::int64_t n, std::int64_t k,
                        bool trans_a, bool trans_b) {
  if (pass == BenchPass::forward)
    return {.m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b};
  const bool of_a = pass == BenchPass::dgrad;
  const bool transposed = of_a ? trans_a : trans_b;
  const bool other = of_a ? trans_b : trans_a;
  const bool dy_first = of_a != transposed;
  const std::int64_t rows = of_a ? m : k, columns = of_a ? k : n;
  PassProduct p{
      .m = transposed ? columns : rows, .n = transposed ? rows : columns, .k = of_a ? n : m};
  p.trans_a = dy_first ? !of_a : other == of_a;
  p.trans_b = dy_first ? other != of_a : of_a;
  return p;
}

Conv2dShape shape_of(const cases::Conv2dCase& c) {
  return {c.n, c.h, c.w, c.c, c.k, c.r, c.s, c.p(), c.q()};
}
Conv2dParams parameters_of(const cases::Conv2dCase& c) {
  return {.stride = c.stride, .padding = c.padding, .dilation = c.dilation, .groups = c.groups};
}

// A 1 x 1 convolution that visits every pixel is a product of matrices too.
bool is_matrices(const Problem& p) {
  return !p.conv || is_pointwise(shape_of(*p.conv), parameters_of(*p.conv));
}

MatrixSource source(DType dtype, std::int64_t rows, std::int64_t depth, bool depth_contiguous) {
  MatrixSource s;
  s.dtype = dtype;
  s.depth_contiguous = depth_contiguous;
  s.rows = static_cast<unsigned>(rows);
  s.depth = static_cast<unsigned>(depth);
  s.pitch = depth_contiguous ? depth : rows;
  s.stride = rows * depth;
  return s;
}

// Why the kernels for sm_90a do not take it, operands lying where allocations begin.
std::string sm90_refusal(const Problem& p, const ProductProblem& product) {
  if (is_matrices(p)) {
    const PassProduct z = pass_product(p);
    return sm90_refuses(product, source(p.dtype, z.m, z.k, !z.trans_a),
                        source(p.dtype, z.n, z.k, z.trans_b), {});
  }
  const Conv2dShape z = shape_of(*p.conv);
  const Conv2dParams params = parameters_of(*p.conv);
  const ConvPass pass = p.pass == BenchPass::forward ? ConvPass::forward
                        : p.pass == BenchPass::dgrad ? ConvPass::grad_input
                                                     : ConvPass::grad_weight;
  if (pass != ConvPass::grad_weight) {
    const std::int64_t channels = (pass == ConvPass::forward ? z.c : z.k) / params.groups;
    if (std::string why = shifts_blocks(product, channels); !why.empty()) return why;
  }
  const ConstView operand{.dtype = p.dtype, .shape = {}};
  return conv2d_sm90_refuses(pass, product, z, params, operand, operand);
}

}  // namespace

PassProduct pass_product(const Problem& p) {
  ROUNDOFF_CHECK(p.is_product() && p.pass != BenchPass::backward, "bench", p.operation(), ", ",
                 name(p.pass), ", is no single product");
  if (!p.conv) {
    PassProduct z = of_matrices(p.pass, p.product->m, p.product->n, p.product->k,
                                p.product->trans_a, p.product->trans_b);
    z.batch = std::max<std::int64_t>(p.product->lead.numel(), 1);
    return z;
  }
  const cases::Conv2dCase& c = *p.conv;
  PassProduct z = of_matrices(p.pass, c.n * c.p() * c.q(), c.k, c.c * c.r * c.s, false, true);
  if (p.pass == BenchPass::dgrad) {
    // Over the image's own pixels, each of which meets as many outputs as its share of them.
    z.m = c.n * c.h * c.w;
    z.n = c.c;
    z.k = c.k * c.r * c.s / (c.stride[0] * c.stride[1]);
  }
  return z;
}

ProductProblem product_problem(const Problem& p) {
  const PassProduct z = pass_product(p);
  ProductProblem product;
  product.size = {.m = static_cast<unsigned>(z.m),
                  .n = static_cast<unsigned>(z.n),
                  .depth = static_cast<unsigned>(z.k),
                  .results = static_cast<unsigned>(z.batch)};
  product.wide = p.dtype == DType::fp64;
  product.operand = mma_operand(product.arithmetic, p.dtype, p.dtype, false);
  product.may_split = z.trans_a;
  return product;
}

std::optional<ProductKernel> chosen_kernel(const Problem& p, int capability) {
  if (!p.is_product() || p.pass == BenchPass::backward) return std::nullopt;
  const ProductProblem product = product_problem(p);
  ProductTraits traits{.a = p.dtype, .b = p.dtype};
  if (capability == 90) {
    traits.architecture = Architecture::sm_90a;
    traits.sm90 = sm90_refusal(p, product);
  }
  const ProductKernel kernel = select_kernel(product, traits);
  // Convolutions on sm_90a have one kernel.
  return kernel == ProductKernel::ping_pong && !is_matrices(p) ? ProductKernel::sm90 : kernel;
}

}  // namespace roundoff::bench
