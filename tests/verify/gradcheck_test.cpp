// The gradient check itself, and every operation of ops/list.h under it.
#include "verify/gradcheck.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/list.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/softmax.h"
#include "tests/verify/check_gradient.h"

using namespace roundoff;

namespace {

using In = std::span<const Tensor>;

struct Case {
  std::string_view operation;
  std::vector<GradcheckInput> inputs;
  TensorFunction f;
};

GradcheckInput random(const Shape& shape, unsigned seed) {
  return {shape, sample(shape.numel(), seed)};
}
// In (0.1, 3.1).
GradcheckInput positive(const Shape& shape, unsigned seed) {
  GradcheckInput input = random(shape, seed);
  for (double& v : input.values) v += 1.6;
  return input;
}

Tensor labels(Context& c, std::initializer_list<double> values) {
  return Tensor::from(c.allocator, {values.begin(), values.size()},
                      {static_cast<std::int64_t>(values.size())}, DType::i64);
}

std::vector<Case> elementwise_cases() {
  std::vector<Case> cases;
  const auto unary = [&](std::string_view name, const GradcheckInput& x, auto f) {
    cases.push_back({name, {x}, [f](Context& c, In in) { return f(c, in[0]); }});
  };
  const GradcheckInput x = random({3, 5}, 1);
  unary("relu", x, [](Context& c, const Tensor& t) { return relu(c, t); });
  unary("gelu", x, [](Context& c, const Tensor& t) { return gelu(c, t); });
  unary("gelu", x, [](Context& c, const Tensor& t) { return gelu(c, t, GeluKind::tanh); });
  unary("tanh", x, [](Context& c, const Tensor& t) { return roundoff::tanh(c, t); });
  unary("sigmoid", x, [](Context& c, const Tensor& t) { return sigmoid(c, t); });
  unary("exp", x, [](Context& c, const Tensor& t) { return roundoff::exp(c, t); });
  unary("log", positive({7}, 2), [](Context& c, const Tensor& t) { return roundoff::log(c, t); });
  unary("dropout", random({4, 6}, 3),
        [](Context& c, const Tensor& t) { return dropout(c, t, 0.4, 1); });

  const auto binary = [&](std::string_view name, auto f) {
    const std::pair<Shape, Shape> shapes[] = {
        {{2, 3}, {2, 3}}, {{2, 1, 3}, {4, 1}}, {{3}, {2, 3}}, {Shape{}, {2, 2}}};
    for (const auto& [a, b] : shapes)
      cases.push_back({name, {random(a, 4), positive(b, 5)}, [f](Context& c, In in) {
                         return f(c, in[0], in[1]);
                       }});
    // One tensor twice.
    cases.push_back(
        {name, {positive({3}, 6)}, [f](Context& c, In in) { return f(c, in[0], in[0]); }});
  };
  binary("add", [](Context& c, const Tensor& a, const Tensor& b) { return add(c, a, b); });
  binary("sub", [](Context& c, const Tensor& a, const Tensor& b) { return sub(c, a, b); });
  binary("mul", [](Context& c, const Tensor& a, const Tensor& b) { return mul(c, a, b); });
  binary("div",
         [](Context& c, const Tensor& a, const Tensor& b) { return roundoff::div(c, a, b); });

  unary("reshape", random({2, 6}, 7), [](Context& c, const Tensor& t) {
    return reshape(c, t, {3, -1});
  });
  unary("flatten", random({2, 3, 2}, 8),
        [](Context& c, const Tensor& t) { return flatten(c, t, 1); });
  unary("transpose", random({2, 3, 4}, 9), [](Context& c, const Tensor& t) {
    return transpose(c, t, {2, 0, 1});
  });
  cases.push_back({"embedding", {random({5, 3}, 10)}, [](Context& c, In in) {
                     return embedding(c, in[0], labels(c, {4, 0, 4, 2}));
                   }});
  return cases;
}

std::vector<Case> reduction_cases() {
  std::vector<Case> cases;
  const auto reduction = [&](std::string_view name, auto f) {
    for (const Axes& axes : {Axes{}, Axes{1}, Axes{0, -1}})
      for (const bool keepdim : {false, true})
        cases.push_back({name, {random({3, 2, 4}, 11)}, [=](Context& c, In in) {
                           return f(c, in[0], axes, keepdim);
                         }});
  };
  reduction("sum",
            [](Context& c, const Tensor& x, const Axes& a, bool k) { return sum(c, x, a, k); });
  reduction("mean",
            [](Context& c, const Tensor& x, const Axes& a, bool k) { return mean(c, x, a, k); });
  reduction("max", [](Context& c, const Tensor& x, const Axes& a, bool k) {
    return roundoff::max(c, x, a, k);
  });
  reduction("norm",
            [](Context& c, const Tensor& x, const Axes& a, bool k) { return norm(c, x, a, k); });
  for (const std::int64_t axis : {0, 1, -1}) {
    cases.push_back({"softmax", {random({2, 4, 3}, 12)}, [axis](Context& c, In in) {
                       return softmax(c, in[0], axis);
                     }});
    cases.push_back({"log_softmax", {random({2, 4, 3}, 13)}, [axis](Context& c, In in) {
                       return log_softmax(c, in[0], axis);
                     }});
  }
  for (const bool average : {false, true})
    for (const bool include : {false, true}) {
      const Pool2dParams p{
          .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = include};
      cases.push_back({average ? "avg_pool2d" : "max_pool2d",
                       {random({2, 5, 4, 2}, 14)},
                       [=](Context& c, In in) {
                         return average ? avg_pool2d(c, in[0], p) : max_pool2d(c, in[0], p);
                       }});
    }
  return cases;
}

std::vector<Case> product_cases() {
  std::vector<Case> cases;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const MatmulOptions o{.trans_a = ta, .trans_b = tb, .alpha = 1.5, .beta = -0.5};
      cases.push_back({"matmul",
                       {random(ta ? Shape{2, 4, 3} : Shape{2, 3, 4}, 15),
                        random(tb ? Shape{5, 4} : Shape{4, 5}, 16), random({2, 3, 5}, 17)},
                       [=](Context& c, In in) { return matmul(c, in[0], in[1], o, in[2]); }});
    }
  cases.push_back({"matmul",
                   {random({2, 1, 2, 3}, 18), random({4, 3, 2}, 19), random({2}, 20)},
                   [](Context& c, In in) { return matmul(c, in[0], in[1], {}, in[2]); }});
  cases.push_back({"linear",
                   {random({2, 3, 4}, 21), random({5, 4}, 22), random({5}, 23)},
                   [](Context& c, In in) { return linear(c, in[0], in[1], in[2]); }});
  cases.push_back({"linear", {random({4}, 24), random({3, 4}, 25)}, [](Context& c, In in) {
                     return linear(c, in[0], in[1]);
                   }});
  const Conv2dOptions plain{};
  const Conv2dOptions odd{.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2};
  for (const Conv2dOptions& o : {plain, odd})
    cases.push_back(
        {"conv2d",
         {random({2, 5, 4, 4}, 26), random({6, 3, 2, 4 / o.groups}, 27), random({6}, 28)},
         [o](Context& c, In in) { return conv2d(c, in[0], in[1], in[2], o); }});
  return cases;
}

std::vector<Case> norm_cases() {
  std::vector<Case> cases;
  for (const std::int64_t axes : {1, 2}) {
    const Shape normalized = axes == 1 ? Shape{4} : Shape{3, 4};
    cases.push_back(
        {"layer_norm",
         {random({2, 3, 4}, 29), random(normalized, 30), random(normalized, 31)},
         [axes](Context& c, In in) { return layer_norm(c, in[0], in[1], in[2], {.axes = axes}); }});
  }
  for (const std::int64_t axis : {1, -1})
    for (const bool training : {true, false})
      cases.push_back({"batch_norm",
                       {random({3, 4, 4}, 32), random({4}, 33), random({4}, 34)},
                       [=](Context& c, In in) {
                         const Scoped<bool> mode(c.training, training);
                         const std::vector<double> mean{0.5, -1, 0, 2}, var{1, 0.5, 2, 4};
                         return batch_norm(c, in[0], in[1], in[2],
                                           Tensor::from(c.allocator, mean, {4}, DType::fp64),
                                           Tensor::from(c.allocator, var, {4}, DType::fp64),
                                           BatchNormOptions{.axis = axis})
                             .y;
                       }});
  return cases;
}

std::vector<Case> loss_cases() {
  std::vector<Case> cases;
  for (const Reduction r : {Reduction::none, Reduction::sum, Reduction::mean}) {
    cases.push_back({"mse", {random({2, 3}, 35), random({2, 3}, 36)}, [r](Context& c, In in) {
                       return mse(c, in[0], in[1], r);
                     }});
    cases.push_back({"bce_with_logits",
                     {random({2, 3}, 37), positive({2, 3}, 38)},
                     [r](Context& c, In in) { return bce_with_logits(c, in[0], in[1], r); }});
    for (const double smoothing : {0.0, 0.2}) {
      const CrossEntropyOptions o{.label_smoothing = smoothing, .reduction = r};
      cases.push_back({"cross_entropy", {random({4, 3}, 39)}, [o](Context& c, In in) {
                         const std::vector<double> weight{0.5, 2, 1};
                         return cross_entropy(c, in[0], labels(c, {2, 0, -100, 1}), o,
                                              Tensor::from(c.allocator, weight, {3}, DType::fp64))
                             .loss;
                       }});
      cases.push_back({"cross_entropy", {random({2, 3}, 40)}, [o](Context& c, In in) {
                         const std::vector<double> q{0.7, 0.2, 0.1, 0, 0.5, 0.5};
                         return cross_entropy(c, in[0],
                                              Tensor::from(c.allocator, q, {2, 3}, DType::fp64), o)
                             .loss;
                       }});
    }
  }
  return cases;
}

// A square whose backward function may be told to be wrong by a factor.
struct Square {
  static constexpr std::string_view name = "square";
  struct Params {
    double factor;
  };
  static void forward(ForwardFrame& f) {
    Tensor& y = f.out(0, f.in(0).shape(), DType::fp64);
    for (std::int64_t i = 0; i < y.numel(); ++i)
      y.data<double>()[i] = f.in(0).data<double>()[i] * f.in(0).data<double>()[i];
    f.save(0, f.in(0));
  }
  static void backward(BackwardFrame& f) {
    const Out dx = f.grad_in(0);
    for (std::int64_t i = 0; i < dx.view.numel(); ++i) {
      const double g = f.params<Params>().factor * 2 * f.saved(0).data<double>()[i] *
                       f.grad_out(0).data<double>()[i];
      double& to = dx.view.as<double>()[i];
      to = dx.write == Write::accumulate ? to + g : g;
    }
  }
};

Tensor square(Context& c, const Tensor& x, double factor) {
  static constexpr Operation kSquare{Square::name, Square::forward, Square::backward};
  const Tensor* inputs[] = {&x};
  const Square::Params params{factor};
  return std::move(apply(c, kSquare, inputs, &params, sizeof(params))[0]);
}

}  // namespace

TEST_CASE("the gradient check accepts a right gradient and refuses one that is slightly wrong") {
  const std::vector<GradcheckInput> inputs{random({6}, 50)};
  const auto with = [](double factor) {
    return [factor](Context& c, In in) { return square(c, in[0], factor); };
  };
  const GradcheckReport right = gradcheck(with(1), inputs);
  CHECK(right.holds());
  CHECK(right.checked == 6);
  CHECK(right.blind_below < 1e-8);
  CHECK_FALSE(gradcheck(with(1 + 1e-6), inputs).holds());
  CHECK_FALSE(gradcheck(with(0), inputs).holds());
  CHECK_FALSE(gradcheck(with(std::nan("")), inputs).holds());
}

TEST_CASE("the gradient check refuses functions that it cannot check") {
  const std::vector<GradcheckInput> inputs{{{1}, {-1}}};
  CHECK_THROWS_AS(gradcheck([](Context& c, In in) { return roundoff::log(c, in[0]); }, inputs),
                  Error);
}

TEST_CASE("every operation of the list: gradients on the fp64 instantiation") {
  std::vector<Case> cases;
  for (auto group : {elementwise_cases, reduction_cases, product_cases, norm_cases, loss_cases})
    for (Case& c : group()) cases.push_back(std::move(c));
  for (const OpInfo& op : kOps) {
    INFO("operation ", op.name, " has no gradient case");
    CHECK(std::any_of(cases.begin(), cases.end(),
                      [&](const Case& c) { return c.operation == op.name; }));
  }
  for (const Case& c : cases) {
    // Gradients are fp64 here, and dropout's mask depends on nothing but its key.
    const GradcheckReport report = gradcheck(c.f, c.inputs);
    INFO(c.operation, ": ", report.worst);
    CHECK(report.holds());
    CHECK(report.checked > 0);
    CHECK(report.kinks == 0);
    CHECK(report.blind_below < 1e-6);
  }
}
