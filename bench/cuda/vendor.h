// NVIDIA's libraries as one library of products (ops/product_library.h), and what is said of each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/cuda/cublas_lt.h"
#include "bench/cuda/cudnn.h"
#include "ops/product_library.h"

namespace roundoff::bench {

struct VendorNames {
  std::vector<std::filesystem::path> folders;  // looked in before the system's
  std::vector<std::string> cublas = CublasLt::default_names();
  std::vector<std::string> cudnn = Cudnn::default_names();
};

class VendorLibrary final : public ProductLibrary {
 public:
  VendorLibrary(const std::shared_ptr<simt::Runtime>& runtime, const VendorNames& names)
      : cublas_(runtime, names.folders, names.cublas),
        cudnn_(runtime, names.folders, names.cudnn) {}

  std::string gemm(StreamRef stream, const GemmParams& params, const ConstView& a,
                   const ConstView& b, const ConstView& c, const Out& y) override;
  std::string conv2d_forward(StreamRef stream, const Conv2dParams& params, const ConstView& x,
                             const ConstView& w, const ConstView& bias, const Out& y) override;
  std::string conv2d_grad_input(StreamRef stream, const Conv2dParams& params, const ConstView& dy,
                                const ConstView& w, const Out& dx) override;
  std::string conv2d_grad_weight(StreamRef stream, const Conv2dParams& params, const ConstView& x,
                                 const ConstView& dy, const Out& dw) override;

  const CublasLt& cublas() const { return cublas_; }
  const Cudnn& cudnn() const { return cudnn_; }
  // Which of the two an operation is for: "cuBLASLt 13.1.0", with why it cannot be used, if so.
  const std::string& name_for(bool convolution) const;
  const std::string& refusal_for(bool convolution) const;

  // Calls since the last reset: those that were queued, and the others by reason.
  struct Log {
    std::int64_t taken = 0;
    std::map<std::string, std::int64_t> declined;
    std::string declined_text() const;  // "2 of 6: why; why"
  };
  const Log& log() const { return log_; }
  void reset_log() { log_ = {}; }

 private:
  std::string noted(const char* what, std::string why);

  CublasLt cublas_;
  Cudnn cudnn_;
  Log log_;
};

}  // namespace roundoff::bench
