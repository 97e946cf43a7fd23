#include <cmath>
#include <limits>

#include "tests/verify/check_gradient.h"
#include "verify/oracle/loss.h"
#include "verify/oracle/softmax.h"

using namespace roundoff;
using doctest::Approx;
using oracle::CrossEntropyParams;
using oracle::Reduction;
using oracle::Values;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Labels = std::vector<std::int64_t>;

// Digits that a case gives, as a tolerance: a unit of its last one (some are cut, not rounded).
void check_digits(const Values& actual, const Values& expected, double last_digit) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    CHECK(std::abs(actual[i] - expected[i]) <= last_digit);
}

}  // namespace

TEST_CASE("case 34 [LOSS] log_softmax far from zero, on the oracle") {
  const Values x{-20000, -20000};
  CHECK(oracle::softmax({.n = 2}, x) == Values{0.5, 0.5});
  check_digits(oracle::log_softmax({.n = 2}, x), {-0.6931472, -0.6931472}, 1e-7);
}

TEST_CASE("case 35 [LOSS] log(softmax) is not log_softmax, on the oracle") {
  CHECK(oracle::log_softmax({.n = 3}, Values{0, -104, -200}) == Values{0, -104, -200});
  check_digits(oracle::log_softmax({.n = 2}, Values{0, -20}), {0, -20}, 1e-8);
  const Values g = oracle::cross_entropy_backward({.rows = 1, .classes = 3}, Values{0, -104, -200},
                                                  Labels{2}, {}, Values{1});
  check_digits(g, {1, 0, -1}, 1e-12);
}

TEST_CASE("case 36 [LOSS] extreme logits, on the oracle") {
  const auto loss = [](const Values& logits, std::int64_t target) {
    return oracle::cross_entropy({.rows = 1, .classes = static_cast<std::int64_t>(logits.size())},
                                 logits, Labels{target})
        .loss[0];
  };
  CHECK(loss({65504, 0}, 1) == 65504);
  CHECK(loss({65504, 0}, 0) == 0);
  CHECK(loss(Values(70000, 1.0), 3) == Approx(11.15625052).epsilon(1e-9));
  CHECK(loss(Values(50257, 1.0), 3) == Approx(10.82490512).epsilon(1e-9));
  for (const double y : oracle::softmax({.n = 3}, Values{1, kInf, 2})) CHECK(std::isnan(y));
}

TEST_CASE("case 39 [LOSS] class weights: mean divides by the sum of weights, on the oracle") {
  CrossEntropyParams p{.rows = 2, .classes = 3, .reduction = Reduction::none};
  const Values logits{.2, .3, .5, .5, .2, .3}, weight{2, 4, 6};
  check_digits(oracle::cross_entropy(p, logits, Labels{2, 1}, weight).loss,
               {5.63898637, 4.95932424}, 1e-8);
  p.reduction = Reduction::sum;
  check_digits(oracle::cross_entropy(p, logits, Labels{2, 1}, weight).loss, {10.59831061}, 1e-8);
  p.reduction = Reduction::mean;
  const auto mean = oracle::cross_entropy(p, logits, Labels{2, 1}, weight);
  check_digits(mean.loss, {1.05983106}, 1e-8);
  CHECK(mean.valid_weight == 10);
  p.rows = 3;
  const auto with_ignored = oracle::cross_entropy(p, Values{.2, .3, .5, .5, .2, .3, kInf, 0, 0},
                                                  Labels{2, 1, -100}, weight);
  CHECK(with_ignored.loss == mean.loss);
  CHECK(with_ignored.valid_count == 2);
}

TEST_CASE("case 40 [LOSS] all targets ignored, on the oracle") {
  CrossEntropyParams p{.rows = 2, .classes = 3};
  const Values logits{1, 2, 3, 4, 5, 6};
  for (const Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    p.reduction = r;
    const auto out = oracle::cross_entropy(p, logits, Labels{-100, -100});
    CHECK(out.loss == (r == Reduction::none ? Values{0, 0} : Values{0}));
    CHECK(out.valid_count == 0);
    CHECK(oracle::cross_entropy_backward(p, logits, Labels{-100, -100}, {},
                                         r == Reduction::none ? Values{1, 1} : Values{1}) ==
          Values(6, 0.0));
  }
  CHECK(oracle::cross_entropy({.rows = 0, .classes = 3}, {}, Labels{}).loss == Values{0});
}

TEST_CASE("case 42 [LOSS] ignore_index value and out-of-range labels, on the oracle") {
  CrossEntropyParams p{.rows = 2, .classes = 3, .ignore_index = 255};
  const Values logits(6, 1.0);
  CHECK(oracle::cross_entropy(p, logits, Labels{255, 1}).loss[0] == Approx(std::log(3)));
  CHECK_THROWS_AS(oracle::cross_entropy(p, logits, Labels{-4, 1}), Error);
  CHECK_THROWS_AS(oracle::cross_entropy(p, logits, Labels{3, 1}), Error);
}

TEST_CASE("case 43 [LOSS] ignore_index inside the class range, on the oracle") {
  const CrossEntropyParams p{.rows = 2, .classes = 3, .ignore_index = 0};
  const Values logits(6, 1.0);
  CHECK(oracle::cross_entropy(p, logits, Labels{1, 2}).loss[0] == Approx(1.0986122887));
  const double s = 1.0 / 6;
  check_digits(oracle::cross_entropy_backward(p, logits, Labels{1, 2}, {}, Values{1}),
               {s, -2 * s, s, s, s, -2 * s}, 1e-15);
}

TEST_CASE("case 44 [LOSS] label smoothing formula, on the oracle") {
  const CrossEntropyParams p{.rows = 1, .classes = 3, .label_smoothing = 0.1};
  const Values logits{2, 1, 0};
  check_digits(oracle::cross_entropy(p, logits, Labels{0}).loss, {0.5076059644}, 1e-10);
  check_digits(oracle::cross_entropy_backward(p, logits, Labels{0}, {}, Values{1}),
               {-0.2680923776, 0.2113951377, 0.0566972398}, 1e-9);
  CHECK(oracle::cross_entropy(p, Values(3, 7.0), Labels{1}).loss[0] == Approx(std::log(3)));
}

TEST_CASE("case 47 [LOSS] soft targets divide by N, not by weights, on the oracle") {
  const CrossEntropyParams p{.rows = 2, .classes = 3};
  const Values logits{2, 1, 0, 0, 3, 1}, weight{1, 2, 5};
  check_digits(oracle::cross_entropy_soft(p, logits, Values{.7, .2, .1, .1, .1, .8}, weight).loss,
               {5.5412537136}, 1e-10);
  const Values onehot{1, 0, 0, 0, 0, 1};
  check_digits(oracle::cross_entropy_soft(p, logits, onehot, weight).loss, {5.628418}, 1e-6);
  check_digits(oracle::cross_entropy(p, logits, Labels{0, 2}, weight).loss, {1.8761394}, 1e-7);
  // 0 * log 0 counts as 0.
  CHECK(oracle::cross_entropy_soft({.rows = 1, .classes = 2}, Values{0, -kInf}, Values{1, 0})
            .loss[0] == 0);
}

TEST_CASE("case 48 [LOSS] mean over many positions, on the oracle") {
  CrossEntropyParams p{.rows = 70000, .classes = 2};
  const Values logits(140000, 3.0);
  const Labels target(70000, 1);
  check_digits(oracle::cross_entropy(p, logits, target).loss, {0.6931471806}, 1e-10);
  p.reduction = Reduction::sum;
  check_digits(oracle::cross_entropy(p, logits, target).loss, {48520.3026}, 1e-4);
  p.reduction = Reduction::mean;
  const Values g = oracle::cross_entropy_backward(p, logits, target, {}, Values{1});
  CHECK(g[0] == Approx(0.5 / 70000));
  CHECK(g[1] == Approx(-0.5 / 70000));
}

TEST_CASE("case 50 [LOSS] MSE and BCE ranges, on the oracle") {
  CHECK(oracle::mse(Reduction::mean, Values{300}, Values{0}) == Values{90000});
  CHECK(oracle::mse_backward(Reduction::mean, Values{300}, Values{0}, Values{1}) == Values{600});
  const Values x{100, -100}, t{0, 1};
  check_digits(oracle::bce_with_logits(Reduction::none, x, t), {100, 100}, 1e-12);
  check_digits(oracle::bce_with_logits_backward(Reduction::none, x, t, Values{1, 1}), {1, -1},
               1e-12);
}

TEST_CASE("softmax and loss oracles: gradients by differences") {
  const oracle::SoftmaxParams along{.outer = 2, .n = 4, .inner = 3};
  const Values x = sample(24, 10), dy = sample(24, 11);
  check_gradient([&](const Values& v) { return dot(oracle::softmax(along, v), dy); }, x,
                 oracle::softmax_backward(along, x, dy));
  check_gradient([&](const Values& v) { return dot(oracle::log_softmax(along, v), dy); }, x,
                 oracle::log_softmax_backward(along, x, dy));
  const Values logits = sample(12, 12), weight{0.5, 2, 1}, soft = sample(12, 13);
  const Labels target{2, 0, -100, 1};
  for (const Reduction r : {Reduction::none, Reduction::sum, Reduction::mean}) {
    const CrossEntropyParams p{.rows = 4, .classes = 3, .label_smoothing = 0.2, .reduction = r};
    const Values seed = r == Reduction::none ? sample(4, 14) : Values{-1.75};
    check_gradient(
        [&](const Values& v) {
          return dot(oracle::cross_entropy(p, v, target, weight).loss, seed);
        },
        logits, oracle::cross_entropy_backward(p, logits, target, weight, seed));
    check_gradient(
        [&](const Values& v) {
          return dot(oracle::cross_entropy_soft(p, v, soft, weight).loss, seed);
        },
        logits, oracle::cross_entropy_soft_backward(p, logits, soft, weight, seed));
    const Values d = r == Reduction::none ? sample(24, 15) : Values{3};
    check_gradient([&](const Values& v) { return dot(oracle::mse(r, v, dy), d); }, x,
                   oracle::mse_backward(r, x, dy, d));
    check_gradient([&](const Values& v) { return dot(oracle::bce_with_logits(r, v, dy), d); }, x,
                   oracle::bce_with_logits_backward(r, x, dy, d));
  }
}
