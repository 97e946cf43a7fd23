// Plain fp32 implementations stay within their bounds, the bounds are not blank cheques, and the
// classical mistakes break them.
#include <algorithm>
#include <limits>

#include "rounding.h"

using namespace roundoff;
using oracle::at;
using oracle::Reduction;
using oracle::Values;

namespace {

constexpr DType kStorage[] = {DType::fp32, DType::fp16, DType::bf16};

bool holds(const std::vector<float>& y, const Bound& bound) {
  return compare({y.data(), DType::fp32, {static_cast<std::int64_t>(y.size())}}, bound).holds;
}

float sum_of(const std::vector<float>& v) {
  float s = 0;
  for (const float x : v) s += x;
  return s;
}

std::vector<float> softmax_row(const std::vector<float>& x) {
  const float m = *std::max_element(x.begin(), x.end());
  std::vector<float> e;
  for (const float v : x) e.push_back(std::exp(v - m));
  const float s = sum_of(e);
  for (float& v : e) v /= s;
  return e;
}

std::vector<float> log_softmax_row(const std::vector<float>& x) {
  const float m = *std::max_element(x.begin(), x.end());
  std::vector<float> e;
  for (const float v : x) e.push_back(std::exp(v - m));
  const float log_s = std::log(sum_of(e));
  std::vector<float> y;
  for (const float v : x) y.push_back((v - m) - log_s);
  return y;
}

struct Layer {
  std::vector<float> xhat;
  float mean, rstd, unbiased;
};
Layer normalize(const std::vector<float>& x, float eps) {
  const auto n = static_cast<float>(x.size());
  Layer out{{}, sum_of(x) / n, 0, 0};
  float squares = 0;
  for (const float v : x) squares += (v - out.mean) * (v - out.mean);
  out.rstd = 1 / std::sqrt(squares / n + eps);
  out.unbiased = squares / (n - 1);
  for (const float v : x) out.xhat.push_back((v - out.mean) * out.rstd);
  return out;
}
std::vector<float> normalize_backward(const Layer& s, const std::vector<float>& g) {
  const auto n = static_cast<float>(g.size());
  float gx = 0;
  for (std::size_t i = 0; i < g.size(); ++i) gx += g[i] * s.xhat[i];
  const float mean_g = sum_of(g) / n, mean_gx = gx / n;
  std::vector<float> dx;
  for (std::size_t i = 0; i < g.size(); ++i)
    dx.push_back(s.rstd * (g[i] - mean_g - s.xhat[i] * mean_gx));
  return dx;
}

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

TEST_CASE("softmax, log-softmax and their gradients; the bad formula breaks the bound") {
  for (const DType in : kStorage)
    for (const double scale : {1.0, 30.0}) {
      const oracle::SoftmaxParams p{.outer = 20, .n = 33};
      const Values x = normal(660, in, 12, scale), dy = normal(660, in, 13);
      std::vector<float> y, log_y, dx, dlog;
      for (std::size_t r = 0; r < 20; ++r) {
        const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(r * 33),
                                     x.begin() + static_cast<std::ptrdiff_t>(r * 33 + 33));
        const auto s = softmax_row(row), l = log_softmax_row(row);
        float dot = 0, total = 0;
        for (std::size_t i = 0; i < 33; ++i) {
          dot += static_cast<float>(dy[r * 33 + i]) * s[i];
          total += static_cast<float>(dy[r * 33 + i]);
        }
        for (std::size_t i = 0; i < 33; ++i) {
          const auto g = static_cast<float>(dy[r * 33 + i]);
          dx.push_back(s[i] * (g - dot));
          dlog.push_back(g - std::exp(l[i]) * total);
        }
        y.insert(y.end(), s.begin(), s.end());
        log_y.insert(log_y.end(), l.begin(), l.end());
      }
      check(y, DType::fp32, bound::softmax(p, x, {}));
      check(y, DType::fp16, bound::softmax(p, x, {.output = kFp16}));
      check(log_y, DType::fp32, bound::log_softmax(p, x, {}));
      check(dx, DType::fp32, bound::softmax_backward(p, x, dy, {}));
      check(dlog, DType::fp32, bound::log_softmax_backward(p, x, dy, {}));
    }
  // x - (max + log s) loses log s; the stable form does not.
  const Values far{-20000, -20000};
  const float lse = -20000.0F + std::log(2.0F);
  CHECK_FALSE(holds({-20000.0F - lse, -20000.0F - lse}, bound::log_softmax({.n = 2}, far, {})));
  check(log_softmax_row(as_float(far)), DType::fp32, bound::log_softmax({.n = 2}, far, {}));
}

TEST_CASE("losses and their gradients") {
  const std::int64_t rows = 40, classes = 10;
  const Values logits = normal(400, DType::fp16, 14, 4), weight = [] {
    Values w = normal(10, DType::fp32, 15);
    for (double& v : w) v = std::abs(v);
    return w;
  }();
  std::vector<std::int64_t> target;
  for (std::int64_t r = 0; r < rows; ++r) target.push_back(r % 7 == 0 ? -100 : r * 3 % classes);
  for (const double eps : {0.0, 0.1})
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const oracle::CrossEntropyParams p{
          .rows = rows, .classes = classes, .label_smoothing = eps, .reduction = reduction};
      std::vector<float> losses, dlogits;
      float total = 0, valid = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        if (target[at(r)] >= 0) valid += static_cast<float>(weight[at(target[at(r)])]);
      const Values seed = reduction == Reduction::none ? normal(rows, DType::fp32, 16) : Values{3};
      const auto e = static_cast<float>(eps);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::vector<float> x(logits.begin() + r * classes,
                                   logits.begin() + (r + 1) * classes);
        const std::int64_t t = target[at(r)];
        const auto l = log_softmax_row(x), s = softmax_row(x);
        float loss = 0, all = 0, mass = 0;
        if (t >= 0) {
          const auto w = static_cast<float>(weight[at(t)]);
          for (std::size_t c = 0; c < 10; ++c) {
            all += static_cast<float>(weight[c]) * -l[c];
            mass += static_cast<float>(weight[c]);
          }
          loss = (1 - e) * (w * -l[at(t)]) + e / 10 * all;
        }
        losses.push_back(loss);
        total += loss;
        const auto g = static_cast<float>(reduction == Reduction::none ? seed[at(r)] : seed[0]) /
                       (reduction == Reduction::mean ? valid : 1);
        for (std::size_t c = 0; c < 10; ++c)
          dlogits.push_back(t < 0 ? 0
                                  : g * ((1 - e) * static_cast<float>(weight[at(t)]) *
                                             (s[c] - (c == at(t) ? 1.0F : 0.0F)) +
                                         e / 10 * (s[c] * mass - static_cast<float>(weight[c]))));
      }
      const Bound bound = bound::cross_entropy(p, logits, target, weight, {});
      if (reduction == Reduction::none)
        check(losses, DType::fp32, bound);
      else
        check({reduction == Reduction::sum ? total : total / valid}, DType::fp32, bound);
      check({valid}, DType::fp32, bound::cross_entropy_valid_weight(p, target, weight, {}));
      const Bound gradient = bound::cross_entropy_backward(p, logits, target, weight, seed, {});
      CHECK(check(dlogits, DType::fp32, gradient).bound_ratio > 0.01);
      check(dlogits, DType::fp16,
            bound::cross_entropy_backward(p, logits, target, weight, seed, {.output = kFp16}));
      for (std::size_t c = 0; c < 10; ++c) CHECK(gradient.tolerance[c] == 0);  // row 0 is ignored

      const Values x = normal(50, DType::fp32, 17, 3), y = normal(50, DType::fp32, 18);
      const Values dloss = reduction == Reduction::none ? normal(50, DType::fp32, 19) : Values{2};
      std::vector<float> mse, bce, dmse, dbce;
      for (std::size_t i = 0; i < 50; ++i) {
        const auto u = static_cast<float>(x[i]), v = static_cast<float>(y[i]);
        const auto g = static_cast<float>(dloss[reduction == Reduction::none ? i : 0]) /
                       (reduction == Reduction::mean ? 50.0F : 1.0F);
        const float ex = std::exp(-std::abs(u));
        mse.push_back((u - v) * (u - v));
        bce.push_back(std::max(u, 0.0F) - u * v + std::log1p(ex));
        dmse.push_back(2 * g * (u - v));
        dbce.push_back(g * ((u >= 0 ? 1 / (1 + ex) : ex / (1 + ex)) - v));
      }
      const auto reduce = [&](std::vector<float> items) {
        if (reduction == Reduction::none) return items;
        const float s = sum_of(items);
        return std::vector<float>{reduction == Reduction::sum ? s : s / 50};
      };
      check(reduce(mse), DType::fp32, bound::mse(reduction, x, y, {}));
      check(reduce(bce), DType::fp32, bound::bce_with_logits(reduction, x, y, {}));
      check(dmse, DType::fp32, bound::mse_backward(reduction, x, y, dloss, {}));
      check(dbce, DType::fp32, bound::bce_with_logits_backward(reduction, x, y, dloss, {}));
    }
  // The wrong smoothing formulas of case 44 are far outside.
  const oracle::CrossEntropyParams p{.rows = 1, .classes = 3, .label_smoothing = 0.1};
  const std::vector<std::int64_t> first{0};
  const Bound bound = bound::cross_entropy(p, Values{2, 1, 0}, first, {}, {.output = kBf16});
  for (const float wrong : {0.5576059644F, 1.7744513324F})
    CHECK_FALSE(judge(wrong, bound.reference[0], bound.tolerance[0], kBf16));
}

TEST_CASE("soft targets") {
  const oracle::CrossEntropyParams p{.rows = 8, .classes = 5, .label_smoothing = 0.2};
  const Values x = normal(40, DType::fp32, 20, 2);
  Values q = normal(40, DType::fp32, 21);
  for (double& v : q) v = std::abs(v);
  std::vector<float> dlogits;
  float total = 0;
  for (std::size_t r = 0; r < 8; ++r) {
    const auto begin = static_cast<std::ptrdiff_t>(r * 5);
    const std::vector<float> row(x.begin() + begin, x.begin() + begin + 5);
    const auto l = log_softmax_row(row), s = softmax_row(row);
    float mass = 0, loss = 0;
    std::vector<float> v;
    for (std::size_t c = 0; c < 5; ++c) {
      v.push_back(0.8F * static_cast<float>(q[r * 5 + c]) + 0.2F / 5);
      mass += v.back();
      loss += v.back() * -l[c];
    }
    total += loss;
    for (std::size_t c = 0; c < 5; ++c) dlogits.push_back(1.0F / 8 * (s[c] * mass - v[c]));
  }
  check({total / 8}, DType::fp32, bound::cross_entropy_soft(p, x, q, {}, {}));
  check(dlogits, DType::fp32, bound::cross_entropy_soft_backward(p, x, q, {}, Values{1}, {}));
}

TEST_CASE("layer and batch normalisation; one pass breaks the bound") {
  for (const double mean : {0.0, 5.0, 300.0}) {
    Values x = normal(640, DType::fp32, 22);
    for (double& v : x) v = static_cast<double>(static_cast<float>(v + mean));
    const Values gamma = normal(32, DType::fp32, 23), beta = normal(32, DType::fp32, 24),
                 dy = normal(640, DType::fp32, 25);
    const oracle::LayerNormParams p{.rows = 20, .n = 32, .eps = static_cast<double>(1e-5F)};
    std::vector<float> y, dx, dgamma(32, 0.0F), dbeta(32, 0.0F), one_pass;
    for (std::size_t r = 0; r < 20; ++r) {
      std::vector<float> row, g;
      for (std::size_t i = 0; i < 32; ++i) row.push_back(static_cast<float>(x[r * 32 + i]));
      const Layer s = normalize(row, 1e-5F);
      float squares = 0;
      for (const float v : row) squares += v * v;
      const float bad = 1 / std::sqrt(squares / 32 - s.mean * s.mean + 1e-5F);
      for (std::size_t i = 0; i < 32; ++i) {
        const auto d = static_cast<float>(dy[r * 32 + i]);
        y.push_back(static_cast<float>(gamma[i]) * s.xhat[i] + static_cast<float>(beta[i]));
        one_pass.push_back(static_cast<float>(gamma[i]) * ((row[i] - s.mean) * bad) +
                           static_cast<float>(beta[i]));
        g.push_back(d * static_cast<float>(gamma[i]));
        dgamma[i] += d * s.xhat[i];
        dbeta[i] += d;
      }
      const auto row_dx = normalize_backward(s, g);
      dx.insert(dx.end(), row_dx.begin(), row_dx.end());
    }
    const Bound forward = bound::layer_norm(p, x, gamma, beta, {});
    CHECK(check(y, DType::fp32, forward).bound_ratio > 0.01);
    if (mean == 300) CHECK_FALSE(holds(one_pass, forward));
    const auto g = bound::layer_norm_backward(p, x, gamma, dy, {});
    CHECK(check(dx, DType::fp32, g.x).bound_ratio > 0.001);
    check(dgamma, DType::fp32, g.gamma);
    check(dbeta, DType::fp32, g.beta);

    // Batch normalisation over columns of the same numbers.
    const oracle::BatchNormParams b{.n = 20, .c = 32, .eps = static_cast<double>(1e-5F)};
    std::vector<float> by(640), bdx(640), bgamma, bbeta, rm, rv, ey(640), edx(640), egamma;
    const Values before_mean = normal(32, DType::fp32, 26), before_var(32, 2.0);
    const auto m = static_cast<double>(0.1F);
    for (std::size_t c = 0; c < 32; ++c) {
      std::vector<float> column, gc;
      for (std::size_t i = 0; i < 20; ++i) column.push_back(static_cast<float>(x[i * 32 + c]));
      const Layer s = normalize(column, 1e-5F);
      float dg = 0, db = 0, eg = 0;
      const float erstd = 1 / std::sqrt(static_cast<float>(before_var[c]) + 1e-5F);
      for (std::size_t i = 0; i < 20; ++i) {
        const auto d = static_cast<float>(dy[i * 32 + c]), k = static_cast<float>(gamma[c]);
        by[i * 32 + c] = k * s.xhat[i] + static_cast<float>(beta[c]);
        gc.push_back(d * k);
        dg += d * s.xhat[i];
        db += d;
        const float xhat = (column[i] - static_cast<float>(before_mean[c])) * erstd;
        ey[i * 32 + c] = k * xhat + static_cast<float>(beta[c]);
        edx[i * 32 + c] = d * k * erstd;
        eg += d * xhat;
      }
      const auto dc = normalize_backward(s, gc);
      for (std::size_t i = 0; i < 20; ++i) bdx[i * 32 + c] = dc[i];
      bgamma.push_back(dg), bbeta.push_back(db), egamma.push_back(eg);
      rm.push_back((1 - 0.1F) * static_cast<float>(before_mean[c]) + 0.1F * s.mean);
      rv.push_back((1 - 0.1F) * static_cast<float>(before_var[c]) + 0.1F * s.unbiased);
    }
    const auto train =
        bound::batch_norm_train(b, x, gamma, beta, m, 0, before_mean, before_var, {});
    check(by, DType::fp32, train.y);
    check(rm, DType::fp32, train.running_mean);
    check(rv, DType::fp32, train.running_var);
    const auto tg = bound::batch_norm_train_backward(b, x, gamma, dy, {});
    check(bdx, DType::fp32, tg.x);
    check(bgamma, DType::fp32, tg.gamma);
    check(bbeta, DType::fp32, tg.beta);
    check(ey, DType::fp32, bound::batch_norm_eval(b, x, gamma, beta, before_mean, before_var, {}));
    const auto eg = bound::batch_norm_eval_backward(b, x, gamma, before_mean, before_var, dy, {});
    check(edx, DType::fp32, eg.x);
    check(egamma, DType::fp32, eg.gamma);
  }
}

TEST_CASE("unscale, clip and the optimizers") {
  const Values g0 = normal(100, DType::fp16, 27, 1000), g1 = normal(7, DType::fp16, 28, 1000);
  const Values grads[] = {g0, g1};
  for (const double scale : {1024.0, 1000.0})
    for (const double max_norm : {1.0, 1e9}) {
      const auto bound = bound::unscale_clip({.scale = scale, .max_norm = max_norm}, grads, {});
      const float inverse = 1 / static_cast<float>(scale);
      double squares = 0;
      for (const Values& g : grads)
        for (const double v : g) {
          const float u = static_cast<float>(v) * inverse;
          squares += static_cast<double>(u) * static_cast<double>(u);
        }
      const double norm = std::sqrt(squares);
      const float clip = norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0F;
      CHECK(judge(norm, bound.norm.reference[0], bound.norm.tolerance[0], kFp64));
      check({clip}, DType::fp32, bound.clip);
      for (std::size_t k = 0; k < 2; ++k) {
        std::vector<float> out;
        for (const double v : grads[k]) out.push_back(static_cast<float>(v) * inverse * clip);
        const Comparison c = check(out, DType::fp32, bound.grads[k]);
        if (scale == 1024 && max_norm == 1e9) CHECK(c.bound_ratio == 0);
      }
    }

  const Values w = normal(200, DType::fp32, 29), grad = normal(200, DType::fp32, 30),
               m = normal(200, DType::fp32, 31, 0.1);
  Values v = normal(200, DType::fp32, 32, 0.01);
  for (double& x : v) x = std::abs(x);
  for (const bool nesterov : {false, true}) {
    const oracle::SgdParams p{
        .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov};
    std::vector<float> new_w, buffer;
    for (std::size_t i = 0; i < 200; ++i) {
      const float g = static_cast<float>(grad[i]) + 0.01F * static_cast<float>(w[i]);
      buffer.push_back(0.9F * static_cast<float>(m[i]) + g);
      const float update = nesterov ? g + 0.9F * buffer.back() : buffer.back();
      new_w.push_back(static_cast<float>(w[i]) - 0.1F * update);
    }
    const auto bound = bound::sgd_step(p, grad, w, m, {});
    CHECK(check(new_w, DType::fp32, bound.w).bound_ratio > 0.1);
    check(buffer, DType::fp32, bound.buffer);
  }
  for (const bool decoupled : {false, true})
    for (const std::int64_t step : {1, 1000}) {
      const oracle::AdamParams p{.weight_decay = 0.01, .decoupled_decay = decoupled};
      const auto t = static_cast<double>(step);
      const auto size = static_cast<float>(1e-3 / (1 - std::pow(0.9, t)));
      const auto correction = static_cast<float>(std::sqrt(1 - std::pow(0.999, t)));
      std::vector<float> new_w, new_m, new_v;
      for (std::size_t i = 0; i < 200; ++i) {
        float x = static_cast<float>(w[i]), g = static_cast<float>(grad[i]);
        if (decoupled)
          x *= static_cast<float>(1 - 1e-3 * 0.01);
        else
          g += 0.01F * x;
        new_m.push_back(0.9F * static_cast<float>(m[i]) + static_cast<float>(1 - 0.9) * g);
        new_v.push_back(0.999F * static_cast<float>(v[i]) + static_cast<float>(1 - 0.999) * g * g);
        new_w.push_back(x - size * new_m.back() / (std::sqrt(new_v.back()) / correction + 1e-8F));
      }
      const auto bound = bound::adam_step(p, step, grad, w, m, v, {});
      CHECK(check(new_w, DType::fp32, bound.w).bound_ratio > 0.1);
      check(new_m, DType::fp32, bound.m);
      check(new_v, DType::fp32, bound.v);
    }
}

TEST_CASE("results that are added to what an output holds") {
  const Values a = normal(30, DType::fp32, 33), before = normal(1, DType::fp32, 34);
  const Bound sum = bound::reduce(oracle::Reduce::sum, a, {30}, {}, {});
  const float total = sum_of(as_float(a));
  check({static_cast<float>(before[0]) + total}, DType::fp32, accumulated(sum, before, kFp32));
  CHECK_FALSE(holds({total}, accumulated(sum, before, kFp32)));
}
