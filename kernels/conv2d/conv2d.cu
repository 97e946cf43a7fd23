// Convolution as products over pixels and taps that are gathered where they lie (implicit GEMM):
//   y [N P Q, K]    = patches of x [N P Q, R S C]          * w [R S C, K]
//   dx [N H W, C]   = gradients around pixels [N H W, R S K] * w [R S K, C]
//   dw [K, R S C]   = dy [K, N P Q]                         * patches of x [N P Q, R S C]
//   db [K]          = column sums of dy
// each group of channels by itself, in the tiles of kernels/gemm/tile.cuh; where every channel is a
// group, in loops over pixels and taps (depthwise.cuh).
//
// Layout: NHWC and KRSC; taps outside the image are zeros of the sum. Numerics:
// kernels/gemm/gemm.cu; the order of each sum is in conv2d.h.
#include "kernels/conv2d/conv2d.h"

#include "kernels/conv2d/arguments.h"
#include "kernels/conv2d/depthwise.cuh"
#include "kernels/conv2d/depthwise.h"
#include "kernels/conv2d/source.cuh"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/product.cuh"

namespace roundoff {

namespace {

constexpr const char* kName = "conv2d";

// What the three products share.
struct Cut {
  Conv2dShape z;
  Conv2dParams params;
  std::int64_t k_group, c_group, columns;  // columns: taps and channels of a filter

  Cut(const Conv2dShape& shape, const Conv2dParams& p)
      : z(shape),
        params(p),
        k_group(z.k / p.groups),
        c_group(z.c / p.groups),
        columns(z.r * z.s * c_group) {}

  ConvAxis axis(std::size_t i) const {
    const std::int64_t image = i == 0 ? z.h : z.w, output = i == 0 ? z.p : z.q;
    // Positions outside the image are formed too.
    device_extent(kName, "a padded image", image + 2 * params.padding[i]);
    ConvAxis a;
    a.image = static_cast<int>(image);
    a.output = static_cast<int>(output);
    // A longer step than the padded image is never taken.
    const auto step = [&](std::int64_t s) {
      return static_cast<int>(std::min(s, image + 2 * params.padding[i] + 1));
    };
    a.stride = step(params.stride[i]);
    a.padding = static_cast<int>(params.padding[i]);
    a.dilation = step(params.dilation[i]);
    a.by_stride = FastDivide(a.stride);
    return a;
  }

  // Rows of taps for the pixels of images of height x width; values lie in images of `channels`
  // channels, of which a group has `group`.
  template <class Source>
  Source pixels(const ConstView& v, std::int64_t height, std::int64_t width, std::int64_t channels,
                std::int64_t group, bool sum_over_taps) const {
    Source s;
    s.data = v.data;
    s.dtype = v.dtype;
    s.tf32 = params.tf32;
    s.depth_contiguous = sum_over_taps;
    s.runs = group % 4 == 0;
    s.aligned = s.runs && lanes_aligned(v.data, v.dtype, 4, channels, group);
    s.pixels = device_extent(kName, "the number of pixels", z.n * height * width);
    s.taps = device_extent(kName, "a filter's size", z.r * z.s * group);
    s.by_width = FastDivide(width);
    s.by_height = FastDivide(height);
    s.order.by_channels = FastDivide(std::max<std::int64_t>(group, 1));
    s.order.by_s = FastDivide(z.s);
    s.down = axis(0);
    s.across = axis(1);
    s.pixel_stride = channels;
    s.stride = group;
    return s;
  }

  // Problem and output of results [m, n] a group, of sums over depth.
  ProductProblem problem(std::int64_t m, std::int64_t n, std::int64_t depth, const ConstView& a,
                         const ConstView& b, bool wide) const {
    ProductProblem p;
    p.name = kName;
    p.kernel = params.kernel;
    p.size = {.m = device_extent(kName, "the number of pixels", m),
              .n = device_extent(kName, "the number of channels", n),
              .depth = device_extent(kName, "the length of a sum", depth),
              .terms = 1,
              .results = device_extent(kName, "groups", params.groups)};
    p.wide = wide || params.accumulator == Accumulator::fp64 || a.dtype == DType::fp64 ||
             b.dtype == DType::fp64;
    if (!p.wide)
      p.arithmetic = arithmetic(kName, params.accumulator, a.dtype, b.dtype, params.tf32);
    return p;
  }
  // Whether loops over pixels and taps serve.
  bool depthwise(const ProductProblem& p) const {
    return is_depthwise(z, params) && !p.arithmetic.modelled;
  }
  DepthwiseFilters filters(const ConstView& w) const {
    return {w.data, w.dtype, params.tf32, device_extent(kName, "channels", z.c),
            device_extent(kName, "a filter's size", z.r * z.s)};
  }
  static ProductOutput output(const Out& y, std::int64_t pitch, std::int64_t stride) {
    ProductOutput out;
    out.y = y.view.data;
    out.dtype = y.view.dtype;
    out.accumulate = y.write == Write::accumulate;
    out.pitch = pitch;
    out.stride = stride;
    out.aligned = lanes_aligned(out.y, out.dtype, 4, pitch, stride);
    return out;
  }
};

}  // namespace

template <DeviceTarget T>
void conv2d_forward(T target, const Conv2dParams& params, const ConstView& x, const ConstView& w,
                    const ConstView& bias, const Out& y, Scratch& scratch) {
  if (!y.wanted) {
    (void)conv2d_shape(x.shape, w.shape, params);
    return;
  }
  const Conv2dShape z = check_conv2d_forward(params, x, w, bias, y);
  if (y.view.numel() == 0) return;
  if (is_pointwise(z, params)) {
    return gemm(target,
                {.m = z.n * z.p * z.q,
                 .n = z.k,
                 .k = z.c,
                 .trans_b = true,
                 .beta = bias.present ? 1.0 : 0.0,
                 .accumulator = params.accumulator,
                 .tf32 = params.tf32,
                 .activation = params.activation},
                x, w, bias, y, scratch);
  }
  const Cut cut(z, params);
  const ProductProblem problem = cut.problem(z.n * z.p * z.q, cut.k_group, cut.columns, x, w,
                                             bias.present && bias.dtype == DType::fp64);
  MatrixSource filters;
  filters.data = w.data;
  filters.dtype = w.dtype;
  filters.tf32 = params.tf32;
  filters.rows = problem.size.n;
  filters.depth = problem.size.depth;
  filters.pitch = cut.columns;
  filters.stride = cut.k_group * cut.columns;
  filters.aligned = lanes_aligned(w.data, w.dtype, 4, filters.pitch, filters.stride);
  ProductOutput out = Cut::output(y, z.k, cut.k_group);
  if (bias.present) {
    out.c = bias.data;
    out.c_dtype = bias.dtype;
    out.addition = Addition::bias;
    out.c_stride = cut.k_group;
    out.beta = 1;
  }
  out.activation = params.activation;
  const auto patches = cut.pixels<PatchSource>(x, z.p, z.q, z.c, cut.c_group, true);
  if (cut.depthwise(problem))
    return launch_depthwise(target, problem, patches, cut.filters(w), out);
  launch_product<false>(target, problem, patches, filters, out, scratch);
}

template <DeviceTarget T>
void conv2d_grad_input(T target, const Conv2dParams& params, const ConstView& dy,
                       const ConstView& w, const Out& dx, Scratch& scratch) {
  if (!dx.wanted) return;
  const Conv2dShape z = check_conv2d_grad_input(params, dy, w, dx);
  if (dx.view.numel() == 0) return;
  if (is_pointwise(z, params)) {
    return gemm(target,
                {.m = z.n * z.p * z.q,
                 .n = z.c,
                 .k = z.k,
                 .accumulator = params.accumulator,
                 .tf32 = params.tf32},
                dy, w, ConstView::absent(), dx, scratch);
  }
  const Cut cut(z, params);
  const ProductProblem problem =
      cut.problem(z.n * z.h * z.w, cut.c_group, z.r * z.s * cut.k_group, dy, w, false);
  FilterSource filters;
  filters.data = w.data;
  filters.dtype = w.dtype;
  filters.tf32 = params.tf32;
  filters.rows = problem.size.n;
  filters.depth = problem.size.depth;
  filters.taps = device_extent(kName, "a filter's size", z.r * z.s);
  filters.by_filters = FastDivide(std::max<std::int64_t>(cut.k_group, 1));
  filters.stride = cut.k_group * cut.columns;
  filters.aligned = lanes_aligned(w.data, w.dtype, 4, cut.c_group, filters.stride);
  const auto around = cut.pixels<GradientSource>(dy, z.h, z.w, z.k, cut.k_group, true);
  const ProductOutput out = Cut::output(dx, z.c, cut.c_group);
  if (cut.depthwise(problem)) return launch_depthwise(target, problem, around, cut.filters(w), out);
  launch_product<false>(target, problem, around, filters, out, scratch);
}

template <DeviceTarget T>
void conv2d_grad_weight(T target, const Conv2dParams& params, const ConstView& x,
                        const ConstView& dy, const Out& dw, Scratch& scratch) {
  if (!dw.wanted) return;
  const Conv2dShape z = check_conv2d_grad_weight(params, x, dy, dw);
  if (dw.view.numel() == 0) return;
  if (is_pointwise(z, params)) {
    return gemm(target,
                {.m = z.k,
                 .n = z.c,
                 .k = z.n * z.p * z.q,
                 .trans_a = true,
                 .accumulator = params.accumulator,
                 .tf32 = params.tf32},
                dy, x, ConstView::absent(), dw, scratch);
  }
  const Cut cut(z, params);
  ProductProblem problem = cut.problem(cut.k_group, cut.columns, z.n * z.p * z.q, dy, x, false);
  problem.may_split = true;
  MatrixSource gradients;
  gradients.data = dy.data;
  gradients.dtype = dy.dtype;
  gradients.tf32 = params.tf32;
  gradients.depth_contiguous = false;
  gradients.rows = problem.size.m;
  gradients.depth = problem.size.depth;
  gradients.pitch = z.k;
  gradients.stride = cut.k_group;
  gradients.aligned = lanes_aligned(dy.data, dy.dtype, 4, gradients.pitch, gradients.stride);
  const auto patches = cut.pixels<PatchSource>(x, z.p, z.q, z.c, cut.c_group, false);
  const ProductOutput out = Cut::output(dw, cut.columns, cut.k_group * cut.columns);
  if (cut.depthwise(problem))
    return launch_depthwise_filters(target, problem, patches, gradients,
                                    device_extent(kName, "channels", z.c), out, scratch);
  launch_product<false>(target, problem, gradients, patches, out, scratch);
}

template <DeviceTarget T>
void conv2d_grad_bias(T target, const Conv2dParams& params, const ConstView& dy, const Out& db,
                      Scratch& scratch) {
  if (!db.wanted) return;
  check_conv2d_grad_bias(dy, db);
  if (db.view.numel() == 0) return;
  const std::int64_t columns = db.view.numel();
  column_sums(target,
              {.rows = dy.numel() / columns, .columns = columns, .accumulator = params.accumulator},
              dy, db, scratch);
}

template void conv2d_forward(Target, const Conv2dParams&, const ConstView&, const ConstView&,
                             const ConstView&, const Out&, Scratch&);
template void conv2d_grad_input(Target, const Conv2dParams&, const ConstView&, const ConstView&,
                                const Out&, Scratch&);
template void conv2d_grad_weight(Target, const Conv2dParams&, const ConstView&, const ConstView&,
                                 const Out&, Scratch&);
template void conv2d_grad_bias(Target, const Conv2dParams&, const ConstView&, const Out&, Scratch&);

}  // namespace roundoff
