#include "verify/oracle/matmul.h"

namespace roundoff::oracle {

namespace {

// Calls product(ia, ib, iy) for every product A[ia] B[ib] that is a term of Y[iy]. Forward and both
// gradients are this one list of terms, read three ways.
template <class F>
void for_each_product(const MatmulParams& p, F product) {
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    const std::int64_t a0 = p.shared_a ? 0 : batch * p.m * p.k;
    const std::int64_t b0 = p.shared_b ? 0 : batch * p.k * p.n;
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        const std::int64_t iy = (batch * p.m + i) * p.n + j;
        for (std::int64_t l = 0; l < p.k; ++l) {
          const std::int64_t ia = a0 + (p.trans_a ? l * p.m + i : i * p.k + l);
          const std::int64_t ib = b0 + (p.trans_b ? j * p.k + l : l * p.n + j);
          product(at(ia), at(ib), at(iy));
        }
      }
    }
  }
}

void check(const MatmulParams& p, In a, In b) {
  ROUNDOFF_CHECK(p.batch >= 0 && p.m >= 0 && p.n >= 0 && p.k >= 0, "matmul oracle",
                 "negative extent");
  check_size("matmul oracle", "a", a, p.a_size());
  check_size("matmul oracle", "b", b, p.b_size());
}

}  // namespace

Values matmul(const MatmulParams& p, In a, In b, In c) {
  check(p, a, b);
  if (p.beta != 0) check_size("matmul oracle", "c", c, p.y_size());
  Sums y = zeros(p.y_size());
  if (p.alpha != 0) {
    for_each_product(p, [&](std::size_t ia, std::size_t ib, std::size_t iy) {
      y[iy] += static_cast<long double>(a[ia]) * b[ib];
    });
    for (long double& v : y) v *= p.alpha;
  }
  if (p.beta != 0)
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += static_cast<long double>(p.beta) * c[i];
  return rounded(y);
}

MatmulGradients matmul_backward(const MatmulParams& p, In a, In b, In dy) {
  check(p, a, b);
  check_size("matmul oracle", "dy", dy, p.y_size());
  Sums da = zeros(p.a_size());
  Sums db = zeros(p.b_size());
  Sums dc = zeros(p.y_size());
  if (p.alpha != 0) {
    for_each_product(p, [&](std::size_t ia, std::size_t ib, std::size_t iy) {
      da[ia] += static_cast<long double>(dy[iy]) * b[ib];
      db[ib] += static_cast<long double>(dy[iy]) * a[ia];
    });
    for (long double& v : da) v *= p.alpha;
    for (long double& v : db) v *= p.alpha;
  }
  if (p.beta != 0)
    for (std::size_t i = 0; i < dc.size(); ++i) dc[i] = static_cast<long double>(p.beta) * dy[i];
  return {rounded(da), rounded(db), rounded(dc)};
}

}  // namespace roundoff::oracle
