#include "kernels/pool/pool.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/array.h"
#include "tests/kernels/sum_bound.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Pooling by its definition, one element at a time.
struct Pooled {
  std::vector<double> max, mean, mean_of_magnitudes;
  std::vector<double> winner;
};
template <class Visit>
void each_tap(const Shape& x, const Shape& y, const Pool2dParams& p, Visit&& visit) {
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const std::int64_t c = i % y[3], q = i / y[3] % y[2], row = i / y[3] / y[2] % y[1],
                       n = i / y[3] / y[2] / y[1];
    for (std::int64_t r = 0; r < p.kernel[0]; ++r) {
      for (std::int64_t s = 0; s < p.kernel[1]; ++s) {
        const std::int64_t h = row * p.stride[0] + r - p.padding[0];
        const std::int64_t w = q * p.stride[1] + s - p.padding[1];
        if (h >= 0 && h < x[1] && w >= 0 && w < x[2])
          visit(i, h * x[2] + w, ((n * x[1] + h) * x[2] + w) * x[3] + c);
      }
    }
  }
}
std::vector<double> areas(const Shape& x, const Shape& y, const Pool2dParams& p) {
  std::vector<double> area(at(y.numel()));
  each_tap(x, y, p, [&](std::int64_t i, std::int64_t, std::int64_t) { area[at(i)] += 1; });
  if (p.count_include_pad)
    for (double& a : area) a = static_cast<double>(p.kernel[0] * p.kernel[1]);
  return area;
}
Pooled pool(const Shape& x, const Shape& y, const Pool2dParams& p, const std::vector<double>& v) {
  const std::size_t n = at(y.numel());
  Pooled out{std::vector<double>(n, -kInf), std::vector<double>(n), std::vector<double>(n),
             std::vector<double>(n, -1)};
  each_tap(x, y, p, [&](std::int64_t i, std::int64_t position, std::int64_t from) {
    const double value = v[at(from)];
    double& best = out.max[at(i)];
    if (out.winner[at(i)] < 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
      best = value;
      out.winner[at(i)] = static_cast<double>(position);
    }
    out.mean[at(i)] += value;
    out.mean_of_magnitudes[at(i)] += std::abs(value);
  });
  const std::vector<double> area = areas(x, y, p);
  for (std::size_t i = 0; i < n; ++i) {
    out.mean[i] /= area[i];
    out.mean_of_magnitudes[i] /= area[i];
  }
  return out;
}

}  // namespace

TEST_CASE("case 15 [RED] max must not swallow NaN: max pooling") {
  Scratch scratch;
  const std::vector<std::vector<double>> windows = {
      {1, kNaN, 2, 0}, {kNaN, 1, 0, 0}, {-kInf, kNaN, 0, 0}, {1, 2, 3, kNaN}};
  const double first_nan[] = {1, 0, 1, 3};
  for (const DType dtype : kFloating) {
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const Array x(dtype, {1, 2, 2, 1}, windows[i]);
      Array y(dtype, {1, 1, 1, 1}), argmax(DType::i32, {1, 1, 1, 1});
      max_pool2d_forward(Ref{}, {}, *x, y.view(), argmax.view(), scratch);
      CHECK(std::isnan(y.values()[0]));
      CHECK(argmax.values()[0] == first_nan[i]);
    }
    // The first of equal values wins; padding never does.
    Array y(dtype, {1, 2, 2, 1}), argmax(DType::i32, {1, 2, 2, 1});
    const Array x(dtype, {1, 2, 2, 1}, std::vector<double>(4, -kInf));
    max_pool2d_forward(Ref{}, {.padding = {1, 1}}, *x, y.view(), argmax.view(), scratch);
    CHECK(y.values() == std::vector<double>(4, -kInf));
    CHECK(argmax.values() == std::vector<double>{0, 1, 2, 3});
  }
}

TEST_CASE("pooling agrees with its definition, over types and geometries") {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    Pool2dParams p;
    p.kernel = {pick({1, 2, 3}), pick({1, 2, 3, 5})};
    p.stride = {pick({1, 2, 3}), pick({1, 2, 4})};
    p.padding = {pick({0, 1}), pick({0, 1, 2})};
    p.count_include_pad = random() % 2 == 0;
    const Shape x{pick({0, 1, 3}), pick({1, 2, 5, 8}), pick({1, 3, 6, 9}), pick({0, 1, 2, 7, 33})};
    const auto fits = [&](std::size_t i, int axis) {
      return p.padding[i] <= p.kernel[i] / 2 && p.kernel[i] <= x[axis] + 2 * p.padding[i];
    };
    if (!fits(0, 1) || !fits(1, 2)) {
      CHECK_THROWS_AS(pool2d_shape(x, p), Error);
      continue;
    }
    const DType dtype = kFloating[random() % 4], out = kFloating[random() % 4];
    const DType acc = widest(dtype, DType::fp32);
    const Shape y = pool2d_shape(x, p);
    const std::vector<double> v = normal(x.numel(), dtype, random);
    const std::vector<double> g = normal(y.numel(), dtype, random);
    const Pooled want = pool(x, y, p, v);
    const Array input(dtype, x, v), grad(dtype, y, g);
    Scratch scratch;

    Array best(dtype, y), argmax(DType::i32, y), mean(out, y);
    max_pool2d_forward(Ref{}, p, *input, best.view(), argmax.view(), scratch);
    CHECK(best.values() == want.max);
    CHECK(argmax.values() == want.winner);
    Array without(dtype, y);
    max_pool2d_forward(Ref{}, p, *input, without.view(), Out(), scratch);
    CHECK(without.values() == want.max);
    avg_pool2d_forward(Ref{}, p, Accumulator::fp32, *input, mean.view(), scratch);
    const std::int64_t terms = p.kernel[0] * p.kernel[1] + 1;
    CHECK(worst_ratio(mean.values(), want.mean, want.mean_of_magnitudes, terms, acc, out) <= 1);

    const bool accumulate = !is_16bit(out) && random() % 2 == 0;
    const Write write = accumulate ? Write::accumulate : Write::overwrite;
    const std::vector<double> held =
        accumulate ? normal(x.numel(), out, random) : std::vector<double>(at(x.numel()));
    Array dmax(out, x, held), dmean(out, x, held);
    max_pool2d_backward(Ref{}, p, *argmax, *grad, Out(dmax.view(), write), scratch);
    avg_pool2d_backward(Ref{}, p, *grad, Out(dmean.view(), write), scratch);
    std::vector<double> max_want = held, mean_want = held;
    std::vector<double> max_sums = absolute(held), mean_sums = absolute(held);
    const std::vector<double> area = areas(x, y, p);
    each_tap(x, y, p, [&](std::int64_t i, std::int64_t position, std::int64_t to) {
      mean_want[at(to)] += g[at(i)] / area[at(i)];
      mean_sums[at(to)] += std::abs(g[at(i)]) / area[at(i)];
      if (want.winner[at(i)] != static_cast<double>(position)) return;
      max_want[at(to)] += g[at(i)];
      max_sums[at(to)] += std::abs(g[at(i)]);
    });
    CHECK(worst_ratio(dmax.values(), max_want, max_sums, terms + 1, acc, out) <= 1);
    CHECK(worst_ratio(dmean.values(), mean_want, mean_sums, terms + 1, acc, out) <= 1);
    for (const Array* a : {&best, &argmax, &mean, &dmax, &dmean}) CHECK(a->guards_intact());
  }
}

TEST_CASE("a mean of pooled fp16 values is summed in fp32") {
  Scratch scratch;
  // 64 x 64 ones, and values whose sum leaves fp16.
  Array y(DType::fp16, {1, 1, 1, 1});
  avg_pool2d_forward(Ref{}, {.kernel = {64, 64}, .stride = {1, 1}}, Accumulator::fp32,
                     *Array(DType::fp16, {1, 64, 64, 1}, ones(4096)), y.view(), scratch);
  CHECK(y.values()[0] == 1);
  avg_pool2d_forward(Ref{}, {}, Accumulator::fp32,
                     *Array(DType::fp16, {1, 2, 2, 1}, std::vector<double>(4, 40000)), y.view(),
                     scratch);
  CHECK(y.values()[0] == 40000);
}

TEST_CASE("a mean of pooled values with an fp16 accumulator stalls at 2048") {
  Scratch scratch;
  Array y(DType::fp32, {1, 1, 1, 1});
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    avg_pool2d_forward(Ref{}, {.kernel = {64, 64}, .stride = {1, 1}}, Accumulator::fp16,
                       *Array(dtype, {1, 64, 64, 1}, ones(4096)), y.view(), scratch);
    CHECK(y.values()[0] == 0.5);
  }
}

TEST_CASE("pooling refuses bad geometry and views that do not fit") {
  const Shape x{1, 4, 4, 2};
  CHECK(pool2d_shape(x, {}) == Shape{1, 2, 2, 2});
  CHECK_THROWS_AS(pool2d_shape({4, 4, 2}, {}), Error);
  CHECK_THROWS_AS(pool2d_shape(x, {.kernel = {0, 2}}), Error);
  CHECK_THROWS_AS(pool2d_shape(x, {.stride = {2, 0}}), Error);
  CHECK_THROWS_WITH_AS(
      pool2d_shape(x, {.padding = {2, 0}}),
      "[pool2d] vertical padding 2 of kernel 2, between 0 and half the kernel expected", Error);
  CHECK_THROWS_AS(pool2d_shape(x, {.padding = {0, -1}}), Error);
  CHECK_THROWS_AS(pool2d_shape(x, {.kernel = {5, 2}}), Error);
  CHECK_THROWS_AS(pool2d_shape({1, 0, 4, 2}, {}), Error);
  CHECK(pool2d_shape({0, 4, 4, 0}, {}) == Shape{0, 2, 2, 0});

  Scratch scratch;
  const Array in(DType::fp32, x, ones(32)), dy(DType::fp32, {1, 2, 2, 2}, ones(8)),
      labels(DType::i64, {1, 2, 2, 2});
  Array y(DType::fp32, {1, 2, 2, 2}), wrong(DType::fp32, {1, 2, 2, 1}), dx(DType::fp32, x),
      half(DType::fp16, x);
  CHECK_THROWS_AS(max_pool2d_forward(Ref{}, {}, *in, wrong.view(), Out(), scratch), Error);
  CHECK_THROWS_AS(max_pool2d_forward(Ref{}, {}, *in, y.view(), y.view(), scratch), Error);
  CHECK_THROWS_AS(avg_pool2d_forward(Ref{}, {}, Accumulator::fp32, *in, wrong.view(), scratch),
                  Error);
  CHECK_THROWS_AS(max_pool2d_backward(Ref{}, {}, *labels, *dy, dx.view(), scratch), Error);
  CHECK_THROWS_AS(avg_pool2d_backward(Ref{}, {}, *dy, Out(half.view(), Write::accumulate), scratch),
                  Error);
  for (const double v : y.values()) CHECK(std::isnan(v));
  avg_pool2d_backward(Ref{}, {}, *dy, Out(), scratch);
}
