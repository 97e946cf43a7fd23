#include "bench/problem.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "ops/run.h"
#include "verify/cases/elementwise.h"
#include "verify/cases/loss.h"
#include "verify/cases/move.h"
#include "verify/cases/norm.h"
#include "verify/cases/pool.h"
#include "verify/cases/reduce.h"
#include "verify/cases/softmax.h"

namespace roundoff::bench {

namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::string_view kShape = "NxC, or any shape";
constexpr OperationInfo kOperations[] = {
    {"matmul", "MxNxK or BxMxNxK", "4096x4096x4096"},
    {"linear", "MxNxK (rows, outputs, inputs)", "4096x4096x4096"},
    {"conv2d", "--conv N,H,W,C,K,R,S,stride,pad", "32,56,56,64,64,3,3,1,1"},
    {"softmax", "RxC", "4096x4096"},
    {"log_softmax", "RxC", "4096x4096"},
    {"cross_entropy", "RxC", "4096x32000"},
    {"mse", "RxC", "4096x4096"},
    {"bce_with_logits", "RxC", "4096x4096"},
    {"layer_norm", "RxC", "4096x4096"},
    {"batch_norm", "NxHxWxC or RxC", "32x28x28x64"},
    {"sum", "RxC, over C", "4096x4096"},
    {"mean", "RxC, over C", "4096x4096"},
    {"max", "RxC, over C", "4096x4096"},
    {"norm", "RxC, over C", "4096x4096"},
    {"relu", kShape, "4096x4096"},
    {"gelu", kShape, "4096x4096"},
    {"tanh", kShape, "4096x4096"},
    {"sigmoid", kShape, "4096x4096"},
    {"exp", kShape, "4096x4096"},
    {"log", kShape, "4096x4096"},
    {"add", kShape, "4096x4096"},
    {"sub", kShape, "4096x4096"},
    {"mul", kShape, "4096x4096"},
    {"div", kShape, "4096x4096"},
    {"dropout", kShape, "4096x4096"},
    {"max_pool2d", "NxHxWxC", "32x56x56x64"},
    {"avg_pool2d", "NxHxWxC", "32x56x56x64"},
    {"embedding", "TxVxD (tokens, rows, width)", "4096x32000x256"},
    {"transpose", "RxC", "4096x4096"},
    {"unscale_clip", "N (gradients)", "16777216"},
};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Shape shape_of(const Sizes& sizes) { return Shape(std::span<const std::int64_t>(sizes)); }

std::string joined_by(const Sizes& sizes, char between) {
  std::string text;
  for (const std::int64_t n : sizes) {
    if (!text.empty()) text += between;
    text += std::to_string(n);
  }
  return text;
}

// "4096x64" and the like; empty where it is not of that form.
Sizes read_sizes(std::string_view text, char between) {
  Sizes sizes;
  while (true) {
    const std::string_view part = text.substr(0, text.find(between));
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || part.empty() || n < 0 ||
        n > 0x7FFFFFFF)
      return {};
    sizes.push_back(n);
    if (part.size() == text.size()) return sizes;
    text.remove_prefix(part.size() + 1);
  }
}

// Memory and int64 have an end.
void check_elements(std::string_view op, const Sizes& sizes, const std::string& text) {
  double most = 1;
  if (op == "matmul" || op == "linear") {
    const std::size_t first = sizes.size() - 3;
    const double batch = first == 1 ? static_cast<double>(sizes[0]) : 1;
    const auto z = [&](std::size_t i) { return static_cast<double>(sizes[first + i]); };
    most = batch * std::max({z(0) * z(1), z(0) * z(2), z(1) * z(2)});
  } else if (op == "embedding") {
    most = static_cast<double>(std::max(sizes[0], sizes[1])) * static_cast<double>(sizes[2]);
  } else {
    for (const std::int64_t n : sizes) most *= static_cast<double>(std::max<std::int64_t>(n, 1));
  }
  constexpr double kMost = 0x1p33;
  if (most > kMost)
    throw UsageError(concat("[bench] ", op, ' ', text, " has an array of ", most,
                            " elements; at most 2^33 expected"));
}

// How many numbers a size has.
bool takes_rank(std::string_view operation, std::size_t rank) {
  if (operation == "matmul") return rank == 3 || rank == 4;
  if (is_one_of(operation, {"linear", "embedding"})) return rank == 3;
  if (is_one_of(operation, {"max_pool2d", "avg_pool2d"})) return rank == 4;
  if (operation == "batch_norm") return rank == 2 || rank == 4;
  if (operation == "unscale_clip") return rank == 1;
  if (is_one_of(operation, {"softmax", "log_softmax", "cross_entropy", "mse", "bce_with_logits",
                            "layer_norm", "sum", "mean", "max", "norm", "transpose"}))
    return rank == 2;
  return rank >= 1 && rank <= 4;
}

// The case of an operation that is no product.
Case case_of(std::string_view op, const Sizes& sizes) {
  const Shape x = shape_of(sizes);
  if (is_one_of(op, {"softmax", "log_softmax"})) return cases::softmax(op, x);
  if (op == "cross_entropy") return cases::cross_entropy({sizes[0], sizes[1]});
  if (is_one_of(op, {"mse", "bce_with_logits"})) return cases::pointwise_loss(op, x, "mean");
  if (op == "layer_norm") return cases::layer_norm(x);
  if (op == "batch_norm") return cases::batch_norm(x, true);
  if (is_one_of(op, {"sum", "mean", "max", "norm"}))
    return cases::reduce(op, x, "1", Shape{sizes[0]});
  if (is_one_of(op, {"add", "sub", "mul", "div"})) return cases::binary(op, x, x, x);
  if (op == "dropout") return cases::dropout(x, "0.1");
  if (is_one_of(op, {"max_pool2d", "avg_pool2d"}))
    return cases::pool2d(op, {sizes[0], sizes[1], sizes[2], sizes[3]});
  if (op == "embedding") return cases::embedding(sizes[1], sizes[2], {sizes[0]});
  if (op == "transpose") return cases::transpose(x, {});
  if (op == "unscale_clip") return cases::unscale_clip({x}, "1024", "1");
  return cases::unary(op, x);
}

void set_product(Problem& p, const Sizes& sizes, bool trans_a, bool trans_b) {
  p.sizes = sizes;
  const std::size_t first = sizes.size() - 3;
  cases::MatmulCase m{.m = sizes[first], .n = sizes[first + 1], .k = sizes[first + 2]};
  m.trans_a = trans_a;
  m.trans_b = trans_b || p.c.operation == "linear";
  if (first == 1) m.lead = m.lead_a = m.lead_b = Shape{sizes[0]};
  p.product = m;
  p.c = p.c.operation == "linear" ? cases::linear({m.m}, m.k, m.n, false) : cases::matmul(m);
}

void set_conv(Problem& p, const Sizes& s) {
  p.sizes = s;
  cases::Conv2dCase c{s[0], s[1], s[2], s[3], s[4], s[5], s[6]};
  c.stride = {s[7], s[7]};
  c.padding = {s[8], s[8]};
  p.conv = c;
  p.c = cases::conv2d(c);
}

void check_conv(const Sizes& s, const std::string& text) {
  if (s.size() != 9)
    throw UsageError(concat("[bench] --conv is '", text, "'; N,H,W,C,K,R,S,stride,pad expected"));
  const bool positive = std::all_of(s.begin(), s.begin() + 8, [](auto n) { return n >= 1; });
  if (!positive || s[1] + 2 * s[8] < s[5] || s[2] + 2 * s[8] < s[6])
    throw UsageError(concat("[bench] --conv is '", text,
                            "'; sizes of at least 1 and a window that fits the padded image "
                            "expected"));
}

// Whether a gradient is formed from what the operands hold.
bool gradient_reads_operands(std::string_view op) {
  return !is_one_of(op, {"add", "sub", "sum", "mean", "avg_pool2d", "dropout", "embedding",
                         "transpose", "reshape", "flatten"});
}

double elements(const Shape& shape) { return static_cast<double>(shape.numel()); }

struct Role {
  bool operand = false;
  double bytes = 0;  // an element
};
Role role_of(const Problem& p, const CaseInput& input) {
  switch (input_role(op_signature(p.operation()), input.name)) {
    case InputRole::operand:
      return {true, static_cast<double>(size_of(p.dtype))};
    case InputRole::statistic:
      return {false, 4};
    default:
      return {false, input.domain == Domain::label || input.domain == Domain::index
                         ? 8
                         : static_cast<double>(size_of(p.dtype))};
  }
}

// dy has the type of y, as the operation gives it.
double dy_bytes(const Problem& p) {
  const bool loss = op_signature(p.operation()).loss;
  return elements(p.c.y) * (loss ? 4 : static_cast<double>(size_of(p.dtype)));
}

}  // namespace

std::span<const OperationInfo> operations() { return kOperations; }

std::string_view name(BenchPass pass) {
  constexpr std::string_view kNames[] = {"forward", "dgrad", "wgrad", "backward"};
  return kNames[static_cast<int>(pass)];
}

BenchPass parse_pass(const std::string& text) {
  for (const BenchPass p :
       {BenchPass::forward, BenchPass::dgrad, BenchPass::wgrad, BenchPass::backward})
    if (name(p) == text) return p;
  throw UsageError(
      concat("[bench] --pass is '", text, "'; forward, dgrad, wgrad or backward expected"));
}

std::string Problem::text() const {
  if (conv) return joined_by(sizes, ',');
  std::string shape = joined_by(sizes, 'x');
  if (product) shape += concat(' ', product->trans_a ? 't' : 'n', product->trans_b ? 't' : 'n');
  return shape;
}

double Problem::flops() const {
  if (pass == BenchPass::forward) return c.flops;
  if (!is_product()) return 0;
  return c.flops * (pass == BenchPass::backward ? 2 : 1);
}

double Problem::min_bytes() const {
  const auto out = static_cast<double>(size_of(out_dtype));
  double bytes = 0;
  if (pass == BenchPass::forward) {
    bytes = elements(c.y) * out;
    for (const CaseInput& input : c.inputs) {
      const bool updated = input.name == "running_mean" || input.name == "running_var";
      bytes += elements(input.shape) * role_of(*this, input).bytes * (updated ? 2 : 1);
    }
    return bytes;
  }
  bytes = dy_bytes(*this);
  const bool reads = gradient_reads_operands(c.operation);
  const bool chain = is_one_of(c.operation, {"matmul", "linear", "conv2d", "mul"});
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseInput& input = c.inputs[i];
    const Role role = role_of(*this, input);
    // The first operand's gradient reads the second, and the other way round.
    const bool read =
        pass == BenchPass::backward || !chain || i == (pass == BenchPass::dgrad ? 1U : 0U);
    const bool shift =
        input.name == "beta" || input.name == "running_mean" || input.name == "running_var";
    if (reads && read && !shift) bytes += elements(input.shape) * role.bytes;
    if (!reads && !role.operand) bytes += elements(input.shape) * role.bytes;  // indices
    const bool written = pass == BenchPass::backward || i == (pass == BenchPass::dgrad ? 0U : 1U);
    if (role.operand && written) bytes += elements(input.shape) * out;
  }
  return bytes;
}

double Problem::footprint() const {
  double bytes = elements(c.y) * 8;
  for (const CaseInput& input : c.inputs)
    bytes += elements(input.shape) * role_of(*this, input).bytes;
  return pass == BenchPass::forward ? bytes : 2 * bytes;
}

Problem resized(const Problem& p, const std::vector<std::int64_t>& sizes) {
  Problem other = p;
  if (p.conv) {
    set_conv(other, sizes);
  } else if (p.product) {
    set_product(other, sizes, p.product->trans_a, p.product->trans_b);
  } else {
    other.sizes = sizes;
    other.c = case_of(p.operation(), sizes);
  }
  // Those that name a kernel, say.
  for (const auto& [key, value] : p.c.parameters) other.c.parameters.try_emplace(key, value);
  return other;
}

Problem reduced(const Problem& p) {
  Sizes s = p.sizes;
  if (p.conv) {
    s[0] = std::min<std::int64_t>(s[0], 2);
    s[1] = std::min(s[1], std::max<std::int64_t>(13, s[5]));
    s[2] = std::min(s[2], std::max<std::int64_t>(11, s[6]));
    // Channels stay multiples of 16, and the image's of 64, where they are.
    if (s[3] > 64) s[3] = s[3] % 64 == 0 ? 64 : 48 + s[3] % 16;
    if (s[4] > 80) s[4] = 80 + s[4] % 16;
  } else if (p.product) {
    const std::size_t first = s.size() - 3;
    if (first == 1) s[0] = std::min<std::int64_t>(s[0], 2);
    // Rows of 16 bytes stay rows of 16 bytes, and others stay others.
    const auto cut = [](std::int64_t n, std::int64_t most) {
      return n <= most ? n : most - most % 8 + n % 8;
    };
    s[first] = cut(s[first], 152);
    s[first + 1] = cut(s[first + 1], 280);
    s[first + 2] = cut(s[first + 2], 136);
  } else if (p.operation() == "embedding") {
    s[1] = std::min<std::int64_t>(s[1], 97);
    s[0] = std::min<std::int64_t>(s[0], 67);
  } else {
    constexpr std::int64_t kElements = 1 << 16;
    std::int64_t rest = 1;
    for (std::size_t i = 1; i < s.size(); ++i) rest *= std::max<std::int64_t>(s[i], 1);
    s[0] = std::min(s[0], std::max<std::int64_t>(3, kElements / rest));
    if (s.size() == 1) s[0] = std::min<std::int64_t>(s[0], kElements + 1);
  }
  return resized(p, s);
}

std::vector<Problem> make_problems(const ProblemRequest& request) {
  std::vector<Problem> list;
  std::string names;
  for (const OperationInfo& info : kOperations)
    names += concat(names.empty() ? "" : ", ", info.name);
  for (const std::string& text : request.sizes)
    if (read_sizes(text, 'x').empty())
      throw UsageError(concat("[bench] --size is '", text,
                              "'; whole numbers below 2^31 with x between them expected, as in "
                              "4096x4096x4096"));
  for (const std::string& text : request.layouts)
    if (!is_one_of(text, {"nn", "nt", "tn", "tt"}))
      throw UsageError(concat("[bench] --layout is '", text, "'; nn, nt, tn or tt expected"));

  std::vector<std::size_t> used(request.sizes.size(), 0);
  for (const std::string& asked : request.operations) {
    const std::string_view op = asked == "gemm" ? "matmul" : std::string_view(asked);
    const auto info = std::find_if(std::begin(kOperations), std::end(kOperations),
                                   [&](const OperationInfo& o) { return o.name == op; });
    if (info == std::end(kOperations))
      throw UsageError(
          concat("[bench] unknown operation '", asked, "'; one of ", names, " or step expected"));
    const OpSignature& signature = op_signature(op);
    Problem p;
    p.pass = request.pass;
    p.c.operation = op;
    if (p.pass != BenchPass::forward && signature.numbered())
      throw UsageError(concat("[bench] ", op, " has no ", name(p.pass), " pass"));
    const bool product = is_one_of(op, {"matmul", "linear", "conv2d"});
    if ((p.pass == BenchPass::dgrad || p.pass == BenchPass::wgrad) && !product)
      throw UsageError(concat("[bench] --pass ", name(p.pass),
                              " is of products and convolutions; backward expected for ", op));

    std::vector<Problem> shapes;
    if (op == "conv2d") {
      std::vector<std::string> given = request.convolutions;
      if (given.empty()) given.emplace_back(info->usual);
      for (const std::string& text : given) {
        const Sizes s = read_sizes(text, ',');
        check_conv(s, text);
        check_elements(op, {s[0], s[1] + 2 * s[8], s[2] + 2 * s[8], std::max(s[3], s[4])}, text);
        check_elements(op, {s[3], s[4], s[5], s[6]}, text);
        set_conv(p, s);
        shapes.push_back(p);
      }
    } else {
      std::vector<Sizes> all;
      for (std::size_t i = 0; i < request.sizes.size(); ++i) {
        Sizes s = read_sizes(request.sizes[i], 'x');
        if (!takes_rank(op, s.size())) continue;
        ++used[i];
        check_elements(op, s, request.sizes[i]);
        all.push_back(std::move(s));
      }
      if (all.empty() && !request.sizes.empty())
        throw UsageError(concat("[bench] no --size fits ", op, ": ", info->size, " expected"));
      if (all.empty()) all.push_back(read_sizes(info->usual, 'x'));
      for (const Sizes& s : all) {
        if (!product) {
          p.sizes = s;
          p.c = case_of(op, s);
          shapes.push_back(p);
          continue;
        }
        for (const std::string& layout :
             op == "matmul" ? request.layouts : std::vector<std::string>{"nt"}) {
          set_product(p, s, layout[0] == 't', layout[1] == 't');
          shapes.push_back(p);
        }
      }
    }
    for (Problem& shape : shapes)
      for (const DType dtype : request.dtypes) {
        shape.dtype = dtype;
        const DType wide = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
        const bool is_wide =
            shape.pass == BenchPass::wgrad || (shape.pass == BenchPass::forward && signature.loss);
        shape.out_dtype = request.out_dtype.value_or(is_wide ? wide : dtype);
        if (shape.pass != BenchPass::forward && shape.out_dtype != dtype && shape.out_dtype != wide)
          throw UsageError(concat("[bench] --out-dtype ", name(shape.out_dtype), " with --dtype ",
                                  name(dtype), ": a gradient is ", name(dtype), " or ",
                                  name(wide)));
        list.push_back(shape);
      }
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i] == 0)
      throw UsageError(concat("[bench] --size ", request.sizes[i],
                              " fits none of the operations; see roundoff bench --list"));
  return list;
}

}  // namespace roundoff::bench
