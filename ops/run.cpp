#include "ops/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <system_error>

#include "engine/optimizer.h"
#include "engine/parameters.h"
#include "kernels/base/convert.h"
#include "kernels/step/device_step.h"
#include "kernels/step/unscale.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/softmax.h"

namespace roundoff {

namespace {

using Kind = ParameterKind;
using Role = InputRole;

// ---- what each operation takes

constexpr InputInfo kX[] = {{"x"}};
constexpr InputInfo kAB[] = {{"a"}, {"b"}};
constexpr InputInfo kMatmulInputs[] = {{"a"}, {"b"}, {"c", Role::operand, true}};
constexpr InputInfo kConvInputs[] = {{"x"}, {"w"}, {"b", Role::operand, true}};
constexpr InputInfo kCrossEntropyInputs[] = {
    {"logits"}, {"target", Role::target}, {"weight", Role::constant, true}};
constexpr InputInfo kLossInputs[] = {{"x"}, {"target"}};
constexpr InputInfo kNormInputs[] = {
    {"x"}, {"gamma", Role::operand, true}, {"beta", Role::operand, true}};
constexpr InputInfo kBatchNormInputs[] = {{"x"},
                                          {"gamma", Role::operand, true},
                                          {"beta", Role::operand, true},
                                          {"running_mean", Role::statistic, true},
                                          {"running_var", Role::statistic, true}};
constexpr InputInfo kEmbeddingInputs[] = {{"table"}, {"index", Role::index}};
constexpr InputInfo kGradients[] = {{"g0", Role::constant}};

constexpr std::string_view kKernels = "automatic naive tiles mma sm80 wgmma sm90 ping_pong";
constexpr ParameterInfo kLinear[] = {{"kernel", Kind::word, "automatic", kKernels}};
constexpr ParameterInfo kMatmul[] = {{"trans_a", Kind::flag, "false"},
                                     {"trans_b", Kind::flag, "false"},
                                     {"alpha", Kind::number, "1"},
                                     {"beta", Kind::number, "1"},
                                     {"kernel", Kind::word, "automatic", kKernels}};
constexpr ParameterInfo kConv[] = {{"stride", Kind::pair, "1"},
                                   {"padding", Kind::pair, "0"},
                                   {"dilation", Kind::pair, "1"},
                                   {"groups", Kind::integer, "1"},
                                   {"layout", Kind::word, "nhwc", "nhwc nchw"},
                                   {"kernel", Kind::word, "automatic", kKernels}};
constexpr ParameterInfo kSoftmax[] = {{"axis", Kind::integer, "-1"}};
constexpr std::string_view kReductions = "mean sum none";
constexpr ParameterInfo kCrossEntropy[] = {{"ignore_index", Kind::integer, "-100"},
                                           {"label_smoothing", Kind::number, "0"},
                                           {"reduction", Kind::word, "mean", kReductions}};
constexpr ParameterInfo kLoss[] = {{"reduction", Kind::word, "mean", kReductions}};
constexpr ParameterInfo kGelu[] = {{"approximate", Kind::word, "none", "none tanh"}};
constexpr ParameterInfo kReduce[] = {{"axis", Kind::axes, ""}, {"keepdim", Kind::flag, "false"}};
constexpr ParameterInfo kMaxPool[] = {{"kernel", Kind::pair, "2"},
                                      {"stride", Kind::pair, ""},  // the kernel's
                                      {"padding", Kind::pair, "0"}};
constexpr ParameterInfo kAvgPool[] = {{"kernel", Kind::pair, "2"},
                                      {"stride", Kind::pair, ""},
                                      {"padding", Kind::pair, "0"},
                                      {"count_include_pad", Kind::flag, "true"}};
constexpr ParameterInfo kLayerNorm[] = {{"eps", Kind::number, "1e-5"},
                                        {"axes", Kind::integer, "1"}};
constexpr ParameterInfo kBatchNorm[] = {{"eps", Kind::number, "1e-5"},
                                        {"momentum", Kind::number, "0.1"},
                                        {"training", Kind::flag, "true"},
                                        {"axis", Kind::integer, "-1"}};
constexpr ParameterInfo kDropout[] = {{"p", Kind::number, "0.5"},
                                      {"seed", Kind::natural, "0"},
                                      {"step", Kind::natural, "0"},
                                      {"tensor", Kind::natural, "0"},
                                      {"sample0", Kind::natural, "0"}};
constexpr ParameterInfo kEmbedding[] = {{"padding_index", Kind::axes, ""}};  // none, or one
constexpr ParameterInfo kReshape[] = {{"shape", Kind::axes, "-1"}};
constexpr ParameterInfo kFlatten[] = {{"first", Kind::integer, "0"}, {"last", Kind::integer, "-1"}};
constexpr ParameterInfo kTranspose[] = {{"axes", Kind::axes, ""}};  // in reverse order
constexpr ParameterInfo kUnscale[] = {{"scale", Kind::number, "1"},
                                      {"max_norm", Kind::number, "inf"}};

constexpr OpSignature kSignatures[] = {
    {"matmul", kMatmulInputs, kMatmul},
    {"linear", kConvInputs, kLinear},
    {"conv2d", kConvInputs, kConv},
    {"softmax", kX, kSoftmax},
    {"log_softmax", kX, kSoftmax},
    {"cross_entropy", kCrossEntropyInputs, kCrossEntropy, true},
    {"mse", kLossInputs, kLoss, true},
    {"bce_with_logits", kLossInputs, kLoss, true},
    {"relu", kX, {}},
    {"gelu", kX, kGelu},
    {"tanh", kX, {}},
    {"sigmoid", kX, {}},
    {"exp", kX, {}},
    {"log", kX, {}},
    {"sum", kX, kReduce},
    {"mean", kX, kReduce},
    {"max", kX, kReduce},
    {"norm", kX, kReduce},
    {"add", kAB, {}},
    {"sub", kAB, {}},
    {"mul", kAB, {}},
    {"div", kAB, {}},
    {"max_pool2d", kX, kMaxPool},
    {"avg_pool2d", kX, kAvgPool},
    {"layer_norm", kNormInputs, kLayerNorm},
    {"batch_norm", kBatchNormInputs, kBatchNorm},
    {"dropout", kX, kDropout},
    {"embedding", kEmbeddingInputs, kEmbedding},
    {"reshape", kX, kReshape},
    {"flatten", kX, kFlatten},
    {"transpose", kX, kTranspose},
    {"unscale_clip", kGradients, kUnscale},
};

template <class Infos>
std::string names_of(const Infos& infos) {
  std::string names;
  for (const auto& info : infos) names.append(names.empty() ? "" : ", ").append(info.name);
  return names.empty() ? "none" : names;
}

// ---- parameters

template <class T>
bool read(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Integers with commas between them; false where the text is anything else.
bool read_list(std::string_view text, std::vector<std::int64_t>& values) {
  for (;;) {
    const std::size_t comma = text.find(',');
    std::int64_t value = 0;
    if (!read(text.substr(0, comma), value)) return false;
    values.push_back(value);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool is_word_of(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t space = words.find(' ');
    if (words.substr(0, space) == word) return true;
    words.remove_prefix(space == std::string_view::npos ? words.size() : space + 1);
  }
  return false;
}

// What is expected in place of `text`; empty where it is right.
std::string expected(const ParameterInfo& p, std::string_view text) {
  std::vector<std::int64_t> list;
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  double number = 0;
  switch (p.kind) {
    case Kind::number:
      return read(text, number) ? "" : "a number";
    case Kind::integer:
      return read(text, integer) ? "" : "an integer";
    case Kind::natural:
      return read(text, natural) ? "" : "an integer that is not negative";
    case Kind::flag:
      return is_word_of("true false 1 0", text) ? "" : "true or false";
    case Kind::pair:
      return read_list(text, list) && list.size() <= 2
                 ? ""
                 : "one integer, or two as vertical,horizontal";
    case Kind::axes:
      return read_list(text, list) ? "" : "integers with commas between them";
    case Kind::word:
      return is_word_of(p.words, text) ? "" : "one of: " + std::string(p.words);
  }
  return "";
}

// ---- running

bool is_gradient_name(std::string_view name) {
  std::uint32_t number = 0;
  return name.size() > 1 && name[0] == 'g' && (name.size() == 2 || name[1] != '0') &&
         read(name.substr(1), number);
}

const Tensor& input(const NamedTensors& inputs, std::string_view name) {
  static const Tensor kAbsent;
  const auto found = inputs.find(name);
  return found == inputs.end() ? kAbsent : found->second;
}

Reduction reduction_of(const OpParameters& p) {
  const std::string& word = p.word("reduction");
  if (word == "none") return Reduction::none;
  return word == "sum" ? Reduction::sum : Reduction::mean;
}

Tensor run_batch_norm(Context& c, const OpParameters& p, const NamedTensors& in, OpResult& result) {
  const Scoped<bool> training(c.training, p.flag("training"));
  const Tensor& mean = input(in, "running_mean");
  const Tensor& var = input(in, "running_var");
  const BatchNormResult r = batch_norm(
      c, input(in, "x"), input(in, "gamma"), input(in, "beta"), mean, var,
      {.axis = p.integer("axis"), .eps = p.number("eps"), .momentum = p.number("momentum")});
  if (mean.defined()) result.outputs["running_mean"] = r.running_mean.detached();
  if (var.defined()) result.outputs["running_var"] = r.running_var.detached();
  return r.y;
}

Tensor run_dropout(Context& c, const OpParameters& p, const Tensor& x) {
  const Scoped<RngKey> rng(c.rng,
                           RngKey{p.natural("seed"), p.natural("step"), p.natural("sample0")});
  const Scoped<bool> training(c.training, true);
  const std::uint64_t tensor = p.natural("tensor");
  ROUNDOFF_CHECK(tensor >> 32 == 0, "dropout", "tensor number ", tensor, ", below 2^31 expected");
  return dropout(c, x, p.number("p"), static_cast<std::uint32_t>(tensor));
}

Tensor run_embedding(Context& c, const OpParameters& p, const Tensor& table, const Tensor& index) {
  const std::vector<std::int64_t> padding = p.axes("padding_index");
  if (padding.size() > 1)
    throw UsageError(
        concat("[embedding] padding_index has ", padding.size(), " rows; one expected"));
  return embedding(c, table, index,
                   padding.empty() ? std::nullopt : std::optional<std::int64_t>(padding[0]));
}

Pool2dParams pool_params(const OpParameters& p) {
  Pool2dParams q;
  q.kernel = p.pair("kernel");
  q.stride = p.pair("stride", q.kernel);
  q.padding = p.pair("padding");
  if (p.signature().name == "avg_pool2d") q.count_include_pad = p.flag("count_include_pad");
  return q;
}

// The kernel that a product names: there are kernels on devices only.
ProductKernel kernel_of(const Context& c, const OpParameters& p) {
  const std::string_view operation = p.signature().name;
  const ProductKernel kernel = parse_product_kernel(operation, p.word("kernel"));
  if (kernel != ProductKernel::automatic && c.device() == Device::cpu)
    throw UsageError(concat("[", operation, "] kernel is '", name(kernel),
                            "', a kernel of the devices sim and cuda; cpu has none to choose"));
  return kernel;
}

Tensor forward(Context& c, const OpParameters& p, const NamedTensors& in, OpResult& result) {
  const std::string_view name = p.signature().name;
  const auto get = [&](std::string_view which) -> const Tensor& { return input(in, which); };
  if (name == "matmul")
    return matmul(c, get("a"), get("b"),
                  {.trans_a = p.flag("trans_a"),
                   .trans_b = p.flag("trans_b"),
                   .alpha = p.number("alpha"),
                   .beta = p.number("beta"),
                   .kernel = kernel_of(c, p)},
                  get("c"));
  if (name == "linear") return linear(c, get("x"), get("w"), get("b"), kernel_of(c, p));
  if (name == "conv2d")
    return conv2d(c, get("x"), get("w"), get("b"),
                  {.stride = p.pair("stride"),
                   .padding = p.pair("padding"),
                   .dilation = p.pair("dilation"),
                   .groups = p.integer("groups"),
                   .kernel = kernel_of(c, p)});
  if (name == "softmax") return softmax(c, get("x"), p.integer("axis"));
  if (name == "log_softmax") return log_softmax(c, get("x"), p.integer("axis"));
  if (name == "cross_entropy")
    return cross_entropy(c, get("logits"), get("target"),
                         {.ignore_index = p.integer("ignore_index"),
                          .label_smoothing = p.number("label_smoothing"),
                          .reduction = reduction_of(p)},
                         get("weight"))
        .loss;
  if (name == "mse") return mse(c, get("x"), get("target"), reduction_of(p));
  if (name == "bce_with_logits")
    return bce_with_logits(c, get("x"), get("target"), reduction_of(p));
  if (name == "relu") return relu(c, get("x"));
  if (name == "gelu")
    return gelu(c, get("x"), p.word("approximate") == "tanh" ? GeluKind::tanh : GeluKind::erf);
  if (name == "tanh") return roundoff::tanh(c, get("x"));
  if (name == "sigmoid") return sigmoid(c, get("x"));
  if (name == "exp") return roundoff::exp(c, get("x"));
  if (name == "log") return roundoff::log(c, get("x"));
  if (name == "add") return add(c, get("a"), get("b"));
  if (name == "sub") return sub(c, get("a"), get("b"));
  if (name == "mul") return mul(c, get("a"), get("b"));
  if (name == "div") return roundoff::div(c, get("a"), get("b"));
  if (name == "max_pool2d") return max_pool2d(c, get("x"), pool_params(p));
  if (name == "avg_pool2d") return avg_pool2d(c, get("x"), pool_params(p));
  if (name == "layer_norm")
    return layer_norm(c, get("x"), get("gamma"), get("beta"),
                      {.axes = p.integer("axes"), .eps = p.number("eps")});
  if (name == "batch_norm") return run_batch_norm(c, p, in, result);
  if (name == "dropout") return run_dropout(c, p, get("x"));
  if (name == "embedding") return run_embedding(c, p, get("table"), get("index"));
  if (name == "reshape") return reshape(c, get("x"), p.axes("shape"));
  if (name == "flatten") return flatten(c, get("x"), p.integer("first"), p.integer("last"));
  if (name == "transpose") return transpose(c, get("x"), p.axes("axes"));
  const std::vector<std::int64_t> list = p.axes("axis");
  const Axes axes{std::span<const std::int64_t>(list)};
  const bool keepdim = p.flag("keepdim");
  if (name == "sum") return sum(c, get("x"), axes, keepdim);
  if (name == "mean") return mean(c, get("x"), axes, keepdim);
  if (name == "max") return roundoff::max(c, get("x"), axes, keepdim);
  ROUNDOFF_CHECK(name == "norm", "op", "'", name, "' has no runner");
  return norm(c, get("x"), axes, keepdim);
}

// The number of g<number>.
std::uint64_t gradient_number(std::string_view name) {
  std::uint64_t number = 0;
  read(name.substr(1), number);
  return number;
}

// The optimizer's first pass over gradients of parameters that are never read.
void inspect_on_device(Context& c, const std::vector<std::string>& names, const NamedTensors& in,
                       const ClipParams& clip, StepStatus& status) {
  ParameterArena arena;
  for (const std::string& name : names) arena.add(name, in.find(name)->second.shape(), Init::zeros);
  arena.allocate(c.allocator, {});
  for (ParameterEntry& entry : arena.entries()) {
    entry.tensor.leaf()->grad = in.find(entry.name)->second.detached();
    entry.tensor.leaf()->has_grad = true;
  }
  Optimizer(c, arena, {.kind = OptimizerSettings::Kind::sgd}).inspect(clip, status);
}

OpResult run_unscale_clip(Context& c, const OpParameters& p, const NamedTensors& in) {
  const double scale = p.number("scale");
  const auto scale32 = static_cast<float>(scale);
  if (!(scale > 0) || !std::isfinite(scale32) || scale32 == 0 || !std::isfinite(1 / scale32))
    throw UsageError(concat("[unscale_clip] scale is ", scale,
                            "; a number above 0 that has an inverse in fp32 expected"));
  const ClipParams clip{p.number("max_norm")};
  validate(clip);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : in) names.push_back(name);
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return gradient_number(a) < gradient_number(b);
  });
  std::vector<ConstView> gradients;
  for (const std::string& name : names) gradients.push_back(in.find(name)->second.view());
  StepStatus status;
  set_scale(status, scale32);
  OpResult result;
  if (c.device() != Device::cpu) inspect_on_device(c, names, in, clip, status);
  visit_target(c, [&](auto target) {
    if constexpr (std::same_as<decltype(target), Ref>)
      inspect_gradients(target, clip, gradients, status);
    for (std::size_t i = 0; i < names.size(); ++i) {
      Tensor g = Tensor::empty(c.allocator, gradients[i].shape, DType::fp32);
      unscale(target, status.inv_scale, gradients[i], g.view());
      // A gradient that is not finite is never rewritten by the clip.
      if (status.found_inf == 0) scale_gradient(target, status.clip, g.view());
      result.outputs[names[i]] = std::move(g);
    }
  });
  const double factor = status.clip;
  result.outputs["norm"] = Tensor::from(c.allocator, {&status.norm, 1}, {}, DType::fp64);
  result.outputs["clip"] = Tensor::from(c.allocator, {&factor, 1}, {}, DType::fp32);
  result.found_inf = status.found_inf != 0;
  return result;
}

// NCHW to NHWC, and KCRS to KRSC; the permutation back.
constexpr std::int64_t kToLast[] = {0, 2, 3, 1};
constexpr std::int64_t kFromLast[] = {0, 3, 1, 2};

Tensor permuted(Context& c, const OpParameters& p, std::string_view array, const Tensor& t,
                std::span<const std::int64_t> axes) {
  if (p.signature().name != "conv2d" || p.word("layout") == "nhwc" || !t.defined()) return t;
  if (array == "b" || array == "db") return t;
  ROUNDOFF_CHECK(t.shape().rank() == 4, "conv2d", array, " has shape ", t.shape(),
                 ", four axes expected");
  const NoGrad no_grad(c);
  return transpose(c, t, axes).detached();
}

}  // namespace

std::span<const OpSignature> op_signatures() { return kSignatures; }

const OpSignature& op_signature(std::string_view name) {
  for (const OpSignature& s : kSignatures)
    if (s.name == name) return s;
  throw UsageError(
      concat("[op] unknown operation '", name, "'; one of ", names_of(kSignatures), " expected"));
}

OpParameters::OpParameters(const OpSignature& signature,
                           const std::map<std::string, std::string>& given)
    : signature_(&signature) {
  for (const ParameterInfo& p : signature.parameters) values_[std::string(p.name)] = p.fallback;
  for (const auto& [key, value] : given) {
    const auto info = std::find_if(
        signature.parameters.begin(), signature.parameters.end(),
        [&, k = std::string_view(key)](const ParameterInfo& p) { return p.name == k; });
    if (info == signature.parameters.end())
      throw UsageError(
          concat("[", signature.name, "] unknown parameter '", key,
                 "'; the operation's parameters are: ", names_of(signature.parameters)));
    if (const std::string what = expected(*info, value); !what.empty())
      throw UsageError(concat("[", signature.name, "] parameter ", key, " is '", value, "'; ", what,
                              " expected"));
    values_[key] = value;
  }
}

const std::string& OpParameters::text(std::string_view name) const {
  const auto found = values_.find(name);
  ROUNDOFF_CHECK(found != values_.end(), signature_->name, "has no parameter ", name);
  return found->second;
}
double OpParameters::number(std::string_view name) const {
  double value = 0;
  read(text(name), value);
  return value;
}
std::int64_t OpParameters::integer(std::string_view name) const {
  std::int64_t value = 0;
  read(text(name), value);
  return value;
}
std::uint64_t OpParameters::natural(std::string_view name) const {
  std::uint64_t value = 0;
  read(text(name), value);
  return value;
}
bool OpParameters::flag(std::string_view name) const {
  return text(name) == "true" || text(name) == "1";
}
std::array<std::int64_t, 2> OpParameters::pair(std::string_view name,
                                               std::array<std::int64_t, 2> otherwise) const {
  const std::vector<std::int64_t> list = axes(name);
  return list.empty() ? otherwise : std::array<std::int64_t, 2>{list.front(), list.back()};
}
std::vector<std::int64_t> OpParameters::axes(std::string_view name) const {
  std::vector<std::int64_t> list;
  if (!text(name).empty()) read_list(text(name), list);
  return list;
}
const std::string& OpParameters::word(std::string_view name) const { return text(name); }

InputRole input_role(const OpSignature& signature, std::string_view input) {
  if (signature.numbered() && is_gradient_name(input)) return Role::constant;
  for (const InputInfo& i : signature.inputs)
    if (i.name == input) return i.role;
  throw UsageError(concat("[", signature.name, "] takes no input '", input, "'; its inputs are: ",
                          signature.numbered() ? "g0, g1, ..." : names_of(signature.inputs)));
}

void check_inputs(const OpSignature& signature, std::span<const std::string> names) {
  for (const std::string& name : names) (void)input_role(signature, name);
  if (signature.numbered()) return;  // no gradients at all are a neutral step
  for (const InputInfo& i : signature.inputs)
    if (!i.optional && std::find(names.begin(), names.end(), i.name) == names.end())
      throw UsageError(concat("[", signature.name, "] input ", i.name,
                              " is missing; its inputs are: ", names_of(signature.inputs)));
}

OpResult run_op(Context& context, const OpParameters& parameters, const NamedTensors& inputs,
                const Tensor& dy) {
  const OpSignature& signature = parameters.signature();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : inputs) names.push_back(name);
  check_inputs(signature, names);
  if (signature.numbered()) {
    if (dy.defined()) throw UsageError("[unscale_clip] has no backward pass");
    return run_unscale_clip(context, parameters, inputs);
  }
  NamedTensors leaves = inputs;
  if (dy.defined())
    for (const InputInfo& i : signature.inputs)
      if (const auto found = leaves.find(i.name);
          found != leaves.end() && i.role == Role::operand) {
        ROUNDOFF_CHECK(is_floating(found->second.dtype()), signature.name, i.name, " is ",
                       name(found->second.dtype()), ", a floating type expected");
        found->second = make_leaf(context.allocator, found->second, std::string(i.name));
      }
  OpResult result;
  const Tensor y = forward(context, parameters, leaves, result);
  result.outputs["y"] = y.detached();
  if (dy.defined()) {
    ROUNDOFF_CHECK(dy.shape() == y.shape(), signature.name, "the gradient has shape ", dy.shape(),
                   ", y has shape ", y.shape());
    context.tape.backward(context, y, dy);
    for (const InputInfo& i : signature.inputs) {
      const auto found = leaves.find(i.name);
      if (found == leaves.end() || i.role != Role::operand) continue;
      const Leaf& leaf = *found->second.leaf();
      // An operand that nothing depends on (its factor is 0) has the gradient 0.
      result.gradients["d" + found->first] =
          leaf.has_grad
              ? leaf.grad.detached()
              : Tensor::zeros(context.allocator, found->second.shape(),
                              found->second.dtype() == DType::fp64 ? DType::fp64 : DType::fp32);
    }
  }
  return result;
}

Tensor apply_op(Context& context, const OpParameters& parameters, const NamedTensors& inputs,
                NamedTensors* others) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : inputs) names.push_back(name);
  check_inputs(parameters.signature(), names);
  ROUNDOFF_CHECK(!parameters.signature().numbered(), parameters.signature().name,
                 "has no single result");
  OpResult result;
  Tensor y = forward(context, parameters, inputs, result);
  if (others != nullptr) *others = std::move(result.outputs);
  return y;
}

Tensor from_layout(Context& context, const OpParameters& parameters, std::string_view array,
                   const Tensor& tensor) {
  return permuted(context, parameters, array, tensor, kToLast);
}
Tensor to_layout(Context& context, const OpParameters& parameters, std::string_view array,
                 const Tensor& tensor) {
  return permuted(context, parameters, array, tensor, kFromLast);
}

}  // namespace roundoff
