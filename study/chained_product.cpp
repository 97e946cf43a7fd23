#include "study/chained_product.h"

#include "kernels/base/tensor_core.h"
#include "verify/host_dot.h"

namespace roundoff::study {

namespace {

std::vector<float> narrowed(std::span<const double> values) {
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<double> chained_product(Accumulator a, std::int64_t m, std::int64_t n, std::int64_t k,
                                    std::span<const double> left, std::span<const double> right) {
  const std::vector<float> x = narrowed(left), y = narrowed(right);
  const auto size = [](std::int64_t v) { return static_cast<std::size_t>(v); };
  std::vector<float> out(size(m * n));
  if (a == Accumulator::fp16) {
    std::vector<float> column(size(k));
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t p = 0; p < k; ++p) column[size(p)] = y[size(p * n + j)];
      for (std::int64_t i = 0; i < m; ++i)
        out[size(i * n + j)] = static_cast<float>(
            host_dot(a, DType::fp16, std::span(x).subspan(size(i * k), size(k)), column));
    }
  } else {
    const TensorCoreTile tile{.a = x.data(),
                              .lda = k,
                              .b = y.data(),
                              .ldb = n,
                              .c = out.data(),
                              .ldc = n,
                              .m = static_cast<int>(m),
                              .n = static_cast<int>(n),
                              .k = static_cast<int>(k)};
    if (a == Accumulator::fp32) {
      fma_tile(tile);
    } else {
      tensor_core_tile(tensor_core(a, DType::fp16), tile);
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace roundoff::study
