// Plain fp32 implementations stay within their bounds, the bounds are not blank cheques, and the
// classical mistakes break them.
#include <algorithm>
#include <limits>

#include "tests/verify/rounding.h"

using namespace roundoff;
using oracle::Values;

namespace {

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
