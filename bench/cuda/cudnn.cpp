#include "bench/cuda/cudnn.h"

#include <array>
#include <bit>
#include <utility>

#include "bench/cuda/cublas_lt.h"

namespace roundoff::bench {

namespace {

using namespace cudnn;

// The tensors of a graph, by the numbers that a variant pack names them with.
enum Id : std::int64_t { kX = 1, kW = 2, kY = 3, kBias = 4, kSum = 5, kBiased = 6 };

bool type_of(DType dtype, Type& type) {
  switch (dtype) {
    case DType::fp32:
      type = Type::fp32;
      return true;
    case DType::fp64:
      type = Type::fp64;
      return true;
    case DType::fp16:
      type = Type::fp16;
      return true;
    case DType::bf16:
      type = Type::bf16;
      return true;
    default:
      return false;
  }
}

std::int64_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return address == 0 ? 16 : std::int64_t{1} << std::min(std::countr_zero(address), 4);
}

// Descriptors that refer to each other, destroyed together; the first failure is kept, and nothing
// is called after it.
class Builder {
 public:
  explicit Builder(const Functions& f) : f_(f) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder() {
    for (auto d = made_.rbegin(); d != made_.rend(); ++d) (void)f_.descriptor_destroy(*d);
  }

  Descriptor create(Kind kind) {
    Descriptor d = nullptr;
    note("cudnnBackendCreateDescriptor", f_.descriptor_create(kind, &d));
    if (d != nullptr) made_.push_back(d);
    return d;
  }
  template <class T>
  void set(Descriptor d, Attribute attribute, AttributeType type, std::span<const T> values) {
    if (ok())
      note("cudnnBackendSetAttribute",
           f_.set(d, attribute, type, static_cast<std::int64_t>(values.size()), values.data()));
  }
  template <class T>
  void set(Descriptor d, Attribute attribute, AttributeType type, const T& value) {
    set(d, attribute, type, std::span<const T>(&value, 1));
  }
  void finalize(Descriptor d) {
    if (ok()) note("cudnnBackendFinalize", f_.finalize(d));
  }
  void note(const char* call, Status status) {
    if (status_ != kSuccess || status == kSuccess) return;
    status_ = status;
    call_ = call;
  }
  bool ok() const { return status_ == kSuccess; }
  Status status() const { return status_; }
  const char* call() const { return call_; }
  void forget_failure() { status_ = kSuccess; }

  // dims of NCHW (KCRS), held as NHWC (KRSC).
  Descriptor tensor(std::int64_t id, Type type, std::int64_t n, std::int64_t h, std::int64_t w,
                    std::int64_t c, std::int64_t alignment, bool is_virtual = false) {
    const Descriptor d = create(Kind::tensor);
    const std::array<std::int64_t, 4> dims{n, c, h, w}, strides{h * w * c, 1, w * c, c};
    set(d, Attribute::tensor_type, AttributeType::data_type, type);
    set(d, Attribute::tensor_dimensions, AttributeType::int64, std::span<const std::int64_t>(dims));
    set(d, Attribute::tensor_strides, AttributeType::int64, std::span<const std::int64_t>(strides));
    set(d, Attribute::tensor_id, AttributeType::int64, id);
    set(d, Attribute::tensor_alignment, AttributeType::int64, alignment);
    if (is_virtual) set(d, Attribute::tensor_virtual, AttributeType::boolean, true);
    finalize(d);
    return d;
  }
  Descriptor pointwise(Pointwise mode, Type precision, Descriptor x, Descriptor b, Descriptor y) {
    const Descriptor what = create(Kind::pointwise);
    set(what, Attribute::pointwise_mode, AttributeType::pointwise_mode, mode);
    set(what, Attribute::pointwise_precision, AttributeType::data_type, precision);
    finalize(what);
    const Descriptor d = create(Kind::pointwise_operation);
    set(d, Attribute::pointwise_operation, AttributeType::descriptor, what);
    set(d, Attribute::pointwise_x, AttributeType::descriptor, x);
    if (b != nullptr) set(d, Attribute::pointwise_b, AttributeType::descriptor, b);
    set(d, Attribute::pointwise_y, AttributeType::descriptor, y);
    finalize(d);
    return d;
  }

 private:
  const Functions& f_;
  std::vector<Descriptor> made_;
  Status status_ = kSuccess;
  const char* call_ = "";
};

}  // namespace

struct Cudnn::Plan {
  explicit Plan(const Functions& f) : builder(f) {}
  Builder builder;
  std::string refusal;
  Descriptor plan = nullptr;
};

std::vector<std::string> Cudnn::default_names() {
  return {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"};
}

Cudnn::Cudnn(std::shared_ptr<simt::Runtime> runtime, std::span<const std::filesystem::path> folders,
             std::vector<std::string> names, std::size_t workspace)
    : runtime_(std::move(runtime)), library_(SharedLibrary::open(names, folders)) {
  if (!library_.found()) {
    why_not_ = library_.why_not();
    return;
  }
  library_.get(f_.create, "cudnnCreate");
  library_.get(f_.destroy, "cudnnDestroy");
  library_.get(f_.set_stream, "cudnnSetStream");
  library_.get(f_.version, "cudnnGetVersion");
  library_.get(f_.error_string, "cudnnGetErrorString");
  library_.get(f_.descriptor_create, "cudnnBackendCreateDescriptor");
  library_.get(f_.descriptor_destroy, "cudnnBackendDestroyDescriptor");
  library_.get(f_.set, "cudnnBackendSetAttribute");
  library_.get(f_.get, "cudnnBackendGetAttribute");
  library_.get(f_.finalize, "cudnnBackendFinalize");
  library_.get(f_.execute, "cudnnBackendExecute");
  name_ = concat("cuDNN ", version_text(f_.version()));
  if (runtime_ == nullptr) {
    why_not_ = concat(name_, " without a device");
    return;
  }
  if (const Status status = f_.create(&handle_); status != kSuccess) {
    handle_ = nullptr;
    why_not_ = said("cudnnCreate", status);
    return;
  }
  workspace_ = simt::DeviceBuffer(runtime_, workspace);
}

Cudnn::~Cudnn() {
  plans_.clear();
  if (handle_ != nullptr) (void)f_.destroy(handle_);
}

std::string Cudnn::said(const char* call, Status status) const {
  const char* text = f_.error_string(status);
  return concat(name_, ": ", call, " says ", text == nullptr ? "nothing" : text, " (", status, ")");
}

std::string Cudnn::make(Plan& plan, Pass pass, const Conv2dParams& p, const Conv2dShape& s,
                        const ConstView& first, const ConstView& second, const ConstView& bias,
                        const Out& out) {
  if (s.n == 0 || s.c == 0 || s.k == 0) return "no convolution without terms";
  if (p.accumulator != Accumulator::fp32)
    return concat("no accumulator ", roundoff::name(p.accumulator));
  if (p.activation == Activation::gelu) return "no gelu by erf in its graphs";
  Type a{}, b{}, o{};
  if (!type_of(first.dtype, a) || !type_of(second.dtype, b) || !type_of(out.view.dtype, o) ||
      first.dtype != second.dtype || first.dtype == DType::fp64)
    return concat("no operands of ", roundoff::name(first.dtype), " and ",
                  roundoff::name(second.dtype));
  if (first.dtype == DType::fp32 && !p.tf32)
    return "fp32 operands: its engines may round them to tf32, ours does not";
  const bool adds = out.write == Write::accumulate;
  const bool relu = p.activation == Activation::relu;
  if (adds && (bias.present || relu)) return "no epilogue where a result is added to";

  Builder& g = plan.builder;
  const std::int64_t channels = s.c / p.groups;
  const bool forward = pass == Pass::forward, input = pass == Pass::grad_input;
  const bool fused = bias.present || relu;
  const Type x_type = input ? o : a;
  const Type w_type = forward ? b : (input ? b : o);
  const Type y_type = forward ? o : (input ? a : b);
  const void* x_data = input ? out.view.data : first.data;
  const void* w_data = pass == Pass::grad_weight ? out.view.data : second.data;
  const void* y_data = forward ? out.view.data : (input ? first.data : second.data);
  const Descriptor x = g.tensor(kX, x_type, s.n, s.h, s.w, s.c, alignment_of(x_data));
  const Descriptor w = g.tensor(kW, w_type, s.k, s.r, s.s, channels, alignment_of(w_data));
  const Descriptor y = g.tensor(kY, y_type, s.n, s.p, s.q, s.k, alignment_of(y_data));
  // What the convolution itself gives, where more follows.
  const Descriptor sum =
      fused ? g.tensor(kSum, Type::fp32, s.n, s.p, s.q, s.k, 16, /*is_virtual=*/true) : y;

  const Descriptor convolution = g.create(Kind::convolution);
  const auto pair = [&](Attribute attribute, const std::array<std::int64_t, 2>& values) {
    g.set(convolution, attribute, AttributeType::int64, std::span<const std::int64_t>(values));
  };
  g.set(convolution, Attribute::convolution_type, AttributeType::data_type, Type::fp32);
  g.set(convolution, Attribute::convolution_mode, AttributeType::convolution_mode,
        kCrossCorrelation);
  g.set(convolution, Attribute::convolution_dimensions, AttributeType::int64, std::int64_t{2});
  pair(Attribute::convolution_dilations, p.dilation);
  pair(Attribute::convolution_strides, p.stride);
  pair(Attribute::convolution_pre_paddings, p.padding);
  pair(Attribute::convolution_post_paddings, p.padding);
  g.finalize(convolution);

  struct Names {
    Kind kind;
    Attribute convolution, x, w, y, alpha, beta;
  };
  using A = Attribute;
  const Names names =
      forward ? Names{Kind::forward, A::forward_convolution, A::forward_x,   A::forward_w,
                      A::forward_y,  A::forward_alpha,       A::forward_beta}
      : input
          ? Names{Kind::grad_input, A::grad_input_convolution, A::grad_input_dx,  A::grad_input_w,
                  A::grad_input_dy, A::grad_input_alpha,       A::grad_input_beta}
          : Names{Kind::grad_weight,  A::grad_weight_convolution, A::grad_weight_x,
                  A::grad_weight_dw,  A::grad_weight_dy,          A::grad_weight_alpha,
                  A::grad_weight_beta};
  const Descriptor operation = g.create(names.kind);
  g.set(operation, names.convolution, AttributeType::descriptor, convolution);
  g.set(operation, names.x, AttributeType::descriptor, x);
  g.set(operation, names.w, AttributeType::descriptor, w);
  g.set(operation, names.y, AttributeType::descriptor, sum);
  g.set(operation, names.alpha, AttributeType::fp32, 1.0F);
  g.set(operation, names.beta, AttributeType::fp32, adds ? 1.0F : 0.0F);
  g.finalize(operation);

  std::vector<Descriptor> operations{operation};
  Descriptor last = sum;
  if (bias.present) {
    Type bias_type{};
    if (!type_of(bias.dtype, bias_type)) return "no such bias";
    const Descriptor added = g.tensor(kBias, bias_type, 1, 1, 1, s.k, alignment_of(bias.data));
    const Descriptor to =
        relu ? g.tensor(kBiased, Type::fp32, s.n, s.p, s.q, s.k, 16, /*is_virtual=*/true) : y;
    operations.push_back(g.pointwise(Pointwise::add, Type::fp32, last, added, to));
    last = to;
  }
  if (relu) operations.push_back(g.pointwise(Pointwise::relu, Type::fp32, last, nullptr, y));

  const Descriptor graph = g.create(Kind::graph);
  g.set(graph, Attribute::graph_handle, AttributeType::handle, handle_);
  g.set(graph, Attribute::graph_operations, AttributeType::descriptor,
        std::span<const Descriptor>(operations));
  g.finalize(graph);
  if (!g.ok()) return said(g.call(), g.status());

  std::string why = concat(name_, " has no engine for it");
  for (const Heuristic mode : {Heuristic::a, Heuristic::fallback}) {
    const Descriptor heuristic = g.create(Kind::heuristic);
    g.set(heuristic, Attribute::heuristic_graph, AttributeType::descriptor, graph);
    g.set(heuristic, Attribute::heuristic_mode, AttributeType::heuristic, mode);
    g.finalize(heuristic);
    std::int64_t count = 0;
    if (g.ok())
      g.note("cudnnBackendGetAttribute", f_.get(heuristic, Attribute::heuristic_results,
                                                AttributeType::descriptor, 0, &count, nullptr));
    count = std::min<std::int64_t>(count, 16);
    std::vector<Descriptor> configs;
    for (std::int64_t i = 0; i < count && g.ok(); ++i)
      configs.push_back(g.create(Kind::engine_config));
    std::int64_t given = 0;
    if (g.ok() && count > 0)
      g.note("cudnnBackendGetAttribute",
             f_.get(heuristic, Attribute::heuristic_results, AttributeType::descriptor, count,
                    &given, configs.data()));
    for (std::int64_t i = 0; i < given && g.ok(); ++i) {
      const Descriptor candidate = g.create(Kind::plan);
      g.set(candidate, Attribute::plan_handle, AttributeType::handle, handle_);
      g.set(candidate, Attribute::plan_config, AttributeType::descriptor,
            configs[static_cast<std::size_t>(i)]);
      g.finalize(candidate);
      std::int64_t bytes = 0, one = 0;
      if (g.ok())
        g.note("cudnnBackendGetAttribute",
               f_.get(candidate, Attribute::plan_workspace, AttributeType::int64, 1, &one, &bytes));
      if (g.ok() && bytes <= static_cast<std::int64_t>(workspace_.bytes())) {
        plan.plan = candidate;
        return {};
      }
      why = g.ok() ? concat(name_, " wants a workspace of ", bytes, " bytes")
                   : said(g.call(), g.status());
      g.forget_failure();  // the next engine may take it
    }
    if (!g.ok()) why = said(g.call(), g.status());
    g.forget_failure();
  }
  return why;
}

std::string Cudnn::convolve(StreamRef stream, Pass pass, const Conv2dParams& p,
                            const ConstView& first, const ConstView& second, const ConstView& bias,
                            const Out& out) {
  if (handle_ == nullptr) return why_not_;
  if (!out.wanted) return "no result is wanted";
  const bool forward = pass == Pass::forward, input = pass == Pass::grad_input;
  const Shape& x_shape = input ? out.view.shape : first.shape;
  const Shape& w_shape = pass == Pass::grad_weight ? out.view.shape : second.shape;
  const Conv2dShape shape = conv2d_shape(x_shape, w_shape, p);
  const void* x = input ? out.view.data : first.data;
  const void* w = pass == Pass::grad_weight ? out.view.data : second.data;
  const void* y = forward ? out.view.data : (input ? first.data : second.data);
  const std::string key =
      concat(static_cast<int>(pass), ' ', x_shape, w_shape, p.stride[0], ' ', p.stride[1], ' ',
             p.padding[0], ' ', p.padding[1], ' ', p.dilation[0], ' ', p.dilation[1], ' ', p.groups,
             ' ', static_cast<int>(p.accumulator), p.tf32, static_cast<int>(p.activation),
             static_cast<int>(first.dtype), ' ', static_cast<int>(second.dtype), ' ',
             bias.present ? static_cast<int>(bias.dtype) : -1, ' ',
             static_cast<int>(out.view.dtype), ' ', static_cast<int>(out.write), ' ',
             alignment_of(x), ' ', alignment_of(w), ' ', alignment_of(y));
  std::shared_ptr<Plan>& plan = plans_[key];
  if (plan == nullptr) {
    plan = std::make_shared<Plan>(f_);
    plan->refusal = make(*plan, pass, p, shape, first, second, bias, out);
  }
  if (!plan->refusal.empty()) return plan->refusal;

  if (const Status status = f_.set_stream(handle_, stream.handle); status != kSuccess)
    return said("cudnnSetStream", status);
  Builder pack(f_);
  std::vector<std::int64_t> ids{kX, kW, kY};
  std::vector<void*> pointers{const_cast<void*>(x), const_cast<void*>(w), const_cast<void*>(y)};
  if (bias.present) {
    ids.push_back(kBias);
    pointers.push_back(const_cast<void*>(bias.data));
  }
  const Descriptor d = pack.create(Kind::variant_pack);
  pack.set(d, Attribute::pack_pointers, AttributeType::pointer, std::span<void* const>(pointers));
  pack.set(d, Attribute::pack_ids, AttributeType::int64, std::span<const std::int64_t>(ids));
  pack.set(d, Attribute::pack_workspace, AttributeType::pointer, workspace_.data());
  pack.finalize(d);
  if (pack.ok()) pack.note("cudnnBackendExecute", f_.execute(handle_, plan->plan, d));
  return pack.ok() ? std::string() : said(pack.call(), pack.status());
}

}  // namespace roundoff::bench
