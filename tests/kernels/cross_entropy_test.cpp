#include "kernels/loss/cross_entropy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Result {
  std::vector<double> loss;
  double valid = 0;
  std::vector<double> dlogits;
};

DType loss_dtype(const Array& logits) {
  return logits.dtype() == DType::fp64 ? DType::fp64 : DType::fp32;
}

Result run(const Array& logits, const Array& target, const CrossEntropyParams& params = {},
           const Array* weight = nullptr, double seed = 1,
           std::optional<DType> grad_dtype = std::nullopt) {
  const Shape& shape = logits.shape();
  const Shape batch(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
  const ConstView w = weight == nullptr ? ConstView::absent() : ConstView(*weight);
  const DType wide = loss_dtype(logits);
  const Shape loss_shape = params.reduction == Reduction::none ? batch : Shape{};
  Array loss(wide, loss_shape);
  Array valid(wide, {});
  Array stats(row_stats_dtype(params.accumulator, logits.dtype()), {batch.numel(), 2});
  cross_entropy_forward(Ref{}, params, logits, target, w, loss.out(), valid.out(), stats.out());
  const Array dloss(wide, loss_shape,
                    std::vector<double>(static_cast<std::size_t>(loss_shape.numel()), seed));
  Array dlogits(grad_dtype.value_or(logits.dtype()), shape);
  cross_entropy_backward(Ref{}, params, logits, target, w, valid, stats, dloss, dlogits.out());
  return {loss.values(), valid[0], dlogits.values()};
}

// One row by definition, in long double.
struct RowOracle {
  std::vector<long double> nll;
  std::vector<long double> p;
  long double spread = 0;  // largest max - x of the row

  explicit RowOracle(const std::vector<double>& x) {
    long double max = -std::numeric_limits<long double>::infinity();
    for (const double v : x) max = std::max<long double>(max, v);
    long double sum = 0;
    for (const double v : x) sum += std::exp(v - max);
    for (const double v : x) {
      nll.push_back(std::log(sum) - (v - max));
      p.push_back(std::exp(v - max) / sum);
      spread = std::max(spread, max - v);
    }
  }
};

// Relative error of the sum of shifted exponentials (numerics.md): the shift is rounded (d = 1),
// exp and log are within 1 ulp (2u).
double rho(std::int64_t classes, double u) {
  return u * std::log(static_cast<double>(classes)) + 2 * u + gamma(sum_depth(classes), u);
}
double nll_tolerance(const RowOracle& row, std::int64_t classes, double nll, double u) {
  return rho(classes, u) + 2 * u * std::log(static_cast<double>(classes)) +
         u * static_cast<double>(row.spread) + u * std::abs(nll);
}

void check_near(double got, double want, double tolerance) {
  CAPTURE(got);
  CAPTURE(want);
  CAPTURE(tolerance);
  CHECK(std::abs(got - want) <= tolerance);
}

// The same number to within a few roundings of fp32.
void check_fp32(double got, double want, double roundings = 8) {
  check_near(got, want, roundings * 0x1p-24 * std::max(std::abs(want), 1.0));
}

}  // namespace

TEST_CASE("case 35 [LOSS] log(softmax) is not log_softmax") {
  const Array x(DType::fp32, {1, 3}, {0, -104, -200});
  const Array y(DType::i64, {1}, {2});
  const Result r = run(x, y);
  CHECK(r.loss[0] == 200);
  CHECK(r.dlogits[0] == 1);
  CHECK(r.dlogits[2] == -1);
  check_near(r.dlogits[1], 0, 1e-44);
}

TEST_CASE("case 36 [LOSS] extreme logits") {
  const Array x(DType::fp16, {1, 2}, {65504, 0});
  CHECK(run(x, Array(DType::i64, {1}, {1})).loss[0] == 65504);
  CHECK(run(x, Array(DType::i64, {1}, {0})).loss[0] == 0);
  for (const auto& [classes, want] :
       {std::pair{70000, 11.15625052}, std::pair{50257, 10.82490512}}) {
    const Array equal(DType::fp16, {1, classes},
                      std::vector<double>(static_cast<std::size_t>(classes), 3.5));
    const Result r = run(equal, Array(DType::i64, {1}, {17}));
    const double exact = std::log(static_cast<double>(classes));
    check_near(exact, want, 1e-8);
    check_near(r.loss[0], exact, rho(classes, 0x1p-24) + 3 * 0x1p-24 * exact);
  }
  const Result row = run(Array(DType::fp32, {1, 2}, {kInf, 0}), Array(DType::i64, {1}, {1}));
  CHECK(std::isnan(row.loss[0]));
  CHECK(std::isnan(row.dlogits[0]));
  CHECK(std::isnan(row.dlogits[1]));
}

TEST_CASE("case 39 [LOSS] class weights: mean divides by the sum of weights") {
  const Array x(DType::fp32, {2, 3}, {.2, .3, .5, .5, .2, .3});
  const Array y(DType::i64, {2}, {2, 1});
  const Array w(DType::fp32, {3}, {2, 4, 6});
  const Result none = run(x, y, {.reduction = Reduction::none}, &w);
  check_fp32(none.loss[0], 5.63898637);
  check_fp32(none.loss[1], 4.95932424);
  check_fp32(run(x, y, {.reduction = Reduction::sum}, &w).loss[0], 10.59831061);
  const Result mean = run(x, y, {}, &w);
  check_fp32(mean.loss[0], 1.05983106);
  CHECK(mean.valid == 10);
  const Array x3(DType::fp32, {3, 3}, {.2, .3, .5, .5, .2, .3, 9, 9, -9});
  const Result ignored = run(x3, Array(DType::i64, {3}, {2, 1, -100}), {}, &w);
  CHECK(ignored.loss == mean.loss);
  CHECK(ignored.valid == 10);
}

TEST_CASE("case 40 [LOSS] all targets ignored") {
  for (const DType dtype : kFloating) {
    const Array x(dtype, {2, 3}, {1, 2, 3, kNan, kInf, 6});
    const Array y(DType::i64, {2}, {-100, -100});
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      for (const double smoothing : {0.0, 0.1}) {
        const Result r = run(x, y, {.label_smoothing = smoothing, .reduction = reduction});
        for (const double loss : r.loss) CHECK(loss == 0);
        CHECK(r.valid == 0);
        CHECK(r.dlogits == std::vector<double>(6, 0.0));
      }
    }
    const Result empty = run(Array(dtype, {0, 3}), Array(DType::i64, {0}));
    CHECK(empty.loss[0] == 0);
    CHECK(empty.valid == 0);
  }
}

TEST_CASE("case 42 [LOSS] ignore_index value and out-of-range labels") {
  const Array x(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array one(DType::fp32, {1, 3}, {1, 2, 3});
  const Array y(DType::i64, {2}, {2, 255});
  for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
    const Result r = run(x, y, {.ignore_index = 255, .reduction = reduction});
    CHECK(r.loss[0] == run(one, Array(DType::i64, {1}, {2}), {.reduction = reduction}).loss[0]);
    if (reduction == Reduction::none) CHECK(r.loss[1] == 0);
    CHECK(r.dlogits[3] == 0);
    CHECK(r.dlogits[4] == 0);
    CHECK(r.dlogits[5] == 0);
  }
  for (const double label : {-4.0, 3.0, 255.0}) {
    const Array bad(DType::i64, {2}, {0, label});
    Array loss(DType::fp32, {}, {42});
    Array valid(DType::fp32, {}, {42});
    Array stats(DType::fp32, {2, 2}, {42, 42, 42, 42});
    const std::string message =
        concat("[cross_entropy] row 1 has label ", label, ", expected 0 to 2 or ignore_index -100");
    CHECK_THROWS_WITH_AS(cross_entropy_forward(Ref{}, {}, x, bad, ConstView::absent(), loss.out(),
                                               valid.out(), stats.out()),
                         message.c_str(), Error);
    CHECK(loss[0] == 42);
    CHECK(valid[0] == 42);
    CHECK(stats.values() == std::vector<double>(4, 42.0));
    Array dlogits(DType::fp32, {2, 3}, std::vector<double>(6, 42));
    CHECK_THROWS_WITH_AS(cross_entropy_backward(Ref{}, {}, x, bad, ConstView::absent(), valid,
                                                stats, loss, dlogits.out()),
                         message.c_str(), Error);
    CHECK(dlogits.values() == std::vector<double>(6, 42.0));
  }
}

TEST_CASE("case 43 [LOSS] ignore_index inside the class range") {
  const Array x(DType::fp32, {2, 3}, std::vector<double>(6, 1));
  const Result r = run(x, Array(DType::i64, {2}, {1, 2}), {.ignore_index = 0});
  check_fp32(r.loss[0], 1.0986122887);
  const double want[] = {1. / 6, -1. / 3, 1. / 6, 1. / 6, 1. / 6, -1. / 3};
  for (std::size_t i = 0; i < 6; ++i) check_fp32(r.dlogits[i], want[i]);
}

TEST_CASE("case 44 [LOSS] label smoothing formula") {
  const Array x(DType::fp64, {1, 3}, {2, 1, 0});
  const Array y(DType::i64, {1}, {0});
  const Result r = run(x, y, {.label_smoothing = 0.1});
  check_near(r.loss[0], 0.5076059644, 1e-10);
  check_near(r.dlogits[0], -0.2680923776, 1e-10);
  check_near(r.dlogits[1], 0.2113951377, 1e-10);
  check_near(r.dlogits[2], 0.0566972398, 1e-10);
  for (const double e : {0.0, 0.1, 0.5, 1.0})
    check_near(run(Array(DType::fp64, {1, 3}, {7, 7, 7}), y, {.label_smoothing = e}).loss[0],
               std::log(3.0), 8 * 0x1p-53);
}

TEST_CASE("case 47 [LOSS] soft targets divide by N, not by weights") {
  const Array x(DType::fp64, {2, 3}, {2, 1, 0, 0, 3, 1});
  const Array w(DType::fp64, {3}, {1, 2, 5});
  const Array q(DType::fp64, {2, 3}, {.7, .2, .1, .1, .1, .8});
  const Result soft = run(x, q, {}, &w);
  check_near(soft.loss[0], 5.5412537136, 1e-10);
  CHECK(soft.valid == 2);
  const Array one_hot(DType::fp64, {2, 3}, {0, 0, 1, 0, 0, 1});
  const Array labels(DType::i64, {2}, {2, 2});
  const double a = run(x, one_hot, {}, &w).loss[0];
  const double b = run(x, labels, {}, &w).loss[0];
  // One-hot rows of class 2 weigh 5 each: the two means differ by that factor.
  check_near(a, 5 * b, 16 * 0x1p-53 * a);
}

TEST_CASE("case 48 [LOSS] mean over many positions in fp16") {
  const Array x(DType::fp16, {70000, 2}, std::vector<double>(140000, 2));
  const Array y(DType::i64, {70000}, std::vector<double>(70000, 1));
  const Result mean = run(x, y, {}, nullptr, 65536, DType::fp16);
  check_fp32(mean.loss[0], 0.6931471806);
  CHECK(mean.valid == 70000);
  check_fp32(run(x, y, {.reduction = Reduction::sum}).loss[0], 48520.3026);
  // Scaled by 2^16 the gradient is a normal fp16 number; unscaled it is subnormal.
  const double scaled = 0.5 / 70000 * 65536;
  check_near(mean.dlogits[0], scaled, rounded_tolerance(scaled, 4 * 0x1p-24 * scaled, DType::fp16));
  check_near(mean.dlogits[1], -scaled,
             rounded_tolerance(scaled, 4 * 0x1p-24 * scaled, DType::fp16));
  const double plain = run(x, y, {}, nullptr, 1, DType::fp16).dlogits[0];
  check_near(plain, 7.142857e-06, 0x1p-25);
  CHECK(plain < 0x1p-14);
}

namespace {

// The whole definition, in long double, with the error bounds of numerics.md beside each value.
struct Oracle {
  std::vector<long double> loss, loss_error;  // of each row
  std::vector<long double> grad, grad_error;  // of each logit, for seed 1 and no division
  long double valid = 0;

  Oracle(const Array& x, const Array* q, const std::vector<std::int64_t>& labels, const Array* w,
         long double smoothing, double u) {
    const std::int64_t classes = x.shape()[1];
    for (std::int64_t i = 0; i < x.shape()[0]; ++i) {
      const std::int64_t t = q == nullptr ? labels[static_cast<std::size_t>(i)] : -1;
      if (t == -100) {
        loss.push_back(0);
        loss_error.push_back(0);
        grad.resize(grad.size() + static_cast<std::size_t>(classes), 0);
        grad_error.resize(grad.size(), 0);
        continue;
      }
      std::vector<double> row;
      for (std::int64_t c = 0; c < classes; ++c) row.push_back(x[i * classes + c]);
      const RowOracle oracle(row);
      std::vector<long double> target;
      long double mass = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const long double share = q != nullptr ? (*q)[i * classes + c] : (c == t ? 1 : 0);
        const long double weight = w != nullptr ? (*w)[c] : 1;
        target.push_back(weight *
                         ((1 - smoothing) * share + smoothing / static_cast<long double>(classes)));
        mass += target.back();
      }
      // A target's share takes four roundings to form, its product one more; then the sum.
      const double sums = gamma(sum_depth(classes) + 6, u);
      const long double exponential = rho(classes, u) + 2 * u + (oracle.spread + 1) * u + sums;
      long double row_loss = 0;
      long double row_error = 0;
      for (std::size_t c = 0; c < target.size(); ++c) {
        const long double nll = oracle.nll[c];
        row_loss += target[c] * nll;
        row_error +=
            target[c] * (nll_tolerance(oracle, classes, static_cast<double>(nll), u) + sums * nll);
        const long double g = mass * oracle.p[c] - target[c];
        grad.push_back(g);
        // p rel + u |g|, and the roundings of the target's share and of the seed
        grad_error.push_back(mass * oracle.p[c] * exponential + 6 * u * target[c] +
                             6 * u * std::abs(g));
      }
      loss.push_back(row_loss);
      loss_error.push_back(row_error);
      valid += q != nullptr ? 1 : (w != nullptr ? (*w)[t] : 1);
    }
  }
};

void check_all(const Result& got, const Oracle& want, Reduction reduction, double seed,
               DType dtype) {
  const DType out = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  const long double divisor = reduction == Reduction::mean ? want.valid : 1;
  const auto rows = static_cast<double>(want.loss.size());
  check_near(got.valid, static_cast<double>(want.valid),
             (rows * 0x1p-53 + format(out).unit) * static_cast<double>(want.valid));
  long double total = 0;
  long double error = 0;
  for (std::size_t i = 0; i < want.loss.size(); ++i) {
    if (reduction == Reduction::none)
      check_near(got.loss[i], static_cast<double>(want.loss[i]),
                 rounded_tolerance(static_cast<double>(want.loss[i]),
                                   static_cast<double>(want.loss_error[i]), out));
    total += want.loss[i];
    error += want.loss_error[i];
  }
  if (reduction != Reduction::none) {
    const auto value = static_cast<double>(total / divisor);
    // rows are added in fp64, the quotient is one rounding more
    check_near(
        got.loss[0], value,
        rounded_tolerance(
            value, static_cast<double>(error / divisor) + gamma(rows + 1, 0x1p-53) * value, out));
  }
  double worst = 0;  // largest error / tolerance
  for (std::size_t i = 0; i < want.grad.size(); ++i) {
    const long double value = seed * want.grad[i] / divisor;
    const double tolerance =
        rounded_tolerance(static_cast<double>(std::abs(value)),
                          static_cast<double>(seed * want.grad_error[i] / divisor), dtype);
    const auto difference = static_cast<double>(std::abs(got.dlogits[i] - value));
    // An ignored row's gradient is exactly 0: its tolerance is that of the output's rounding.
    if (want.grad_error[i] == 0) REQUIRE(got.dlogits[i] == 0);
    if (!(difference <= tolerance * worst)) worst = difference / tolerance;
  }
  CHECK(worst <= 1);
}

}  // namespace

TEST_CASE("cross-entropy and its gradient within the computed bounds, every option") {
  const std::int64_t n = 7;
  for (const std::int64_t classes : {1, 2, 10, 513, 1030}) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < n; ++i) labels.push_back(i == 3 ? -100 : (5 * i + 1) % classes);
    const Array y(DType::i64, {n}, {labels.begin(), labels.end()});
    std::vector<double> probabilities = Uniform(12).take(n * classes);
    for (double& v : probabilities) v = std::abs(v);
    std::vector<double> weights = Uniform(13).take(classes);
    for (double& v : weights) v = std::abs(v) + 0.25;
    for (const DType dtype : kFloating) {
      const Array x(dtype, {n, classes}, Uniform(11).take(n * classes, 9));
      const Array q(dtype, {n, classes}, probabilities);
      const Array w(dtype, {classes}, weights);
      for (const bool soft : {false, true}) {
        for (const bool weighted : {false, true}) {
          for (const double smoothing : {0.0, 0.1}) {
            const Oracle want(x, soft ? &q : nullptr, labels, weighted ? &w : nullptr, smoothing,
                              arithmetic_roundoff(dtype));
            for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
              CAPTURE(classes);
              CAPTURE(name(dtype));
              CAPTURE(soft);
              CAPTURE(weighted);
              CAPTURE(smoothing);
              CAPTURE(name(reduction));
              check_all(run(x, soft ? q : y, {.label_smoothing = smoothing, .reduction = reduction},
                            weighted ? &w : nullptr, 3),
                        want, reduction, 3, dtype);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cross-entropy refuses what does not fit") {
  const Array x(DType::fp32, {2, 3}, std::vector<double>(6, 0));
  const Array y(DType::i64, {2}, {0, 1});
  Array loss(DType::fp32, {});
  Array valid(DType::fp32, {});
  Array stats(DType::fp32, {2, 2});
  const auto forward = [&](const ConstView& logits, const ConstView& target,
                           const ConstView& weight, const CrossEntropyParams& params) {
    cross_entropy_forward(Ref{}, params, logits, target, weight, loss.out(), valid.out(),
                          stats.out());
  };
  const ConstView none = ConstView::absent();
  CHECK_THROWS_WITH_AS(forward(x, Array(DType::i64, {3}, {0, 0, 0}), none, {}),
                       "[cross_entropy] labels have shape [3], logits [2, 3] expect [2]", Error);
  CHECK_THROWS_WITH_AS(forward(x, y, none, {.label_smoothing = 1.5}),
                       "[cross_entropy] label smoothing is 1.5, expected a value in [0, 1]", Error);
  CHECK_THROWS_WITH_AS(forward(x, y, Array(DType::fp32, {2}, {1, 1}), {}),
                       "[cross_entropy] class weights have shape [2], 3 classes expected", Error);
  CHECK_THROWS_WITH_AS(forward(x, y, Array(DType::fp32, {3}, {1, -1, 1}), {}),
                       "[cross_entropy] weight of class 1 is -1, expected a finite value >= 0",
                       Error);
  CHECK_THROWS_AS(forward(Array(DType::i64, {2, 3}, std::vector<double>(6, 0)), y, none, {}),
                  Error);
}
