// Plain fp32 implementations stay within their bounds, the bounds are not blank cheques, and the
// classical mistakes break them.
#include <algorithm>
#include <limits>

#include "tests/verify/rounding.h"

using namespace roundoff;
using oracle::at;
using oracle::Values;

namespace {

constexpr DType kStorage[] = {DType::fp32, DType::fp16, DType::bf16};

}  // namespace

TEST_CASE("unary functions and their gradients in fp32") {
  using oracle::Unary;
  const Arithmetic libm{.libm_ulps = 2};
  for (const DType out : kStorage) {
    Values x = normal(400, out, 1, 3);
    const Values dy = normal(400, out, 2);
    Arithmetic a = libm;
    a.output = format_of(out);
    for (const Unary f : {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::tanh, Unary::sigmoid,
                          Unary::exp, Unary::log}) {
      if (f == Unary::log)
        for (double& v : x) v = std::abs(v) + (v == 0 ? 1 : 0);
      std::vector<float> y, dx;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto v = static_cast<float>(x[i]), g = static_cast<float>(dy[i]);
        const float inv_sqrt2 = 0.70710678118654752F;
        const float t = std::tanh(0.79788456080286536F * (v + 0.044715F * v * v * v));
        const float e = std::exp(-std::abs(v));
        const float s = v >= 0 ? 1 / (1 + e) : e / (1 + e);
        switch (f) {
          case Unary::relu:
            y.push_back(v > 0 ? v : 0), dx.push_back(v > 0 ? g : 0);
            break;
          case Unary::gelu:
            y.push_back(v * (0.5F * std::erfc(-v * inv_sqrt2)));
            dx.push_back(g * (0.5F * std::erfc(-v * inv_sqrt2) +
                              v * (0.39894228040143268F * std::exp(-0.5F * v * v))));
            break;
          case Unary::gelu_tanh:
            y.push_back(0.5F * v * (1 + t));
            dx.push_back(g * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * 0.79788456080286536F *
                                                   (1 + 3 * 0.044715F * v * v)));
            break;
          case Unary::tanh:
            y.push_back(std::tanh(v)), dx.push_back(g * (1 - y.back() * y.back()));
            break;
          case Unary::sigmoid:
            y.push_back(s), dx.push_back(g * (s * (1 - s)));
            break;
          case Unary::exp:
            y.push_back(std::exp(v)), dx.push_back(g * y.back());
            break;
          case Unary::log:
            y.push_back(std::log(v)), dx.push_back(g / v);
            break;
        }
      }
      INFO("function ", static_cast<int>(f), ", output ", name(out));
      const Comparison forward = check(y, out, bound::unary(f, x, a));
      const Comparison backward = check(dx, out, bound::unary_backward(f, x, dy, a));
      if (f != Unary::relu) CHECK(std::min(forward.bound_ratio, backward.bound_ratio) > 0.02);
      if (f == Unary::relu) CHECK(forward.bound_ratio == 0);
    }
  }
}

TEST_CASE("a gelu that cancels, and a tanh differentiated from a 16-bit y, are told apart") {
  // 1 + erf cancels in the negative tail; erfc does not.
  const Values x{-5}, dy{1};
  const auto v = static_cast<float>(x[0]);
  const float cancelled = 0.5F * v * (1 + std::erf(v * 0.70710678F));
  CHECK_FALSE(holds({cancelled}, bound::unary(oracle::Unary::gelu, x, {.libm_ulps = 2})));

  const Values near{3.0};
  const auto y = static_cast<float>(Half(std::tanh(3.0F)));
  const std::vector<float> dx{1 - y * y};
  CHECK_FALSE(holds(dx, bound::unary_backward(oracle::Unary::tanh, near, dy, {})));
  check(dx, DType::fp32, bound::unary_backward(oracle::Unary::tanh, near, dy, {}, kFp16));
}

TEST_CASE("binary functions with broadcasting and their reduced gradients") {
  using oracle::Binary;
  const Shape sa{64, 1, 3}, sb{5, 1};
  const Values a = normal(192, DType::fp32, 3), b = normal(5, DType::fp32, 4),
               dy = normal(960, DType::fp32, 5);
  for (const Binary f : {Binary::add, Binary::sub, Binary::mul, Binary::div}) {
    std::vector<float> y, da(192, 0.0F), db(5, 0.0F);
    for (std::size_t i = 0; i < 960; ++i) {
      const std::size_t ia = i / 15 * 3 + i % 3, ib = i / 3 % 5;
      const auto u = static_cast<float>(a[ia]), v = static_cast<float>(b[ib]),
                 g = static_cast<float>(dy[i]);
      switch (f) {
        case Binary::add:
          y.push_back(u + v), da[ia] += g, db[ib] += g;
          break;
        case Binary::sub:
          y.push_back(u - v), da[ia] += g, db[ib] -= g;
          break;
        case Binary::mul:
          y.push_back(u * v), da[ia] += g * v, db[ib] += g * u;
          break;
        case Binary::div:
          y.push_back(u / v), da[ia] += g / v, db[ib] -= g * u / (v * v);
          break;
      }
    }
    check(y, DType::fp32, bound::binary(f, a, sa, b, sb, {}));
    const auto g = bound::binary_backward(f, a, sa, b, sb, dy, {});
    check(da, DType::fp32, g.a);
    check(db, DType::fp32, g.b);
  }
}

TEST_CASE("dropout and embedding") {
  const Values x = normal(100, DType::fp32, 6);
  std::vector<std::uint8_t> kept(100);
  for (std::size_t i = 0; i < 100; ++i) kept[i] = i % 3 != 0;
  const auto p = static_cast<double>(0.3F);
  std::vector<float> product, quotient;
  for (std::size_t i = 0; i < 100; ++i) {
    const auto v = static_cast<float>(x[i]);
    product.push_back(kept[i] != 0 ? v * (1 / (1 - 0.3F)) : 0);
    quotient.push_back(kept[i] != 0 ? v / (1 - 0.3F) : 0);
  }
  check(product, DType::fp32, bound::dropout(p, x, kept, {}));
  check(quotient, DType::fp32, bound::dropout(p, x, kept, {}));
  for (const double t : bound::dropout(0, x, kept, {}).tolerance) CHECK(t == 0);

  const std::vector<std::int64_t> index{1, 0, 1, 1};
  const Values dy = normal(12, DType::fp32, 7);
  std::vector<float> dtable(9, 0.0F);
  for (std::size_t i = 0; i < 12; ++i) dtable[at(index[i / 3] * 3) + i % 3] += as_float(dy)[i];
  check(dtable, DType::fp32, bound::embedding_backward(3, 3, index, dy, {}));
  const Values table = normal(9, DType::fp16, 8);
  const Bound rows = bound::embedding(3, 3, table, index, {.output = kFp16});
  for (const double t : rows.tolerance) CHECK(t == 0);
}

TEST_CASE("sums on tensor cores are no plain reductions") {
  const Values x{1, 2};
  const std::int64_t axes[] = {0};
  const Arithmetic core{.tensor_core = kH100};
  CHECK_THROWS_WITH_AS(bound::reduce(oracle::Reduce::sum, x, {2}, axes, core),
                       doctest::Contains("tensor cores"), Error);
  CHECK(bound::reduce(oracle::Reduce::max, x, {2}, axes, core).reference[0] == 2);
}

TEST_CASE("reductions and pooling") {
  using oracle::Reduce;
  const Shape shape{50, 40};
  const std::int64_t rows[] = {1};
  for (const DType out : kStorage) {
    const Arithmetic a{.output = format_of(out)};
    const Values x = normal(2000, out, 9), dy = normal(50, out, 10);
    std::vector<float> sum, mean, norm, largest, dnorm;
    for (std::size_t i = 0; i < 50; ++i) {
      std::vector<float> row;
      for (std::size_t j = 0; j < 40; ++j) row.push_back(static_cast<float>(x[i * 40 + j]));
      float squares = 0;
      for (const float v : row) squares += v * v;
      sum.push_back(sum_of(row));
      mean.push_back(sum_of(row) / 40);
      norm.push_back(std::sqrt(squares));
      largest.push_back(*std::max_element(row.begin(), row.end()));
      for (const float v : row) dnorm.push_back(static_cast<float>(dy[i]) * (v / norm.back()));
    }
    check(sum, out, bound::reduce(Reduce::sum, x, shape, rows, a));
    check(mean, out, bound::reduce(Reduce::mean, x, shape, rows, a));
    check(norm, out, bound::reduce(Reduce::norm, x, shape, rows, a));
    CHECK(check(largest, out, bound::reduce(Reduce::max, x, shape, rows, a)).bound_ratio == 0);
    check(dnorm, out, bound::reduce_backward(Reduce::norm, x, shape, rows, dy, a));

    const oracle::Pool2dParams p{.n = 1,
                                 .h = 20,
                                 .w = 20,
                                 .c = 5,
                                 .kernel_h = 3,
                                 .kernel_w = 3,
                                 .stride_h = 2,
                                 .stride_w = 1};
    std::vector<float> average;
    for (std::int64_t i = 0; i < p.p(); ++i)
      for (std::int64_t j = 0; j < p.q(); ++j)
        for (std::int64_t c = 0; c < 5; ++c) {
          float window = 0;
          for (std::int64_t r = 0; r < 3; ++r)
            for (std::int64_t s = 0; s < 3; ++s)
              window += static_cast<float>(x[at(((2 * i + r) * 20 + j + s) * 5 + c)]);
          average.push_back(window / 9);
        }
    check(average, out, bound::avg_pool2d(p, x, a));
    for (const double t : bound::max_pool2d(p, x, a).tolerance) CHECK(t == 0);
    const Values dpool = normal(p.y_size(), out, 11);
    check(as_float(oracle::avg_pool2d_backward(p, dpool)), out,
          bound::avg_pool2d_backward(p, dpool, a));
    check(as_float(oracle::max_pool2d_backward(p, x, dpool)), out,
          bound::max_pool2d_backward(p, x, dpool, a));
  }
  // A sum that stalls, as a 16-bit accumulator's does, breaks the bound.
  const Values ones(5000, 1.0);
  CHECK_FALSE(holds({2048}, bound::reduce(Reduce::sum, ones, {5000}, {}, {})));
}

TEST_CASE("results that are added to what an output holds") {
  const Values a = normal(30, DType::fp32, 33), before = normal(1, DType::fp32, 34);
  const Bound sum = bound::reduce(oracle::Reduce::sum, a, {30}, {}, {});
  const float total = sum_of(as_float(a));
  check({static_cast<float>(before[0]) + total}, DType::fp32, accumulated(sum, before, kFp32));
  CHECK_FALSE(holds({total}, accumulated(sum, before, kFp32)));
}
