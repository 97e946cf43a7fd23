#include "kernels/gemm/modelled.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/base/tensor_core.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/array.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

using Floats = std::vector<float>;
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Floats floats(const std::vector<double>& v) {
  Floats f(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) f[i] = static_cast<float>(v[i]);
  return f;
}

// The sum of one element in modelled arithmetic: one term after another, or block after block. An
// fp16 sum begins at 0 and `start` joins in fp32.
float chain(Accumulator accumulator, DType operand, const Floats& a, const Floats& b, float start) {
  if (accumulator != Accumulator::fp16)
    return tensor_core_dot(tensor_core(accumulator, operand), a.data(), b.data(),
                           static_cast<std::int64_t>(a.size()), start);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum = static_cast<double>(
        Half(std::fma(static_cast<double>(a[i]), static_cast<double>(b[i]), sum)));
  return static_cast<float>(sum) + start;
}

struct Kind {
  Accumulator accumulator;
  DType dtype;
};
constexpr Kind kKinds[] = {{Accumulator::fp16, DType::fp16}, {Accumulator::fp16, DType::bf16},
                           {Accumulator::v100, DType::fp16}, {Accumulator::a100, DType::fp16},
                           {Accumulator::a100, DType::bf16}, {Accumulator::h100, DType::fp16},
                           {Accumulator::h100, DType::bf16}};

float product_of(Accumulator accumulator, DType dtype, const std::vector<double>& a,
                 const std::vector<double>& b) {
  Scratch scratch;
  const auto k = static_cast<std::int64_t>(a.size());
  Array y(DType::fp32, {1, 1});
  const Array left(dtype, {1, k}, a), right(dtype, {k, 1}, b);
  gemm(Ref{}, {.m = 1, .n = 1, .k = k, .accumulator = accumulator}, *left, *right,
       ConstView::absent(), y.view(), scratch);
  return static_cast<float>(y.values()[0]);
}

}  // namespace

TEST_CASE("an fp16 accumulator stalls, overflows and loses what fp32 keeps") {
  CHECK(product_of(Accumulator::fp16, DType::fp16, {2048, 1, 1}, ones(3)) == 2048);
  CHECK(product_of(Accumulator::fp16, DType::fp16, ones(4096), ones(4096)) == 2048);
  CHECK(product_of(Accumulator::fp16, DType::bf16, ones(4096), ones(4096)) == 2048);
  // The product and the sum are rounded once, together: 65536 leaves fp16 and nothing brings it
  // back.
  CHECK(product_of(Accumulator::fp16, DType::fp16, {256, 256}, {256, -256}) ==
        std::numeric_limits<float>::infinity());
  CHECK(product_of(Accumulator::fp16, DType::fp16, {0x1p-13, 0x1p-13}, {0x1p-12, 0x1p-12}) == 0);
  CHECK(std::isnan(product_of(Accumulator::fp16, DType::fp16,
                              {std::numeric_limits<double>::quiet_NaN(), 1}, {1, 1})));
  // 32800 + (16 - 2^-42) lies just below the tie that would go to 32832: fp32 operands, one
  // rounding.
  CHECK(product_of(Accumulator::fp16, DType::fp32, {32768, 32, 4 + 0x1p-21}, {1, 1, 4 - 0x1p-21}) ==
        32800);
  CHECK(product_of(Accumulator::fp16, DType::fp32, {-32768, -32, -4 - 0x1p-21},
                   {1, 1, 4 - 0x1p-21}) == -32800);
  CHECK(product_of(Accumulator::fp16, DType::fp32, {32768, 32, 4}, {1, 1, 4}) == 32832);
}

TEST_CASE("tensor-core sums are truncated, hence never beyond the exact sum") {
  std::mt19937 random(8);
  const std::vector<double> a = absolute(normal(4096, DType::fp16, random));
  const std::vector<double> b = absolute(normal(4096, DType::fp16, random));
  double exact = 0;
  for (std::size_t i = 0; i < a.size(); ++i) exact += a[i] * b[i];
  for (const Accumulator gpu : {Accumulator::v100, Accumulator::a100, Accumulator::h100}) {
    const double got = product_of(gpu, DType::fp16, a, b);
    CHECK(got < exact);
    // One block loses at most an ulp of the sum for each addend and one at the end.
    const TensorCore core = tensor_core(gpu, DType::fp16);
    const double blocks = 4096.0 / core.block;
    CHECK(exact - got <=
          blocks * ((core.block + 1) * std::exp2(23 - core.kept_bits) + 1) * 0x1p-23 * exact);
  }
}

TEST_CASE("gemm in modelled arithmetic: each element is its chain, bit for bit") {
  std::mt19937 random(9);
  for (const Kind& kind : kKinds) {
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0, biased = (flags & 4) != 0,
                 accumulate = (flags & 8) != 0;
      const std::int64_t m = 3, n = 5, k = 37;
      const std::vector<double> a = normal(m * k, kind.dtype, random),
                                b = normal(k * n, kind.dtype, random),
                                bias = normal(n, DType::fp32, random),
                                held = normal(m * n, DType::fp32, random);
      Scratch scratch;
      Array y(DType::fp32, {m, n}, held);
      const Array left(kind.dtype, {m * k}, a), right(kind.dtype, {k * n}, b),
          addend(DType::fp32, {n}, bias);
      gemm(Ref{},
           {.m = m,
            .n = n,
            .k = k,
            .trans_a = ta,
            .trans_b = tb,
            .beta = biased ? 1.0 : 0.0,
            .accumulator = kind.accumulator},
           *left, *right, *addend, Out(y.view(), accumulate ? Write::accumulate : Write::overwrite),
           scratch);
      const std::vector<double> got = y.values();
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          Floats row(at(k)), column(at(k));
          for (std::int64_t l = 0; l < k; ++l) {
            row[at(l)] = static_cast<float>(a[at(ta ? l * m + i : i * k + l)]);
            column[at(l)] = static_cast<float>(b[at(tb ? j * k + l : l * n + j)]);
          }
          const auto h = accumulate ? static_cast<float>(held[at(i * n + j)]) : 0.0F;
          const auto c = biased ? static_cast<float>(bias[at(j)]) : 0.0F;
          const float want = kind.accumulator == Accumulator::fp16
                                 ? h + chain(kind.accumulator, kind.dtype, row, column, c)
                                 : chain(kind.accumulator, kind.dtype, row, column, h + c);
          CHECK(got[at(i * n + j)] == static_cast<double>(want));
        }
      }
    }
  }
}

TEST_CASE("column sums in modelled arithmetic: products with 1, in the rows' order") {
  std::mt19937 random(11);
  for (const Kind& kind : kKinds) {
    const std::int64_t rows = 2100, columns = 3;
    const std::vector<double> x = normal(rows * columns, kind.dtype, random);
    Scratch scratch;
    Array y(DType::fp32, {columns});
    column_sums(Ref{}, {.rows = rows, .columns = columns, .accumulator = kind.accumulator},
                *Array(kind.dtype, {rows, columns}, x), y.view(), scratch);
    for (std::int64_t j = 0; j < columns; ++j) {
      Floats column(at(rows));
      for (std::int64_t i = 0; i < rows; ++i)
        column[at(i)] = static_cast<float>(x[at(i * columns + j)]);
      const float want = chain(kind.accumulator, kind.dtype, column, Floats(at(rows), 1.0F), 0);
      CHECK(y.values()[at(j)] == static_cast<double>(want));
    }
  }
}

TEST_CASE("gemm in modelled arithmetic scales by alpha after the sum") {
  Scratch scratch;
  const Array a(DType::fp16, {1, 2}, std::vector<double>{3, 4}), b(DType::fp16, {2, 1}, ones(2));
  for (const Accumulator accumulator : {Accumulator::fp16, Accumulator::h100}) {
    Array y(DType::fp32, {1, 1}, std::vector<double>{10});
    const GemmParams p{.m = 1, .n = 1, .k = 2, .alpha = 0.5, .beta = 2, .accumulator = accumulator};
    gemm(Ref{}, p, *a, *b, *y, y.view(), scratch);  // C is y
    CHECK(y.values()[0] == 23.5);
    gemm(Ref{}, p, *a, *b, ConstView::absent(), Out(y.view(), Write::accumulate), scratch);
    CHECK(y.values()[0] == 27);
  }
}

TEST_CASE("which operands have tensor cores") {
  using enum Accumulator;
  CHECK(!arithmetic("gemm", fp32, DType::fp16, DType::fp16, true).modelled);
  CHECK(!arithmetic("gemm", h100, DType::fp32, DType::fp32, false).modelled);
  CHECK(!arithmetic("gemm", h100, DType::fp64, DType::fp64, true).modelled);
  CHECK(!arithmetic("gemm", h100, DType::fp16, DType::bf16, false).modelled);
  CHECK(arithmetic("gemm", h100, DType::fp32, DType::fp32, true).operand == DType::fp32);
  CHECK(arithmetic("gemm", a100, DType::bf16, DType::bf16, false).operand == DType::bf16);
  CHECK_THROWS_WITH_AS(arithmetic("gemm", v100, DType::bf16, DType::bf16, false),
                       "[gemm] accumulator v100 takes fp16 operands, bf16 given", Error);
  CHECK_THROWS_AS(arithmetic("gemm", v100, DType::fp32, DType::fp32, true), Error);

  // tf32: rounded operands, then blocks of 8.
  Scratch scratch;
  std::mt19937 random(10);
  const std::vector<double> a = normal(20, DType::fp32, random),
                            b = normal(20, DType::fp32, random);
  Array y(DType::fp32, {1, 1});
  gemm(Ref{}, {.m = 1, .n = 1, .k = 20, .accumulator = h100, .tf32 = true},
       *Array(DType::fp32, {20}, a), *Array(DType::fp32, {20}, b), ConstView::absent(), y.view(),
       scratch);
  Floats left = floats(a), right = floats(b);
  round_to_tf32(left.data(), 20);
  round_to_tf32(right.data(), 20);
  CHECK(y.values()[0] == static_cast<double>(chain(h100, DType::fp32, left, right, 0)));
}

TEST_CASE("conv2d in modelled arithmetic: each element of every pass is its chain, bit for bit") {
  std::mt19937 random(12);
  const Conv2dParams base{.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2};
  const Shape sx{3, 5, 6, 4}, sw{6, 3, 2, 2};
  const Conv2dShape z = conv2d_shape(sx, sw, base);
  const Shape sy = z.y();
  for (const Kind& kind : kKinds) {
    Conv2dParams p = base;
    p.accumulator = kind.accumulator;
    const std::vector<double> x = normal(sx.numel(), kind.dtype, random),
                              w = normal(sw.numel(), kind.dtype, random),
                              bias = normal(z.k, DType::fp32, random),
                              dy = normal(sy.numel(), kind.dtype, random);
    const Array ax(kind.dtype, sx, x), aw(kind.dtype, sw, w), ab(DType::fp32, {z.k}, bias),
        ady(kind.dtype, sy, dy);
    Array y(DType::fp32, sy), dx(DType::fp32, sx), dw(DType::fp32, sw),
        more(DType::fp32, sw, ones(sw.numel()));
    Scratch scratch;
    conv2d_forward(Ref{}, p, *ax, *aw, *ab, y.view(), scratch);
    conv2d_grad_input(Ref{}, p, *ady, *aw, dx.view(), scratch);
    conv2d_grad_weight(Ref{}, p, *ax, *ady, dw.view(), scratch);
    conv2d_grad_weight(Ref{}, p, *ax, *ady, Out(more.view(), Write::accumulate), scratch);

    const std::int64_t cg = sw[3], kg = sw[0] / p.groups;
    // x at an output pixel's tap, 0 in the padding.
    const auto pixel = [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t r,
                           std::int64_t s, std::int64_t c) {
      const std::int64_t h = row * p.stride[0] + r * p.dilation[0] - p.padding[0];
      const std::int64_t v = column * p.stride[1] + s * p.dilation[1] - p.padding[1];
      if (h < 0 || h >= z.h || v < 0 || v >= z.w) return 0.0F;
      return static_cast<float>(x[at(((n * z.h + h) * z.w + v) * z.c + c)]);
    };
    const auto weight = [&](std::int64_t k, std::int64_t r, std::int64_t s, std::int64_t c) {
      return static_cast<float>(w[at(((k * z.r + r) * z.s + s) * cg + c)]);
    };
    const auto gradient = [&](std::int64_t n, std::int64_t row, std::int64_t column,
                              std::int64_t k) {
      return static_cast<float>(dy[at(((n * z.p + row) * z.q + column) * z.k + k)]);
    };
    int differ = 0;
    const auto compare = [&](const Array& got, std::int64_t i, const Floats& a, const Floats& b,
                             float start) {
      const float want = chain(kind.accumulator, kind.dtype, a, b, start);
      if (got.values()[at(i)] != static_cast<double>(want)) ++differ;
    };
    for (std::int64_t i = 0; i < sy.numel(); i += 7) {
      const std::int64_t k = i % z.k, q = i / z.k % z.q, row = i / z.k / z.q % z.p,
                         n = i / z.k / z.q / z.p;
      Floats a, b;
      for (std::int64_t r = 0; r < z.r; ++r)
        for (std::int64_t s = 0; s < z.s; ++s)
          for (std::int64_t c = 0; c < cg; ++c) {
            a.push_back(pixel(n, row, q, r, s, k / kg * cg + c));
            b.push_back(weight(k, r, s, c));
          }
      compare(y, i, a, b, static_cast<float>(bias[at(k)]));
    }
    for (std::int64_t i = 0; i < sx.numel(); i += 3) {
      const std::int64_t c = i % z.c, v = i / z.c % z.w, h = i / z.c / z.w % z.h,
                         n = i / z.c / z.w / z.h;
      Floats a, b;
      // The taps that a stride passes by are not part of the chain.
      for (std::int64_t r = 0; r < z.r; ++r)
        for (std::int64_t s = 0; s < z.s; ++s)
          for (std::int64_t k = c / cg * kg; k < (c / cg + 1) * kg; ++k) {
            if ((h + p.padding[0] - r * p.dilation[0]) % p.stride[0] != 0 ||
                (v + p.padding[1] - s * p.dilation[1]) % p.stride[1] != 0)
              continue;
            float g = 0;
            for (std::int64_t row = 0; row < z.p; ++row)
              for (std::int64_t q = 0; q < z.q; ++q)
                if (row * p.stride[0] + r * p.dilation[0] - p.padding[0] == h &&
                    q * p.stride[1] + s * p.dilation[1] - p.padding[1] == v)
                  g = gradient(n, row, q, k);
            a.push_back(g);
            b.push_back(weight(k, r, s, c % cg));
          }
      compare(dx, i, a, b, 0);
    }
    for (std::int64_t i = 0; i < sw.numel(); ++i) {
      const std::int64_t c = i % cg, s = i / cg % z.s, r = i / cg / z.s % z.r,
                         k = i / cg / z.s / z.r;
      Floats a, b;
      for (std::int64_t n = 0; n < z.n; ++n)
        for (std::int64_t row = 0; row < z.p; ++row)
          for (std::int64_t q = 0; q < z.q; ++q) {
            a.push_back(gradient(n, row, q, k));
            b.push_back(pixel(n, row, q, r, s, k / kg * cg + c));
          }
      compare(dw, i, a, b, 0);
      compare(more, i, a, b, 1);
    }
    CHECK(differ == 0);
  }
}
