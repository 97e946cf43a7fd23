// Matrix products by NVIDIA's cuBLASLt, opened at run time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/cuda/cublas_lt_api.h"
#include "bench/cuda/shared_library.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simt/runtime.h"

namespace roundoff::bench {

// Row-major products, as gemm.h has them, are its column-major ones with the operands exchanged.
// Every product is planned once (descriptors, the library's own choice of algorithm) and kept, so
// that a captured call does nothing but launch.
class CublasLt {
 public:
  // `names`: of the library, for tests. `workspace`: bytes that it may use, allocated here.
  CublasLt(std::shared_ptr<simt::Runtime> runtime, std::span<const std::filesystem::path> folders,
           std::vector<std::string> names = default_names(),
           std::size_t workspace = std::size_t{64} << 20);
  ~CublasLt();
  static std::vector<std::string> default_names();

  bool found() const { return library_.found(); }
  // Why it cannot be used.
  const std::string& why_not() const { return why_not_; }
  // "cuBLASLt 13.1.0".
  const std::string& name() const { return name_; }

  // Queues the product and returns an empty text, or says why the library does not take it.
  std::string gemm(StreamRef stream, const GemmParams& params, const ConstView& a,
                   const ConstView& b, const ConstView& c, const Out& y);

 private:
  struct Plan;
  std::shared_ptr<Plan> plan(const GemmParams& params, const ConstView& a, const ConstView& b,
                             const ConstView& c, const Out& y);
  std::string make(Plan& plan, const GemmParams& params, const ConstView& a, const ConstView& b,
                   const ConstView& c, const Out& y);
  std::string said(const char* call, cublas::Status status) const;

  std::shared_ptr<simt::Runtime> runtime_;
  SharedLibrary library_;
  cublas::Functions f_{};
  std::string why_not_;
  std::string name_ = "cuBLASLt";
  cublas::Handle handle_ = nullptr;
  simt::DeviceBuffer workspace_;
  std::map<std::string, std::shared_ptr<Plan>> plans_;
};

// "13.1.0" of a version number as cuBLAS (13 01 00) or cuDNN (9 19 00) give it: 10000 major + 100
// minor + patch, or 1000 major + 100 minor + patch for cuDNN up to 8.
std::string version_text(std::size_t version);

}  // namespace roundoff::bench
