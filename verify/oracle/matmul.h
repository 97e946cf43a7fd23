// Matrix product: Y = alpha op(A) op(B) + beta C, for each matrix of a batch.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

struct MatmulParams {
  std::int64_t batch = 1;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;   // A is stored [k, m] instead of [m, k]
  bool trans_b = false;   // B is stored [n, k] instead of [k, n]
  bool shared_a = false;  // one A serves the whole batch
  bool shared_b = false;  // one B serves the whole batch
  double alpha = 1;       // 0: A and B are not read, so their NaN do not reach Y (BLAS)
  double beta = 0;        // 0: C is not read

  std::int64_t a_size() const { return (shared_a ? 1 : batch) * m * k; }
  std::int64_t b_size() const { return (shared_b ? 1 : batch) * k * n; }
  std::int64_t y_size() const { return batch * m * n; }
};

// A [batch, m, k], B [batch, k, n], C and Y [batch, m, n]; C may be empty where beta is 0.
Values matmul(const MatmulParams& p, In a, In b, In c = {});

struct MatmulGradients {
  Values a, b, c;  // in the layout of the operand
};
MatmulGradients matmul_backward(const MatmulParams& p, In a, In b, In dy);

}  // namespace roundoff::oracle
