// Random compositions of operations, from a seed: what single operations cannot show (values used
// several times, broadcast gradients that meet, aliases, scratch memory that is reused).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <string>

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
#include "verify/gradcheck.h"

using namespace roundoff;

namespace {

using Operands = std::span<const Tensor>;

// A value of the composition: an input of it, or an operation on earlier values.
struct Node {
  std::vector<std::string_view> operations;  // none for an input
  std::vector<std::size_t> operands;
  std::function<Tensor(Context&, Operands)> run;
};

class Composition {
 public:
  explicit Composition(std::uint64_t seed) : generator_(seed), no_grad_(context_) {
    add_input(pick(3) != 0 ? Shape{2, 4, 3, 2} : Shape{3, 4});
    for (int attempt = 0; attempt < 60 && operations_ < 8; ++attempt) grow();
  }

  const std::vector<GradcheckInput>& inputs() const { return inputs_; }
  std::string text() const {
    std::string s;
    for (const Node& node : nodes_)
      for (const std::string_view name : node.operations) s.append(" ").append(name);
    return s;
  }
  std::set<std::string_view> operations() const {
    std::set<std::string_view> all;
    for (const Node& node : nodes_) all.insert(node.operations.begin(), node.operations.end());
    return all;
  }

  Tensor operator()(Context& context, Operands inputs) const {
    std::vector<Tensor> values;
    std::size_t next_input = 0;
    for (const Node& node : nodes_) {
      if (node.operations.empty())
        values.push_back(inputs[next_input++]);
      else
        values.push_back(run(context, node, values));
    }
    return values[last_];
  }

 private:
  std::size_t pick(std::size_t n) { return generator_() % n; }
  bool coin() { return pick(2) == 0; }

  std::size_t add_input(const Shape& shape) {
    GradcheckInput x{shape, {}};
    std::uniform_real_distribution<double> distribution(-1.5, 1.5);
    for (std::int64_t i = 0; i < shape.numel(); ++i) x.values.push_back(distribution(generator_));
    values_.push_back(Tensor::from(context_.allocator, x.values, shape, DType::fp64));
    inputs_.push_back(std::move(x));
    nodes_.push_back({});
    return nodes_.size() - 1;
  }

  static Tensor run(Context& context, const Node& node, const std::vector<Tensor>& values) {
    std::vector<Tensor> operands;
    for (const std::size_t i : node.operands) operands.push_back(values[i]);
    return node.run(context, operands);
  }

  // Appends a random operation on the last value, unless it does not fit or its values grow large.
  void grow() {
    const std::size_t nodes = nodes_.size();
    const std::size_t inputs = inputs_.size();
    const Node node = random_node();
    std::optional<Tensor> value;
    try {
      if (node.run) value = run(context_, node, values_);
    } catch (const Error&) {
      // A shape that the operation does not take; try another.
    }
    const auto tame = [](const std::vector<double>& v) {
      return std::all_of(v.begin(), v.end(), [](double x) { return std::abs(x) <= 100; });
    };
    if (!value || value->numel() == 0 || value->numel() > 200 || !tame(value->to_vector())) {
      nodes_.resize(nodes);
      values_.resize(nodes);
      inputs_.resize(inputs);
      return;
    }
    nodes_.push_back(node);
    values_.push_back(*value);
    last_ = nodes_.size() - 1;
    ++operations_;
  }

  Node random_node();
  Node elementwise_node();
  Node reduction_node();
  Node product_node();
  Node loss_node();
  const Shape& shape() const { return values_[last_].shape(); }

  std::mt19937_64 generator_;
  Context context_;  // in which the composition is tried out while it grows
  NoGrad no_grad_;
  std::vector<GradcheckInput> inputs_;
  std::vector<Node> nodes_;
  std::vector<Tensor> values_;
  std::size_t last_ = 0;
  int operations_ = 0;
};

Node Composition::elementwise_node() {
  const std::size_t x = last_;
  const std::size_t other = pick(nodes_.size());
  const auto unary = [&](std::string_view name, auto f) {
    return Node{{name}, {x}, [f](Context& c, Operands in) { return f(c, in[0]); }};
  };
  const auto binary = [&](std::string_view name, auto f) {
    // Either order: the earlier value may be the one that is broadcast.
    std::vector<std::size_t> operands{x, other};
    if (coin()) std::swap(operands[0], operands[1]);
    return Node{{name}, operands, [f](Context& c, Operands in) { return f(c, in[0], in[1]); }};
  };
  switch (pick(12)) {
    case 0:
      return unary("relu", [](Context& c, const Tensor& t) { return relu(c, t); });
    case 1:
      return unary("gelu", [](Context& c, const Tensor& t) { return gelu(c, t); });
    case 2:
      return unary("gelu", [](Context& c, const Tensor& t) { return gelu(c, t, GeluKind::tanh); });
    case 3:
      return unary("tanh", [](Context& c, const Tensor& t) { return roundoff::tanh(c, t); });
    case 4:
      return unary("sigmoid", [](Context& c, const Tensor& t) { return sigmoid(c, t); });
    case 5:
      return unary("exp", [](Context& c, const Tensor& t) { return roundoff::exp(c, t); });
    case 6:
      return Node{{"sigmoid", "log"}, {x}, [](Context& c, Operands in) {
                    return roundoff::log(c, sigmoid(c, in[0]));
                  }};
    case 7:
      return binary("add",
                    [](Context& c, const Tensor& a, const Tensor& b) { return add(c, a, b); });
    case 8:
      return binary("sub",
                    [](Context& c, const Tensor& a, const Tensor& b) { return sub(c, a, b); });
    case 9:
      return binary("mul",
                    [](Context& c, const Tensor& a, const Tensor& b) { return mul(c, a, b); });
    case 10: {
      // A divisor away from 0.
      Node node = binary("div", [](Context& c, const Tensor& a, const Tensor& b) {
        return roundoff::div(c, a, roundoff::exp(c, roundoff::tanh(c, b)));
      });
      node.operations = {"div", "exp", "tanh"};
      return node;
    }
    default: {
      const auto tensor = static_cast<std::uint32_t>(nodes_.size());
      return unary("dropout",
                   [tensor](Context& c, const Tensor& t) { return dropout(c, t, 0.3, tensor); });
    }
  }
}

Node Composition::reduction_node() {
  const std::size_t x = last_;
  const int rank = shape().rank();
  if (rank == 0) return {};
  const auto axis = static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  const bool keepdim = coin();
  const auto along = [&](std::string_view name, auto f) {
    return Node{{name}, {x}, [=](Context& c, Operands in) { return f(c, in[0], axis, keepdim); }};
  };
  const std::int64_t width = shape()[-1];
  switch (pick(10)) {
    case 0:
      return along("sum", [](Context& c, const Tensor& t, std::int64_t a, bool k) {
        return sum(c, t, a, k);
      });
    case 1:
      return along("mean", [](Context& c, const Tensor& t, std::int64_t a, bool k) {
        return mean(c, t, a, k);
      });
    case 2:
      return along("max", [](Context& c, const Tensor& t, std::int64_t a, bool k) {
        return roundoff::max(c, t, a, k);
      });
    case 3:
      return along("norm", [](Context& c, const Tensor& t, std::int64_t a, bool k) {
        return norm(c, t, a, k);
      });
    case 4:
      return along("softmax", [](Context& c, const Tensor& t, std::int64_t a, bool) {
        return softmax(c, t, a);
      });
    case 5:
      return along("log_softmax", [](Context& c, const Tensor& t, std::int64_t a, bool) {
        return log_softmax(c, t, a);
      });
    case 6: {
      const std::size_t gamma = add_input({width}), beta = add_input({width});
      return {{"layer_norm"}, {x, gamma, beta}, [](Context& c, Operands in) {
                return layer_norm(c, in[0], in[1], in[2], {.eps = 0.1});
              }};
    }
    case 7: {
      const std::size_t gamma = add_input({width}), beta = add_input({width});
      return {{"batch_norm"}, {x, gamma, beta}, [](Context& c, Operands in) {
                return batch_norm(c, in[0], in[1], in[2], Tensor(), Tensor(),
                                  BatchNormOptions{.eps = 0.1})
                    .y;
              }};
    }
    case 8:
      if (coin())
        return {{"reshape"}, {x}, [width](Context& c, Operands in) {
                  return reshape(c, in[0], {-1, width});
                }};
      return {{"flatten"}, {x}, [](Context& c, Operands in) { return flatten(c, in[0], 0); }};
    default:
      return {{"transpose"}, {x}, [](Context& c, Operands in) { return transpose(c, in[0]); }};
  }
}

Node Composition::product_node() {
  const std::size_t x = last_;
  const int rank = shape().rank();
  if (rank == 0) return {};
  const std::int64_t width = shape()[-1];
  const auto out = static_cast<std::int64_t>(1 + pick(4));
  if (rank == 4 && pick(4) != 0) {
    const bool average = coin();
    if (coin()) {
      const Pool2dParams p{.kernel = {2, 2}, .stride = {1, 2}, .padding = {1, 0}};
      return {{average ? "avg_pool2d" : "max_pool2d"}, {x}, [=](Context& c, Operands in) {
                return average ? avg_pool2d(c, in[0], p) : max_pool2d(c, in[0], p);
              }};
    }
    const std::size_t w = add_input({out, 3, 2, width}), b = add_input({out});
    const Conv2dOptions o{.stride = {2, 1}, .padding = {1, 1}};
    return {{"conv2d"}, {x, w, b}, [o](Context& c, Operands in) {
              return conv2d(c, in[0], in[1], in[2], o);
            }};
  }
  if (coin()) {
    const std::size_t w = add_input({out, width}), b = add_input({out});
    return {{"linear"}, {x, w, b}, [](Context& c, Operands in) {
              return linear(c, in[0], in[1], in[2]);
            }};
  }
  if (coin())
    return {{"matmul"}, {x, x}, [](Context& c, Operands in) {
              return matmul(c, in[0], in[1], {.trans_b = true, .alpha = 0.5});
            }};
  const std::size_t w = add_input({width, out});
  return {{"matmul"}, {x, w}, [](Context& c, Operands in) { return matmul(c, in[0], in[1]); }};
}

Node Composition::loss_node() {
  const std::size_t x = last_;
  const int rank = shape().rank();
  const Reduction r = coin() ? Reduction::none : Reduction::mean;
  switch (pick(4)) {
    case 0: {
      const std::size_t target = add_input(shape());
      return {
          {"mse"}, {x, target}, [r](Context& c, Operands in) { return mse(c, in[0], in[1], r); }};
    }
    case 1: {
      const std::size_t target = add_input(shape());
      return {{"bce_with_logits"}, {x, target}, [r](Context& c, Operands in) {
                return bce_with_logits(c, in[0], in[1], r);
              }};
    }
    case 2: {
      if (rank == 0) return {};
      const std::int64_t classes = shape()[rank - 1];
      std::vector<std::int64_t> extents(shape().extents().begin(), shape().extents().end() - 1);
      const Shape rows(extents);
      std::vector<double> labels;
      for (std::int64_t i = 0; i < rows.numel(); ++i)
        labels.push_back(
            pick(5) == 0 ? -100.0 : static_cast<double>(pick(static_cast<std::size_t>(classes))));
      return {{"cross_entropy"}, {x}, [=](Context& c, Operands in) {
                return cross_entropy(c, in[0], Tensor::from(c.allocator, labels, rows, DType::i64),
                                     {.label_smoothing = 0.1, .reduction = r})
                    .loss;
              }};
    }
    default: {
      if (rank != 2) return {};
      const std::int64_t rows = shape()[0];
      return {{"embedding"}, {x}, [rows](Context& c, Operands in) {
                const std::vector<double> index{0, static_cast<double>(rows - 1), 0};
                return embedding(c, in[0], Tensor::from(c.allocator, index, {3}, DType::i64));
              }};
    }
  }
}

Node Composition::random_node() {
  switch (pick(8)) {
    case 0:
    case 1:
    case 2:
      return elementwise_node();
    case 3:
    case 4:
      return reduction_node();
    case 5:
    case 6:
      return product_node();
    default:
      return loss_node();
  }
}

void check_seeds(std::uint64_t first, std::uint64_t last) {
  std::set<std::string_view> seen;
  for (std::uint64_t seed = first; seed < last; ++seed) {
    const Composition composition(seed);
    const GradcheckReport report =
        gradcheck([&](Context& c, Operands in) { return composition(c, in); }, composition.inputs(),
                  {.seed = seed});
    INFO("seed ", seed, ":", composition.text(), ": ", report.worst);
    CHECK(report.holds());
    for (const std::string_view name : composition.operations()) seen.insert(name);
  }
  for (const OpInfo& op : kOps) {
    INFO("operation ", op.name, " is in no composition");
    CHECK(seen.count(op.name) == 1);
  }
}

}  // namespace

TEST_CASE("random compositions of operations: gradients on the fp64 instantiation") {
  check_seeds(0, 60);
}

TEST_SUITE("full") {
  TEST_CASE("many random compositions of operations") { check_seeds(1000, 3000); }
}
