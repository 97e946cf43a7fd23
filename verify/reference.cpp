#include "verify/reference.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/architecture.h"
#include "kernels/simt/cuda_support.h"
#include "verify/bound.h"
#include "verify/call.h"

namespace roundoff {

namespace {

using detail::Call;
using detail::column_sums;
using detail::magnitudes;
using oracle::at;
using oracle::In;
using oracle::Values;

// ---- products

// A matmul whose leading axes broadcast, as a batch with every operand written out.
struct Matmul {
  oracle::MatmulParams params;
  std::vector<std::size_t> source_a, source_b;  // the matrix that each position uses
  std::int64_t matrices_a = 1, matrices_b = 1;

  explicit Matmul(const Call& call) {
    const Shape &a = call.shape("a"), &b = call.shape("b");
    const auto lead = [](const Shape& s) {
      return Shape(s.extents().first(static_cast<std::size_t>(s.rank() - 2)));
    };
    const Shape result = oracle::broadcast(lead(a), lead(b));
    params.batch = result.numel();
    params.trans_a = call.p.flag("trans_a");
    params.trans_b = call.p.flag("trans_b");
    params.m = a[params.trans_a ? -1 : -2];
    params.k = a[params.trans_a ? -2 : -1];
    params.n = b[params.trans_b ? -2 : -1];
    params.alpha = call.p.number("alpha");
    params.beta = call.has("c") ? call.p.number("beta") : 0;
    source_a = oracle::broadcast_source(lead(a), result);
    source_b = oracle::broadcast_source(lead(b), result);
    matrices_a = lead(a).numel();
    matrices_b = lead(b).numel();
  }

  static Values repeated(In x, std::span<const std::size_t> source, std::int64_t size) {
    Values all;
    all.reserve(source.size() * at(size));
    for (const std::size_t s : source) {
      const In matrix = x.subspan(s * at(size), at(size));
      all.insert(all.end(), matrix.begin(), matrix.end());
    }
    return all;
  }
  // The sum over the positions that use a matrix.
  static Values folded(In x, std::span<const std::size_t> source, std::int64_t matrices,
                       std::int64_t size) {
    oracle::Sums sums = oracle::zeros(matrices * size);
    for (std::size_t position = 0; position < source.size(); ++position)
      for (std::size_t i = 0; i < at(size); ++i)
        sums[source[position] * at(size) + i] += x[position * at(size) + i];
    return oracle::rounded(sums);
  }
  Values all_a(In a) const { return repeated(a, source_a, params.m * params.k); }
  Values all_b(In b) const { return repeated(b, source_b, params.k * params.n); }
};

NamedBounds matmul_forward(const Call& call) {
  const Matmul m(call);
  Values c;
  if (call.has("c"))
    for (std::int64_t i = 0; i < m.params.y_size(); ++i)
      c.push_back(call.of("c")[at(i) % call.of("c").size()]);
  return {{"y", bound::matmul(m.params, m.all_a(call.of("a")), m.all_b(call.of("b")), c,
                              call.products)}};
}

NamedBounds matmul_backward(const Call& call) {
  const Matmul m(call);
  const oracle::MatmulParams& p = m.params;
  const Values a = m.all_a(call.of("a")), b = m.all_b(call.of("b"));
  const Values& dy = call.of("dy");
  oracle::MatmulParams absolute = p;
  absolute.alpha = std::abs(p.alpha);
  const auto exact = oracle::matmul_backward(p, a, b, dy);
  const auto size =
      oracle::matmul_backward(absolute, magnitudes(a, call.products), magnitudes(b, call.products),
                              magnitudes(dy, call.products));
  const double extra = std::abs(p.alpha) == 1 || p.alpha == 0 ? 0 : 1;
  const auto bound_of_operand = [&](In values, In magnitude, std::span<const std::size_t> source,
                                    std::int64_t matrices, std::int64_t elements,
                                    std::int64_t terms) {
    const std::int64_t positions = matrices == 0 ? 0 : p.batch / matrices;
    return bound::products(Matmul::folded(values, source, matrices, elements),
                           Matmul::folded(magnitude, source, matrices, elements), terms * positions,
                           call.products, extra, bound::before_alpha(p.alpha), positions);
  };
  NamedBounds bounds;
  bounds["da"] = bound_of_operand(exact.a, size.a, m.source_a, m.matrices_a, p.m * p.k, p.n);
  bounds["db"] = bound_of_operand(exact.b, size.b, m.source_b, m.matrices_b, p.k * p.n, p.m);
  if (call.has("c")) bounds["dc"] = column_sums(dy, call.shape("c").numel(), p.beta, call.sums);
  return bounds;
}

// x w^T + b: a matmul of x's rows.
oracle::MatmulParams linear_params(const Call& call) {
  const Shape &x = call.shape("x"), &w = call.shape("w");
  oracle::MatmulParams p{.n = w[0], .k = w[1], .trans_b = true};
  p.m = p.k == 0 ? 0 : x.numel() / p.k;
  return p;
}

NamedBounds linear_forward(const Call& call) {
  oracle::MatmulParams p = linear_params(call);
  Values bias;
  if (call.has("b")) {
    p.beta = 1;
    for (std::int64_t i = 0; i < p.y_size(); ++i) bias.push_back(call.of("b")[at(i % p.n)]);
  }
  return {{"y", bound::matmul(p, call.of("x"), call.of("w"), bias, call.products)}};
}

NamedBounds linear_backward(const Call& call) {
  const oracle::MatmulParams p = linear_params(call);
  const Values& dy = call.of("dy");
  auto g = bound::matmul_backward(p, call.of("x"), call.of("w"), dy, call.products);
  NamedBounds bounds{{"dx", std::move(g.a)}, {"dw", std::move(g.b)}};
  if (call.has("b")) bounds["db"] = column_sums(dy, p.n, 1, call.sums);
  return bounds;
}

oracle::Conv2dParams conv2d_params(const Call& call) {
  const Shape &x = call.shape("x"), &w = call.shape("w");
  const auto stride = call.p.pair("stride"), pad = call.p.pair("padding"),
             dilation = call.p.pair("dilation");
  return {.n = x[0],
          .h = x[1],
          .w = x[2],
          .c = x[3],
          .k = w[0],
          .r = w[1],
          .s = w[2],
          .stride_h = stride[0],
          .stride_w = stride[1],
          .pad_h = pad[0],
          .pad_w = pad[1],
          .dilation_h = dilation[0],
          .dilation_w = dilation[1],
          .groups = call.p.integer("groups")};
}

NamedBounds conv2d_backward(const Call& call) {
  const auto p = conv2d_params(call);
  const Values& dy = call.of("dy");
  NamedBounds bounds;
  bounds["dx"] = bound::conv2d_dgrad(p, call.of("w"), dy, call.products);
  bounds["dw"] = bound::conv2d_wgrad(p, call.of("x"), dy, call.products);
  if (call.has("b")) bounds["db"] = column_sums(dy, p.k, 1, call.sums);
  return bounds;
}

// ---- softmax and losses

oracle::SoftmaxParams softmax_params(const Call& call) {
  const Shape& x = call.shape("x");
  const int axis = x.normalize_axis(call.p.integer("axis"), call.name());
  oracle::SoftmaxParams p{.n = x[axis]};
  for (int i = 0; i < axis; ++i) p.outer *= x[i];
  for (int i = axis + 1; i < x.rank(); ++i) p.inner *= x[i];
  return p;
}

oracle::Reduction reduction_of(const Call& call) {
  const std::string& word = call.p.word("reduction");
  if (word == "none") return oracle::Reduction::none;
  return word == "sum" ? oracle::Reduction::sum : oracle::Reduction::mean;
}

NamedBounds cross_entropy(const Call& call, Pass pass) {
  const Shape& logits = call.shape("logits");
  oracle::CrossEntropyParams p{.classes = logits[-1],
                               .ignore_index = call.p.integer("ignore_index"),
                               .label_smoothing = call.p.number("label_smoothing"),
                               .reduction = reduction_of(call)};
  p.rows = p.classes == 0 ? 0 : logits.numel() / p.classes;
  const Values &x = call.of("logits"), &target = call.of("target"), &weight = call.of("weight");
  const bool soft = is_floating(call.dtype("target"));
  std::vector<std::int64_t> labels;
  if (!soft)
    for (const double t : target) labels.push_back(static_cast<std::int64_t>(t));
  if (pass == Pass::forward)
    return {{"y", soft ? bound::cross_entropy_soft(p, x, target, weight, call.plain)
                       : bound::cross_entropy(p, x, labels, weight, call.plain)}};
  const Values& dy = call.of("dy");
  return {{"dlogits", soft
                          ? bound::cross_entropy_soft_backward(p, x, target, weight, dy, call.plain)
                          : bound::cross_entropy_backward(p, x, labels, weight, dy, call.plain)}};
}

NamedBounds pointwise_loss(const Call& call, Pass pass) {
  const bool mse = call.name() == "mse";
  const oracle::Reduction r = reduction_of(call);
  const Values &x = call.of("x"), &target = call.of("target"), &dy = call.of("dy");
  if (pass == Pass::forward)
    return {{"y", mse ? bound::mse(r, x, target, call.plain)
                      : bound::bce_with_logits(r, x, target, call.plain)}};
  if (!mse)
    return {{"dx", bound::bce_with_logits_backward(r, x, target, dy, call.plain)},
            {"dtarget", bound::bce_with_logits_backward_target(r, x, dy, call.plain)}};
  // (x - t)^2 is symmetric: the target's gradient is the same with the roles changed.
  return {{"dx", bound::mse_backward(r, x, target, dy, call.plain)},
          {"dtarget", bound::mse_backward(r, target, x, dy, call.plain)}};
}

// ---- elementwise, reductions, pooling

std::optional<oracle::Unary> unary_of(const Call& call) {
  using oracle::Unary;
  const std::string_view name = call.name();
  if (name == "relu") return Unary::relu;
  if (name == "gelu") return call.p.word("approximate") == "tanh" ? Unary::gelu_tanh : Unary::gelu;
  if (name == "tanh") return Unary::tanh;
  if (name == "sigmoid") return Unary::sigmoid;
  if (name == "exp") return Unary::exp;
  if (name == "log") return Unary::log;
  return std::nullopt;
}

std::optional<oracle::Binary> binary_of(const Call& call) {
  using oracle::Binary;
  const std::string_view name = call.name();
  if (name == "add") return Binary::add;
  if (name == "sub") return Binary::sub;
  if (name == "mul") return Binary::mul;
  if (name == "div") return Binary::div;
  return std::nullopt;
}

NamedBounds binary(const Call& call, oracle::Binary f, Pass pass) {
  const Values &a = call.of("a"), &b = call.of("b");
  const Shape &shape_a = call.shape("a"), &shape_b = call.shape("b");
  if (pass == Pass::forward) return {{"y", bound::binary(f, a, shape_a, b, shape_b, call.plain)}};
  auto g = bound::binary_backward(f, a, shape_a, b, shape_b, call.of("dy"), call.plain);
  return {{"da", std::move(g.a)}, {"db", std::move(g.b)}};
}

// sum, mean, max, norm.
NamedBounds reduction(const Call& call, Pass pass) {
  using oracle::Reduce;
  const std::string_view name = call.name();
  const Reduce f = name == "sum"    ? Reduce::sum
                   : name == "mean" ? Reduce::mean
                   : name == "max"  ? Reduce::max
                                    : Reduce::norm;
  const Values& x = call.of("x");
  const Shape& shape = call.shape("x");
  const std::vector<std::int64_t> axes = call.p.axes("axis");
  if (pass == Pass::backward)
    return {{"dx", bound::reduce_backward(f, x, shape, axes, call.of("dy"), call.plain)}};
  if (f == Reduce::max || f == Reduce::norm)
    return {{"y", bound::reduce(f, x, shape, axes, call.plain)}};
  if (!call.sums.tensor_core) return {{"y", bound::reduce(f, x, shape, axes, call.sums)}};
  // Products with 1, and for the mean one division.
  Values y = oracle::reduce(f, x, shape, axes);
  const Values size = oracle::reduce(f, magnitudes(x, call.sums), shape, axes);
  const std::int64_t terms = y.empty() ? 0 : shape.numel() / static_cast<std::int64_t>(y.size());
  return {{"y", bound::products(std::move(y), size, terms, call.sums, f == Reduce::mean ? 1 : 0)}};
}

NamedBounds pool(const Call& call, Pass pass) {
  const Shape& x = call.shape("x");
  const bool average = call.name() == "avg_pool2d";
  const auto kernel = call.p.pair("kernel"), stride = call.p.pair("stride", kernel),
             pad = call.p.pair("padding");
  const oracle::Pool2dParams p{.n = x[0],
                               .h = x[1],
                               .w = x[2],
                               .c = x[3],
                               .kernel_h = kernel[0],
                               .kernel_w = kernel[1],
                               .stride_h = stride[0],
                               .stride_w = stride[1],
                               .pad_h = pad[0],
                               .pad_w = pad[1],
                               .count_include_pad = average && call.p.flag("count_include_pad")};
  const Values &v = call.of("x"), &dy = call.of("dy");
  if (pass == Pass::forward) {
    // Pooling is nothing for tensor cores, but its sums may be in fp16.
    Arithmetic sums = call.sums;
    sums.tensor_core.reset();
    return {{"y", average ? bound::avg_pool2d(p, v, sums) : bound::max_pool2d(p, v, call.plain)}};
  }
  // Windows overlap in fp32, or in fp64 where the gradient is fp64, whatever the accumulator.
  Arithmetic overlap = call.plain;
  if (call.judged.operands != DType::fp64) overlap.accumulator = kFp32;
  return {{"dx", average ? bound::avg_pool2d_backward(p, dy, overlap)
                         : bound::max_pool2d_backward(p, v, dy, overlap)}};
}

// ---- normalisation

NamedBounds named(bound::NormGradients g, const Call& call) {
  NamedBounds bounds;
  bounds["dx"] = std::move(g.x);
  if (call.has("gamma")) bounds["dgamma"] = std::move(g.gamma);
  if (call.has("beta")) bounds["dbeta"] = std::move(g.beta);
  return bounds;
}

NamedBounds layer_norm(const Call& call, Pass pass) {
  const Shape& x = call.shape("x");
  oracle::LayerNormParams p{.n = 1, .eps = call.p.number("eps")};
  const auto axes = static_cast<int>(call.p.integer("axes"));
  for (int i = x.rank() - axes; i < x.rank(); ++i) p.n *= x[i];
  p.rows = p.n == 0 ? 0 : x.numel() / p.n;
  if (pass == Pass::forward)
    return {
        {"y", bound::layer_norm(p, call.of("x"), call.of("gamma"), call.of("beta"), call.plain)}};
  return named(
      bound::layer_norm_backward(p, call.of("x"), call.of("gamma"), call.of("dy"), call.plain),
      call);
}

NamedBounds batch_norm(const Call& call, Pass pass) {
  const Shape& shape = call.shape("x");
  const int axis = shape.normalize_axis(call.p.integer("axis"), call.name());
  oracle::BatchNormParams p{.n = 1, .c = shape[axis], .eps = call.p.number("eps")};
  for (int i = 0; i < axis; ++i) p.n *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) p.l *= shape[i];
  const Values &x = call.of("x"), &gamma = call.of("gamma"), &beta = call.of("beta");
  const Values &mean = call.of("running_mean"), &var = call.of("running_var");
  const bool training = call.p.flag("training");
  if (pass == Pass::backward)
    return named(training ? bound::batch_norm_train_backward(p, x, gamma, call.of("dy"), call.plain)
                          : bound::batch_norm_eval_backward(p, x, gamma, mean, var, call.of("dy"),
                                                            call.plain),
                 call);
  NamedBounds bounds;
  if (!training) {
    bounds["y"] = bound::batch_norm_eval(p, x, gamma, beta, mean, var, call.plain);
    if (call.has("running_mean")) bounds["running_mean"] = exactly(mean);
    if (call.has("running_var")) bounds["running_var"] = exactly(var);
    return bounds;
  }
  const Values zeros(at(p.c), 0.0);
  bound::BatchNorm b = bound::batch_norm_train(p, x, gamma, beta, call.p.number("momentum"), 0,
                                               call.has("running_mean") ? mean : zeros,
                                               call.has("running_var") ? var : zeros, call.plain);
  bounds["y"] = std::move(b.y);
  // Formed in the accumulator, held in the output's format.
  for (Bound* moved : {&b.running_mean, &b.running_var})
    if (call.plain.accumulator != call.plain.output)
      for (std::size_t i = 0; i < moved->tolerance.size(); ++i)
        moved->tolerance[i] =
            rounded_tolerance(moved->reference[i], moved->tolerance[i], call.plain.output);
  if (call.has("running_mean")) bounds["running_mean"] = std::move(b.running_mean);
  if (call.has("running_var")) bounds["running_var"] = std::move(b.running_var);
  return bounds;
}

// An array that was rounded to fp32 on its way to the output's format: u32 (|v| + t) + eta32 more,
// which the last rounding sees again.
void round_through_fp32(Bound& bound, const Format& output) {
  for (std::size_t i = 0; i < bound.tolerance.size(); ++i) {
    double& t = bound.tolerance[i];
    if (t == 0) continue;  // exact in the output's format, and so in fp32
    t += (1 + output.unit_roundoff()) *
         (kFp32.unit_roundoff() * (std::abs(bound.reference[i]) + t) + kFp32.eta());
  }
}

NamedBounds bounds_of(const Call& call, Pass pass) {
  const std::string_view name = call.name();
  const bool forward = pass == Pass::forward;
  if (name == "unscale_clip") return detail::unscale_clip_bounds(call);
  if (name == "matmul") return forward ? matmul_forward(call) : matmul_backward(call);
  if (name == "linear") return forward ? linear_forward(call) : linear_backward(call);
  if (name == "conv2d") {
    if (!forward) return conv2d_backward(call);
    return {{"y", bound::conv2d(conv2d_params(call), call.of("x"), call.of("w"), call.of("b"),
                                call.products)}};
  }
  if (name == "softmax" || name == "log_softmax") {
    const auto p = softmax_params(call);
    const bool log = name == "log_softmax";
    const Values &x = call.of("x"), &dy = call.of("dy");
    if (forward)
      return {{"y", log ? bound::log_softmax(p, x, call.plain) : bound::softmax(p, x, call.plain)}};
    return {{"dx", log ? bound::log_softmax_backward(p, x, dy, call.plain, call.saved())
                       : bound::softmax_backward(p, x, dy, call.plain, call.saved())}};
  }
  if (name == "cross_entropy") return cross_entropy(call, pass);
  if (name == "mse" || name == "bce_with_logits") return pointwise_loss(call, pass);
  if (const auto f = unary_of(call)) {
    if (forward) return {{"y", bound::unary(*f, call.of("x"), call.plain)}};
    return {
        {"dx", bound::unary_backward(*f, call.of("x"), call.of("dy"), call.plain, call.saved())}};
  }
  if (const auto f = binary_of(call)) return binary(call, *f, pass);
  if (name == "max_pool2d" || name == "avg_pool2d") return pool(call, pass);
  if (name == "layer_norm") return layer_norm(call, pass);
  if (name == "batch_norm") return batch_norm(call, pass);
  if (name == "dropout") return detail::dropout_bounds(call, pass);
  if (name == "embedding") return detail::embedding_bounds(call, pass);
  if (name == "reshape" || name == "flatten" || name == "transpose")
    return detail::shape_bounds(call, pass);
  return reduction(call, pass);
}

}  // namespace

std::optional<Accumulator> device_tensor_core(Device device, int capability) {
  return device == Device::cuda ? tensor_core_of(capability) : std::nullopt;
}

std::optional<Accumulator> device_tensor_core(Device device) {
  if (device != Device::cuda) return std::nullopt;
  return device_tensor_core(device, simt::cuda_facts().capability);
}

bool on_device_core(const JudgedArithmetic& judged) {
  return judged.device_core && judged.accumulator == Accumulator::fp32 && is_16bit(judged.operands);
}

NamedBounds op_bounds(const OpParameters& parameters, const NamedTensors& inputs, const Tensor& dy,
                      const JudgedArithmetic& judged, Pass pass) {
  const Call call(parameters, inputs, dy, judged);
  NamedBounds bounds = bounds_of(call, pass);
  if (pass == Pass::backward && judged.gradients_in_fp32)
    for (auto& [name, bound] : bounds) round_through_fp32(bound, format_of(judged.output));
  return bounds;
}

}  // namespace roundoff
