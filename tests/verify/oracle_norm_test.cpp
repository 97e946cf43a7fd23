#include <cmath>

#include "tests/verify/check_gradient.h"
#include "verify/oracle/norm.h"

using namespace roundoff;
using doctest::Approx;
using oracle::Values;

namespace {

void check_digits(const Values& actual, const Values& expected, double last_digit) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    CHECK(std::abs(actual[i] - expected[i]) <= last_digit);
}

}  // namespace

TEST_CASE("case 52 [NORM] LayerNorm with large mean, on the oracle") {
  const Values want{-1.34163542, -0.44721181, 0.44721181, 1.34163542};
  for (const double base : {40000.0, 80000.0})
    check_digits(
        oracle::layer_norm({.rows = 1, .n = 4}, Values{base, base + 1, base + 2, base + 3}, {}, {}),
        want, 2e-8);
}

TEST_CASE("case 53 [NORM] constant row, on the oracle") {
  const Values x(256, 1234.0);
  CHECK(oracle::layer_norm({.rows = 1, .n = 256}, x, {}, {}) == Values(256, 0.0));
  CHECK(oracle::layer_norm_backward({.rows = 1, .n = 256}, x, {}, Values(256, 3.0)).x ==
        Values(256, 0.0));
}

TEST_CASE("case 56 [NORM] biased for output, unbiased for running_var, on the oracle") {
  const oracle::BatchNormParams p{.n = 4, .c = 3, .l = 4};
  Values x;
  for (int n = 0; n < 4; ++n)
    for (int c = 0; c < 3; ++c)
      for (int l = 0; l < 4; ++l) x.push_back(1 + n + 4 * c + l);
  const auto out = oracle::batch_norm_train(p, x, {}, {});
  check_digits({out.y.begin(), out.y.begin() + 4}, {-1.8973628, -1.2649086, -0.6324543, 0}, 1e-7);
  Values mean(3, 0.0), var(3, 1.0);
  oracle::batch_norm_update(out, 0.1, 0, mean, var);
  check_digits(mean, {0.4, 0.8, 1.2}, 1e-12);
  check_digits(var, {1.1666667, 1.1666667, 1.1666667}, 1e-7);
}

TEST_CASE("case 57 [NORM] one value per channel in training, on the oracle") {
  CHECK_THROWS_AS(oracle::batch_norm_train({.n = 1, .c = 2}, Values{1, 2}, {}, {}), Error);
  const auto out = oracle::batch_norm_train({.n = 2, .c = 1}, Values{1, 3}, {}, {});
  check_digits(out.y, {-0.999995, 0.999995}, 1e-6);
  Values mean{0}, var{1};
  oracle::batch_norm_update(out, 0.1, 0, mean, var);
  check_digits({mean[0], var[0]}, {0.2, 1.1}, 1e-12);
}

TEST_CASE("case 58 [NORM] momentum convention and cumulative mode, on the oracle") {
  const auto batch = [](double centre) {
    return oracle::batch_norm_train({.n = 2, .c = 1}, Values{centre - 1, centre + 1}, {}, {});
  };
  Values mean{0}, var{1};
  oracle::batch_norm_update(batch(10), 0.1, 0, mean, var);
  CHECK(mean[0] == Approx(1.0));
  oracle::batch_norm_update(batch(10), 0.1, 1, mean, var);
  CHECK(mean[0] == Approx(1.9));
  CHECK(var[0] == Approx(1.19));
  mean = {0}, var = {1};
  oracle::batch_norm_update(batch(10), std::nullopt, 0, mean, var);
  CHECK(mean[0] == Approx(10));
  oracle::batch_norm_update(batch(20), std::nullopt, 1, mean, var);
  CHECK(mean[0] == Approx(15));
  CHECK(var[0] == Approx(2));
}

TEST_CASE("case 60 [NORM] eval mode forward/backward, on the oracle") {
  const oracle::BatchNormParams p{.n = 2, .c = 1, .eps = 0};
  const Values x{6, 0}, gamma{3}, beta{1}, mean{2}, var{4};
  CHECK(oracle::batch_norm_eval(p, x, gamma, beta, mean, var) == Values{7, -2});
  const auto d = oracle::batch_norm_eval_backward(p, x, gamma, mean, var, Values{1, 1});
  CHECK(d.x == Values{1.5, 1.5});
  CHECK(d.gamma == Values{1});
  CHECK(d.beta == Values{2});
}

TEST_CASE("case 61 [NORM] training backward, on the oracle") {
  const oracle::BatchNormParams p{.n = 3, .c = 1, .eps = 0};
  const Values x{1, 2, 4};
  check_digits(oracle::batch_norm_train(p, x, {}, {}).y, {-1.0690450, -0.2672612, 1.3363062}, 1e-7);
  const auto d = oracle::batch_norm_train_backward(p, x, {}, Values{1, 0, 0});
  check_digits(d.x, {0.2290811, -0.3436216, 0.1145405}, 1e-7);
  CHECK(std::abs(d.x[0] + d.x[1] + d.x[2]) < 1e-15);
}

TEST_CASE("case 63 [NORM] LayerNorm width 1, on the oracle") {
  const oracle::LayerNormParams p{.rows = 2, .n = 1};
  CHECK(oracle::layer_norm(p, Values{5, 7}, Values{2}, Values{.5}) == Values{.5, .5});
  CHECK(oracle::layer_norm_backward(p, Values{5, 7}, Values{2}, Values{1, 1}).x == Values{0, 0});
}

TEST_CASE("norm oracles: gradients by differences") {
  const oracle::BatchNormParams bn{.n = 3, .c = 2, .l = 2};
  const Values x = sample(12, 20), dy = sample(12, 21), gamma{1.5, -0.5}, beta{0.25, 1};
  const auto train = [&](const Values& a, const Values& g, const Values& b) {
    return dot(oracle::batch_norm_train(bn, a, g, b).y, dy);
  };
  auto d = oracle::batch_norm_train_backward(bn, x, gamma, dy);
  check_gradient([&](const Values& v) { return train(v, gamma, beta); }, x, d.x);
  check_gradient([&](const Values& v) { return train(x, v, beta); }, gamma, d.gamma);
  check_gradient([&](const Values& v) { return train(x, gamma, v); }, beta, d.beta);

  const Values mean{0.5, -1}, var{2, 0.5};
  const auto eval = [&](const Values& a, const Values& g) {
    return dot(oracle::batch_norm_eval(bn, a, g, beta, mean, var), dy);
  };
  d = oracle::batch_norm_eval_backward(bn, x, gamma, mean, var, dy);
  check_gradient([&](const Values& v) { return eval(v, gamma); }, x, d.x);
  check_gradient([&](const Values& v) { return eval(x, v); }, gamma, d.gamma);

  const oracle::LayerNormParams ln{.rows = 3, .n = 4};
  const Values g4 = sample(4, 22), b4 = sample(4, 23);
  const auto layer = [&](const Values& a, const Values& g, const Values& b) {
    return dot(oracle::layer_norm(ln, a, g, b), dy);
  };
  d = oracle::layer_norm_backward(ln, x, g4, dy);
  check_gradient([&](const Values& v) { return layer(v, g4, b4); }, x, d.x);
  check_gradient([&](const Values& v) { return layer(x, v, b4); }, g4, d.gamma);
  check_gradient([&](const Values& v) { return layer(x, g4, v); }, b4, d.beta);
}
