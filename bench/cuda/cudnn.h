// Convolutions by NVIDIA's cuDNN, opened at run time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/cuda/cudnn_api.h"
#include "bench/cuda/shared_library.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/simt/runtime.h"

namespace roundoff::bench {

// NHWC x KRSC through the backend interface: an operation graph (a convolution, with bias and relu
// where they are asked for), the library's heuristics, and the first of its engines that takes the
// graph within the workspace. Each is planned once and kept.
class Cudnn {
 public:
  Cudnn(std::shared_ptr<simt::Runtime> runtime, std::span<const std::filesystem::path> folders,
        std::vector<std::string> names = default_names(),
        std::size_t workspace = std::size_t{256} << 20);
  ~Cudnn();
  static std::vector<std::string> default_names();

  bool found() const { return library_.found(); }
  const std::string& why_not() const { return why_not_; }
  const std::string& name() const { return name_; }  // "cuDNN 9.19.0"

  enum class Pass : unsigned char { forward, grad_input, grad_weight };
  // x, w, y: inputs and result of the forward pass; in a backward pass the gradients take the place
  // of what they belong to, and `out` is dx or dw. bias: absent, or [K] in the forward pass.
  // Queues the work and returns an empty text, or says why the library does not take it.
  std::string convolve(StreamRef stream, Pass pass, const Conv2dParams& params,
                       const ConstView& first, const ConstView& second, const ConstView& bias,
                       const Out& out);

 private:
  struct Plan;
  std::string make(Plan& plan, Pass pass, const Conv2dParams& params, const Conv2dShape& shape,
                   const ConstView& first, const ConstView& second, const ConstView& bias,
                   const Out& out);
  std::string said(const char* call, cudnn::Status status) const;

  std::shared_ptr<simt::Runtime> runtime_;
  SharedLibrary library_;
  cudnn::Functions f_{};
  std::string why_not_;
  std::string name_ = "cuDNN";
  cudnn::Handle handle_ = nullptr;
  simt::DeviceBuffer workspace_;
  std::map<std::string, std::shared_ptr<Plan>> plans_;
};

}  // namespace roundoff::bench
