#include "bench/cuda/vendor.h"

namespace roundoff::bench {

std::string VendorLibrary::Log::declined_text() const {
  if (declined.empty()) return {};
  std::int64_t count = 0;
  std::string reasons;
  for (const auto& [reason, times] : declined) {
    count += times;
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return concat(count, " of ", count + taken, ": ", reasons);
}

std::string VendorLibrary::noted(const char* what, std::string why) {
  if (why.empty()) {
    ++log_.taken;
  } else {
    ++log_.declined[concat(what, ": ", why)];
  }
  return why;
}

std::string VendorLibrary::gemm(StreamRef stream, const GemmParams& params, const ConstView& a,
                                const ConstView& b, const ConstView& c, const Out& y) {
  if (!y.wanted) return {};
  return noted("gemm", cublas_.gemm(stream, params, a, b, c, y));
}

std::string VendorLibrary::conv2d_forward(StreamRef stream, const Conv2dParams& params,
                                          const ConstView& x, const ConstView& w,
                                          const ConstView& bias, const Out& y) {
  if (!y.wanted) return {};
  return noted("conv2d", cudnn_.convolve(stream, Cudnn::Pass::forward, params, x, w, bias, y));
}

std::string VendorLibrary::conv2d_grad_input(StreamRef stream, const Conv2dParams& params,
                                             const ConstView& dy, const ConstView& w,
                                             const Out& dx) {
  if (!dx.wanted) return {};
  return noted("conv2d dgrad", cudnn_.convolve(stream, Cudnn::Pass::grad_input, params, dy, w,
                                               ConstView::absent(), dx));
}

std::string VendorLibrary::conv2d_grad_weight(StreamRef stream, const Conv2dParams& params,
                                              const ConstView& x, const ConstView& dy,
                                              const Out& dw) {
  if (!dw.wanted) return {};
  return noted("conv2d wgrad", cudnn_.convolve(stream, Cudnn::Pass::grad_weight, params, x, dy,
                                               ConstView::absent(), dw));
}

const std::string& VendorLibrary::name_for(bool convolution) const {
  return convolution ? cudnn_.name() : cublas_.name();
}

const std::string& VendorLibrary::refusal_for(bool convolution) const {
  return convolution ? cudnn_.why_not() : cublas_.why_not();
}

}  // namespace roundoff::bench
