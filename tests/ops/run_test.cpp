// Operations by name: every one forward and backward in every dtype, accumulator and output dtype
// within its bound, and what a call may not say.
#include "ops/run.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <set>

#include "ops/list.h"
#include "tests/verify/rounding.h"
#include "verify/compare.h"
#include "verify/reference.h"

using namespace roundoff;
using Given = std::map<std::string, std::string>;

namespace {

struct Array {
  Shape shape;
  double scale = 1;
  double shift = 0;
  bool positive = false;
};

struct Case {
  std::string_view operation;
  Given parameters;
  std::map<std::string, Array> inputs;
  std::vector<double> labels = {};  // the input "target", instead of floating values
};

std::vector<Case> cases() {
  std::vector<Case> all{
      {"matmul", {}, {{"a", {{2, 5, 40}}}, {"b", {{40, 7}}}}},
      {"matmul",
       {{"trans_a", "true"}, {"trans_b", "1"}, {"alpha", "0.5"}, {"beta", "2"}},
       {{"a", {{3, 1, 40, 5}}}, {"b", {{2, 7, 40}}}, {"c", {{7}}}}},
      {"matmul",
       {{"alpha", "-1"}, {"beta", "0"}},
       {{"a", {{5, 9}}}, {"b", {{9, 7}}}, {"c", {{5, 7}}}}},
      {"matmul", {}, {{"a", {{2, 3, 4}}}, {"b", {{2, 4, 5}}}, {"c", {{2, 3, 5}}}}},
      {"linear", {}, {{"x", {{2, 5, 40}}}, {"w", {{7, 40}}}, {"b", {{7}}}}},
      {"conv2d",
       {{"stride", "2,1"}, {"padding", "1,2"}, {"dilation", "1,2"}, {"groups", "2"}},
       {{"x", {{2, 9, 8, 4}}}, {"w", {{6, 3, 3, 2}}}, {"b", {{6}}}}},
      {"softmax", {{"axis", "1"}}, {{"x", {{4, 9, 3}, 3}}}},
      {"log_softmax", {}, {{"x", {{4, 9}, 3}}}},
      {"cross_entropy",
       {{"label_smoothing", "0.1"}},
       {{"logits", {{6, 9}, 3}}},
       {0, 3, 8, -100, 2, 1}},
      {"cross_entropy",
       {{"reduction", "none"}},
       {{"logits", {{6, 9}, 3}}, {"weight", {{9}, 1, 0, true}}},
       {0, 3, 8, -100, 2, 1}},
      {"cross_entropy",
       {{"reduction", "sum"}},
       {{"logits", {{6, 9}, 3}}, {"target", {{6, 9}, 1, 0, true}}}},
      {"max_pool2d",
       {{"kernel", "3,2"}, {"stride", "2,1"}, {"padding", "1"}},
       {{"x", {{2, 9, 7, 3}}}}},
      {"avg_pool2d",
       {{"kernel", "3,2"}, {"stride", "2,1"}, {"padding", "1"}, {"count_include_pad", "0"}},
       {{"x", {{2, 9, 7, 3}}}}},
      {"avg_pool2d", {}, {{"x", {{2, 8, 6, 3}}}}},
      {"layer_norm",
       {{"eps", "1e-6"}},
       {{"x", {{6, 30}, 1, 5}}, {"gamma", {{30}}}, {"beta", {{30}}}}},
      {"layer_norm", {{"axes", "2"}}, {{"x", {{6, 3, 10}, 1, 5}}}},
      {"batch_norm",
       {},
       {{"x", {{6, 30}, 1, 5}},
        {"gamma", {{30}}},
        {"beta", {{30}}},
        {"running_mean", {{30}}},
        {"running_var", {{30}, 1, 0, true}}}},
      {"batch_norm",
       {{"training", "false"}, {"axis", "1"}},
       {{"x", {{6, 3, 10}}}, {"running_mean", {{3}}}, {"running_var", {{3}, 1, 1, true}}}},
      {"dropout",
       {{"p", "0.3"}, {"seed", "5"}, {"step", "2"}, {"tensor", "1"}, {"sample0", "7"}},
       {{"x", {{6, 30}}}}},
      {"embedding", {{"padding_index", "-2"}}, {{"table", {{5, 7}}}}, {4, 0, 3, 4, 4, 1}},
      {"reshape", {{"shape", "4,-1"}}, {{"x", {{2, 6, 3}}}}},
      {"flatten", {{"first", "1"}}, {{"x", {{2, 6, 3}}}}},
      {"transpose", {{"axes", "1,-1,0"}}, {{"x", {{2, 6, 3}}}}},
      {"transpose", {}, {{"x", {{5, 6}}}}},
      {"unscale_clip",
       {{"scale", "1024"}, {"max_norm", "0.01"}},
       {{"g0", {{30}}}, {"g1", {{0}}}, {"g3", {{4, 5}}}}},
      {"unscale_clip", {{"scale", "3"}}, {{"g0", {{30}}}}},
  };
  for (const std::string_view loss : {"mse", "bce_with_logits"})
    for (const char* reduction : {"none", "sum", "mean"})
      all.push_back({loss,
                     {{"reduction", reduction}},
                     {{"x", {{6, 9}, 3}}, {"target", {{6, 9}, 1, 0, true}}}});
  for (const std::string_view f : {"relu", "gelu", "tanh", "sigmoid", "exp"})
    all.push_back({f, {}, {{"x", {{100}, 2}}}});
  all.push_back({"gelu", {{"approximate", "tanh"}}, {{"x", {{100}, 2}}}});
  all.push_back({"log", {}, {{"x", {{100}, 1, 0.125, true}}}});
  for (const std::string_view f : {"sum", "mean", "max", "norm"}) {
    all.push_back({f, {{"axis", "0,-1"}}, {{"x", {{6, 30, 4}}}}});
    all.push_back({f, {{"keepdim", "true"}}, {{"x", {{6, 30}}}}});
  }
  for (const std::string_view f : {"add", "sub", "mul", "div"})
    all.push_back({f, {}, {{"a", {{6, 1, 4}}}, {"b", {{5, 1}}}}});
  return all;
}

// Operands of `dtype`; statistics in fp32, or fp64.
NamedTensors make_inputs(Context& context, const Case& c, const OpSignature& s, DType dtype) {
  NamedTensors inputs;
  unsigned seed = 1;
  for (const auto& [name, a] : c.inputs) {
    const bool statistic = input_role(s, name) == InputRole::statistic;
    const DType own = statistic && dtype != DType::fp64 ? DType::fp32 : dtype;
    std::vector<double> v = normal(a.shape.numel(), own, seed++, a.scale);
    for (double& x : v)
      x = round_to_format((a.positive ? std::abs(x) : x) + a.shift, format_of(own)).value;
    inputs[name] = Tensor::from(context.allocator, v, a.shape, own);
  }
  if (!c.labels.empty())
    inputs[c.operation == "embedding" ? "index" : "target"] = Tensor::from(
        context.allocator, c.labels, {static_cast<std::int64_t>(c.labels.size())}, DType::i64);
  return inputs;
}

void check_within(std::string_view what, const Tensor& t, const Bound& bound) {
  const Comparison c = compare(t.view(), bound);
  INFO(what, ", ", name(t.dtype()), ", ", bound.kind_name(), ": ", describe(c));
  CHECK(c.holds);
}

struct Setting {
  DType dtype;
  Accumulator accumulator;
  std::optional<DType> output = {};
};

void check_call(const Case& c, const Setting& s) {
  INFO(c.operation, " in ", name(s.dtype), ", accumulator ", name(s.accumulator));
  Context context;
  context.accumulator = s.accumulator;
  context.output_dtype = s.output;
  const OpSignature& signature = op_signature(c.operation);
  const OpParameters parameters(signature, c.parameters);
  const NamedTensors inputs = make_inputs(context, c, signature, s.dtype);
  const DType wide = s.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  JudgedArithmetic judged{.accumulator = s.accumulator, .operands = s.dtype};
  Tensor dy;
  if (!signature.numbered()) {
    Context shapes;
    const Shape shape = run_op(shapes, parameters, inputs).outputs["y"].shape();
    const DType seed = signature.loss ? wide : s.dtype;
    dy = Tensor::from(context.allocator, normal(shape.numel(), seed, 99), shape, seed);
  }
  const OpResult result = run_op(context, parameters, inputs, dy);
  const DType y_dtype = s.output.value_or(signature.loss ? wide : s.dtype);
  if (!signature.numbered()) CHECK(result.outputs.find("y")->second.dtype() == y_dtype);
  judged.saved = y_dtype;
  for (const auto& [name, tensor] : result.outputs) {
    judged.output = tensor.dtype();
    check_within(name, tensor, op_bounds(parameters, inputs, dy, judged, Pass::forward).at(name));
  }
  if (!dy.defined()) return;
  std::size_t operands = 0;
  for (const InputInfo& i : signature.inputs)
    operands += i.role == InputRole::operand && inputs.count(i.name) != 0 ? 1 : 0;
  CHECK(result.gradients.size() == operands);
  judged.output = wide;
  const NamedBounds bounds = op_bounds(parameters, inputs, dy, judged, Pass::backward);
  CHECK(bounds.size() == operands);
  for (const auto& gradient : result.gradients) CHECK(gradient.second.dtype() == wide);
  for (const auto& [name, tensor] : result.gradients) {
    check_within(name, tensor, bounds.at(name));
  }
}

}  // namespace

TEST_CASE("every operation by name, forward and backward, within the bounds in every dtype") {
  for (const Case& c : cases())
    for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
      if (c.operation == "unscale_clip" && dtype == DType::fp64) continue;
      check_call(c, {dtype, Accumulator::fp32});
    }
}

TEST_CASE("every operation by name with other accumulators, within their bounds") {
  for (const Case& c : cases())
    for (const auto& [dtype, accumulator] : {std::pair{DType::fp32, Accumulator::fp64},
                                             {DType::fp16, Accumulator::fp64},
                                             {DType::fp16, Accumulator::fp16},
                                             {DType::fp32, Accumulator::fp16},
                                             {DType::fp16, Accumulator::v100},
                                             {DType::bf16, Accumulator::a100},
                                             {DType::fp16, Accumulator::h100},
                                             {DType::fp64, Accumulator::h100}}) {
      if (c.operation == "unscale_clip") continue;  // sums of squares are in fp64
      check_call(c, {dtype, accumulator});
    }
}

TEST_CASE("every operation by name with another output dtype, rounded once") {
  for (const Case& c : cases())
    for (const auto& [dtype, output] : {std::pair{DType::fp16, DType::fp32},
                                        {DType::bf16, DType::fp16},
                                        {DType::fp32, DType::fp16},
                                        {DType::fp16, DType::fp64}}) {
      // Other shapes of the same storage have its dtype.
      if (c.operation == "unscale_clip" || c.operation == "reshape" || c.operation == "flatten")
        continue;
      check_call(c, {dtype, Accumulator::fp32, output});
    }
}

TEST_CASE("the names: every listed operation has a class, every bound that a result has") {
  std::set<std::string_view> listed;
  for (const OpInfo& op : kOps) listed.insert(op.name);
  std::set<std::string_view> tried;
  for (const Case& c : cases()) tried.insert(c.operation);
  for (const OpSignature& s : op_signatures()) {
    CAPTURE(s.name);
    CHECK((s.numbered() || listed.count(s.name) == 1));
    CHECK(tried.count(s.name) == 1);
    CHECK(&op_signature(s.name) == &s);
    for (const ParameterInfo& p : s.parameters) {
      // A default reads as what a person would write.
      if (!p.fallback.empty())
        CHECK_NOTHROW(OpParameters(s, {{std::string(p.name), std::string(p.fallback)}}));
    }
  }
}

TEST_CASE("parameters: lists, defaults, and everything malformed") {
  const OpSignature& pool = op_signature("max_pool2d");
  const OpParameters p(pool, {{"kernel", "3,2"}, {"padding", "1"}});
  using Pair = std::array<std::int64_t, 2>;
  CHECK(p.pair("kernel") == Pair{3, 2});
  CHECK(p.pair("stride", {7, 8}) == Pair{7, 8});
  CHECK(p.pair("padding") == Pair{1, 1});
  CHECK(OpParameters(op_signature("sum"), {{"axis", "2,-1,0"}}).axes("axis") ==
        std::vector<std::int64_t>{2, -1, 0});
  CHECK(OpParameters(op_signature("sum"), {}).axes("axis").empty());
  CHECK(std::isinf(OpParameters(op_signature("unscale_clip"), {}).number("max_norm")));
  CHECK(OpParameters(op_signature("dropout"), {{"seed", "18446744073709551615"}}).natural("seed") ==
        ~std::uint64_t{0});
  for (const char* text : {"", "1,", ",1", "1,2,3", "1 2", "1.5", "x", "9223372036854775808"})
    CHECK_THROWS_AS(OpParameters(pool, {{"kernel", text}}), UsageError);
  for (const char* text : {"", "1e", "0x1", "1,5", " 1", "1 ", "one"})
    CHECK_THROWS_AS(OpParameters(op_signature("layer_norm"), {{"eps", text}}), UsageError);
  for (const char* text : {"", "2", "TRUE", "yes"})
    CHECK_THROWS_AS(OpParameters(op_signature("matmul"), {{"trans_a", text}}), UsageError);
  for (const char* text : {"", "Mean", "mean sum"})
    CHECK_THROWS_AS(OpParameters(op_signature("mse"), {{"reduction", text}}), UsageError);
  CHECK_THROWS_AS(OpParameters(pool, {{"axis", "1"}}), UsageError);
  CHECK_THROWS_AS(op_signature("matmul2"), UsageError);
  CHECK_THROWS_AS(p.number("eps"), Error);
}

TEST_CASE("inputs: missing, superfluous, and the numbered ones of unscale_clip") {
  const auto check = [](const char* operation, std::vector<std::string> names) {
    check_inputs(op_signature(operation), names);
  };
  CHECK_NOTHROW(check("matmul", {"a", "b"}));
  CHECK_NOTHROW(check("matmul", {"c", "b", "a"}));
  CHECK_THROWS_AS(check("matmul", {"a"}), UsageError);
  CHECK_THROWS_AS(check("matmul", {"a", "b", "d"}), UsageError);
  CHECK_NOTHROW(check("unscale_clip", {}));
  CHECK_NOTHROW(check("unscale_clip", {"g0", "g12"}));
  for (const char* name : {"g", "g-1", "g01", "g1x", "h0", "g99999999999"})
    CHECK_THROWS_AS(check("unscale_clip", {name}), UsageError);
  Context context;
  const Tensor x = Tensor::zeros(context.allocator, {3}, DType::fp32);
  CHECK_THROWS_AS(run_op(context, OpParameters(op_signature("relu"), {}), {{"x", x}, {"y", x}}),
                  UsageError);
  CHECK_THROWS_AS(run_op(context, OpParameters(op_signature("add"), {}), {{"a", x}}), UsageError);
  CHECK_THROWS_AS(run_op(context, OpParameters(op_signature("relu"), {}), {{"x", x}},
                         Tensor::zeros(context.allocator, {4}, DType::fp32)),
                  Error);
}

TEST_CASE("layout: NCHW and KCRS to NHWC and KRSC and back") {
  Context context;
  const OpParameters nchw(op_signature("conv2d"), {{"layout", "nchw"}});
  std::vector<double> values(24);
  for (std::size_t i = 0; i < 24; ++i) values[i] = static_cast<double>(i);
  const Tensor x = Tensor::from(context.allocator, values, {1, 2, 3, 4}, DType::fp32);
  const Tensor last = from_layout(context, nchw, "x", x);
  CHECK(last.shape() == Shape{1, 3, 4, 2});
  CHECK(last.at(1) == 12);  // channel 1 of the first pixel
  const Tensor back = to_layout(context, nchw, "dx", last);
  CHECK(back.shape() == x.shape());
  CHECK(back.to_vector() == values);
  const Tensor b = Tensor::zeros(context.allocator, {5}, DType::fp32);
  CHECK(from_layout(context, nchw, "b", b).raw() == b.raw());
  CHECK(from_layout(context, OpParameters(op_signature("conv2d"), {}), "x", x).raw() == x.raw());
  CHECK_THROWS_AS(from_layout(context, nchw, "w", b), Error);
}
