#include "kernels/gemm/kernel.h"

#include <string>

#include "kernels/base/check.h"

namespace roundoff {

std::string_view name(ProductKernel kernel) {
  constexpr std::string_view kNames[] = {"automatic", "naive", "tiles", "mma",
                                         "sm80",      "wgmma", "sm90",  "ping_pong"};
  return kNames[static_cast<int>(kernel)];
}

ProductKernel parse_product_kernel(std::string_view operation, std::string_view text) {
  std::string names;
  for (const ProductKernel kernel : kProductKernels) {
    if (name(kernel) == text) return kernel;
    names += concat(names.empty() ? "" : ", ", name(kernel));
  }
  fail(operation, "kernel is '", text, "'; one of ", names, " expected");
}

}  // namespace roundoff
