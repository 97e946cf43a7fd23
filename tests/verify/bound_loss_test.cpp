// Plain fp32 implementations stay within their bounds, the bounds are not blank cheques, and the
// classical mistakes break them.
#include <algorithm>
#include <limits>

#include "tests/verify/rounding.h"

using namespace roundoff;
using oracle::at;
using oracle::Reduction;
using oracle::Values;

namespace {

constexpr DType kStorage[] = {DType::fp32, DType::fp16, DType::bf16};

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

}  // namespace

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
      const Bound likely = bound::softmax(p, x, {.lambda = 6});
      check(y, DType::fp32, likely);
      CHECK(likely.kind_name() == "probabilistic (lambda = 6)");
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
