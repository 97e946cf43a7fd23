#include "kernels/norm/batch_norm.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/kernels/norm_bound.h"
#include "verify/oracle/norm.h"

using namespace roundoff;
using namespace roundoff::norm_bound;

namespace {

const ConstView kNone = ConstView::absent();

// A layer with its buffers, as a model holds it.
struct Layer {
  BatchNormParams params;
  std::int64_t channels;
  DType stats;
  Array running_mean, running_var, mean, rstd;

  Layer(std::int64_t c, BatchNormParams p, DType s = DType::fp32)
      : params(p),
        channels(c),
        stats(s),
        running_mean(Shape{c}, DType::fp32, 0.0),
        running_var(Shape{c}, DType::fp32, 1.0),
        mean(Shape{c}, s),
        rstd(Shape{c}, s) {}

  Values train(const ConstView& x, DType out, const ConstView& gamma = kNone,
               const ConstView& beta = kNone) {
    const Array y(x.shape, out);
    Array next_mean(Shape{channels}, DType::fp32), next_var(Shape{channels}, DType::fp32);
    Scratch scratch;
    batch_norm_forward_training(Ref{}, params, x, gamma, beta, running_mean, running_var, y, mean,
                                rstd, next_mean, next_var, scratch);
    convert(Ref{}, next_mean, running_mean);
    convert(Ref{}, next_var, running_var);
    return y.values();
  }
};

bool near(double got, double want, double rel) {
  return std::abs(got - want) <= rel * std::abs(want);
}

// [n, c, l] values to [n, l, c].
Values channels_last(const Values& v, std::int64_t n, std::int64_t c, std::int64_t l) {
  Values to(v.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < c; ++j)
      for (std::int64_t k = 0; k < l; ++k)
        to[static_cast<std::size_t>((i * l + k) * c + j)] =
            v[static_cast<std::size_t>((i * c + j) * l + k)];
  return to;
}

}  // namespace

TEST_CASE("case 56 [NORM] biased for output, unbiased for running_var") {
  Values v;
  for (int n = 0; n < 4; ++n)
    for (int c = 0; c < 3; ++c)
      for (int l = 0; l < 4; ++l) v.push_back(1 + n + 4 * c + l);
  const Array x(v, Shape{4, 3, 4}, DType::fp32);
  Layer layer(3, {.axis = 1});
  const Values y = layer.train(x, DType::fp32);
  const double want[] = {-1.8973628, -1.2649086, -0.6324543, 0};
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(y[i] - want[i]) <= 1e-6 * 2);
  const Values mean = layer.running_mean.values(), var = layer.running_var.values();
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(near(mean[c], 0.4 * static_cast<double>(c + 1), 1e-6));
    CHECK(near(var[c], 1.1666667, 1e-6));
  }
  // The same channels last.
  const Array last(channels_last(v, 4, 3, 4), Shape{4, 4, 3}, DType::fp32);
  Layer same(3, {});
  CHECK(same.train(last, DType::fp32) == channels_last(y, 4, 3, 4));
  CHECK(same.running_var.values() == var);
}

TEST_CASE("case 57 [NORM] one value per channel in training") {
  const Array one({1, 2}, Shape{1, 2}, DType::fp32);
  Layer layer(2, {});
  CHECK_THROWS_WITH_AS(
      layer.train(one, DType::fp32),
      "[batch_norm] training needs at least 2 values a channel, shape [1, 2] has 1", Error);
  CHECK(layer.running_mean.values() == Values{0, 0});
  CHECK(layer.running_var.values() == Values{1, 1});
  const Array two({1, 3}, Shape{1, 1, 1, 2}, DType::fp32);
  Layer other(1, {.axis = 1});
  const Values y = other.train(two, DType::fp32);
  CHECK(near(y[0], -0.999995, 1e-6));
  CHECK(near(y[1], 0.999995, 1e-6));
  CHECK(near(other.running_mean.values()[0], 0.2, 1e-6));
  CHECK(near(other.running_var.values()[0], 1.1, 1e-6));
}

TEST_CASE("case 58 [NORM] momentum convention and cumulative mode") {
  const Array x({9, 11}, Shape{2, 1}, DType::fp32), x20({19, 21}, Shape{2, 1}, DType::fp32);
  Layer layer(1, {.momentum = 0.1});
  layer.train(x, DType::fp32);
  CHECK(near(layer.running_mean.values()[0], 1.0, 1e-6));
  layer.train(x, DType::fp32);
  CHECK(near(layer.running_mean.values()[0], 1.9, 1e-6));
  CHECK(near(layer.running_var.values()[0], 1.19, 1e-6));
  Layer cumulative(1, {.momentum = 1.0});
  cumulative.train(x, DType::fp32);
  CHECK(cumulative.running_mean.values()[0] == 10.0);
  cumulative.params.momentum = 1.0 / 2.0;
  cumulative.train(x20, DType::fp32);
  CHECK(cumulative.running_mean.values()[0] == 15.0);
  CHECK(cumulative.running_var.values()[0] == 2.0);
}

TEST_CASE("case 60 [NORM] eval mode forward and backward") {
  const Array x({6, 0}, Shape{2, 1}, DType::fp32), dy({1, 1}, Shape{2, 1}, DType::fp32);
  const Array mean({2}, Shape{1}, DType::fp32), var({4}, Shape{1}, DType::fp32);
  const Array gamma({3}, Shape{1}, DType::fp32), beta({1}, Shape{1}, DType::fp32);
  const Array y(Shape{2, 1}, DType::fp32), dx(Shape{2, 1}, DType::fp32);
  const Array dgamma(Shape{1}, DType::fp32), dbeta(Shape{1}, DType::fp32);
  Scratch scratch;
  const BatchNormParams params{.eps = 0.0};
  batch_norm_forward_eval(Ref{}, params, x, gamma, beta, mean, var, y, scratch);
  CHECK(y.values() == Values{7, -2});
  batch_norm_backward_eval(Ref{}, params, x, gamma, mean, var, dy, dx, dgamma, dbeta, scratch);
  CHECK(dx.values() == Values{1.5, 1.5});
  CHECK(dgamma.values() == Values{1});
  CHECK(dbeta.values() == Values{2});
  CHECK(mean.values() == Values{2});
  CHECK(var.values() == Values{4});
}

TEST_CASE("case 61 [NORM] training backward") {
  const Array x({1, 2, 4}, Shape{3, 1}, DType::fp32), dy({1, 0, 0}, Shape{3, 1}, DType::fp32);
  Layer layer(1, {.eps = 0.0});
  const Values y = layer.train(x, DType::fp32);
  const double want_y[] = {-1.0690450, -0.2672612, 1.3363062};
  const Array dx(Shape{3, 1}, DType::fp32);
  Scratch scratch;
  batch_norm_backward_training(Ref{}, layer.params, x, kNone, layer.mean, layer.rstd, dy, dx, {},
                               {}, scratch);
  const double want[] = {0.2290811, -0.3436216, 0.1145405};
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::abs(y[i] - want_y[i]) <= 1e-6);
    CHECK(std::abs(dx.values()[i] - want[i]) <= 1e-6);
    sum += dx.values()[i];
  }
  CHECK(std::abs(sum) <= 4 * 0x1p-24);  // 0 up to the rounding of the three terms
}

TEST_CASE("BatchNorm forward and backward within their bounds, every dtype, layout and ragged n") {
  struct Row {
    DType in, out;
  };
  for (const Row t : {Row{DType::fp32, DType::fp32}, Row{DType::fp16, DType::fp32},
                      Row{DType::bf16, DType::bf16}, Row{DType::fp64, DType::fp64}}) {
    const DType stats = t.in == DType::fp64 ? DType::fp64 : DType::fp32;
    const double u = unit(stats);
    for (const Shape& shape : {Shape{2, 3}, Shape{65, 1}, Shape{200, 17}, Shape{3, 5, 6, 4},
                               Shape{130, 9000}, Shape{5, 0}}) {
      for (const int axis : {-1, 1}) {
        if (shape[-1] > 1000 && t.in != DType::fp32) continue;
        CAPTURE(axis);
        const int ax = axis < 0 ? shape.rank() - 1 : axis;
        const std::int64_t channels = shape[ax];
        std::int64_t inner = 1;
        for (int a = ax + 1; a < shape.rank(); ++a) inner *= shape[a];
        const Array x(random_values(shape.numel(), 1, 3.0), shape, t.in);
        const Array dy(random_values(shape.numel(), 2), shape, t.out);
        const Array gamma(random_values(channels, 3), Shape{channels}, DType::fp32);
        const Array beta(random_values(channels, 4), Shape{channels}, DType::fp32);
        Layer layer(channels, {.axis = axis}, stats);
        const Values y = layer.train(x, t.out, gamma, beta);
        const Array dx(shape, t.in), dgamma(Shape{channels}, stats), dbeta(Shape{channels}, stats);
        Scratch scratch;
        batch_norm_backward_training(Ref{}, layer.params, x, gamma, layer.mean, layer.rstd, dy, dx,
                                     dgamma, dbeta, scratch);
        const Values xs = x.values(), dys = dy.values(), dxs = dx.values(), g = gamma.values(),
                     b = beta.values(), got_gamma = dgamma.values(), got_beta = dbeta.values(),
                     mean = layer.running_mean.values(), var = layer.running_var.values();
        const std::int64_t n = channels == 0 ? 0 : shape.numel() / channels;
        const double h = row_depth(n);
        if (n == 0) continue;
        const oracle::BatchNormParams op{
            .n = shape.numel() / (channels * inner), .c = channels, .l = inner, .eps = 1e-5};
        const oracle::BatchNorm batch = oracle::batch_norm_train(op, xs, g, b);
        const oracle::NormGradients gradient = oracle::batch_norm_train_backward(op, xs, g, dys);
        Values want_mean(g.size(), 0.0), want_var(g.size(), 1.0);
        oracle::batch_norm_update(batch, 0.1, 0, want_mean, want_var);
        Worst worst_y, worst_dx, worst_gamma, worst_beta;
        for (std::int64_t c = 0; c < channels; c += (channels > 100 ? 997 : 1)) {
          std::vector<std::size_t> at;
          for (std::int64_t r = 0; r < n; ++r)
            at.push_back(static_cast<std::size_t>((r / inner * channels + c) * inner + r % inner));
          Values column, d;
          for (const std::size_t i : at) column.push_back(xs[i]), d.push_back(dys[i]);
          const auto k = static_cast<std::size_t>(c);
          const Group group = norm_bound::forward(column, layer.params.eps, h, u);
          double abs_gamma = 0, abs_beta = 0, hat = 0;
          for (std::size_t i = 0; i < at.size(); ++i) {
            const double want = batch.y[at[i]];
            // gamma rstd is formed first: one more rounding of the product.
            const double tol = std::abs(g[k]) * group.xhat_tol[i] +
                               2 * u * std::abs(group.xhat[i] * g[k]) + u * std::abs(want);
            worst_y.add(y[at[i]], want, rounded_tolerance(want, tol, t.out));
            abs_gamma += std::abs(d[i] * group.xhat[i]);
            abs_beta += std::abs(d[i]);
            hat += std::abs(d[i]) * group.xhat_tol[i];
          }
          worst_gamma.add(
              got_gamma[k], gradient.gamma[k],
              rounded_tolerance(gradient.gamma[k], gamma_k(h + 1, u) * abs_gamma + hat, stats));
          worst_beta.add(got_beta[k], gradient.beta[k],
                         rounded_tolerance(gradient.beta[k], gamma_k(h, u) * abs_beta, stats));
          // The bound is for d = dy gamma; here gamma is applied last, which rounds no more often.
          for (double& value : d) value *= g[k];
          const Values tol = backward_tolerance(group, d, h, u);
          for (std::size_t i = 0; i < at.size(); ++i)
            worst_dx.add(dxs[at[i]], gradient.x[at[i]],
                         rounded_tolerance(gradient.x[at[i]], tol[i], t.in));
          // Buffers: 0.9 of the old, 0.1 of the new; roundings in fp32 and the statistic's error.
          CHECK(std::abs(mean[k] - want_mean[k]) <=
                0.1 * group.mean_tol + 4 * 0x1p-24 * std::abs(want_mean[k]) + 0x1p-149);
          CHECK(std::abs(var[k] - want_var[k]) <= want_var[k] * (gamma_k(h + 3, u) + 5 * 0x1p-24));
        }
        CHECK(worst_y.ratio <= 1);
        CHECK(worst_dx.ratio <= 1);
        CHECK(worst_gamma.ratio <= 1);
        CHECK(worst_beta.ratio <= 1);
      }
    }
  }
}

TEST_CASE("a constant channel gives beta exactly, whatever its value") {
  for (const double value : {0.1, 1234.0, -7e4}) {
    const Array x(Shape{1000, 2}, DType::fp32, value);
    Layer layer(2, {});
    for (const double y : layer.train(x, DType::fp32)) REQUIRE(y == 0.0);
  }
}

TEST_CASE("squares that leave fp32, and non-finite channels") {
  const double inf = std::numeric_limits<double>::infinity();
  const Array x({1e20, 1, -1e20, 2, 3e20, inf}, Shape{3, 2}, DType::fp32);
  Layer layer(2, {});
  const Values y = layer.train(x, DType::fp32);
  const Group want = norm_bound::forward({1e20F, -1e20F, 3e20F}, 1e-5, row_depth(3), 0x1p-24);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::abs(y[2 * i] - want.xhat[i]) <= want.xhat_tol[i] + 2 * 0x1p-24);
    CHECK(std::isnan(y[2 * i + 1]));
  }
}

TEST_CASE("eval in a channel-first layout, absent gamma and beta, 16-bit values") {
  const Array x({1, 2, 3, 4, 5, 6, 7, 8}, Shape{2, 2, 2}, DType::bf16);
  const Array mean({1, 2}, Shape{2}, DType::fp32), var({4, 16}, Shape{2}, DType::fp32);
  const Array y(Shape{2, 2, 2}, DType::fp32);
  Scratch scratch;
  batch_norm_forward_eval(Ref{}, {.axis = 1, .eps = 0}, x, kNone, kNone, mean, var, y, scratch);
  CHECK(y.values() == Values{0, 0.5, 0.25, 0.5, 2, 2.5, 1.25, 1.5});
}

TEST_CASE("BatchNorm gradients accumulate; bad input is refused") {
  const Array x(random_values(12, 1), Shape{6, 2}, DType::fp32);
  const Array dy(random_values(12, 2), Shape{6, 2}, DType::fp32);
  Layer layer(2, {});
  layer.train(x, DType::fp32);
  Scratch scratch;
  const Array once(Shape{2}, DType::fp32), twice(Shape{2}, DType::fp32);
  const Array dx(Shape{6, 2}, DType::fp32), dx2(Shape{6, 2}, DType::fp32);
  const auto run = [&](const Out& to_x, const Out& to_gamma) {
    batch_norm_backward_training(Ref{}, layer.params, x, kNone, layer.mean, layer.rstd, dy, to_x,
                                 to_gamma, {}, scratch);
  };
  run(dx, once);
  run(dx2, twice);
  run(dx2.accumulated(), twice.accumulated());
  for (std::size_t i = 0; i < 2; ++i) CHECK(twice.values()[i] == 2 * once.values()[i]);
  for (std::size_t i = 0; i < 12; ++i) CHECK(dx2.values()[i] == 2 * dx.values()[i]);

  const Array y(Shape{6, 2}, DType::fp32), three(Shape{3}, DType::fp32);
  const auto bad = [&](const BatchNormParams& params, const ConstView& gamma, const Out& next) {
    CHECK_THROWS_AS(batch_norm_forward_training(Ref{}, params, x, gamma, kNone, kNone, kNone, y, {},
                                                {}, next, {}, scratch),
                    Error);
  };
  bad({}, three, {});
  bad({.axis = 2}, kNone, {});
  bad({.eps = -1}, kNone, {});
  bad({.momentum = 1.5}, kNone, {});
  bad({.momentum = std::numeric_limits<double>::quiet_NaN()}, kNone, {});
  bad({}, kNone, once);  // no buffer to start from
  CHECK_THROWS_AS(batch_norm_forward_eval(Ref{}, {}, x, kNone, kNone, kNone, kNone, y, scratch),
                  Error);
}

TEST_CASE("BatchNorm on 1, 3, 5, 7 whole and halved differs: means 4 and 2") {
  const Array whole({1, 3, 5, 7}, Shape{4, 1}, DType::fp32), half({1, 3}, Shape{2, 1}, DType::fp32);
  Layer a(1, {}), b(1, {});
  CHECK(a.train(whole, DType::fp32)[0] != b.train(half, DType::fp32)[0]);
  CHECK(a.mean.values()[0] == 4.0);
  CHECK(b.mean.values()[0] == 2.0);
}
