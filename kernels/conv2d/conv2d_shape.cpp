#include "kernels/conv2d/arguments.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/arguments.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "conv2d";
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 31;

// The output's extent along one axis.
std::int64_t output_extent(const char* axis, std::int64_t image, std::int64_t kernel,
                           std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
  ROUNDOFF_CHECK(stride >= 1 && stride <= kMaxExtent, kName, axis, " stride ", stride,
                 ", at least 1 expected");
  ROUNDOFF_CHECK(dilation >= 1 && dilation <= kMaxExtent, kName, axis, " dilation ", dilation,
                 ", at least 1 expected");
  ROUNDOFF_CHECK(padding >= 0 && padding <= kMaxExtent, kName, axis, " padding ", padding,
                 ", at least 0 expected");
  ROUNDOFF_CHECK(kernel >= 1 && kernel <= kMaxExtent && image <= kMaxExtent, kName, axis,
                 " kernel ", kernel, " on image ", image, ", both between 1 and ", kMaxExtent,
                 " expected");
  const std::int64_t padded = image + 2 * padding;
  ROUNDOFF_CHECK(kernel - 1 <= (padded - 1) / dilation && padded >= 1, kName, axis, " kernel ",
                 kernel, " with dilation ", dilation, " exceeds the padded image ", padded);
  return (padded - 1 - (kernel - 1) * dilation) / stride + 1;
}

void check_floating(const char* which, const ConstView& v) {
  ROUNDOFF_CHECK(is_floating(v.dtype), kName, which, " is ", name(v.dtype),
                 ", a floating type expected");
}
void check_shape(const char* which, const Shape& shape, const Shape& expected) {
  ROUNDOFF_CHECK(shape == expected, kName, which, " of shape ", shape, ", ", expected, " expected");
}
void check_output(const Out& out) {
  check_floating("output", out.view);
  ROUNDOFF_CHECK(out.write == Write::overwrite || !is_16bit(out.view.dtype), kName,
                 "cannot accumulate into ", name(out.view.dtype), "; fp32 or fp64 expected");
}

}  // namespace

Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dParams& params) {
  ROUNDOFF_CHECK(x.rank() == 4, kName, "x of shape ", x, ", [N, H, W, C] expected");
  ROUNDOFF_CHECK(w.rank() == 4, kName, "weight of shape ", w, ", [K, R, S, C / groups] expected");
  const std::int64_t groups = params.groups;
  ROUNDOFF_CHECK(groups >= 1, kName, "groups ", groups, ", at least 1 expected");
  ROUNDOFF_CHECK(x[3] % groups == 0 && w[0] % groups == 0, kName, groups,
                 " groups do not divide input channels ", x[3], " and output channels ", w[0]);
  ROUNDOFF_CHECK(x[3] / groups == w[3], kName, "input channels ", x[3], " in ", groups,
                 " groups, weight expects ", w[3], " a group");
  Conv2dShape z{.n = x[0], .h = x[1], .w = x[2], .c = x[3], .k = w[0], .r = w[1], .s = w[2]};
  z.p =
      output_extent("vertical", z.h, z.r, params.stride[0], params.padding[0], params.dilation[0]);
  z.q = output_extent("horizontal", z.w, z.s, params.stride[1], params.padding[1],
                      params.dilation[1]);
  (void)z.y();  // throws where the output's size leaves 64 bit
  return z;
}

Conv2dShape check_conv2d_forward(const Conv2dParams& params, const ConstView& x, const ConstView& w,
                                 const ConstView& bias, const Out& y) {
  const Conv2dShape z = conv2d_shape(x.shape, w.shape, params);
  check_floating("x", x);
  check_floating("weight", w);
  check_shape("y", y.view.shape, z.y());
  check_output(y);
  ROUNDOFF_CHECK(y.write == Write::overwrite || params.activation == Activation::none, kName,
                 "cannot accumulate after an activation");
  if (bias.present) {
    check_floating("bias", bias);
    check_shape("bias", bias.shape, {z.k});
  }
  return z;
}

Conv2dShape check_conv2d_grad_input(const Conv2dParams& params, const ConstView& dy,
                                    const ConstView& w, const Out& dx) {
  const Conv2dShape z = conv2d_shape(dx.view.shape, w.shape, params);
  check_floating("dy", dy);
  check_floating("weight", w);
  check_shape("dy", dy.shape, z.y());
  check_output(dx);
  return z;
}

Conv2dShape check_conv2d_grad_weight(const Conv2dParams& params, const ConstView& x,
                                     const ConstView& dy, const Out& dw) {
  const Conv2dShape z = conv2d_shape(x.shape, dw.view.shape, params);
  check_floating("x", x);
  check_floating("dy", dy);
  check_shape("dy", dy.shape, z.y());
  check_output(dw);
  if (params.in_order) check_in_order(kName, params.accumulator, dw, {x.dtype, dy.dtype});
  return z;
}

void check_conv2d_grad_bias(const ConstView& dy, const Out& db) {
  ROUNDOFF_CHECK(dy.shape.rank() == 4, kName, "dy of shape ", dy.shape, ", [N, P, Q, K] expected");
  check_floating("dy", dy);
  check_shape("bias gradient", db.view.shape, {dy.shape[3]});
  check_output(db);
}

ColumnSumsParams grad_bias_sums(const Conv2dParams& params, const ConstView& dy, const Out& db) {
  check_conv2d_grad_bias(dy, db);
  const std::int64_t columns = db.view.numel(), pixels = dy.shape[1] * dy.shape[2];
  return {.rows = dy.shape[0] * pixels,
          .columns = columns,
          .accumulator = params.accumulator,
          .in_order = params.in_order,
          .group = params.in_order && pixels >= kSamplePixels ? pixels : 0};
}

GemmParams grad_weight_product(const Conv2dShape& z, const Conv2dParams& params) {
  GemmParams p{.m = z.k,
               .n = z.c,
               .k = z.n * z.p * z.q,
               .trans_a = true,
               .accumulator = params.accumulator,
               .tf32 = params.tf32,
               .kernel = params.kernel,
               .order = params.in_order ? SumOrder::in_order : SumOrder::fastest};
  if (sums_by_sample(z, params)) {
    p.batch = z.n;
    p.k = z.p * z.q;
    p.stride_a = p.k * z.k;
    p.stride_b = p.k * z.c;
    p.sum_batch = true;
    p.order = SumOrder::by_matrix;
  }
  return p;
}

std::string conv2d_refusal(ProductKernel kernel, const ProductProblem& p, const ProductTraits& t) {
  if (kernel == ProductKernel::wgmma || kernel == ProductKernel::ping_pong)
    return "convolutions on sm_90a have the kernel sm90";
  return product_refusal(kernel, p, t);
}

std::string conv2d_refuses(const Conv2dParams& params, DType left, DType right) {
  ProductProblem p;
  p.wide = params.accumulator == Accumulator::fp64 || left == DType::fp64 || right == DType::fp64;
  if (!p.wide) p.arithmetic = arithmetic(kName, params.accumulator, left, right, params.tf32);
  if (!p.wide && params.accumulator != Accumulator::fp16)
    p.operand = mma_operand(p.arithmetic, left, right, params.tf32);
  return conv2d_refusal(params.kernel, p,
                        {.architecture = Architecture::sm_90a, .a = left, .b = right});
}

}  // namespace roundoff
