#include "kernels/norm/layer_norm.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/kernels/norm_bound.h"
#include "verify/oracle/norm.h"

using namespace roundoff;
using namespace roundoff::norm_bound;

namespace {

struct Run {
  Array y, mean, rstd;
};

Run forward(const LayerNormParams& params, const ConstView& x, const ConstView& gamma,
            const ConstView& beta, DType out) {
  std::int64_t rows = 1;
  for (int a = 0; a < x.shape.rank() - params.axes; ++a) rows *= x.shape[a];
  const DType stats = x.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  Scratch scratch;
  Run r{Array(x.shape, out), Array(Shape{rows}, stats), Array(Shape{rows}, stats)};
  layer_norm_forward(Ref{}, params, x, gamma, beta, r.y, r.mean, r.rstd, scratch);
  return r;
}

Values slice(const Values& v, std::int64_t first, std::int64_t n) {
  return {v.begin() + first, v.begin() + first + n};
}

}  // namespace

TEST_CASE("case 52 [NORM] LayerNorm with large mean") {
  for (const double base : {40000.0, 80000.0}) {
    const Array x({base, base + 1, base + 2, base + 3}, Shape{1, 4}, DType::fp32);
    const Values y =
        forward({.eps = 1e-5}, x, ConstView::absent(), ConstView::absent(), DType::fp32).y.values();
    const double want[] = {-1.34163542, -0.44721181, 0.44721181, 1.34163542};
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(y[i] - want[i]) <= 1e-5);
  }
}

TEST_CASE("case 53 [NORM] constant row") {
  // 1234 as reported; 0.1 and 1/3 have sums that round, so they need the corrected mean.
  for (const double value : {1234.0, 0.1, -1.0 / 3.0, 3e5, 1e-30}) {
    for (const std::int64_t n : {1, 3, 255, 256, 257, 1000}) {
      for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
        if (dtype == DType::fp16 && value == 3e5) continue;
        for (const double eps : {1e-5, 1e-8}) {
          CAPTURE(value);
          CAPTURE(n);
          const Array x(Shape{1, n}, dtype, value);
          const Run r =
              forward({.eps = eps}, x, ConstView::absent(), ConstView::absent(), DType::fp32);
          for (const double y : r.y.values()) REQUIRE(y == 0.0);
          CHECK(r.rstd.values()[0] == doctest::Approx(1.0 / std::sqrt(eps)).epsilon(1e-6));
          for (const double gradient : {1.0, 0.7, -1e-3}) {
            const Array dy(Shape{1, n}, DType::fp32, gradient);
            const Array dx(Shape{1, n}, DType::fp32, 9.0);
            Scratch scratch;
            layer_norm_backward(Ref{}, {.eps = eps}, x, ConstView::absent(), r.mean, r.rstd, dy, dx,
                                {}, {}, scratch);
            for (const double g : dx.values()) REQUIRE(g == 0.0);
          }
        }
      }
    }
  }
}

TEST_CASE("case 63 [NORM] LayerNorm width 1") {
  const Array x({5, 7}, Shape{2, 1}, DType::fp32);
  const Array gamma({2}, Shape{1}, DType::fp32), beta({0.5}, Shape{1}, DType::fp32);
  const Run r = forward({}, x, gamma, beta, DType::fp32);
  CHECK(r.y.values() == Values{0.5, 0.5});
  const Array dy({1, -3}, Shape{2, 1}, DType::fp32);
  const Array dx(Shape{2, 1}, DType::fp32, 9.0), dgamma(Shape{1}, DType::fp32),
      dbeta(Shape{1}, DType::fp32);
  Scratch scratch;
  layer_norm_backward(Ref{}, {}, x, gamma, r.mean, r.rstd, dy, dx, dgamma, dbeta, scratch);
  CHECK(dx.values() == Values{0.0, 0.0});
  CHECK(dgamma.values() == Values{0.0});
  CHECK(dbeta.values() == Values{-2.0});
}

TEST_CASE("LayerNorm forward and backward within their bounds, every dtype and ragged shapes") {
  struct Row {
    DType in, out;
  };
  for (const Row t :
       {Row{DType::fp32, DType::fp32}, Row{DType::fp16, DType::fp32}, Row{DType::bf16, DType::bf16},
        Row{DType::fp16, DType::fp16}, Row{DType::fp64, DType::fp64}}) {
    const double u = t.in == DType::fp64 ? 0x1p-53 : 0x1p-24;
    const DType grad = t.in == DType::fp64 ? DType::fp64 : DType::fp32;
    for (const std::int64_t rows : {1, 2, 65, 130}) {
      for (const std::int64_t n : {1, 2, 3, 16, 33, 257, 600}) {
        for (const double mean : {0.0, 50.0}) {
          CAPTURE(rows);
          CAPTURE(n);
          const Shape shape{rows, n};
          const auto seed = static_cast<std::uint32_t>(rows * 1000 + n);
          const Array x(random_values(rows * n, seed, mean), shape, t.in);
          const Array gamma(random_values(n, seed + 1), Shape{n}, DType::fp32);
          const Array beta(random_values(n, seed + 2), Shape{n}, DType::fp32);
          const Array dy(random_values(rows * n, seed + 3), shape, t.out);
          const LayerNormParams params;
          const Run r = forward(params, x, gamma, beta, t.out);
          Scratch scratch;
          const Array dx(shape, t.in);
          const Array dgamma(Shape{n}, grad), dbeta(Shape{n}, grad);
          layer_norm_backward(Ref{}, params, x, gamma, r.mean, r.rstd, dy, dx, dgamma, dbeta,
                              scratch);
          const double h = line_depth(n), rows_h = row_depth(rows);
          const Values xs = x.values(), g = gamma.values(), b = beta.values(), dys = dy.values();
          const Values y = r.y.values(), dxs = dx.values();
          const oracle::LayerNormParams op{.rows = rows, .n = n, .eps = params.eps};
          const Values want_y = oracle::layer_norm(op, xs, g, b);
          const oracle::NormGradients want_grad = oracle::layer_norm_backward(op, xs, g, dys);
          Values tol_gamma(static_cast<std::size_t>(n)), tol_beta = tol_gamma;
          Worst worst_y, worst_dx, worst_gamma, worst_beta;
          for (std::int64_t k = 0; k < rows; ++k) {
            const Group group = norm_bound::forward(slice(xs, k * n, n), params.eps, h, u);
            Values d = slice(dys, k * n, n);
            for (std::size_t i = 0; i < d.size(); ++i) {
              const auto at = static_cast<std::size_t>(k * n) + i;
              const double want = want_y[at];
              const double tol = std::abs(g[i]) * group.xhat_tol[i] +
                                 u * std::abs(group.xhat[i] * g[i]) + u * std::abs(want);
              worst_y.add(y[at], want, rounded_tolerance(want, tol, t.out));
              // A sum over rows: each product once rounded, then the tree.
              const double product = d[i] * group.xhat[i];
              tol_gamma[i] +=
                  gamma_k(rows_h + 1, u) * std::abs(product) + std::abs(d[i]) * group.xhat_tol[i];
              tol_beta[i] += gamma_k(rows_h, u) * std::abs(d[i]);
              d[i] *= g[i];
            }
            const Values tol = backward_tolerance(group, d, h, u);
            for (std::size_t i = 0; i < d.size(); ++i) {
              const auto at = static_cast<std::size_t>(k * n) + i;
              worst_dx.add(dxs[at], want_grad.x[at],
                           rounded_tolerance(want_grad.x[at], tol[i], t.in));
            }
          }
          const Values got_gamma = dgamma.values(), got_beta = dbeta.values();
          for (std::size_t i = 0; i < tol_gamma.size(); ++i) {
            worst_gamma.add(got_gamma[i], want_grad.gamma[i],
                            rounded_tolerance(want_grad.gamma[i], tol_gamma[i], grad));
            worst_beta.add(got_beta[i], want_grad.beta[i],
                           rounded_tolerance(want_grad.beta[i], tol_beta[i], grad));
          }
          CHECK(worst_y.ratio <= 1);
          CHECK(worst_dx.ratio <= 1);
          CHECK(worst_gamma.ratio <= 1);
          CHECK(worst_beta.ratio <= 1);
        }
      }
    }
  }
}

TEST_CASE("several trailing axes are one row, and scalars rows of their own") {
  const Values v = random_values(24, 1);
  const Array flat(v, Shape{2, 12}, DType::fp32), deep(v, Shape{2, 3, 4}, DType::fp32);
  const Run a = forward({}, flat, ConstView::absent(), ConstView::absent(), DType::fp32);
  const Run b = forward({.axes = 2}, deep, ConstView::absent(), ConstView::absent(), DType::fp32);
  CHECK(a.y.values() == b.y.values());
  CHECK(b.mean.values() == a.mean.values());
}

TEST_CASE("squares that leave fp32 do not turn into a silent zero; NaN and infinity show") {
  const Array big({1e20, -1e20, 3e20, 0.0}, Shape{1, 4}, DType::fp32);
  const Run r = forward({}, big, ConstView::absent(), ConstView::absent(), DType::fp32);
  const Group want = norm_bound::forward(big.values(), 1e-5, line_depth(4), 0x1p-24);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(std::abs(r.y.values()[i] - want.xhat[i]) <= want.xhat_tol[i]);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Array x({1.0, bad, 2.0, 1.0, 2.0, 3.0}, Shape{2, 3}, DType::fp32);
    const Values y =
        forward({}, x, ConstView::absent(), ConstView::absent(), DType::fp32).y.values();
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::isnan(y[i]));
    for (std::size_t i = 3; i < 6; ++i) CHECK(std::isfinite(y[i]));
  }
}

TEST_CASE("in order, dgamma and dbeta have the same bits however rows are cut") {
  const std::int64_t rows = 37, n = 19;
  const Values xs = random_values(rows * n, 1), dys = random_values(rows * n, 2);
  const LayerNormParams params{.in_order = true};
  const auto run = [&](std::initializer_list<std::int64_t> cuts) {
    const Array dgamma(Shape{n}, DType::fp32), dbeta(Shape{n}, DType::fp32);
    std::int64_t row = 0;
    for (const std::int64_t m : cuts) {
      const Array x(slice(xs, row * n, m * n), Shape{m, n}, DType::fp32);
      const Array dy(slice(dys, row * n, m * n), Shape{m, n}, DType::fp32);
      const Run r = forward(params, x, ConstView::absent(), ConstView::absent(), DType::fp32);
      Scratch scratch;
      layer_norm_backward(Ref{}, params, x, ConstView::absent(), r.mean, r.rstd, dy, {},
                          dgamma.accumulated(), dbeta.accumulated(), scratch);
      row += m;
    }
    REQUIRE(row == rows);
    Values all = dgamma.values();
    const Values more = dbeta.values();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Values whole = run({37});
  CHECK(run({1, 36}) == whole);
  CHECK(run({12, 12, 13}) == whole);
  CHECK(run({5, 1, 30, 1}) == whole);
}

TEST_CASE("gradients accumulate, and what is not wanted is not touched") {
  const Array x(random_values(12, 1), Shape{3, 4}, DType::fp32);
  const Array dy(random_values(12, 2), Shape{3, 4}, DType::fp32);
  const Run r = forward({}, x, ConstView::absent(), ConstView::absent(), DType::fp32);
  Scratch scratch;
  const Array once(Shape{4}, DType::fp32), twice(Shape{4}, DType::fp32),
      dx(Shape{3, 4}, DType::fp32);
  const auto run = [&](const Out& to) {
    layer_norm_backward(Ref{}, {}, x, ConstView::absent(), r.mean, r.rstd, dy, {}, to, {}, scratch);
  };
  run(once);
  run(twice);
  run(twice.accumulated());
  for (std::size_t i = 0; i < 4; ++i) CHECK(twice.values()[i] == 2 * once.values()[i]);
  const Array half(Shape{3, 4}, DType::fp16);
  CHECK_THROWS_AS(layer_norm_backward(Ref{}, {}, x, ConstView::absent(), r.mean, r.rstd, dy,
                                      half.accumulated(), {}, {}, scratch),
                  Error);
}

TEST_CASE("LayerNorm of nothing, and bad input") {
  const Array none(Shape{0, 4}, DType::fp32), empty(Shape{3, 0}, DType::fp32);
  CHECK(
      forward({}, none, ConstView::absent(), ConstView::absent(), DType::fp32).y.values().empty());
  CHECK(forward({}, empty, ConstView::absent(), ConstView::absent(), DType::fp32).mean.values() ==
        Values{0, 0, 0});
  const Array dgamma(Shape{4}, DType::fp32, 7.0), stats(Shape{0}, DType::fp32);
  Scratch scratch;
  layer_norm_backward(Ref{}, {}, none, ConstView::absent(), stats, stats, none, {}, dgamma, {},
                      scratch);
  CHECK(dgamma.values() == Values{0, 0, 0, 0});

  const Array x(Shape{2, 4}, DType::fp32), gamma(Shape{3}, DType::fp32),
      y(Shape{2, 4}, DType::fp32);
  const auto bad = [&](const LayerNormParams& params, const ConstView& scale) {
    CHECK_THROWS_AS(
        layer_norm_forward(Ref{}, params, x, scale, ConstView::absent(), y, {}, {}, scratch),
        Error);
  };
  bad({}, gamma);
  bad({.axes = 0}, ConstView::absent());
  bad({.axes = 3}, ConstView::absent());
  bad({.eps = -1e-5}, ConstView::absent());
  bad({.eps = std::numeric_limits<double>::quiet_NaN()}, ConstView::absent());
}
