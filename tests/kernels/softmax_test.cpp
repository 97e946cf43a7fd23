#include "kernels/softmax/softmax.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "verify/oracle/softmax.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Array softmax(const Array& x, bool log, int axis = -1) {
  Array y(x.dtype(), x.shape());
  Scratch scratch;
  if (log)
    log_softmax_forward(Ref{}, {.axis = axis}, x, y.out());
  else
    softmax_forward(Ref{}, {.axis = axis}, x, y.out(), scratch);
  CHECK(y.guards_intact());
  return y;
}

Array gradient(const Array& y, const Array& dy, bool log, int axis = -1) {
  Array dx(y.dtype(), y.shape());
  if (log)
    log_softmax_backward(Ref{}, {.axis = axis}, y, dy, dx.out());
  else
    softmax_backward(Ref{}, {.axis = axis}, y, dy, dx.out());
  CHECK(dx.guards_intact());
  return dx;
}

}  // namespace

TEST_CASE("case 34 [LOSS] log_softmax in fp16 far from zero") {
  const Array x(DType::fp16, {2}, {-20000, -20000});
  CHECK(softmax(x, false).values() == std::vector<double>{0.5, 0.5});
  CHECK(softmax(x, true).values() == std::vector<double>{-0.693359375, -0.693359375});
}

TEST_CASE("case 35 [LOSS] log(softmax) is not log_softmax") {
  CHECK(softmax(Array(DType::fp32, {3}, {0, -104, -200}), true).values() ==
        std::vector<double>{0, -104, -200});
  CHECK(softmax(Array(DType::fp16, {2}, {0, -20}), true).values() == std::vector<double>{0, -20});
  CHECK(softmax(Array(DType::fp16, {2}, {0, -20}), false)[1] == 0);
}

TEST_CASE("case 36 [LOSS] extreme logits, along either kind of axis") {
  for (const Shape& shape : {Shape{2}, Shape{2, 1}, Shape{1, 2}}) {
    const int axis = shape[0] == 2 ? 0 : 1;
    const Array x(DType::fp16, shape, {65504, -65504});
    CHECK(softmax(x, false, axis).values() == std::vector<double>{1, 0});
    CHECK(softmax(x, true, axis)[1] == -kInf);  // -131008 is below fp16's range
  }
  for (const bool log : {false, true}) {
    for (const DType dtype : kFloating) {
      for (const std::vector<double>& row :
           {std::vector<double>{kInf, 0, 1}, std::vector<double>{0, kNan, 1},
            std::vector<double>{-kInf, -kInf, -kInf}}) {
        for (const Shape& shape : {Shape{1, 3}, Shape{3, 1}}) {
          const Array y = softmax(Array(dtype, shape, row), log, shape[0] == 3 ? 0 : 1);
          for (const double v : y.values()) CHECK(std::isnan(v));
        }
      }
      const Array masked = softmax(Array(dtype, {3}, {1, -kInf, 1}), log);
      CHECK(masked[1] == (log ? -kInf : 0));
      CHECK(!std::isnan(masked[0]));
    }
  }
  const Array equal(DType::fp16, {70000}, std::vector<double>(70000, 3));
  const double p = 1.0 / 70000;
  CHECK(softmax(equal, false)[69999] == Array(DType::fp16, {1}, {p})[0]);
}

TEST_CASE("softmax and log_softmax within the computed bounds, over shapes, axes and types") {
  struct Case {
    Shape shape;
    int axis;
  };
  const Case cases[] = {{{1}, 0},           {{2}, 0},         {{3, 5}, 1},    {{3, 5}, 0},
                        {{2, 513}, 1},      {{2, 200000}, 1}, {{40, 300}, 0}, {{2, 33, 7}, 1},
                        {{2, 3, 4, 5}, -2}, {{1, 1}, 0},      {{0, 3}, 1},    {{3, 0}, 1},
                        {{3, 0}, 0}};
  for (const Case& c : cases) {
    const int axis = c.shape.normalize_axis(c.axis, "test");
    oracle::SoftmaxParams params;
    params.n = c.shape[axis];
    for (int a = 0; a < c.shape.rank(); ++a)
      if (a != axis) (a < axis ? params.outer : params.inner) *= c.shape[a];
    for (const DType dtype : kFloating) {
      if (c.shape.numel() > 100000 && dtype != DType::fp16 && dtype != DType::fp32) continue;
      CAPTURE(c.shape);
      CAPTURE(c.axis);
      CAPTURE(name(dtype));
      const double u = arithmetic_roundoff(dtype);
      const double eta = format(widest(dtype, DType::fp32)).eta;
      const Array x(dtype, c.shape, Uniform(51).take(c.shape.numel(), 8));
      const Array dy(dtype, c.shape, Uniform(52).take(c.shape.numel()));
      const auto n = static_cast<double>(params.n);
      const double h = sum_depth(params.n);
      // numerics.md, with d = 1, exp and log within 1 ulp, and D at most the range of the values
      const double spread = 16;
      const double rho = u * std::log(std::max(n, 1.0)) + 2 * u + gamma(h, u);
      const double relative = rho + 2 * u + (spread + 1) * u;
      const Array y = softmax(x, false, c.axis);
      CHECK(worst_of(y.values(), oracle::softmax(params, x.values()), dtype,
                     [&](std::size_t, double want) {
                       return rounded_tolerance(want, relative * want + eta, dtype);
                     }) <= 1);
      const Array z = softmax(x, true, c.axis);
      CHECK(worst_of(z.values(), oracle::log_softmax(params, x.values()), dtype,
                     [&](std::size_t, double want) {
                       const double error = rho + 2 * u * std::log(std::max(n, 1.0)) + u * spread +
                                            u * std::abs(want);
                       return rounded_tolerance(want, error, dtype);
                     }) <= 1);
      // Gradients, as functions of the output that was saved.
      //   y (dy - t), t = sum(dy y):  |y| (gamma_{h+1} sum|dy y| + 2 u |dy - t|)
      //   dy - exp(y) t, t = sum(dy): |exp(y) t| 3u + exp(y) gamma_h sum|dy| + u |dx|
      for (const bool log : {false, true}) {
        const Array& saved = log ? z : y;
        const Array got = gradient(saved, dy, log, c.axis);
        std::vector<double> want(static_cast<std::size_t>(c.shape.numel()));
        std::vector<double> error(want.size());
        for (std::int64_t o = 0; o < params.outer * params.inner && params.n != 0; ++o) {
          const std::int64_t base = o / params.inner * params.n * params.inner + o % params.inner;
          long double t = 0;
          long double magnitude = 0;
          for (std::int64_t i = 0; i < params.n; ++i) {
            const std::int64_t k = base + i * params.inner;
            const long double term = log ? dy[k] : static_cast<long double>(dy[k]) * saved[k];
            t += term;
            magnitude += std::abs(term);
          }
          for (std::int64_t i = 0; i < params.n; ++i) {
            const std::int64_t k = base + i * params.inner;
            const long double weight =
                log ? std::exp(static_cast<long double>(saved[k])) : saved[k];
            const long double dx = log ? dy[k] - weight * t : weight * (dy[k] - t);
            want[static_cast<std::size_t>(k)] = static_cast<double>(dx);
            error[static_cast<std::size_t>(k)] =
                static_cast<double>(weight * gamma(h + 1, u) * magnitude + 2 * u * std::abs(dx) +
                                    3 * u * weight * std::abs(t)) +
                eta;
          }
        }
        CHECK(worst_of(got.values(), want, dtype, [&](std::size_t i, double exact) {
                return rounded_tolerance(exact, error[i], dtype);
              }) <= 1);
      }
    }
  }
}

TEST_CASE(
    "case 121 [CAST] softmax of fp16 over axis 1, fp32 inside, gradients accumulate in fp32") {
  const Array x(DType::fp16, {2, 3, 2}, Uniform(53).take(12, 4));
  Array y(DType::fp32, {2, 3, 2});
  Scratch scratch;
  softmax_forward(Ref{}, {.axis = 1}, x, y.out(), scratch);
  const Array dy(DType::fp32, {2, 3, 2}, Uniform(54).take(12));
  Array dx16(DType::fp16, {2, 3, 2});
  Array dx32(DType::fp32, {2, 3, 2}, std::vector<double>(12, 0.0));
  softmax_backward(Ref{}, {.axis = 1}, y, dy, dx16.out());
  softmax_backward(Ref{}, {.axis = 1}, y, dy, dx32.out(Write::accumulate));
  // The fp16 gradient is the fp32 one, rounded once.
  CHECK(dx16.values() == Array(DType::fp16, {2, 3, 2}, dx32.values()).values());
  CHECK(dx16.values() != dx32.values());
}

TEST_CASE("softmax refuses what does not fit") {
  const Array x(DType::fp32, {2, 3}, std::vector<double>(6, 0));
  Array y(DType::fp32, {2, 3});
  Scratch scratch;
  CHECK_THROWS_WITH_AS(softmax_forward(Ref{}, {.axis = 2}, x, y.out(), scratch),
                       "[softmax] axis 2 is out of range for shape [2, 3]", Error);
  Array z(DType::fp32, {3, 2});
  CHECK_THROWS_WITH_AS(log_softmax_forward(Ref{}, {}, x, z.out()),
                       "[log_softmax] y has shape [3, 2], expected [2, 3]", Error);
  CHECK_THROWS_AS(
      softmax_forward(Ref{}, {.axis = 0}, Array(DType::fp32, {}, {1}), y.out(), scratch), Error);
}
