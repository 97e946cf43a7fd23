// The engine's operations in fp64, fp32, fp16 and bf16, forward and backward through the tape,
// against the oracles within the bounds: what a person judges with `roundoff op`.
#include <numeric>

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/verify/rounding.h"

using namespace roundoff;
using oracle::Values;

namespace {

constexpr DType kStorage[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

// fp64 operands are computed in fp64, all others in fp32.
DType wide(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }
// Of the value in `dtype`, and of its gradient, or a loss, in the wide type.
Arithmetic value_in(DType dtype) {
  return {.accumulator = format_of(wide(dtype)), .output = format_of(dtype)};
}
Arithmetic gradient_in(DType dtype) {
  return {.accumulator = format_of(wide(dtype)), .output = format_of(wide(dtype))};
}

struct Operand {
  Shape shape;
  Values values;
};
Operand random(const Shape& shape, DType dtype, unsigned seed, double scale = 1) {
  return {shape, normal(shape.numel(), dtype, seed, scale)};
}

void check_tensor(std::string_view what, const Tensor& t, const Bound& bound) {
  const Comparison c = compare(t.view(), bound);
  INFO(what, ", ", name(t.dtype()), ", ", bound.kind_name(), ": ", describe(c));
  CHECK(c.holds);
}

// Runs f on leaves of `dtype`, compares y with its bound and, for the gradient dy of y, each leaf's
// gradient, which is fp32 or wider, with its own.
template <class F>
void check_op(std::string_view what, DType dtype, const std::vector<Operand>& operands, F f,
              const Values& dy, const Bound& y_bound, const std::vector<Bound>& gradients) {
  Context context;
  std::vector<Tensor> leaves;
  for (const Operand& o : operands)
    leaves.push_back(
        make_leaf(context.allocator, Tensor::from(context.allocator, o.values, o.shape, dtype)));
  const Tensor y = f(context, leaves);
  check_tensor(what, y, y_bound);
  context.tape.backward(context, y, Tensor::from(context.allocator, dy, y.shape(), y.dtype()));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Tensor& grad = leaves[i].leaf()->grad;
    REQUIRE(grad.dtype() == wide(dtype));
    check_tensor(concat(what, ", gradient ", i), grad, gradients[i]);
  }
}

using Leaves = const std::vector<Tensor>&;

}  // namespace

TEST_CASE("the engine within the bounds: products and convolution") {
  for (const DType dtype : kStorage) {
    const Arithmetic gradient = gradient_in(dtype);
    const oracle::MatmulParams p{.batch = 2, .m = 5, .n = 9, .k = 70, .trans_b = true};
    const Operand a = random({2, 5, 70}, dtype, 1), b = random({2, 9, 70}, dtype, 2);
    const Values dy = normal(90, dtype, 3);
    const auto g = bound::matmul_backward(p, a.values, b.values, dy, gradient);
    check_op("matmul", dtype, {a, b},
             [](Context& c, Leaves in) { return matmul(c, in[0], in[1], {.trans_b = true}); }, dy,
             bound::matmul(p, a.values, b.values, {}, value_in(dtype)), {g.a, g.b});

    const oracle::Conv2dParams q{.n = 2,
                                 .h = 9,
                                 .w = 8,
                                 .c = 4,
                                 .k = 6,
                                 .r = 3,
                                 .s = 3,
                                 .stride_h = 2,
                                 .stride_w = 1,
                                 .pad_h = 1,
                                 .pad_w = 2,
                                 .dilation_w = 2,
                                 .groups = 2};
    const Operand x = random({2, 9, 8, 4}, dtype, 4), w = random({6, 3, 3, 2}, dtype, 5),
                  bias = random({6}, dtype, 6);
    const Values dz = normal(q.y_size(), dtype, 7);
    check_op(
        "conv2d", dtype, {x, w, bias},
        [](Context& c, Leaves in) {
          return conv2d(c, in[0], in[1], in[2],
                        {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2});
        },
        dz, bound::conv2d(q, x.values, w.values, bias.values, value_in(dtype)),
        {bound::conv2d_dgrad(q, w.values, dz, gradient),
         bound::conv2d_wgrad(q, x.values, dz, gradient), bound::conv2d_bias_grad(q, dz, gradient)});
  }
}

TEST_CASE("the engine within the bounds: element-wise functions") {
  for (const DType dtype : kStorage) {
    const Arithmetic gradient = gradient_in(dtype);
    Arithmetic forward = value_in(dtype);
    Arithmetic backward = gradient;
    // The largest errors that the GNU C library lists for fp32 (erfc) are a few ulp.
    forward.libm_ulps = backward.libm_ulps = 4;
    const auto unary = [&](oracle::Unary f, auto op) {
      Operand x = random({300}, dtype, 8, 3);
      if (f == oracle::Unary::log)
        for (double& v : x.values) v = v == 0 ? 1 : std::abs(v);
      const Values dy = normal(300, dtype, 9);
      check_op(concat("unary ", static_cast<int>(f)), dtype, {x},
               [op](Context& c, Leaves in) { return op(c, in[0]); }, dy,
               bound::unary(f, x.values, forward),
               {bound::unary_backward(f, x.values, dy, backward, format_of(dtype))});
    };
    using oracle::Unary;
    unary(Unary::relu, [](Context& c, const Tensor& t) { return relu(c, t); });
    unary(Unary::gelu, [](Context& c, const Tensor& t) { return gelu(c, t); });
    unary(Unary::gelu_tanh, [](Context& c, const Tensor& t) { return gelu(c, t, GeluKind::tanh); });
    unary(Unary::tanh, [](Context& c, const Tensor& t) { return roundoff::tanh(c, t); });
    unary(Unary::sigmoid, [](Context& c, const Tensor& t) { return sigmoid(c, t); });
    unary(Unary::exp, [](Context& c, const Tensor& t) { return roundoff::exp(c, t); });
    unary(Unary::log, [](Context& c, const Tensor& t) { return roundoff::log(c, t); });

    const auto binary = [&](oracle::Binary f, auto op) {
      const Operand a = random({40, 1, 3}, dtype, 10), b = random({7, 1}, dtype, 11);
      const Values dy = normal(840, dtype, 12);
      const auto g = bound::binary_backward(f, a.values, a.shape, b.values, b.shape, dy, gradient);
      check_op(concat("binary ", static_cast<int>(f)), dtype, {a, b},
               [op](Context& c, Leaves in) { return op(c, in[0], in[1]); }, dy,
               bound::binary(f, a.values, a.shape, b.values, b.shape, value_in(dtype)), {g.a, g.b});
    };
    using oracle::Binary;
    binary(Binary::add, [](Context& c, const Tensor& a, const Tensor& b) { return add(c, a, b); });
    binary(Binary::sub, [](Context& c, const Tensor& a, const Tensor& b) { return sub(c, a, b); });
    binary(Binary::mul, [](Context& c, const Tensor& a, const Tensor& b) { return mul(c, a, b); });
    binary(Binary::div,
           [](Context& c, const Tensor& a, const Tensor& b) { return roundoff::div(c, a, b); });

    const Operand table = random({5, 4}, dtype, 13);
    const std::vector<std::int64_t> index{3, 0, 3, 3};
    const Values dy = normal(16, dtype, 14);
    check_op("embedding", dtype, {table},
             [](Context& c, Leaves in) {
               const std::vector<double> rows{3, 0, 3, 3};
               return embedding(c, in[0], Tensor::from(c.allocator, rows, {4}, DType::i64));
             },
             dy, bound::embedding(5, 4, table.values, index, value_in(dtype)),
             {bound::embedding_backward(5, 4, index, dy, gradient)});
  }
}

TEST_CASE("the engine within the bounds: reductions and pooling") {
  for (const DType dtype : kStorage) {
    const Arithmetic gradient = gradient_in(dtype);
    const Operand x = random({6, 50, 8}, dtype, 15);
    const std::vector<std::int64_t> axes{1};
    const auto reduction = [&](oracle::Reduce f, auto op) {
      const Values dy = normal(48, dtype, 16);
      check_op(concat("reduce ", static_cast<int>(f)), dtype, {x},
               [op](Context& c, Leaves in) { return op(c, in[0]); }, dy,
               bound::reduce(f, x.values, x.shape, axes, value_in(dtype)),
               {bound::reduce_backward(f, x.values, x.shape, axes, dy, gradient)});
    };
    using oracle::Reduce;
    reduction(Reduce::sum, [](Context& c, const Tensor& t) { return sum(c, t, 1); });
    reduction(Reduce::mean, [](Context& c, const Tensor& t) { return mean(c, t, 1); });
    reduction(Reduce::max, [](Context& c, const Tensor& t) { return roundoff::max(c, t, 1); });
    reduction(Reduce::norm, [](Context& c, const Tensor& t) { return norm(c, t, 1); });

    const Operand image = random({2, 9, 7, 3}, dtype, 17);
    oracle::Pool2dParams p{.n = 2,
                           .h = 9,
                           .w = 7,
                           .c = 3,
                           .kernel_h = 3,
                           .kernel_w = 2,
                           .stride_h = 2,
                           .stride_w = 1,
                           .pad_h = 1,
                           .pad_w = 1};
    for (const bool include : {true, false}) {
      p.count_include_pad = include;
      const Pool2dParams q{
          .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = include};
      const Values dy = normal(p.y_size(), dtype, 18);
      check_op("avg_pool2d", dtype, {image},
               [q](Context& c, Leaves in) { return avg_pool2d(c, in[0], q); }, dy,
               bound::avg_pool2d(p, image.values, value_in(dtype)),
               {bound::avg_pool2d_backward(p, dy, gradient)});
      check_op("max_pool2d", dtype, {image},
               [q](Context& c, Leaves in) { return max_pool2d(c, in[0], q); }, dy,
               bound::max_pool2d(p, image.values, value_in(dtype)),
               {bound::max_pool2d_backward(p, image.values, dy, gradient)});
    }
  }
}

TEST_CASE("the engine within the bounds: softmax and losses") {
  for (const DType dtype : kStorage) {
    const Arithmetic gradient = gradient_in(dtype);
    const Operand x = random({12, 30}, dtype, 19, 5);
    const oracle::SoftmaxParams rows{.outer = 12, .n = 30};
    const Values dy = normal(360, dtype, 20);
    check_op("softmax", dtype, {x}, [](Context& c, Leaves in) { return softmax(c, in[0]); }, dy,
             bound::softmax(rows, x.values, value_in(dtype)),
             {bound::softmax_backward(rows, x.values, dy, gradient, format_of(dtype))});
    check_op("log_softmax", dtype, {x}, [](Context& c, Leaves in) { return log_softmax(c, in[0]); },
             dy, bound::log_softmax(rows, x.values, value_in(dtype)),
             {bound::log_softmax_backward(rows, x.values, dy, gradient, format_of(dtype))});

    std::vector<double> labels(12);
    std::iota(labels.begin(), labels.end(), 3);
    labels[5] = -100;
    const std::vector<std::int64_t> target(labels.begin(), labels.end());
    Values weight = normal(30, DType::fp32, 21);
    for (double& v : weight) v = std::abs(v);
    // Everything in fp32: losses do not round to 16 bit.
    for (const Reduction r : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const auto reduction = static_cast<oracle::Reduction>(r);
      const Values seed = r == Reduction::none ? normal(12, DType::fp32, 22) : Values{3};
      for (const double smoothing : {0.0, 0.1}) {
        const oracle::CrossEntropyParams p{
            .rows = 12, .classes = 30, .label_smoothing = smoothing, .reduction = reduction};
        check_op("cross_entropy", dtype, {x},
                 [&](Context& c, Leaves in) {
                   return cross_entropy(c, in[0],
                                        Tensor::from(c.allocator, labels, {12}, DType::i64),
                                        {.label_smoothing = smoothing, .reduction = r},
                                        Tensor::from(c.allocator, weight, {30}, DType::fp32))
                       .loss;
                 },
                 seed, bound::cross_entropy(p, x.values, target, weight, gradient),
                 {bound::cross_entropy_backward(p, x.values, target, weight, seed, gradient)});
      }
      const Operand t = random({12, 30}, dtype, 23);
      Values q = t.values;
      for (double& v : q) v = std::abs(v);
      const Operand probability{{12, 30}, q};
      const Values item_seed = r == Reduction::none ? normal(360, DType::fp32, 24) : Values{3};
      check_op("mse", dtype, {x, t}, [r](Context& c, Leaves in) { return mse(c, in[0], in[1], r); },
               item_seed, bound::mse(reduction, x.values, t.values, gradient),
               {bound::mse_backward(reduction, x.values, t.values, item_seed, gradient)});
      check_op("bce_with_logits", dtype, {x, probability},
               [r](Context& c, Leaves in) { return bce_with_logits(c, in[0], in[1], r); },
               item_seed, bound::bce_with_logits(reduction, x.values, q, gradient),
               {bound::bce_with_logits_backward(reduction, x.values, q, item_seed, gradient)});
    }
  }
}

TEST_CASE("the engine within the bounds: normalisation") {
  for (const DType dtype : kStorage)
    for (const double mean : {0.0, 30.0}) {
      const Arithmetic gradient = gradient_in(dtype);
      Operand x = random({20, 32}, dtype, 25);
      for (double& v : x.values) v = round_to_format(v + mean, format_of(dtype)).value;
      const Operand gamma = random({32}, dtype, 26), beta = random({32}, dtype, 27);
      const Values dy = normal(640, dtype, 28);
      const oracle::LayerNormParams p{.rows = 20, .n = 32};
      const auto g = bound::layer_norm_backward(p, x.values, gamma.values, dy, gradient);
      check_op("layer_norm", dtype, {x, gamma, beta},
               [](Context& c, Leaves in) { return layer_norm(c, in[0], in[1], in[2]); }, dy,
               bound::layer_norm(p, x.values, gamma.values, beta.values, value_in(dtype)),
               {g.x, g.gamma, g.beta});

      const oracle::BatchNormParams b{.n = 20, .c = 32};
      const Values rm = normal(32, DType::fp32, 29);
      Values rv = normal(32, DType::fp32, 30);
      for (double& v : rv) v = std::abs(v) + 0.5;
      for (double& v : rv) v = static_cast<double>(static_cast<float>(v));
      for (const bool training : {true, false}) {
        const auto bg =
            training
                ? bound::batch_norm_train_backward(b, x.values, gamma.values, dy, gradient)
                : bound::batch_norm_eval_backward(b, x.values, gamma.values, rm, rv, dy, gradient);
        const auto train = bound::batch_norm_train(b, x.values, gamma.values, beta.values, 0.1, 0,
                                                   rm, rv, value_in(dtype));
        check_op("batch_norm", dtype, {x, gamma, beta},
                 [&](Context& c, Leaves in) {
                   c.training = training;
                   const auto result = batch_norm(c, in[0], in[1], in[2],
                                                  Tensor::from(c.allocator, rm, {32}, wide(dtype)),
                                                  Tensor::from(c.allocator, rv, {32}, wide(dtype)));
                   if (training) {
                     check_tensor("running mean", result.running_mean, train.running_mean);
                     check_tensor("running variance", result.running_var, train.running_var);
                   }
                   return result.y;
                 },
                 dy,
                 training ? train.y
                          : bound::batch_norm_eval(b, x.values, gamma.values, beta.values, rm, rv,
                                                   value_in(dtype)),
                 {bg.x, bg.gamma, bg.beta});
      }
    }
}
