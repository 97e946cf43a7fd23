#include <doctest/doctest.h>

#include <cmath>

#include "kernels/loss/pointwise.h"
#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "verify/oracle/loss.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Result {
  std::vector<double> loss, dx, dtarget;
};

Result run(const Array& x, const Array& t, const PointwiseLossParams& params, double seed = 1) {
  const DType wide = widest(widest(x.dtype(), t.dtype()), DType::fp32);
  const Shape shape = params.reduction == Reduction::none ? x.shape() : Shape{};
  Array loss(wide, shape);
  pointwise_loss_forward(Ref{}, params, x, t, loss.out());
  const Array dloss(wide, shape,
                    std::vector<double>(static_cast<std::size_t>(shape.numel()), seed));
  Array dx(x.dtype(), x.shape());
  Array dt(t.dtype(), x.shape());
  pointwise_loss_backward(Ref{}, params, x, t, dloss, dx.out(), dt.out());
  CHECK(loss.guards_intact());
  CHECK(dx.guards_intact());
  return {loss.values(), dx.values(), dt.values()};
}

}  // namespace

TEST_CASE("case 50 [LOSS] MSE and BCE ranges") {
  const PointwiseLossParams mse{.loss = PointwiseLoss::mse};
  const Result r = run(Array(DType::fp16, {1}, {300}), Array(DType::fp16, {1}, {0}), mse);
  CHECK(r.loss[0] == 90000);
  CHECK(r.dx[0] == 600);
  CHECK(r.dtarget[0] == -600);
  const PointwiseLossParams bce{.loss = PointwiseLoss::bce_with_logits,
                                .reduction = Reduction::none};
  for (const DType dtype : kFloating) {
    const Result b = run(Array(dtype, {2}, {100, -100}), Array(dtype, {2}, {0, 1}), bce);
    CHECK(b.loss == std::vector<double>{100, 100});
    CHECK(b.dx == std::vector<double>{1, -1});
    // the other way round nothing is lost: log1p(exp(-100)) > 0 where the type holds it
    const Result c = run(Array(dtype, {2}, {100, -100}), Array(dtype, {2}, {1, 0}), bce);
    CHECK(c.loss[0] == c.loss[1]);
    CHECK(c.loss[0] > 0);
    // infinite logits: a right one costs nothing, a wrong one everything
    const Result d =
        run(Array(dtype, {4}, {kInf, -kInf, kInf, -kInf}), Array(dtype, {4}, {1, 0, 0, 1}), bce);
    CHECK(d.loss == std::vector<double>{0, 0, kInf, kInf});
  }
  // The mean of squares fits though a square and the sum do not.
  const Array big(DType::fp32, {1000}, [] {
    std::vector<double> v(1000, 0.0);
    v[17] = 1e20;
    return v;
  }());
  const Array zero(DType::fp32, {1000}, std::vector<double>(1000, 0.0));
  CHECK(run(big, zero, mse).loss[0] == doctest::Approx(1e37));
}

TEST_CASE("mse and bce_with_logits within the computed bounds") {
  for (const PointwiseLoss which : {PointwiseLoss::mse, PointwiseLoss::bce_with_logits}) {
    const bool is_mse = which == PointwiseLoss::mse;
    for (const std::int64_t n : {1, 2, 511, 513, 3000}) {
      for (const DType dtype : kFloating) {
        const double u = arithmetic_roundoff(dtype);
        const DType wide = widest(dtype, DType::fp32);
        const Array x(dtype, {n}, Uniform(61).take(n, is_mse ? 3 : 12));
        std::vector<double> targets = Uniform(62).take(n);
        if (!is_mse)
          for (std::size_t i = 0; i < targets.size(); ++i)
            targets[i] = i % 3 == 0 ? 1 : (i % 3 == 1 ? 0 : std::abs(targets[i]));
        const Array t(dtype, {n}, targets);
        for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
          CAPTURE(name(which));
          CAPTURE(n);
          CAPTURE(name(dtype));
          CAPTURE(name(reduction));
          const auto o = static_cast<oracle::Reduction>(reduction);
          const double seed = 3;
          const Result got = run(x, t, {.loss = which, .reduction = reduction}, seed);
          // One element: mse has the difference (1) squared and one rounding of fp64; bce has 1 -
          // t, a product, exp (2) and log1p (2) of non-negative terms, and their sum.
          const double element = is_mse ? 2 * u + u * u + 0x1p-53 : 6 * u;
          const double sums = reduction == Reduction::none ? u : gamma(sum_depth(n) + 1, 0x1p-53);
          const auto want = is_mse ? oracle::mse(o, x.values(), t.values())
                                   : oracle::bce_with_logits(o, x.values(), t.values());
          CHECK(worst_of(got.loss, want, wide, [&](std::size_t, double value) {
                  return rounded_tolerance(
                      value, (element + sums) * (1 + element) * value + format(wide).eta, wide);
                }) <= 1);
          const std::vector<double> dloss(reduction == Reduction::none ? oracle::at(n) : 1, seed);
          const auto dx = is_mse
                              ? oracle::mse_backward(o, x.values(), t.values(), dloss)
                              : oracle::bce_with_logits_backward(o, x.values(), t.values(), dloss);
          // what the oracle's own sigmoid(x) - t loses
          const double own = 2 * static_cast<double>(std::numeric_limits<long double>::epsilon());
          const double scale = seed / (reduction == Reduction::mean ? static_cast<double>(n) : 1.0);
          CHECK(worst_of(got.dx, dx, dtype, [&](std::size_t i, double value) {
                  const auto k = static_cast<std::int64_t>(i);
                  // mse: difference, seed / n, product. bce: 1 - t (u), a sigmoid (5u), their
                  // difference; sizes are at most 1 - t or t, and the sigmoid of -|x|.
                  const double tail = 1 / (1 + std::exp(std::abs(x[k])));
                  const double parts = (x[k] >= 0 ? 1 - t[k] : t[k]) + 5 * tail;
                  const double error =
                      (is_mse ? 0 : scale * (u * parts + own)) + 4 * u * std::abs(value);
                  return rounded_tolerance(value, error, dtype);
                }) <= 1);
          for (std::size_t i = 0; i < got.dtarget.size() && is_mse; ++i)
            if (got.dtarget[i] != -got.dx[i]) REQUIRE(got.dtarget[i] == -got.dx[i]);
          if (!is_mse)
            CHECK(worst_of(
                      got.dtarget,
                      [&] {
                        std::vector<double> v = x.values();
                        for (double& value : v) value *= -scale;
                        return v;
                      }(),
                      dtype,
                      [&](std::size_t, double value) {
                        return rounded_tolerance(value, 3 * u * std::abs(value), dtype);
                      }) <= 1);
        }
      }
    }
  }
}

TEST_CASE("losses of nothing are 0; shapes that differ are refused") {
  for (const PointwiseLoss which : {PointwiseLoss::mse, PointwiseLoss::bce_with_logits}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean})
      CHECK(run(Array(DType::fp32, {0}), Array(DType::fp32, {0}),
                {.loss = which, .reduction = reduction})
                .loss[0] == 0);
    Array loss(DType::fp32, {}, {5});
    CHECK_THROWS_WITH_AS(
        pointwise_loss_forward(Ref{}, {.loss = which}, Array(DType::fp32, {2}, {1, 2}),
                               Array(DType::fp32, {2, 1}, {1, 2}), loss.out()),
        concat("[", name(which), "] x has shape [2], target [2, 1]").c_str(), Error);
    CHECK(loss[0] == 5);
  }
}
