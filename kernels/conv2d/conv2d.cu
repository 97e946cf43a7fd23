// Convolution as products over pixels and taps that are gathered where they lie (implicit GEMM):
//   y [N P Q, K]    = patches of x [N P Q, R S C]          * w [R S C, K]
//   dx [N H W, C]   = gradients around pixels [N H W, R S K] * w [R S K, C]
//   dw [K, R S C]   = dy [K, N P Q]                         * patches of x [N P Q, R S C]
//   db [K]          = column sums of dy
// each group of channels by itself: on tensor cores (sm80.cuh), else in the tiles of
// kernels/gemm/tile.cuh; where every channel is a group, in loops over pixels and taps
// (depthwise.cuh). A stride cuts the input's gradient into phases (window.h), a product each.
//
// Layout: NHWC and KRSC; taps outside the image are zeros of the sum. Numerics:
// kernels/gemm/gemm.cu; the order of each sum is in conv2d.h.
#include "kernels/conv2d/conv2d.h"

#include "kernels/conv2d/arguments.h"
#include "kernels/conv2d/depthwise.cuh"
#include "kernels/conv2d/depthwise.h"
#include "kernels/conv2d/sm80.h"
#include "kernels/conv2d/sm90.h"
#include "kernels/conv2d/source.cuh"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/naive.cuh"
#include "kernels/gemm/product.cuh"
#include "kernels/simt/architecture.h"

namespace roundoff {

namespace {

constexpr const char* kName = "conv2d";

void align_source(MatrixSource& s) {
  const auto lanes = [&](int n) { return lanes_aligned(s.data, s.dtype, n, s.pitch, s.stride); };
  s.aligned = lanes(4);
  s.chunked = lanes(static_cast<int>(16 / size_of(s.dtype)));
}

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

  // Along one axis (0: vertical) of x.
  WindowAxis window(std::size_t i) const {
    // A longer step than the padded image is never taken.
    const auto step = [&](std::int64_t s) { return static_cast<int>(std::min(s, padded(i) + 1)); };
    WindowAxis a;
    a.image = static_cast<int>(i == 0 ? z.h : z.w);
    a.start = -static_cast<int>(params.padding[i]);
    a.stride = step(params.stride[i]);
    a.step = step(params.dilation[i]);
    a.taps = static_cast<int>(i == 0 ? z.r : z.s);
    return a;
  }
  // Positions outside the image are formed too.
  std::int64_t padded(std::size_t i) const {
    const std::int64_t extent = (i == 0 ? z.h : z.w) + 2 * params.padding[i];
    device_extent(kName, "a padded image", extent);
    return extent;
  }
  // Phases of the input's gradient along an axis, and one of them.
  std::int64_t phases(std::size_t i) const {
    return std::min(params.stride[i], i == 0 ? z.h : z.w);
  }
  GradientPhase phase(std::size_t i, std::int64_t first) const {
    return i == 0 ? gradient_phase(first, z.h, z.p, z.r, params.stride[0], params.padding[0],
                                   params.dilation[0])
                  : gradient_phase(first, z.w, z.q, z.s, params.stride[1], params.padding[1],
                                   params.dilation[1]);
  }

  // Windows of height x width pixels a sample over images `v` of `channels` channels, of which a
  // group has `group`.
  WindowSource windows(const ConstView& v, const WindowAxis& down, const WindowAxis& across,
                       std::int64_t height, std::int64_t width, std::int64_t channels,
                       std::int64_t group, bool sum_over_taps) const {
    WindowSource s;
    s.data = v.data;
    s.dtype = v.dtype;
    s.tf32 = params.tf32;
    s.depth_contiguous = sum_over_taps;
    s.runs = group % 4 == 0;
    s.aligned = s.runs && lanes_aligned(v.data, v.dtype, 4, channels, group);
    const int chunk = static_cast<int>(16 / size_of(v.dtype));
    s.chunked = group % chunk == 0 && lanes_aligned(v.data, v.dtype, chunk, channels, group) &&
                std::max(padded(0), padded(1)) < (std::int64_t{1} << 30);
    s.pixels = device_extent(kName, "the number of pixels", z.n * height * width);
    s.taps = device_extent(kName, "a filter's size", std::int64_t{down.taps} * across.taps * group);
    s.by_width = FastDivide(std::max<std::int64_t>(width, 1));
    s.by_height = FastDivide(std::max<std::int64_t>(height, 1));
    s.by_channels = FastDivide(std::max<std::int64_t>(group, 1));
    s.by_across = FastDivide(std::max(across.taps, 1));
    s.down = down;
    s.across = across;
    s.pixel_stride = channels;
    s.stride = group;
    return s;
  }
  WindowSource patches(const ConstView& x, bool sum_over_taps) const {
    return windows(x, window(0), window(1), z.p, z.q, z.c, c_group, sum_over_taps);
  }

  // Problem and output of results [m, n] a group, of sums over depth.
  ProductProblem problem(std::int64_t m, std::int64_t n, std::int64_t depth, const ConstView& a,
                         const ConstView& b, bool wide) const {
    ProductProblem p;
    p.name = kName;
    p.kernel = params.kernel;
    if (params.in_order) p.order = SumOrder::by_row;
    p.size = {.m = device_extent(kName, "the number of pixels", m),
              .n = device_extent(kName, "the number of channels", n),
              .depth = device_extent(kName, "the length of a sum", depth),
              .terms = 1,
              .results = device_extent(kName, "groups", params.groups)};
    p.wide = wide || params.accumulator == Accumulator::fp64 || a.dtype == DType::fp64 ||
             b.dtype == DType::fp64;
    if (!p.wide)
      p.arithmetic = arithmetic(kName, params.accumulator, a.dtype, b.dtype, params.tf32);
    if (!p.wide && params.accumulator != Accumulator::fp16)
      p.operand = mma_operand(p.arithmetic, a.dtype, b.dtype, params.tf32);
    return p;
  }
  // Whether loops over pixels and taps serve.
  bool depthwise(const ProductProblem& p) const {
    return is_depthwise(z, params) && !p.arithmetic.modelled &&
           params.kernel == ProductKernel::automatic;
  }
  DepthwiseFilters filters(const ConstView& w) const {
    DepthwiseFilters f;
    f.data = w.data;
    f.dtype = w.dtype;
    f.tf32 = params.tf32;
    f.channels = device_extent(kName, "channels", z.c);
    f.width = static_cast<unsigned>(z.s);
    f.size = device_extent(kName, "a filter's size", z.r * z.s);
    return f;
  }
  static ProductOutput output(const Out& y, std::int64_t pitch, std::int64_t stride) {
    ProductOutput out;
    out.y = y.view.data;
    out.dtype = y.view.dtype;
    out.accumulate = y.write == Write::accumulate;
    out.pitch = pitch;
    out.stride = stride;
    align_runs(out);
    return out;
  }
};

// Why the kernel for sm_90a does not take a pass; empty where it does. `images` and `other` are
// what is multiplied.
std::string refusal_of_sm90(ConvPass pass, const ProductProblem& p, const Cut& cut,
                            const ConstView& images, const ConstView& other) {
  if (pass != ConvPass::grad_weight) {
    std::string why = shifts_blocks(p, pass == ConvPass::forward ? cut.c_group : cut.k_group);
    if (!why.empty()) return why;
  }
  return conv2d_sm90_refuses(pass, p, cut.z, cut.params, images, other);
}

// The product of A and B by the kernel that is named, or else the fastest.
template <class T, class A, class B>
void launch_convolution(T target, ConvPass pass, const ProductProblem& p, const Cut& cut,
                        const ConstView& images, const ConstView& other, const A& a, const B& b,
                        const ProductOutput& out, Scratch& scratch) {
  const ProductTraits traits{.architecture = architecture(target),
                             .a = a.dtype,
                             .b = b.dtype,
                             .chunked = a.chunked && b.chunked,
                             .sm90 = refusal_of_sm90(pass, p, cut, images, other)};
  const std::string why = conv2d_refusal(p.kernel, p, traits);
  ROUNDOFF_CHECK(why.empty(), kName, "kernel ", name(p.kernel),
                 " does not take this product: ", why);
  switch (p.kernel == ProductKernel::automatic ? select_kernel(p, traits) : p.kernel) {
    case ProductKernel::wgmma:
    case ProductKernel::sm90:
    case ProductKernel::ping_pong:
      return launch_conv2d_sm90(target, pass, p, cut.z, cut.params, images, other, out, scratch);
    case ProductKernel::sm80:
      if (p.operand == MmaOperand::fp16) return launch_conv2d_half(target, p, a, b, out, scratch);
      if (p.operand == MmaOperand::bf16)
        return launch_conv2d_bfloat16(target, p, a, b, out, scratch);
      return launch_conv2d_tf32(target, p, a, b, out, scratch);
    case ProductKernel::mma:
      if (p.operand == MmaOperand::fp16) return launch_mma<Half>(target, p, a, b, out, scratch);
      if (p.operand == MmaOperand::bf16) return launch_mma<BFloat16>(target, p, a, b, out, scratch);
      return launch_mma<Tf32>(target, p, a, b, out, scratch);
    case ProductKernel::naive:
      return launch_naive(target, p, a, b, out, scratch);
    case ProductKernel::automatic:
    case ProductKernel::tiles:
      return launch_product<false>(target, p, a, b, out, scratch);
  }
}

// dw, a run of samples at a time where they are summed on their own.
template <class T>
void launch_grad_weight(T target, const ProductProblem& p, const Cut& cut, const ConstView& x,
                        const ConstView& dy, const MatrixSource& gradients,
                        const WindowSource& patches, const ProductOutput& out, Scratch& scratch) {
  each_terms(p, out, [&](unsigned first, unsigned count, const ProductOutput& to) {
    ProductProblem terms = p;
    terms.size.terms = count;
    launch_convolution(target, ConvPass::grad_weight, terms, cut, x, dy,
                       from_term(gradients, first), from_term(patches, first), to, scratch);
  });
}

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
                 .activation = params.activation,
                 .kernel = params.kernel,
                 .order = params.in_order ? SumOrder::by_row : SumOrder::fastest},
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
  align_source(filters);
  ProductOutput out = Cut::output(y, z.k, cut.k_group);
  if (bias.present) {
    out.c = bias.data;
    out.c_dtype = bias.dtype;
    out.addition = Addition::bias;
    out.c_stride = cut.k_group;
    out.beta = 1;
  }
  out.activation = params.activation;
  align_runs(out);
  const WindowSource patches = cut.patches(x, true);
  if (cut.depthwise(problem)) {
    DepthwiseFilters kernels = cut.filters(w);
    kernels.down.count = static_cast<unsigned>(z.r);
    kernels.across.count = static_cast<unsigned>(z.s);
    return launch_depthwise(target, problem, patches, kernels, out);
  }
  launch_convolution(target, ConvPass::forward, problem, cut, x, w, patches, filters, out, scratch);
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
                 .tf32 = params.tf32,
                 .kernel = params.kernel,
                 .order = params.in_order ? SumOrder::by_row : SumOrder::fastest},
                dy, w, ConstView::absent(), dx, scratch);
  }
  const Cut cut(z, params);
  FilterSource filters;
  filters.data = w.data;
  filters.dtype = w.dtype;
  filters.tf32 = params.tf32;
  filters.rows = device_extent(kName, "the number of channels", cut.c_group);
  filters.by_filters = FastDivide(std::max<std::int64_t>(cut.k_group, 1));
  filters.width = static_cast<unsigned>(z.s);
  filters.size = device_extent(kName, "a filter's size", z.r * z.s);
  filters.stride = cut.k_group * cut.columns;
  filters.aligned = lanes_aligned(w.data, w.dtype, 4, cut.c_group, filters.stride);
  const int chunk = static_cast<int>(16 / size_of(w.dtype));
  filters.chunked = lanes_aligned(w.data, w.dtype, chunk, cut.c_group, filters.stride);
  for (std::int64_t i = 0; i < cut.phases(0); ++i) {
    const GradientPhase down = cut.phase(0, i);
    for (std::int64_t j = 0; j < cut.phases(1); ++j) {
      const GradientPhase across = cut.phase(1, j);
      const std::int64_t taps = std::int64_t{down.taps.count} * across.taps.count;
      const ProductProblem problem = cut.problem(z.n * down.pixels * across.pixels, cut.c_group,
                                                 taps * cut.k_group, dy, w, false);
      const WindowSource around = cut.windows(dy, down.window, across.window, down.pixels,
                                              across.pixels, z.k, cut.k_group, true);
      ProductOutput out = Cut::output(dx, z.c, cut.c_group);
      if (cut.phases(0) != 1 || cut.phases(1) != 1) {
        out.y = static_cast<std::byte*>(out.y) +
                (i * z.w + j) * z.c * static_cast<std::int64_t>(size_of(out.dtype));
        out.rows.used = true;
        out.rows.by_columns = FastDivide(across.pixels);
        out.rows.by_lines = FastDivide(down.pixels);
        out.rows.column = params.stride[1] * z.c;
        out.rows.line = params.stride[0] * z.w * z.c;
        out.rows.image = z.h * z.w * z.c;
        align_runs(out);
      }
      if (cut.depthwise(problem)) {
        DepthwiseFilters kernels = cut.filters(w);
        kernels.down = down.taps;
        kernels.across = across.taps;
        launch_depthwise(target, problem, around, kernels, out);
        continue;
      }
      filters.depth = problem.size.depth;
      filters.by_across = FastDivide(std::max(1U, across.taps.count));
      filters.down = down.taps;
      filters.across = across.taps;
      launch_convolution(target, ConvPass::grad_input, problem, cut, dy, w, around, filters, out,
                         scratch);
    }
  }
}

template <DeviceTarget T>
void conv2d_grad_weight(T target, const Conv2dParams& params, const ConstView& x,
                        const ConstView& dy, const Out& dw, Scratch& scratch) {
  if (!dw.wanted) return;
  const Conv2dShape z = check_conv2d_grad_weight(params, x, dy, dw);
  if (dw.view.numel() == 0) return;
  if (is_pointwise(z, params))
    return gemm(target, grad_weight_product(z, params), dy, x, ConstView::absent(), dw, scratch);
  const Cut cut(z, params);
  const std::int64_t pixels = z.p * z.q;
  ProductProblem problem = cut.problem(cut.k_group, cut.columns, z.n * pixels, dy, x, false);
  problem.may_split = true;
  if (params.in_order)
    problem.order = sums_by_sample(z, params) ? SumOrder::by_matrix : SumOrder::in_order;
  MatrixSource gradients;
  gradients.data = dy.data;
  gradients.dtype = dy.dtype;
  gradients.tf32 = params.tf32;
  gradients.depth_contiguous = false;
  gradients.rows = problem.size.m;
  gradients.depth = problem.size.depth;
  gradients.pitch = z.k;
  gradients.stride = cut.k_group;
  align_source(gradients);
  WindowSource patches = cut.patches(x, false);
  const ProductOutput out = Cut::output(dw, cut.columns, cut.k_group * cut.columns);
  if (cut.depthwise(problem))
    return launch_depthwise_filters(target, problem, patches, gradients,
                                    device_extent(kName, "channels", z.c), out, scratch);
  if (problem.order == SumOrder::by_matrix) {
    problem.size.depth = gradients.depth = patches.pixels = static_cast<unsigned>(pixels);
    problem.size.terms = device_extent(kName, "the number of samples", z.n);
    gradients.stride = pixels * z.k;
    patches.stride = z.h * z.w * z.c;
  }
  launch_grad_weight(target, problem, cut, x, dy, gradients, patches, out, scratch);
}

template <DeviceTarget T>
void conv2d_grad_bias(T target, const Conv2dParams& params, const ConstView& dy, const Out& db,
                      Scratch& scratch) {
  if (!db.wanted) return;
  const ColumnSumsParams sums = grad_bias_sums(params, dy, db);
  if (db.view.numel() == 0) return;
  column_sums(target, sums, dy, db, scratch);
}

template void conv2d_forward(Target, const Conv2dParams&, const ConstView&, const ConstView&,
                             const ConstView&, const Out&, Scratch&);
template void conv2d_grad_input(Target, const Conv2dParams&, const ConstView&, const ConstView&,
                                const Out&, Scratch&);
template void conv2d_grad_weight(Target, const Conv2dParams&, const ConstView&, const ConstView&,
                                 const Out&, Scratch&);
template void conv2d_grad_bias(Target, const Conv2dParams&, const ConstView&, const Out&, Scratch&);

}  // namespace roundoff
