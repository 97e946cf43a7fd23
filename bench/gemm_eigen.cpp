#include "bench/gemm.h"

// g++ 12 takes its own "undefined" vector operands for variables that nobody initialised.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

// Eigen 3.4 has the processor's conversions of fp16 but, by an oversight, uses them under clang
// alone; without them it is 50 times slower than this.
#if defined(__F16C__) && !defined(EIGEN_HAS_FP16_C)
#define EIGEN_HAS_FP16_C
#endif

#include <Eigen/Core>

namespace roundoff::bench {

namespace {

template <class T>
void multiply(const void* a, const void* b, void* c, std::int64_t n) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> left(static_cast<const T*>(a), n, n);
  const Eigen::Map<const Matrix> right(static_cast<const T*>(b), n, n);
  Eigen::Map<Matrix>(static_cast<T*>(c), n, n).noalias() = left * right;
}

}  // namespace

void eigen_half_product(const void* a, const void* b, void* c, std::int64_t n) {
  multiply<Eigen::half>(a, b, c, n);
}
void eigen_bfloat16_product(const void* a, const void* b, void* c, std::int64_t n) {
  multiply<Eigen::bfloat16>(a, b, c, n);
}

}  // namespace roundoff::bench
