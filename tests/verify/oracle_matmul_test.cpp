#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "verify/oracle/matmul.h"

using namespace roundoff;
using oracle::Values;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Values iota(std::size_t n) {
  Values v(n);
  std::iota(v.begin(), v.end(), 0.0);
  return v;
}

Values transposed(const Values& v, std::size_t rows, std::size_t columns) {
  Values t(v.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) t[j * rows + i] = v[i * columns + j];
  return t;
}

}  // namespace

TEST_CASE("case 19 [GEMM] beta = 0 must not read C, on the oracle") {
  const Values c(8, kNaN);
  CHECK(oracle::matmul({.m = 2, .n = 4, .k = 3}, iota(6), iota(12), c) ==
        Values{20, 23, 26, 29, 56, 68, 80, 92});
}

TEST_CASE("case 20 [GEMM] alpha = 0 and K = 0, on the oracle") {
  const Values nan(6, kNaN);
  CHECK(oracle::matmul({.m = 2, .n = 2, .k = 3, .alpha = 0}, nan, nan) == Values{0, 0, 0, 0});
  CHECK(oracle::matmul({.m = 1, .n = 1, .k = 2, .alpha = 0, .beta = 2}, Values{kNaN, 1},
                       Values{1, 1}, Values{3}) == Values{6});
  CHECK(oracle::matmul({.m = 2, .n = 1, .k = 0}, {}, {}) == Values{0, 0});
  CHECK(oracle::matmul({.m = 0, .n = 4, .k = 2}, {}, iota(8)).empty());
}

TEST_CASE("case 21 [GEMM] odd M, N, K in all four layouts, on the oracle") {
  Values a(17 * 31), b(31 * 23);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(7 * i % 11) - 5;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(5 * i % 13) - 6;
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      const Values y =
          oracle::matmul({.m = 17, .n = 23, .k = 31, .trans_a = trans_a, .trans_b = trans_b},
                         trans_a ? transposed(a, 17, 31) : a, trans_b ? transposed(b, 31, 23) : b);
      double sum = 0, sum_abs = 0, max_abs = 0;
      for (const double v : y) {
        sum += v;
        sum_abs += std::abs(v);
        max_abs = std::max(max_abs, std::abs(v));
      }
      CHECK(sum == -32);
      CHECK(sum_abs == 11264);
      CHECK(max_abs == 80);
      CHECK(y.front() == 55);
      CHECK(y.back() == -27);
    }
}

TEST_CASE("matmul oracle: batches, shared operands, alpha, beta and gradients by hand") {
  // Two 1x2 rows against one shared 2x1 column; C is added with beta.
  const oracle::MatmulParams p{
      .batch = 2, .m = 1, .n = 1, .k = 2, .shared_b = true, .alpha = 2, .beta = 10};
  const Values a{1, 2, 3, 4}, b{5, 6}, c{1, -1};
  CHECK(oracle::matmul(p, a, b, c) == Values{2 * 17 + 10, 2 * 39 - 10});
  const auto g = oracle::matmul_backward(p, a, b, Values{1, 100});
  CHECK(g.a == Values{10, 12, 1000, 1200});
  CHECK(g.b == Values{2 * (1 + 300), 2 * (2 + 400)});  // summed over the batch
  CHECK(g.c == Values{10, 1000});
}

TEST_CASE("matmul oracle: operands of the wrong size are refused") {
  CHECK_THROWS_WITH_AS(oracle::matmul({.m = 2, .n = 2, .k = 2}, iota(3), iota(4)),
                       "[matmul oracle] a has 3 values, 4 expected", Error);
  CHECK_THROWS_AS(oracle::matmul({.m = 2, .n = 2, .k = 2, .beta = 1}, iota(4), iota(4)), Error);
}
