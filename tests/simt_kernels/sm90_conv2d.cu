#include "tests/simt_kernels/sm90_conv2d.h"

namespace roundoff {

namespace {

ProductProblem problem(const Sm90ConvCall& call, const Conv2dShape& z, DType dtype, DType other) {
  const std::int64_t c = z.c / call.params.groups, k = z.k / call.params.groups;
  const std::int64_t taps = z.r * z.s, out = z.n * z.p * z.q, in = z.n * z.h * z.w;
  const bool forward = call.pass == ConvPass::forward;
  const bool input = call.pass == ConvPass::grad_input;
  ProductProblem p;
  p.name = "sm90_conv2d";
  p.size = {.m = static_cast<unsigned>(forward ? out
                                       : input ? in
                                               : k),
            .n = static_cast<unsigned>(forward ? k
                                       : input ? c
                                               : taps * c),
            .depth = static_cast<unsigned>(forward ? taps * c
                                           : input ? taps * k
                                                   : out),
            .terms = 1,
            .results = static_cast<unsigned>(call.params.groups)};
  p.arithmetic = arithmetic("sm90_conv2d", call.params.accumulator, dtype, other, call.params.tf32);
  p.may_split = call.may_split;
  return p;
}

}  // namespace

template <DeviceTarget T>
void sm90_conv2d(T target, const Sm90ConvCall& call, const ConstView& images,
                 const ConstView& other, const ConstView& bias, const Out& y, Scratch& scratch) {
  const Conv2dShape z = conv2d_shape(call.x, call.w, call.params);
  const ProductProblem p = problem(call, z, images.dtype, other.dtype);
  ProductOutput out;
  out.y = y.view.data;
  out.dtype = y.view.dtype;
  out.accumulate = y.write == Write::accumulate;
  const bool weight = call.pass == ConvPass::grad_weight;
  out.pitch = weight ? p.size.n : p.size.n * call.params.groups;
  out.stride = weight ? std::int64_t{p.size.m} * p.size.n : p.size.n;
  out.aligned = lanes_aligned(out.y, out.dtype, 4, out.pitch, out.stride);
  if (bias.present) {
    out.c = bias.data;
    out.c_dtype = bias.dtype;
    out.addition = Addition::bias;
    out.c_stride = p.size.n;
    out.beta = 1;
  }
  out.activation = call.params.activation;
  launch_conv2d_sm90(target, call.pass, p, z, call.params, images, other, out, scratch,
                     call.options);
}

template <DeviceTarget T>
std::string sm90_conv2d_refuses(T, const Sm90ConvCall& call, const ConstView& images,
                                const ConstView& other) {
  const Conv2dShape z = conv2d_shape(call.x, call.w, call.params);
  return conv2d_sm90_refuses(call.pass, problem(call, z, images.dtype, other.dtype), z, call.params,
                             images, other);
}

template void sm90_conv2d(Target, const Sm90ConvCall&, const ConstView&, const ConstView&,
                          const ConstView&, const Out&, Scratch&);
template std::string sm90_conv2d_refuses(Target, const Sm90ConvCall&, const ConstView&,
                                         const ConstView&);

}  // namespace roundoff
