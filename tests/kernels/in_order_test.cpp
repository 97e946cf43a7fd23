// Sums in order (SumOrder::in_order): the bits of a plain loop, and of every cut of it.
#include "kernels/gemm/in_order.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/format.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/array.h"
#include "verify/exact_sum.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

bool same_bits(const Array& a, const Array& b) {
  return a.memory().size() == b.memory().size() &&
         std::memcmp(a.memory().data(), b.memory().data(), a.memory().size()) == 0;
}

// Rows [first, first + count) of a matrix, or samples of images.
ConstView rows(const Array& v, std::int64_t first, std::int64_t count) {
  ConstView part = v.view();
  const std::int64_t size = v.size() / v.shape()[0];
  part.data = static_cast<const std::byte*>(part.data) +
              first * size * static_cast<std::int64_t>(size_of(v.dtype()));
  part.shape.set(0, count);
  return part;
}

// Sizes of parts that add up to n.
std::vector<std::int64_t> random_cut(std::int64_t n, std::mt19937& random) {
  std::vector<std::int64_t> parts;
  const auto most = static_cast<std::int64_t>(1 + random() % 9);
  while (n > 0) {
    const auto part = std::min<std::int64_t>(
        n, 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
    parts.push_back(part);
    n -= part;
  }
  return parts;
}

template <class T>
void check_products() {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  std::normal_distribution<double> normal;
  Scratch scratch;
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    Product<T> p;
    p.m = pick({0, 1, 2, 5, 6, 7, 12, 13, 31});
    p.n = pick({0, 1, 3, 7, 8, 9, 15, 16, 17, 33, 300});
    p.k = pick({0, 1, 2, 7, 8, 9, 40, 255, 256, 257, 600});
    p.trans_a = random() % 2 == 0;
    p.trans_b = random() % 2 == 0;
    p.accumulate = random() % 2 == 0;
    const std::int64_t pad = pick({0, 3});
    p.lda = (p.trans_a ? p.m : p.k) + pad;
    p.ldb = (p.trans_b ? p.k : p.n) + pad;
    p.ldc = p.n + pad;
    const auto fill = [&](std::int64_t n) {
      std::vector<T> v(static_cast<std::size_t>(n));
      for (T& x : v) x = static_cast<T>(normal(random));
      return v;
    };
    const std::vector<T> a = fill((p.trans_a ? p.k : p.m) * p.lda);
    const std::vector<T> b = fill((p.trans_b ? p.n : p.k) * p.ldb);
    std::vector<T> c = fill(p.m * p.ldc);
    std::vector<T> expected = c;
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        T& sum = expected[static_cast<std::size_t>(i * p.ldc + j)];
        if (!p.accumulate) sum = 0;
        for (std::int64_t l = 0; l < p.k; ++l)
          sum =
              std::fma(a[static_cast<std::size_t>(p.trans_a ? l * p.lda + i : i * p.lda + l)],
                       b[static_cast<std::size_t>(p.trans_b ? j * p.ldb + l : l * p.ldb + j)], sum);
      }
    }
    p.a = a.data(), p.b = b.data(), p.c = c.data();
    product_in_order(p, scratch);
    CHECK((c.empty() || std::memcmp(c.data(), expected.data(), c.size() * sizeof(T)) == 0));
  }
}

}  // namespace

TEST_CASE("products in order have the bits of a plain loop of fused multiply-adds") {
  check_products<float>();
  check_products<double>();
}

TEST_CASE("a product in order that is cut along k has the same bits, and is near the exact sum") {
  std::mt19937 random(17);
  Scratch scratch;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    CAPTURE(name(dtype));
    constexpr std::int64_t kM = 19, kN = 37, kK = 61;
    const Array a(dtype, {kK, kM}, normal(kK * kM, dtype, random));
    const Array b(dtype, {kK, kN}, normal(kK * kN, dtype, random));
    const auto add = [&](std::int64_t first, std::int64_t count, SumOrder order, Array& y) {
      gemm(Ref{}, {.m = kM, .n = kN, .k = count, .trans_a = true, .order = order},
           rows(a, first, count), rows(b, first, count), ConstView::absent(),
           y.out(first == 0 ? Write::overwrite : Write::accumulate), scratch);
    };
    Array whole(DType::fp32, {kM, kN});
    add(0, kK, SumOrder::in_order, whole);
    CHECK(whole.guards_intact());
    int fastest_differs = 0;
    for (int trial = 0; trial < 100; ++trial) {
      CAPTURE(trial);
      Array cut(DType::fp32, {kM, kN}), fastest(DType::fp32, {kM, kN});
      std::int64_t first = 0;
      for (const std::int64_t count : random_cut(kK, random)) {
        add(first, count, SumOrder::in_order, cut);
        add(first, count, SumOrder::fastest, fastest);
        first += count;
      }
      CHECK(same_bits(cut, whole));
      if (!same_bits(fastest, whole)) ++fastest_differs;
    }
    CHECK(fastest_differs > 0);  // or this test shows nothing

    for (std::int64_t i = 0; i < kM; ++i) {
      for (std::int64_t j = 0; j < kN; ++j) {
        ExactSum sum;
        double magnitude = 0;
        for (std::int64_t l = 0; l < kK; ++l) {
          const auto x = static_cast<float>(a[l * kM + i]), y = static_cast<float>(b[l * kN + j]);
          sum.add_product(x, y);
          magnitude += std::abs(static_cast<double>(x) * static_cast<double>(y));
        }
        // gamma_K S for the chain; the oracle, rounded to fp64, is exact here to 2^-53.
        constexpr double kU = 0x1p-24, kGamma = kK * kU / (1 - kK * kU);
        CHECK(std::abs(whole[i * kN + j] - sum.to_double()) <= kGamma * magnitude);
      }
    }
  }
}

TEST_CASE("a row of a product by rows does not depend on the others") {
  std::mt19937 random(23);
  Scratch scratch;
  constexpr std::int64_t kM = 50, kN = 29, kK = 130;
  for (const bool trans_b : {false, true}) {
    const Array a(DType::fp32, {kM, kK}, normal(kM * kK, DType::fp32, random));
    const Array b(DType::fp32, {kK, kN}, normal(kK * kN, DType::fp32, random));
    const Array bias(DType::fp32, {kN}, normal(kN, DType::fp32, random));
    for (const DType dtype : {DType::fp32, DType::fp16}) {
      Array whole(dtype, {kM, kN}), cut(dtype, {kM, kN});
      const auto run = [&](std::int64_t first, std::int64_t count, const View& y) {
        gemm(Ref{},
             {.m = count,
              .n = kN,
              .k = kK,
              .trans_b = trans_b,
              .beta = 1,
              .order = SumOrder::by_row},
             rows(a, first, count), *b, *bias, y, scratch);
      };
      run(0, kM, whole.view());
      std::int64_t first = 0;
      for (const std::int64_t count : random_cut(kM, random)) {
        const ConstView part = rows(cut, first, count);
        run(first, count, View{const_cast<void*>(part.data), dtype, part.shape});
        first += count;
      }
      CHECK(same_bits(cut, whole));
    }
  }
}

TEST_CASE("column sums in order: the bits of a plain loop, and of every cut") {
  std::mt19937 random(29);
  Scratch scratch;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const double scale : {1.0, 0.3}) {
      CAPTURE(name(dtype));
      CAPTURE(scale);
      constexpr std::int64_t kRows = 300, kColumns = 21;
      const Array x(dtype, {kRows, kColumns}, normal(kRows * kColumns, dtype, random));
      const Array before(DType::fp32, {kColumns}, normal(kColumns, DType::fp32, random));
      std::vector<double> expected;
      for (std::int64_t j = 0; j < kColumns; ++j) {
        auto sum = static_cast<float>(before[j]);
        for (std::int64_t i = 0; i < kRows; ++i)
          sum = std::fma(static_cast<float>(scale), static_cast<float>(x[i * kColumns + j]), sum);
        expected.push_back(static_cast<double>(sum));
      }
      for (int trial = 0; trial < 20; ++trial) {
        Array y(DType::fp32, {kColumns}, before.values());
        std::int64_t first = 0;
        for (const std::int64_t count : random_cut(kRows, random)) {
          column_sums(Ref{}, {.rows = count, .columns = kColumns, .scale = scale, .in_order = true},
                      rows(x, first, count), y.out(Write::accumulate), scratch);
          first += count;
        }
        CHECK(y.values() == expected);
        CHECK(y.guards_intact());
      }
    }
  }
}

TEST_CASE("products by matrix: every cut between matrices has the bits of chains that are folded") {
  constexpr std::int64_t kBatch = 7, kM = 5, kN = 19, kK = 11;
  std::mt19937 random(29);
  Scratch scratch;
  const Array a(DType::fp16, {kBatch, kK, kM}, normal(kBatch * kK * kM, DType::fp16, random));
  const Array b(DType::fp16, {kBatch, kK, kN}, normal(kBatch * kK * kN, DType::fp16, random));
  const Array before(DType::fp32, {kM, kN}, normal(kM * kN, DType::fp32, random));
  std::vector<double> expected;
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t j = 0; j < kN; ++j) {
      auto total = static_cast<float>(before[i * kN + j]);
      for (std::int64_t s = 0; s < kBatch; ++s) {
        float sum = 0;
        for (std::int64_t k = 0; k < kK; ++k)
          sum = std::fma(static_cast<float>(a[(s * kK + k) * kM + i]),
                         static_cast<float>(b[(s * kK + k) * kN + j]), sum);
        total += sum;
      }
      expected.push_back(static_cast<double>(total));
    }
  GemmParams p{.batch = kBatch,
               .m = kM,
               .n = kN,
               .k = kK,
               .trans_a = true,
               .stride_a = kK * kM,
               .stride_b = kK * kN,
               .sum_batch = true,
               .order = SumOrder::by_matrix};
  // A narrow result is rounded once, from the sum of all of them.
  Array narrow(DType::fp16, {kM, kN}), wide(DType::fp32, {kM, kN});
  gemm(Ref{}, p, *a, *b, ConstView::absent(), narrow.out(), scratch);
  gemm(Ref{}, p, *a, *b, ConstView::absent(), wide.out(), scratch);
  for (std::int64_t i = 0; i < kM * kN; ++i)
    CHECK(narrow[i] == round_to_format(wide[i], kFp16).value);
  for (int trial = 0; trial < 20; ++trial) {
    Array y(DType::fp32, {kM, kN}, before.values());
    std::int64_t first = 0;
    for (const std::int64_t count : random_cut(kBatch, random)) {
      p.batch = count;
      gemm(Ref{}, p, rows(a, first, count), rows(b, first, count), ConstView::absent(),
           y.out(Write::accumulate), scratch);
      first += count;
    }
    CHECK(y.values() == expected);
    CHECK(y.guards_intact());
  }
}

TEST_CASE(
    "column sums by groups: every cut between groups has the bits of chains that are folded") {
  constexpr std::int64_t kGroups = 9, kRows = 13, kColumns = 21;
  std::mt19937 random(37);
  Scratch scratch;
  const Array x(DType::bf16, {kGroups * kRows, kColumns},
                normal(kGroups * kRows * kColumns, DType::bf16, random));
  const Array before(DType::fp32, {kColumns}, normal(kColumns, DType::fp32, random));
  for (const double scale : {1.0, 0.7}) {
    std::vector<double> expected;
    for (std::int64_t j = 0; j < kColumns; ++j) {
      auto total = static_cast<float>(before[j]);
      for (std::int64_t g = 0; g < kGroups; ++g) {
        float sum = 0;
        for (std::int64_t i = g * kRows; i < (g + 1) * kRows; ++i)
          sum = std::fma(static_cast<float>(scale), static_cast<float>(x[i * kColumns + j]), sum);
        total += sum;
      }
      expected.push_back(static_cast<double>(total));
    }
    for (int trial = 0; trial < 20; ++trial) {
      Array y(DType::fp32, {kColumns}, before.values());
      std::int64_t first = 0;
      for (const std::int64_t count : random_cut(kGroups, random)) {
        column_sums(Ref{},
                    {.rows = count * kRows,
                     .columns = kColumns,
                     .scale = scale,
                     .in_order = true,
                     .group = kRows},
                    rows(x, first * kRows, count * kRows), y.out(Write::accumulate), scratch);
        first += count;
      }
      CHECK(y.values() == expected);
    }
  }
}

TEST_CASE("convolutions in order: dw and db of every cut have the same bits, y and dx their own") {
  struct Case {
    Shape x, w;
    Conv2dParams params;
  };
  // Direct loops, patches (few pixels; a stride; a dilation; groups), depthwise, pointwise.
  const Case cases[] = {
      {{9, 8, 8, 1}, {16, 3, 3, 1}, {.padding = {1, 1}}},
      {{9, 8, 8, 5}, {19, 3, 3, 5}, {.padding = {1, 1}}},
      {{9, 9, 7, 4}, {8, 3, 2, 4}, {.stride = {2, 1}, .padding = {1, 0}}},
      {{9, 9, 9, 4}, {8, 3, 3, 4}, {.padding = {2, 2}, .dilation = {2, 2}}},
      {{9, 6, 6, 6}, {4, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
      {{9, 6, 6, 9}, {9, 3, 3, 1}, {.stride = {2, 1}, .padding = {1, 1}, .groups = 9}},
      {{9, 4, 4, 7}, {10, 1, 1, 7}, {}},
      {{9, 8, 8, 7}, {10, 1, 1, 7}, {}},
      {{9, 9, 9, 9}, {9, 3, 3, 1}, {.padding = {1, 1}, .groups = 9}},
      {{9, 9, 9, 6}, {4, 3, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {{9, 2, 2, 3}, {4, 2, 2, 3}, {.padding = {1, 1}}},
  };
  std::mt19937 random(31);
  Scratch scratch;
  for (const Case& c : cases) {
    for (const DType dtype : {DType::fp32, DType::fp16, DType::fp64}) {
      CAPTURE(c.w);
      CAPTURE(name(dtype));
      Conv2dParams params = c.params;
      params.in_order = true;
      const Conv2dShape z = conv2d_shape(c.x, c.w, params);
      const DType wide = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
      const Array x(dtype, c.x, normal(c.x.numel(), dtype, random));
      const Array w(dtype, c.w, normal(c.w.numel(), dtype, random));
      const Array bias(wide, {z.k}, normal(z.k, wide, random));
      const Array dy(dtype, z.y(), normal(z.y().numel(), dtype, random));
      struct Results {
        Array y, dx, dw, db;
      };
      const auto results = [&] {
        return Results{Array(dtype, z.y()), Array(dtype, c.x), Array(wide, c.w),
                       Array(wide, {z.k})};
      };
      const auto run = [&](const std::vector<std::int64_t>& cut, Results& r) {
        const auto part = [&](Array& v, std::int64_t first, std::int64_t count) {
          const ConstView from = rows(v, first, count);
          return View{const_cast<void*>(from.data), from.dtype, from.shape};
        };
        std::int64_t first = 0;
        for (const std::int64_t count : cut) {
          const Write write = first == 0 ? Write::overwrite : Write::accumulate;
          conv2d_forward(Ref{}, params, rows(x, first, count), *w, *bias, part(r.y, first, count),
                         scratch);
          conv2d_grad_input(Ref{}, params, rows(dy, first, count), *w, part(r.dx, first, count),
                            scratch);
          conv2d_grad_weight(Ref{}, params, rows(x, first, count), rows(dy, first, count),
                             r.dw.out(write), scratch);
          conv2d_grad_bias(Ref{}, params, rows(dy, first, count), r.db.out(write), scratch);
          first += count;
        }
      };
      Results whole = results();
      run({z.n}, whole);
      for (int trial = 0; trial < 12; ++trial) {
        Results cut = results();
        run(random_cut(z.n, random), cut);
        CHECK(same_bits(cut.y, whole.y));
        CHECK(same_bits(cut.dx, whole.dx));
        CHECK(same_bits(cut.dw, whole.dw));
        CHECK(same_bits(cut.db, whole.db));
      }
      // The values are a convolution's: within gamma of the same sums in fp64.
      if (dtype != DType::fp32) continue;
      Array exact_y(DType::fp64, z.y()), exact_dx(DType::fp64, c.x), exact_dw(DType::fp64, c.w);
      Array scale_y(DType::fp64, z.y()), scale_dx(DType::fp64, c.x), scale_dw(DType::fp64, c.w);
      const auto in_fp64 = [&](bool magnitudes, Array& y, Array& dx, Array& dw) {
        Conv2dParams p = c.params;
        p.accumulator = Accumulator::fp64;
        const auto of = [&](const Array& v) {
          return Array(DType::fp64, v.shape(), magnitudes ? absolute(v.values()) : v.values());
        };
        const Array ax = of(x), aw = of(w), ab = of(bias), ady = of(dy);
        conv2d_forward(Ref{}, p, *ax, *aw, *ab, y.out(), scratch);
        conv2d_grad_input(Ref{}, p, *ady, *aw, dx.out(), scratch);
        conv2d_grad_weight(Ref{}, p, *ax, *ady, dw.out(), scratch);
      };
      in_fp64(false, exact_y, exact_dx, exact_dw);
      in_fp64(true, scale_y, scale_dx, scale_dw);
      const auto within = [&](const Array& got, const Array& want, const Array& scale,
                              std::int64_t depth) {
        const double u = static_cast<double>(depth + 1) * 0x1p-24;
        for (std::int64_t i = 0; i < got.size(); ++i)
          if (!(std::abs(got[i] - want[i]) <= u / (1 - u) * scale[i])) return false;
        return true;
      };
      const std::int64_t taps = z.r * z.s;
      CHECK(within(whole.y, exact_y, scale_y, taps * c.w[3]));
      CHECK(within(whole.dx, exact_dx, scale_dx, taps * z.k / params.groups));
      const bool folded = z.p * z.q >= kSamplePixels && (params.groups == 1 || c.w[3] == 1);
      CHECK(within(whole.dw, exact_dw, scale_dw, folded ? z.n + z.p * z.q : z.n * z.p * z.q));
    }
  }
}

TEST_CASE("sums in order refuse what cannot be continued") {
  Scratch scratch;
  const Array a(DType::fp16, {4, 4}, ones(16));
  Array y(DType::fp32, {4, 4}, ones(16));
  const auto run = [&](GemmParams p, Write write, Array& to) {
    p.m = p.n = p.k = 4;
    p.order = SumOrder::in_order;
    gemm(Ref{}, p, *a, *a, ConstView::absent(), to.out(write), scratch);
  };
  for (const Accumulator accumulator : {Accumulator::fp16, Accumulator::v100, Accumulator::a100})
    CHECK_THROWS_WITH_AS(run({.accumulator = accumulator}, Write::accumulate, y),
                         doctest::Contains("sums in order are formed in fp32 or fp64"), Error);
  CHECK_THROWS_WITH_AS(run({.alpha = 2}, Write::accumulate, y), doctest::Contains("alpha is 2"),
                       Error);
  CHECK_THROWS_WITH_AS(run({.split = 2}, Write::accumulate, y), doctest::Contains("neither split"),
                       Error);
  GemmParams apart{.m = 4, .n = 4, .k = 4, .order = SumOrder::by_matrix};
  CHECK_THROWS_WITH_AS(gemm(Ref{}, apart, *a, *a, ConstView::absent(), y.out(), scratch),
                       doctest::Contains("sum_batch expected"), Error);
  apart.sum_batch = true;
  apart.accumulator = Accumulator::h100;
  CHECK_THROWS_WITH_AS(gemm(Ref{}, apart, *a, *a, ConstView::absent(), y.out(), scratch),
                       doctest::Contains("sums in order are formed in fp32 or fp64"), Error);
  for (const ColumnSumsParams& p :
       {ColumnSumsParams{.rows = 4, .columns = 4, .in_order = true, .group = 3},
        ColumnSumsParams{.rows = 4, .columns = 4, .in_order = true, .group = -1},
        ColumnSumsParams{.rows = 4, .columns = 4, .group = 2}})
    CHECK_THROWS_WITH_AS(column_sums(Ref{}, p, *a, Array(DType::fp32, {4}).out(), scratch),
                         doctest::Contains("a divisor of the 4 rows expected"), Error);
  Array wide(DType::fp64, {4, 4}, ones(16));
  CHECK_THROWS_WITH_AS(run({}, Write::accumulate, wide),
                       doctest::Contains("cannot begin with what an output in fp64 holds"), Error);
  CHECK_THROWS_AS(
      column_sums(Ref{},
                  {.rows = 4, .columns = 4, .accumulator = Accumulator::fp16, .in_order = true}, *a,
                  Array(DType::fp32, {4}).out(), scratch),
      Error);
}
