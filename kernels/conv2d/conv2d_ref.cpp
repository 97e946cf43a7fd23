// im2col and a matrix product, over blocks of samples and of output rows that stay in cache.
#include <algorithm>
#include <numeric>
#include <type_traits>

#include "kernels/base/convert.h"
#include "kernels/conv2d/arguments.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/depthwise.h"
#include "kernels/conv2d/direct.h"
#include "kernels/conv2d/im2col.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/modelled.h"
#include "kernels/gemm/operand.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "conv2d";

// Workspace of one block: patches, and samples in the type of the sum. Together they leave room in
// a second-level cache for what the product packs.
constexpr std::int64_t kPatchBytes = std::int64_t{1} << 18;
constexpr std::int64_t kSampleBytes = std::int64_t{1} << 18;

// What the three general passes share: sizes of one group, and how the work is cut.
template <class T>
struct Cut {
  Conv2dShape z;
  Conv2dParams params;
  ProductArithmetic arithmetic;
  std::int64_t k_group = z.k / params.groups;
  std::int64_t c_group = z.c / params.groups;
  std::int64_t columns = z.r * z.s * c_group;
  std::int64_t image = z.h * z.w * z.c;   // elements a sample of x
  std::int64_t result = z.p * z.q * z.k;  // elements a sample of y

  // Loops over taps with the channels side by side serve better than a product for each channel.
  bool depthwise() const { return !arithmetic.modelled && is_depthwise(z, params); }
  // The weights in T; depthwise ones as [taps, C].
  const T* weights(const ConstView& w, Scratch& scratch) const {
    const T* values = operand<T>(w, 0, w.numel(), params.tf32, scratch);
    if (!depthwise()) return values;
    T* turned = scratch.get<T>(w.numel());
    transpose(values, z.c, columns, turned);
    return turned;
  }
  // Elements of the patches of `rows` output rows.
  std::int64_t workspace(std::int64_t samples) const {
    return depthwise() ? 0 : rows(samples) * z.q * columns;
  }

  // A modelled sum over pixels is one chain: it is cut at whole blocks of every tensor core only.
  std::int64_t unit(std::int64_t pixels) const {
    constexpr std::int64_t kBlock = 16;
    return arithmetic.modelled ? kBlock / std::gcd(kBlock, pixels) : 1;
  }
  static std::int64_t limit(std::int64_t value, std::int64_t unit, std::int64_t most) {
    return std::clamp<std::int64_t>((value + unit - 1) / unit * unit, 1, most);
  }
  std::int64_t samples() const {
    const auto bytes = static_cast<std::int64_t>(sizeof(T)) * (image + result);
    return limit(kSampleBytes / std::max<std::int64_t>(bytes, 1), unit(z.p * z.q), z.n);
  }
  // Output rows whose patches are held at once, of `samples` samples.
  std::int64_t rows(std::int64_t samples) const {
    const auto bytes = static_cast<std::int64_t>(sizeof(T)) * z.q * columns;
    return limit(kPatchBytes / std::max<std::int64_t>(bytes, 1), unit(z.q), samples * z.p);
  }
  Patches patches(std::int64_t group) const { return {z, params, group * c_group, c_group}; }
  // Writes the patches of output rows [begin, end) of x, as rows or, where this returns true, as
  // columns of a matrix.
  bool gather(std::int64_t group, const T* x, std::int64_t begin, std::int64_t end, T* to) const {
    if (c_group != 1) {
      im2col(patches(group), x, begin, end, to);
      return false;
    }
    im2col_planes(patches(group), x, begin, end, to);
    return true;
  }

  // Calls f(first sample, number of samples) for every block of samples.
  template <class F>
  void each_samples(F&& f) const {
    if (z.n == 0) return;
    const std::int64_t step = samples();
    for (std::int64_t i = 0; i < z.n; i += step) f(i, std::min(step, z.n - i));
  }
  // Calls f(first row, last row) for every block of output rows of `samples` samples.
  template <class F>
  void each_rows(std::int64_t samples, F&& f) const {
    const std::int64_t step = rows(samples);
    for (std::int64_t i = 0; i < samples * z.p; i += step) f(i, std::min(i + step, samples * z.p));
  }
};

template <class T>
void forward(const Cut<T>& cut, const ConstView& x, const ConstView& w, const ConstView& bias,
             const Out& y, Scratch& scratch) {
  const Conv2dShape& z = cut.z;
  Scratch::Frame frame(scratch);
  const T* weights = cut.weights(w, scratch);
  const T* offsets = bias.present ? operand<T>(bias, 0, z.k, false, scratch) : nullptr;
  const bool chains = cut.arithmetic.chains();
  const bool direct = y.view.dtype == dtype_of<T> && (chains || y.write == Write::overwrite);
  const auto add_bias = [&](T* out, std::int64_t pixels, bool holds) {
    for (std::int64_t i = 0; i < pixels; ++i)
      for (std::int64_t k = 0; k < z.k; ++k)
        out[i * z.k + k] = (holds ? out[i * z.k + k] : T{0}) + offsets[k];
  };
  cut.each_samples([&](std::int64_t first, std::int64_t count) {
    Scratch::Frame samples_frame(scratch);
    const T* in = operand<T>(x, first * cut.image, count * cut.image, cut.params.tf32, scratch);
    T* out = direct ? y.view.as<T>() + first * cut.result : scratch.get<T>(count * cut.result);
    bool holds = direct && y.write == Write::accumulate;
    if (chains && offsets != nullptr) {
      add_bias(out, count * z.p * z.q, holds);
      holds = true;
    }
    if (cut.depthwise()) {
      if (!holds) std::fill_n(out, count * cut.result, T{0});
      for (std::int64_t n = 0; n < count; ++n)
        depthwise_forward(z, cut.params, in + n * cut.image, weights, out + n * cut.result);
      activate(cut.params.activation, out, count * cut.result);
      if (!direct) narrow(out, count * cut.result, y, first * cut.result);
      return;
    }
    T* columns = scratch.get<T>(cut.workspace(count));
    cut.each_rows(count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = 0; g < cut.params.groups; ++g) {
        const std::int64_t pixels = (end - begin) * z.q;
        const bool planes = cut.gather(g, in, begin, end, columns);
        multiply(cut.arithmetic,
                 Product<T>{.m = pixels,
                            .n = cut.k_group,
                            .k = cut.columns,
                            .a = columns,
                            .lda = planes ? pixels : cut.columns,
                            .trans_a = planes,
                            .b = weights + g * cut.k_group * cut.columns,
                            .ldb = cut.columns,
                            .trans_b = true,
                            .c = out + begin * z.q * z.k + g * cut.k_group,
                            .ldc = z.k,
                            .accumulate = holds},
                 scratch);
      }
    });
    if (!chains && offsets != nullptr) add_bias(out, count * z.p * z.q, true);
    activate(cut.params.activation, out, count * cut.result);
    if (!direct) narrow(out, count * cut.result, y, first * cut.result);
  });
}

template <class T>
void grad_input(const Cut<T>& cut, const ConstView& dy, const ConstView& w, const Out& dx,
                Scratch& scratch) {
  const Conv2dShape& z = cut.z;
  Scratch::Frame frame(scratch);
  const T* weights = cut.weights(w, scratch);
  const bool direct = dx.view.dtype == dtype_of<T>;
  cut.each_samples([&](std::int64_t first, std::int64_t count) {
    Scratch::Frame samples_frame(scratch);
    const T* in = operand<T>(dy, first * cut.result, count * cut.result, cut.params.tf32, scratch);
    T* out = direct ? dx.view.as<T>() + first * cut.image : scratch.get<T>(count * cut.image);
    if (!direct || dx.write == Write::overwrite) std::fill_n(out, count * cut.image, T{0});
    if (cut.depthwise()) {
      for (std::int64_t n = 0; n < count; ++n)
        depthwise_grad_input(z, cut.params, in + n * cut.result, weights, out + n * cut.image);
      if (!direct) narrow(out, count * cut.image, dx, first * cut.image);
      return;
    }
    T* columns = scratch.get<T>(cut.workspace(count));
    cut.each_rows(count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = 0; g < cut.params.groups; ++g) {
        multiply(cut.arithmetic,
                 Product<T>{.m = (end - begin) * z.q,
                            .n = cut.columns,
                            .k = cut.k_group,
                            .a = in + begin * z.q * z.k + g * cut.k_group,
                            .lda = z.k,
                            .b = weights + g * cut.k_group * cut.columns,
                            .ldb = cut.columns,
                            .c = columns,
                            .ldc = cut.columns},
                 scratch);
        col2im(cut.patches(g), columns, begin, end, out);
      }
    });
    if (!direct) narrow(out, count * cut.image, dx, first * cut.image);
  });
}

// The weights of a phase's taps as [group, taps down, taps across, K of the group, C of the group].
template <class T>
void turn_weights(const Cut<T>& cut, const T* weights, const TapAxis& down, const TapAxis& across,
                  T* to) {
  const Conv2dShape& z = cut.z;
  for (std::int64_t g = 0; g < cut.params.groups; ++g)
    for (std::int64_t i = 0; i < down.count; ++i)
      for (std::int64_t j = 0; j < across.count; ++j)
        for (std::int64_t k = g * cut.k_group; k < (g + 1) * cut.k_group; ++k) {
          const std::int64_t r = down.first + i * down.step, s = across.first + j * across.step;
          std::copy_n(weights + ((k * z.r + r) * z.s + s) * cut.c_group, cut.c_group, to);
          to += cut.c_group;
        }
}

// The same as one sum for each element of dx, which a modelled accumulator and sums in order need:
// its order is that of an implicit GEMM over [R, S, K], of the taps that a pixel's phase has.
template <class T>
void grad_input_chains(const Cut<T>& cut, const ConstView& dy, const ConstView& w, const Out& dx,
                       Scratch& scratch) {
  const Conv2dShape& z = cut.z;
  const Conv2dParams& p = cut.params;
  Scratch::Frame frame(scratch);
  const T* weights = operand<T>(w, 0, w.numel(), p.tf32, scratch);
  const std::int64_t most = z.r * z.s * cut.k_group;
  T* turned = scratch.get<T>(w.numel());
  T* rows = scratch.get<T>(z.w * most);
  const bool chains = cut.arithmetic.chains();
  const bool direct = dx.view.dtype == dtype_of<T> && (chains || dx.write == Write::overwrite);
  T* out = direct ? dx.view.as<T>() : scratch.get<T>(z.n * cut.image);
  for (std::int64_t first_h = 0; first_h < std::min(p.stride[0], z.h); ++first_h) {
    const GradientPhase down =
        gradient_phase(first_h, z.h, z.p, z.r, p.stride[0], p.padding[0], p.dilation[0]);
    for (std::int64_t first_w = 0; first_w < std::min(p.stride[1], z.w); ++first_w) {
      const GradientPhase across =
          gradient_phase(first_w, z.w, z.q, z.s, p.stride[1], p.padding[1], p.dilation[1]);
      turn_weights(cut, weights, down.taps, across.taps, turned);
      const std::int64_t depth = std::int64_t{down.taps.count} * across.taps.count * cut.k_group;
      for (std::int64_t n = 0; n < z.n; ++n) {
        Scratch::Frame sample_frame(scratch);
        const T* in = operand<T>(dy, n * cut.result, cut.result, p.tf32, scratch);
        for (std::int64_t i = 0; i < down.pixels; ++i) {
          const std::int64_t h = first_h + i * p.stride[0];
          for (std::int64_t g = 0; g < p.groups; ++g) {
            gather_gradients(Patches{z, p, g * cut.k_group, cut.k_group}, in, down.window.start + i,
                             down, across, rows);
            multiply(
                cut.arithmetic,
                Product<T>{.m = across.pixels,
                           .n = cut.c_group,
                           .k = depth,
                           .a = rows,
                           .lda = depth,
                           .b = turned + g * depth * cut.c_group,
                           .ldb = cut.c_group,
                           .c = out + n * cut.image + (h * z.w + first_w) * z.c + g * cut.c_group,
                           .ldc = p.stride[1] * z.c,
                           .accumulate = direct && dx.write == Write::accumulate},
                scratch);
          }
        }
      }
    }
  }
  if (!direct) narrow(out, z.n * cut.image, dx, 0);
}

// Sums of samples, then the sum of those; in order with few pixels one chain.
template <class T>
void grad_weight_depthwise(const Cut<T>& cut, const ConstView& x, const ConstView& dy,
                           const Out& dw, Scratch& scratch) {
  const Conv2dShape& z = cut.z;
  Scratch::Frame frame(scratch);
  const std::int64_t size = z.k * cut.columns;
  T* total = scratch.get<T>(size);
  T* partial = scratch.get<T>(size);
  const bool in_order = cut.params.in_order;
  const bool chains = in_order && !sums_by_sample(z, cut.params);
  if (in_order && dw.write == Write::accumulate) {
    widen(dw.view, 0, size, partial);
    transpose(partial, z.c, cut.columns, total);
  } else {
    std::fill_n(total, size, T{0});
  }
  for (std::int64_t n = 0; n < z.n; ++n) {
    Scratch::Frame sample_frame(scratch);
    const T* in = operand<T>(x, n * cut.image, cut.image, cut.params.tf32, scratch);
    const T* grad = operand<T>(dy, n * cut.result, cut.result, cut.params.tf32, scratch);
    if (chains) {
      depthwise_grad_weight(z, cut.params, in, grad, total);
      continue;
    }
    std::fill_n(partial, size, T{0});
    depthwise_grad_weight(z, cut.params, in, grad, partial);
    for (std::int64_t i = 0; i < size; ++i) total[i] += partial[i];
  }
  transpose(total, cut.columns, z.c, partial);
  narrow(partial, size, in_order ? Out(dw.view) : dw, 0);
}

template <class T>
void grad_weight(const Cut<T>& cut, const ConstView& x, const ConstView& dy, const Out& dw,
                 Scratch& scratch) {
  const Conv2dShape& z = cut.z;
  Scratch::Frame frame(scratch);
  const std::int64_t size = z.k * cut.columns;
  const bool direct =
      dw.view.dtype == dtype_of<T> && (cut.arithmetic.chains() || dw.write == Write::overwrite);
  T* out = direct ? dw.view.as<T>() : scratch.get<T>(size);
  if (!direct || dw.write == Write::overwrite) std::fill_n(out, size, T{0});
  const bool by_sample = sums_by_sample(z, cut.params);
  T* sums = by_sample ? scratch.get<T>(size) : out;
  const auto add_samples = [&](std::int64_t first, std::int64_t count) {
    Scratch::Frame samples_frame(scratch);
    const bool tf32 = cut.params.tf32;
    const T* in = operand<T>(x, first * cut.image, count * cut.image, tf32, scratch);
    const T* grad = operand<T>(dy, first * cut.result, count * cut.result, tf32, scratch);
    T* columns = scratch.get<T>(cut.workspace(count));
    cut.each_rows(count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = 0; g < cut.params.groups; ++g) {
        const std::int64_t pixels = (end - begin) * z.q;
        const bool planes = cut.gather(g, in, begin, end, columns);
        multiply(cut.arithmetic,
                 Product<T>{.m = cut.k_group,
                            .n = cut.columns,
                            .k = pixels,
                            .a = grad + begin * z.q * z.k + g * cut.k_group,
                            .lda = z.k,
                            .trans_a = true,
                            .b = columns,
                            .ldb = planes ? pixels : cut.columns,
                            .trans_b = planes,
                            .c = sums + g * cut.k_group * cut.columns,
                            .ldc = cut.columns,
                            .accumulate = true},
                 scratch);
      }
    });
  };
  if (!by_sample) {
    cut.each_samples(add_samples);
  } else {
    for (std::int64_t n = 0; n < z.n; ++n) {
      std::fill_n(sums, size, T{0});
      add_samples(n, 1);
      for (std::int64_t i = 0; i < size; ++i) out[i] += sums[i];
    }
  }
  if (!direct) narrow(out, size, dw, 0);
}

template <class T>
bool plain_fp32(const Cut<T>& cut) {
  return std::is_same_v<T, float> && !cut.arithmetic.modelled;
}

// Calls f(cut) in the type that sums of products of a and b are formed in; `wide`: another addend
// is fp64.
template <class F>
void dispatch(const Conv2dShape& z, const Conv2dParams& params, const ConstView& a,
              const ConstView& b, bool wide, F&& f) {
  if (wide || params.accumulator == Accumulator::fp64 || a.dtype == DType::fp64 ||
      b.dtype == DType::fp64) {
    f(Cut<double>{.z = z, .params = params, .arithmetic = {.in_order = params.in_order}});
  } else {
    ProductArithmetic sums = arithmetic(kName, params.accumulator, a.dtype, b.dtype, params.tf32);
    sums.in_order = params.in_order;
    f(Cut<float>{.z = z, .params = params, .arithmetic = sums});
  }
}

}  // namespace

void conv2d_forward(Ref, const Conv2dParams& params, const ConstView& x, const ConstView& w,
                    const ConstView& bias, const Out& y, Scratch& scratch) {
  if (!y.wanted) {
    (void)conv2d_shape(x.shape, w.shape, params);
    return;
  }
  const Conv2dShape z = check_conv2d_forward(params, x, w, bias, y);
  if (z.y().numel() == 0) return;
  if (is_pointwise(z, params)) {
    gemm(Ref{},
         {.m = z.n * z.p * z.q,
          .n = z.k,
          .k = z.c,
          .trans_b = true,
          .beta = bias.present ? 1.0 : 0.0,
          .accumulator = params.accumulator,
          .tf32 = params.tf32,
          .activation = params.activation,
          .order = params.in_order ? SumOrder::by_row : SumOrder::fastest},
         x, w, bias, y, scratch);
    return;
  }
  const bool wide = bias.present && bias.dtype == DType::fp64;
  dispatch(z, params, x, w, wide, [&](const auto& cut) {
    if (plain_fp32(cut) && params.activation == Activation::none &&
        direct_forward_serves(z, params))
      return direct_forward(z, params, x, w, bias, y, scratch);
    forward(cut, x, w, bias, y, scratch);
  });
}

void conv2d_grad_input(Ref, const Conv2dParams& params, const ConstView& dy, const ConstView& w,
                       const Out& dx, Scratch& scratch) {
  if (!dx.wanted) return;
  const Conv2dShape z = check_conv2d_grad_input(params, dy, w, dx);
  if (dx.view.numel() == 0) return;
  if (is_pointwise(z, params)) {
    gemm(Ref{},
         {.m = z.n * z.p * z.q,
          .n = z.c,
          .k = z.k,
          .accumulator = params.accumulator,
          .tf32 = params.tf32,
          .order = params.in_order ? SumOrder::by_row : SumOrder::fastest},
         dy, w, ConstView::absent(), dx, scratch);
    return;
  }
  dispatch(z, params, dy, w, false, [&](const auto& cut) {
    if (cut.depthwise() && params.in_order) return grad_input(cut, dy, w, dx, scratch);
    if (plain_fp32(cut) && direct_grad_input_serves(z, params))
      return direct_grad_input(z, params, dy, w, dx, scratch);
    if (cut.arithmetic.modelled || params.in_order)
      return grad_input_chains(cut, dy, w, dx, scratch);
    grad_input(cut, dy, w, dx, scratch);
  });
}

void conv2d_grad_weight(Ref, const Conv2dParams& params, const ConstView& x, const ConstView& dy,
                        const Out& dw, Scratch& scratch) {
  if (!dw.wanted) return;
  const Conv2dShape z = check_conv2d_grad_weight(params, x, dy, dw);
  if (dw.view.numel() == 0) return;
  if (is_pointwise(z, params))
    return gemm(Ref{}, grad_weight_product(z, params), dy, x, ConstView::absent(), dw, scratch);
  dispatch(z, params, x, dy, false, [&](const auto& cut) {
    if (cut.depthwise()) return grad_weight_depthwise(cut, x, dy, dw, scratch);
    if (plain_fp32(cut) && direct_grad_weight_serves(z, params))
      return direct_grad_weight(z, params, x, dy, dw, scratch);
    grad_weight(cut, x, dy, dw, scratch);
  });
}

void conv2d_grad_bias(Ref, const Conv2dParams& params, const ConstView& dy, const Out& db,
                      Scratch& scratch) {
  if (!db.wanted) return;
  const ColumnSumsParams sums = grad_bias_sums(params, dy, db);
  if (db.view.numel() == 0) return;
  column_sums(Ref{}, sums, dy, db, scratch);
}

}  // namespace roundoff
