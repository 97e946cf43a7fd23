#include "kernels/gemm/gemm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/product.h"
#include "tests/kernels/array.h"
#include "tests/kernels/sum_bound.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

std::vector<double> iota(std::int64_t n) {
  std::vector<double> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), 0.0);
  return v;
}

std::vector<double> gemm_values(const GemmParams& p, const Array& a, const Array& b, Array y,
                                const ConstView& c = ConstView::absent(),
                                Write write = Write::overwrite) {
  Scratch scratch;
  gemm(Ref{}, p, *a, *b, c, Out(y.view(), write), scratch);
  CHECK(y.guards_intact());
  return y.values();
}

// [rows, columns] as [columns, rows].
std::vector<double> transposed(const std::vector<double>& v, std::int64_t rows,
                               std::int64_t columns) {
  std::vector<double> t(v.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      t[oracle::at(j * rows + i)] = v[oracle::at(i * columns + j)];
  return t;
}

}  // namespace

TEST_CASE("case 19 [GEMM] beta = 0 must not read C") {
  for (const DType dtype : kFloating) {
    const Array a(dtype, {2, 3}, iota(6));
    const Array b(dtype, {3, 4}, iota(12));
    const std::vector<double> poison = {kNaN, kInf, kNaN, -kInf, kNaN, kInf, kNaN, kNaN};
    const Array c(dtype, {2, 4}, poison);
    const std::vector<double> want = {20, 23, 26, 29, 56, 68, 80, 92};
    const GemmParams p{.m = 2, .n = 4, .k = 3};
    CHECK(gemm_values(p, a, b, Array(dtype, {2, 4}, poison), *c) == want);

    // With edges of every blocking.
    const GemmParams edges{.m = 17, .n = 23, .k = 31};
    const Array y = Array(dtype, {17, 23}, std::vector<double>(17 * 23, kNaN));
    const Array ones_a(dtype, {17, 31}, ones(17 * 31));
    const Array ones_b(dtype, {31, 23}, ones(31 * 23));
    CHECK(gemm_values(edges, ones_a, ones_b, y, *y) == std::vector<double>(17 * 23, 31.0));
  }
}

TEST_CASE("case 20 [GEMM] alpha = 0 and K = 0") {
  const std::vector<double> poison(6, kNaN);
  for (const DType dtype : kFloating) {
    const Array a(dtype, {2, 3}, poison);
    const Array b(dtype, {3, 2}, poison);
    const Array c(dtype, {2, 2}, std::vector<double>(4, 3.0));
    const Array y(dtype, {2, 2});
    CHECK(gemm_values({.m = 2, .n = 2, .k = 3, .alpha = 0}, a, b, y) == std::vector<double>(4));
    CHECK(gemm_values({.m = 2, .n = 2, .k = 3, .alpha = 0, .beta = 2}, a, b, y, *c) ==
          std::vector<double>(4, 6.0));
    const Array empty_a(dtype, {2, 0});
    const Array empty_b(dtype, {0, 2});
    CHECK(gemm_values({.m = 2, .n = 2, .k = 0}, empty_a, empty_b, y) == std::vector<double>(4));
    CHECK(gemm_values({.m = 2, .n = 2, .k = 0, .beta = 1}, empty_a, empty_b, y, *c) ==
          std::vector<double>(4, 3.0));
    CHECK(gemm_values({.m = 0, .n = 2, .k = 3}, Array(dtype, {0, 3}), b, Array(dtype, {0, 2})) ==
          std::vector<double>{});
    CHECK(gemm_values({.m = 2, .n = 0, .k = 3}, a, Array(dtype, {3, 0}), Array(dtype, {2, 0})) ==
          std::vector<double>{});
    CHECK(gemm_values({.batch = 0, .m = 2, .n = 2, .k = 3}, a, b, Array(dtype, {0, 2, 2})) ==
          std::vector<double>{});
  }
  // An accumulating output keeps what it holds.
  const Array held(DType::fp32, {2, 2}, std::vector<double>(4, 5.0));
  CHECK(gemm_values({.m = 2, .n = 2, .k = 0}, Array(DType::fp16, {2, 0}),
                    Array(DType::fp16, {0, 2}), held, ConstView::absent(),
                    Write::accumulate) == std::vector<double>(4, 5.0));
}

TEST_CASE("case 21 [GEMM] odd M, N, K and unaligned leading dimensions") {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const std::int64_t offset : {0, 1}) {
    for (const DType dtype : kFloating) {
      for (const Size s : {Size{2, 3, 4}, {1, 105, 107}, {1, 705, 705}, {36, 36, 64}}) {
        const Array a(dtype, {s.m, s.k}, ones(s.m * s.k), offset);
        const Array b(dtype, {s.k, s.n}, ones(s.k * s.n), offset);
        const double want = dtype == DType::bf16 && s.k == 705 ? 704 : static_cast<double>(s.k);
        CHECK(gemm_values({.m = s.m, .n = s.n, .k = s.k}, a, b, Array(dtype, {s.m, s.n}, offset)) ==
              std::vector<double>(oracle::at(s.m * s.n), want));
      }
      std::vector<double> a(17 * 31), b(31 * 23);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>((7 * i) % 11) - 5;
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>((5 * i) % 13) - 6;
      for (int flags = 0; flags < 4; ++flags) {
        const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
        const Array left = ta ? Array(dtype, {31, 17}, transposed(a, 17, 31), offset)
                              : Array(dtype, {17, 31}, a, offset);
        const Array right = tb ? Array(dtype, {23, 31}, transposed(b, 31, 23), offset)
                               : Array(dtype, {31, 23}, b, offset);
        const std::vector<double> y =
            gemm_values({.m = 17, .n = 23, .k = 31, .trans_a = ta, .trans_b = tb}, left, right,
                        Array(dtype, {17, 23}, offset));
        CHECK(std::accumulate(y.begin(), y.end(), 0.0) == -32);
        const std::vector<double> magnitude = absolute(y);
        CHECK(std::accumulate(magnitude.begin(), magnitude.end(), 0.0) == 11264);
        CHECK(*std::max_element(magnitude.begin(), magnitude.end()) == 80);
        CHECK(y.front() == 55);
        CHECK(y.back() == -27);
      }
    }
  }
}

TEST_CASE("case 22 [GEMM] accumulator must be fp32") {
  const auto dot = [](DType dtype, const std::vector<double>& a, const std::vector<double>& b,
                      DType out) {
    const auto k = static_cast<std::int64_t>(a.size());
    return gemm_values({.m = 1, .n = 1, .k = k}, Array(dtype, {1, k}, a), Array(dtype, {k, 1}, b),
                       Array(out, {1, 1}))[0];
  };
  for (const DType out : {DType::fp16, DType::fp32}) {
    CHECK(dot(DType::fp16, {2048, 1, 1}, ones(3), out) == 2050);
    CHECK(dot(DType::fp16, ones(4096), ones(4096), out) == 4096);
    CHECK(dot(DType::fp16, {256, 256}, {256, -256}, out) == 0);
  }
  for (const DType out : {DType::bf16, DType::fp32}) {
    CHECK(dot(DType::bf16, {256, 1, 1}, ones(3), out) == 258);
    CHECK(dot(DType::bf16, ones(4096), ones(4096), out) == 4096);
  }
  CHECK(dot(DType::fp16, ones(2049), ones(2049), DType::fp16) == 2048);
}

TEST_CASE("gemm agrees with the oracle within the bound, over types, transposes, batches, edges") {
  std::mt19937 random(20240601);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  double worst = 0;
  for (int trial = 0; trial < 400; ++trial) {
    oracle::MatmulParams o;
    o.batch = pick({1, 1, 2, 3});
    o.m = pick({0, 1, 2, 3, 7, 16, 33, 65, 130});
    o.n = pick({0, 1, 2, 5, 8, 17, 32, 70});
    o.k = pick({0, 1, 2, 3, 9, 16, 31, 100, 257});
    o.trans_a = random() % 2 == 0;
    o.trans_b = random() % 2 == 0;
    o.shared_a = random() % 3 == 0;
    o.shared_b = random() % 3 == 0;
    o.alpha = std::array{1.0, 1.0, 0.5, -2.0}[random() % 4];
    o.beta = std::array{0.0, 1.0, 0.5}[random() % 3];
    const DType da = kFloating[random() % 4], db = kFloating[random() % 4],
                dc = kFloating[random() % 4], dy = kFloating[random() % 4];
    // C: a bias, one matrix for the whole batch, or one for each.
    const std::int64_t c_size = std::array{o.n, o.m * o.n, o.y_size()}[random() % 3];
    const bool accumulate = !is_16bit(dy) && random() % 2 == 0;
    const bool wide_acc = random() % 4 == 0;
    CAPTURE(trial);

    const auto values = [&](std::int64_t n, DType d) { return normal(n, d, random); };
    const std::vector<double> a = values(o.a_size(), da), b = values(o.b_size(), db);
    const std::vector<double> c = values(c_size, dc);
    const std::vector<double> held = values(o.y_size(), dy);
    std::vector<double> whole_c(oracle::at(o.y_size()));
    for (std::size_t i = 0; i < whole_c.size(); ++i) whole_c[i] = c[i % c.size()];

    const GemmParams p{.batch = o.batch,
                       .m = o.m,
                       .n = o.n,
                       .k = o.k,
                       .trans_a = o.trans_a,
                       .trans_b = o.trans_b,
                       .alpha = o.alpha,
                       .beta = o.beta,
                       .accumulator = wide_acc ? Accumulator::fp64 : Accumulator::fp32,
                       .stride_a = o.shared_a ? 0 : o.m * o.k,
                       .stride_b = o.shared_b ? 0 : o.k * o.n,
                       .stride_c = c_size == o.y_size() ? o.m * o.n : 0};
    const Array left(da, {o.a_size()}, a), right(db, {o.b_size()}, b);
    const Array addend(dc, {static_cast<std::int64_t>(c.size())}, c);
    const std::vector<double> got =
        gemm_values(p, left, right, Array(dy, {o.batch, o.m, o.n}, held), *addend,
                    accumulate ? Write::accumulate : Write::overwrite);

    std::vector<double> want = oracle::matmul(o, a, b, whole_c);
    oracle::MatmulParams magnitude = o;
    magnitude.alpha = std::abs(o.alpha);
    std::vector<double> sums =
        oracle::matmul(magnitude, absolute(a), absolute(b), absolute(whole_c));
    if (accumulate) {
      for (std::size_t i = 0; i < want.size(); ++i) {
        want[i] += held[i];
        sums[i] += std::abs(held[i]);
      }
    }
    const bool wide =
        wide_acc || da == DType::fp64 || db == DType::fp64 || (o.beta != 0 && dc == DType::fp64);
    // A product, k - 1 additions, alpha; beta's product and addition; what the output held.
    const double ratio =
        worst_ratio(got, want, sums, o.k + 4, wide ? DType::fp64 : DType::fp32, dy);
    CHECK(ratio <= 1);
    worst = std::max(worst, ratio);
  }
  MESSAGE("largest error / bound: ", worst);
}

TEST_CASE("gemm: 16-bit results of more rows than wait for their rounding at once") {
  std::mt19937 random(21);
  for (int flags = 0; flags < 2; ++flags) {
    const oracle::MatmulParams o{
        .batch = 2, .m = 300, .n = 700, .k = 3, .trans_a = flags != 0, .beta = 1};
    const std::vector<double> a = normal(o.a_size(), DType::bf16, random),
                              b = normal(o.b_size(), DType::bf16, random),
                              c = normal(o.y_size(), DType::bf16, random);
    const GemmParams p{.batch = 2,
                       .m = o.m,
                       .n = o.n,
                       .k = o.k,
                       .trans_a = o.trans_a,
                       .beta = 1,
                       .stride_a = o.m * o.k,
                       .stride_b = o.k * o.n,
                       .stride_c = o.m * o.n};
    const Array addend(DType::bf16, {o.y_size()}, c);
    const std::vector<double> got =
        gemm_values(p, Array(DType::bf16, {o.a_size()}, a), Array(DType::bf16, {o.b_size()}, b),
                    Array(DType::bf16, {2, o.m, o.n}), *addend);
    CHECK(worst_ratio(got, oracle::matmul(o, a, b, c),
                      oracle::matmul(o, absolute(a), absolute(b), absolute(c)), o.k + 2,
                      DType::fp32, DType::bf16) <= 1);
  }
}

TEST_CASE("gemm: C may be the output itself") {
  const Array a(DType::fp16, {2, 2}, std::vector<double>{1, 2, 3, 4});
  for (const DType dtype : kFloating) {
    for (const Accumulator accumulator :
         {Accumulator::fp32, Accumulator::fp16, Accumulator::h100}) {
      for (const double alpha : {1.0, 0.5}) {
        Array y(dtype, {2, 2}, std::vector<double>{10, 20, 30, 40});
        Scratch scratch;
        gemm(Ref{}, {.m = 2, .n = 2, .k = 2, .alpha = alpha, .beta = 2, .accumulator = accumulator},
             *a, *a, *y, y.view(), scratch);
        CHECK(y.values() == std::vector<double>{20 + 7 * alpha, 40 + 10 * alpha, 60 + 15 * alpha,
                                                80 + 22 * alpha});
      }
    }
  }
}

TEST_CASE("gemm sums over a batch into one matrix") {
  std::mt19937 random(3);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
      const bool shared_a = (flags & 4) != 0, shared_b = (flags & 8) != 0;
      const std::int64_t batch = 3, m = 4, n = 5, k = 6;
      const std::vector<double> a = normal((shared_a ? 1 : batch) * m * k, dtype, random);
      const std::vector<double> b = normal((shared_b ? 1 : batch) * k * n, dtype, random);
      const oracle::MatmulParams o{.batch = batch,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .trans_a = ta,
                                   .trans_b = tb,
                                   .shared_a = shared_a,
                                   .shared_b = shared_b};
      const std::vector<double> each = oracle::matmul(o, a, b);
      const std::vector<double> each_sum = oracle::matmul(o, absolute(a), absolute(b));
      std::vector<double> want(20), sums(20);
      for (std::size_t i = 0; i < each.size(); ++i) {
        want[i % 20] += each[i];
        sums[i % 20] += each_sum[i];
      }
      const GemmParams p{.batch = batch,
                         .m = m,
                         .n = n,
                         .k = k,
                         .trans_a = ta,
                         .trans_b = tb,
                         .stride_a = shared_a ? 0 : m * k,
                         .stride_b = shared_b ? 0 : k * n,
                         .sum_batch = true};
      const std::vector<double> got =
          gemm_values(p, Array(dtype, {static_cast<std::int64_t>(a.size())}, a),
                      Array(dtype, {static_cast<std::int64_t>(b.size())}, b), Array(dtype, {m, n}));
      CHECK(worst_ratio(got, want, sums, batch * k + 1, DType::fp32, dtype) <= 1);
    }
  }
}

TEST_CASE("gemm with tf32 rounds fp32 operands, and those alone") {
  // 1 + 2^-11 is a tie of tf32's 11 bits and goes to 1; 1 + 2^-10 stays.
  const std::vector<double> a = {1 + 0x1p-11, 1 + 0x1p-10, 1 + 3 * 0x1p-11};
  const std::vector<double> identity = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const GemmParams p{.m = 1, .n = 3, .k = 3, .tf32 = true};
  const Array right(DType::fp32, {3, 3}, identity);
  CHECK(gemm_values(p, Array(DType::fp32, {1, 3}, a), right, Array(DType::fp32, {1, 3})) ==
        std::vector<double>{1, 1 + 0x1p-10, 1 + 0x1p-9});
  CHECK(gemm_values(p, Array(DType::fp64, {1, 3}, a), right, Array(DType::fp64, {1, 3})) == a);
}

TEST_CASE("gemm refuses what does not fit, before it writes") {
  Scratch scratch;
  const Array a(DType::fp32, {2, 3}, ones(6)), b(DType::fp32, {3, 4}, ones(12));
  Array y(DType::fp32, {2, 4}), small(DType::fp32, {2, 3}), half(DType::fp16, {2, 4});
  const GemmParams p{.m = 2, .n = 4, .k = 3};
  const auto run = [&](const GemmParams& params, const ConstView& left, const ConstView& right,
                       const ConstView& c,
                       const Out& out) { gemm(Ref{}, params, left, right, c, out, scratch); };
  const ConstView none = ConstView::absent();
  CHECK_THROWS_WITH_AS(run(p, *a, *a, none, y.view()),
                       "[gemm] B of shape [2, 3] holds 6 values, 1 x [3, 4] needs 12", Error);
  CHECK_THROWS_AS(run(p, *b, *b, none, small.view()), Error);
  GemmParams with_c = p;
  with_c.beta = 1;
  CHECK_THROWS_AS(run(with_c, *a, *b, *a, y.view()), Error);
  CHECK_THROWS_AS(run(p, *a, *b, none, Out(half.view(), Write::accumulate)), Error);
  CHECK_THROWS_AS(run({.m = -1, .n = 4, .k = 3}, *a, *b, none, y.view()), Error);
  const Array integers(DType::i32, {2, 3});
  CHECK_THROWS_AS(run(p, *integers, *b, none, y.view()), Error);
  for (const double v : y.values()) CHECK(std::isnan(v));
  run(p, *a, *b, none, Out());  // not wanted
}

TEST_CASE("product: strides beyond the rows, accumulation, and a backend with a name") {
  CHECK(!product_backend().empty());
  MESSAGE("products by ", product_backend());
  const std::vector<float> a = {1, 2, 99, 3, 4, 99}, b = {5, 6, 99, 7, 8, 99};
  std::vector<float> c = {1, 1, -7, 1, 1, -7};
  Product<float> p{.m = 2,
                   .n = 2,
                   .k = 2,
                   .a = a.data(),
                   .lda = 3,
                   .b = b.data(),
                   .ldb = 3,
                   .c = c.data(),
                   .ldc = 3,
                   .alpha = 2,
                   .accumulate = true};
  product(p);
  CHECK(c == std::vector<float>{39, 45, -7, 87, 101, -7});
  p.accumulate = false;
  p.trans_b = true;
  product(p);
  CHECK(c == std::vector<float>{34, 46, -7, 78, 106, -7});
}

TEST_CASE("column sums: types, sizes, scale, accumulation") {
  std::mt19937 random(6);
  for (const DType dtype : kFloating) {
    for (const DType out : kFloating) {
      for (const std::int64_t rows : {0, 1, 3, 128, 129, 700}) {
        for (const std::int64_t columns : {0, 1, 7, 5000}) {
          if (rows * columns > 1000000) continue;
          const std::vector<double> x = normal(rows * columns, dtype, random);
          const bool accumulate = !is_16bit(out);
          const std::vector<double> held = normal(columns, out, random);
          Array y(out, {columns}, held);
          Scratch scratch;
          column_sums(Ref{}, {.rows = rows, .columns = columns, .scale = -0.5},
                      *Array(dtype, {rows, columns}, x),
                      Out(y.view(), accumulate ? Write::accumulate : Write::overwrite), scratch);
          std::vector<double> want(oracle::at(columns)), sums(oracle::at(columns));
          for (std::size_t i = 0; i < x.size(); ++i) {
            want[i % want.size()] -= 0.5 * x[i];
            sums[i % want.size()] += 0.5 * std::abs(x[i]);
          }
          for (std::size_t j = 0; accumulate && j < want.size(); ++j) {
            want[j] += held[j];
            sums[j] += std::abs(held[j]);
          }
          // At most 128 additions in a block, one for each block, the scale and what y held.
          CHECK(worst_ratio(y.values(), want, sums,
                            std::min<std::int64_t>(rows, 128) + rows / 128 + 3,
                            widest(dtype, DType::fp32), out) <= 1);
          CHECK(y.guards_intact());
        }
      }
    }
  }
  Scratch scratch;
  Array y(DType::fp32, {2}), half(DType::fp16, {2});
  const Array x(DType::fp32, {3, 2}, ones(6)), integers(DType::i32, {3, 2});
  CHECK_THROWS_AS(column_sums(Ref{}, {.rows = 2, .columns = 2}, *x, y.view(), scratch), Error);
  CHECK_THROWS_AS(column_sums(Ref{}, {.rows = 3, .columns = 2}, *integers, y.view(), scratch),
                  Error);
  CHECK_THROWS_AS(column_sums(Ref{}, {.rows = 3, .columns = 2}, *x,
                              Out(half.view(), Write::accumulate), scratch),
                  Error);
  column_sums(Ref{}, {.rows = 3, .columns = 2}, *x, Out(), scratch);
}
