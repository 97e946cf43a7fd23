// The raw matrix product of the reference path, on float or double: a BLAS where one is found, is
// right and knows this processor, Eigen otherwise. Everything that multiplies matrices on the host
// ends here; rounding points and storage types are the callers'.
#pragma once

#include <cstdint>
#include <string_view>

namespace roundoff {

// C = alpha op(A) op(B), or C += alpha op(A) op(B); row-major.
template <class T>
struct Product {
  std::int64_t m = 0, n = 0, k = 0;  // C is [m, n], the sum runs over k
  const T* a = nullptr;              // [m, k], or [k, m] where trans_a
  std::int64_t lda = 0;              // elements between rows
  bool trans_a = false;
  const T* b = nullptr;  // [k, n], or [n, k] where trans_b
  std::int64_t ldb = 0;
  bool trans_b = false;
  T* c = nullptr;
  std::int64_t ldc = 0;
  T alpha = 1;
  bool accumulate = false;  // false never reads C
};

// One thread; the order of summation depends on the sizes and the build alone. An empty product
// (m or n = 0) touches nothing; k = 0 or alpha = 0 gives zeros without reading A and B. C must not
// overlap A or B.
void product(const Product<float>& p);
void product(const Product<double>& p);

// What serves large products: "OpenBLAS", another library's name, "Eigen", or "Eigen (why the BLAS
// does not)". The BLAS is checked on integer products, which are exact, before its first use.
std::string_view product_backend();

}  // namespace roundoff
