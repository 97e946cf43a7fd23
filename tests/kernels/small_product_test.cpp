// Small products (kernels/gemm/small.h): every layout, tail and leading dimension.
#include "kernels/gemm/small.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/base/simd.h"
#include "tests/kernels/array.h"
#include "tests/kernels/sum_bound.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

// A matrix within rows of `ld` elements; what lies beside it is NaN, and must stay so.
struct Matrix {
  std::int64_t rows, columns, ld;
  std::vector<float> values;
  Matrix(std::int64_t r, std::int64_t c, std::int64_t pad)
      : rows(r),
        columns(c),
        ld(c + pad),
        values(static_cast<std::size_t>(r * ld), std::numeric_limits<float>::quiet_NaN()) {}
  float& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * ld + j)]; }
  void fill(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) at(i, j) = normal(random);
  }
  bool padding_intact() {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = columns; j < ld; ++j)
        if (!std::isnan(at(i, j))) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("small products agree with plain sums in fp64 within the bound") {
  std::mt19937 random(3);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  int ran = 0;
  for (int trial = 0; trial < 600; ++trial) {
    CAPTURE(trial);
    Product<float> p;
    p.m = pick({1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33});
    p.n = pick({1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 70});
    p.k = pick({1, 2, 3, 8, 15, 16, 17, 32, 40, 100});
    p.trans_a = random() % 2 == 0;
    p.trans_b = random() % 2 == 0;
    p.accumulate = random() % 2 == 0;
    p.alpha = random() % 3 == 0 ? -1.5F : 1.0F;
    const std::int64_t pad = pick({0, 3});
    Matrix a(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, pad);
    Matrix b(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, pad);
    Matrix c(p.m, p.n, pad);
    a.fill(random);
    b.fill(random);
    if (p.accumulate) c.fill(random);
    p.a = a.values.data(), p.lda = a.ld;
    p.b = b.values.data(), p.ldb = b.ld;
    p.c = c.values.data(), p.ldc = c.ld;
    std::vector<double> want, sums, got;
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0, magnitudes = 0;
        for (std::int64_t l = 0; l < p.k; ++l) {
          const double term = static_cast<double>(p.trans_a ? a.at(l, i) : a.at(i, l)) *
                              static_cast<double>(p.trans_b ? b.at(j, l) : b.at(l, j));
          sum += term;
          magnitudes += std::abs(term);
        }
        const double held = p.accumulate ? static_cast<double>(c.at(i, j)) : 0.0;
        want.push_back(static_cast<double>(p.alpha) * sum + held);
        sums.push_back(std::abs(static_cast<double>(p.alpha)) * magnitudes + std::abs(held));
      }
    }
    if (!small_product_serves(p)) continue;
    ++ran;
    small_product(p);
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) got.push_back(static_cast<double>(c.at(i, j)));
    CHECK(worst_ratio(got, want, sums, p.k + 1, DType::fp32, DType::fp32) <= 1);
    CHECK(c.padding_intact());
  }
  if (simd::kPresent)
    CHECK(ran > 200);
  else
    CHECK(ran == 0);
}

TEST_CASE("small products: integers are exact, and infinities and NaN arrive where they belong") {
  Product<float> p{.m = 5, .n = 19, .k = 33};
  if (!small_product_serves(p)) return;
  for (const bool trans_b : {false, true}) {
    CAPTURE(trans_b);
    std::vector<float> a(5 * 33), b(33 * 19), c(5 * 19, -1.0F);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
    a[2 * 33 + 32] = std::numeric_limits<float>::infinity();
    b[trans_b ? 4 * 33 + 32 : 32 * 19 + 4] = 1;   // inf
    b[trans_b ? 5 * 33 + 32 : 32 * 19 + 5] = -1;  // -inf
    b[trans_b ? 6 * 33 + 32 : 32 * 19 + 6] = 0;   // NaN
    p.trans_b = trans_b;
    p.a = a.data(), p.lda = 33;
    p.b = b.data(), p.ldb = trans_b ? 33 : 19;
    p.c = c.data(), p.ldc = 19;
    small_product(p);
    CHECK(c[2 * 19 + 4] == std::numeric_limits<float>::infinity());
    CHECK(c[2 * 19 + 5] == -std::numeric_limits<float>::infinity());
    CHECK(std::isnan(c[2 * 19 + 6]));
    for (const std::size_t i : {0U, 1U, 3U, 4U}) {
      for (std::size_t j = 0; j < 19; ++j) {
        float want = 0;
        for (std::size_t l = 0; l < 33; ++l)
          want += a[i * 33 + l] * (trans_b ? b[j * 33 + l] : b[l * 19 + j]);
        CHECK(c[i * 19 + j] == want);
      }
    }
  }
}

TEST_CASE("small products leave large ones and narrow ones to others") {
  CHECK_FALSE(small_product_serves({.m = 65, .n = 64, .k = 64}));
  CHECK_FALSE(small_product_serves(
      {.m = std::int64_t{1} << 31, .n = std::int64_t{1} << 31, .k = std::int64_t{1} << 31}));
  CHECK_FALSE(small_product_serves({.m = 8, .n = 1, .k = 64}));
  CHECK_FALSE(small_product_serves({.m = 8, .n = 64, .k = 1, .trans_b = true}));
  CHECK_FALSE(small_product_serves({.m = 8, .n = 8, .k = 8, .trans_a = true, .trans_b = true}));
  CHECK(small_product_serves({.m = 16, .n = 16, .k = 576, .trans_b = true}) == simd::kPresent);
}
