#include "bench/cuda/cublas_lt.h"

#include <bit>
#include <utility>

namespace roundoff::bench {

namespace {

using namespace cublas;

// A descriptor of the library, destroyed with its holder.
struct Descriptor {
  void* handle = nullptr;
  Status (*destroy)(void*) = nullptr;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (handle != nullptr) (void)destroy(handle);
  }
};

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

// The largest power of two up to 256 that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return address == 0 ? 256U : 1U << std::min(std::countr_zero(address), 8);
}

}  // namespace

struct CublasLt::Plan {
  std::string refusal;
  Descriptor matmul, a, b, c, d, preference;
  Algorithm algorithm{};
  bool wide = false;  // alpha and beta are fp64
};

std::vector<std::string> CublasLt::default_names() {
  return {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
}

std::string version_text(std::size_t version) {
  const std::size_t unit = version >= 10000 ? 10000 : 1000;
  return concat(version / unit, '.', version % unit / 100, '.', version % 100);
}

CublasLt::CublasLt(std::shared_ptr<simt::Runtime> runtime,
                   std::span<const std::filesystem::path> folders, std::vector<std::string> names,
                   std::size_t workspace)
    : runtime_(std::move(runtime)), library_(SharedLibrary::open(names, folders)) {
  if (!library_.found()) {
    why_not_ = library_.why_not();
    return;
  }
  library_.get(f_.create, "cublasLtCreate");
  library_.get(f_.destroy, "cublasLtDestroy");
  library_.get(f_.version, "cublasLtGetVersion");
  library_.get(f_.status_name, "cublasLtGetStatusName");
  library_.get(f_.matmul_create, "cublasLtMatmulDescCreate");
  library_.get(f_.matmul_destroy, "cublasLtMatmulDescDestroy");
  library_.get(f_.matmul_set, "cublasLtMatmulDescSetAttribute");
  library_.get(f_.layout_create, "cublasLtMatrixLayoutCreate");
  library_.get(f_.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library_.get(f_.layout_set, "cublasLtMatrixLayoutSetAttribute");
  library_.get(f_.preference_create, "cublasLtMatmulPreferenceCreate");
  library_.get(f_.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library_.get(f_.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library_.get(f_.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library_.get(f_.matmul, "cublasLtMatmul");
  name_ = concat("cuBLASLt ", version_text(f_.version()));
  if (runtime_ == nullptr) {
    why_not_ = concat(name_, " without a device");
    return;
  }
  if (const Status status = f_.create(&handle_); status != kSuccess) {
    handle_ = nullptr;
    why_not_ = said("cublasLtCreate", status);
    return;
  }
  workspace_ = simt::DeviceBuffer(runtime_, workspace);
}

CublasLt::~CublasLt() {
  plans_.clear();
  if (handle_ != nullptr) (void)f_.destroy(handle_);
}

std::string CublasLt::said(const char* call, Status status) const {
  const char* text = f_.status_name(status);
  return concat(name_, ": ", call, " says ", text == nullptr ? "nothing" : text, " (", status, ")");
}

std::string CublasLt::make(Plan& plan, const GemmParams& p, const ConstView& a, const ConstView& b,
                           const ConstView& c, const Out& y) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0 || p.alpha == 0)
    return "no product without terms";
  if (p.sum_batch && p.batch > 1) return "no sums over a batch";
  if (p.accumulator != Accumulator::fp32 && p.accumulator != Accumulator::fp64)
    return concat("no accumulator ", roundoff::name(p.accumulator));
  Type types[3];
  const DType output = y.view.dtype;
  if (!type_of(a.dtype, types[0]) || !type_of(b.dtype, types[1]) || !type_of(output, types[2]) ||
      a.dtype != b.dtype)
    return concat("no operands of ", roundoff::name(a.dtype), " and ", roundoff::name(b.dtype));
  plan.wide = a.dtype == DType::fp64;
  if (plan.wide != (output == DType::fp64) || (!plan.wide && p.accumulator == Accumulator::fp64))
    return "fp64 only where everything is";
  if (!plan.wide && output != DType::fp32 && output != a.dtype)
    return concat("no result in ", roundoff::name(output), " of ", roundoff::name(a.dtype));
  const bool adds = c.present && p.beta != 0;
  const bool bias = adds && c.shape == Shape{p.n};
  const bool accumulates = y.write == Write::accumulate;
  if (adds && !bias) return "no added matrix here";
  if (bias && p.beta != 1) return "no scaled bias";
  if (bias && accumulates) return "no bias where a result is added to";
  if (p.activation == Activation::gelu) return "no gelu by erf: its own is tanh's";
  if (accumulates && p.activation != Activation::none) return "no activation of a sum in place";

  Status status = kSuccess;
  const auto failed = [&](const char* call, Status s) {
    status = s;
    return s == kSuccess ? std::string() : said(call, s);
  };
  std::string why;
  const auto tried = [&](const char* call, Status s) {
    if (why.empty()) why = failed(call, s);
  };
  const auto own = [](Descriptor& d, Status (*destroy)(void*)) {
    d.destroy = destroy;
    return &d.handle;
  };
  const Compute compute = plan.wide ? Compute::fp64 : p.tf32 ? Compute::fast_tf32 : Compute::fp32;
  tried("cublasLtMatmulDescCreate", f_.matmul_create(own(plan.matmul, f_.matmul_destroy), compute,
                                                     plan.wide ? Type::fp64 : Type::fp32));
  if (!why.empty()) return why;
  const auto set = [&](MatmulAttribute attribute, const auto& value) {
    tried("cublasLtMatmulDescSetAttribute",
          f_.matmul_set(plan.matmul.handle, attribute, &value, sizeof(value)));
  };
  // y^T = op(B)^T op(A)^T, column-major: B^T comes first, as it lies.
  set(MatmulAttribute::transpose_a, p.trans_b ? Transpose::yes : Transpose::no);
  set(MatmulAttribute::transpose_b, p.trans_a ? Transpose::yes : Transpose::no);
  const bool relu = p.activation == Activation::relu;
  set(MatmulAttribute::epilogue, bias ? (relu ? Epilogue::relu_bias : Epilogue::bias)
                                      : (relu ? Epilogue::relu : Epilogue::none));
  if (bias) {
    Type type{};
    if (!type_of(c.dtype, type)) return "no such bias";
    set(MatmulAttribute::bias_type, type);
    set(MatmulAttribute::bias_pointer, c.data);  // the heuristics ask whether there is one
  }
  const auto layout = [&](Descriptor& d, Type type, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
    tried("cublasLtMatrixLayoutCreate",
          f_.layout_create(own(d, f_.layout_destroy), type, static_cast<std::uint64_t>(rows),
                           static_cast<std::uint64_t>(columns), rows));
    if (!why.empty() || p.batch == 1) return;
    const auto count = static_cast<std::int32_t>(p.batch);
    tried("cublasLtMatrixLayoutSetAttribute",
          f_.layout_set(d.handle, LayoutAttribute::batch_count, &count, sizeof(count)));
    tried("cublasLtMatrixLayoutSetAttribute",
          f_.layout_set(d.handle, LayoutAttribute::batch_stride, &stride, sizeof(stride)));
  };
  layout(plan.a, types[1], p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.stride_b);
  layout(plan.b, types[0], p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.stride_a);
  layout(plan.c, types[2], p.n, p.m, p.m * p.n);
  layout(plan.d, types[2], p.n, p.m, p.m * p.n);
  tried("cublasLtMatmulPreferenceCreate",
        f_.preference_create(own(plan.preference, f_.preference_destroy)));
  if (!why.empty()) return why;
  const auto prefer = [&](PreferenceAttribute attribute, const auto& value) {
    tried("cublasLtMatmulPreferenceSetAttribute",
          f_.preference_set(plan.preference.handle, attribute, &value, sizeof(value)));
  };
  prefer(PreferenceAttribute::workspace, static_cast<std::uint64_t>(workspace_.bytes()));
  prefer(PreferenceAttribute::reduction_schemes, kAddInComputeType);
  prefer(PreferenceAttribute::alignment_a, alignment_of(b.data));
  prefer(PreferenceAttribute::alignment_b, alignment_of(a.data));
  prefer(PreferenceAttribute::alignment_c, alignment_of(y.view.data));
  prefer(PreferenceAttribute::alignment_d, alignment_of(y.view.data));
  if (!why.empty()) return why;
  Heuristic found[8] = {};
  int count = 0;
  tried("cublasLtMatmulAlgoGetHeuristic",
        f_.heuristic(handle_, plan.matmul.handle, plan.a.handle, plan.b.handle, plan.c.handle,
                     plan.d.handle, plan.preference.handle, 8, found, &count));
  if (!why.empty()) return why;
  for (int i = 0; i < count; ++i)
    if (found[i].state == kSuccess) {
      plan.algorithm = found[i].algorithm;
      return {};
    }
  return concat(name_, " has no algorithm for it");
}

std::shared_ptr<CublasLt::Plan> CublasLt::plan(const GemmParams& p, const ConstView& a,
                                               const ConstView& b, const ConstView& c,
                                               const Out& y) {
  const std::string key =
      concat(p.batch, ' ', p.m, ' ', p.n, ' ', p.k, ' ', p.trans_a, p.trans_b, p.tf32, p.sum_batch,
             p.alpha == 0, p.beta == 0, p.beta == 1, ' ', p.stride_a, ' ', p.stride_b, ' ',
             static_cast<int>(p.accumulator), ' ', static_cast<int>(p.activation), ' ',
             static_cast<int>(a.dtype), ' ', static_cast<int>(b.dtype), ' ',
             c.present ? static_cast<int>(c.dtype) : -1, ' ', c.present ? c.shape.numel() : 0, ' ',
             static_cast<int>(y.view.dtype), ' ', static_cast<int>(y.write), ' ',
             alignment_of(a.data), ' ', alignment_of(b.data), ' ', alignment_of(y.view.data));
  std::shared_ptr<Plan>& kept = plans_[key];
  if (kept == nullptr) {
    kept = std::make_shared<Plan>();
    kept->refusal = make(*kept, p, a, b, c, y);
  }
  return kept;
}

std::string CublasLt::gemm(StreamRef stream, const GemmParams& p, const ConstView& a,
                           const ConstView& b, const ConstView& c, const Out& y) {
  if (handle_ == nullptr) return why_not_;
  if (!y.wanted) return "no result is wanted";
  const std::shared_ptr<Plan> plan = this->plan(p, a, b, c, y);
  if (!plan->refusal.empty()) return plan->refusal;
  if (c.present && p.beta != 0)
    if (const Status status = f_.matmul_set(plan->matmul.handle, MatmulAttribute::bias_pointer,
                                            &c.data, sizeof(c.data));
        status != kSuccess)
      return said("cublasLtMatmulDescSetAttribute", status);
  const double wide[2] = {p.alpha, y.write == Write::accumulate ? 1.0 : 0.0};
  const float narrow[2] = {static_cast<float>(wide[0]), static_cast<float>(wide[1])};
  const void* alpha = plan->wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
  const void* beta = plan->wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
  void* out = y.view.data;
  const Status status =
      f_.matmul(handle_, plan->matmul.handle, alpha, b.data, plan->a.handle, a.data, plan->b.handle,
                beta, out, plan->c.handle, out, plan->d.handle, &plan->algorithm, workspace_.data(),
                workspace_.bytes(), stream.handle);
  return status == kSuccess ? std::string() : said("cublasLtMatmul", status);
}

}  // namespace roundoff::bench
