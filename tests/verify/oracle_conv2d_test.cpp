#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "verify/oracle/conv2d.h"

using namespace roundoff;
using oracle::Conv2dParams;
using oracle::Values;

namespace {

// Reorders [outer, channels, h, w] into [outer, h, w, channels]: NCHW to NHWC, KCRS to KRSC.
Values channels_last(const Values& v, std::int64_t outer, std::int64_t c, std::int64_t h,
                     std::int64_t w) {
  Values out(v.size());
  std::size_t from = 0;
  for (std::int64_t n = 0; n < outer; ++n)
    for (std::int64_t i = 0; i < c; ++i)
      for (std::int64_t y = 0; y < h; ++y)
        for (std::int64_t x = 0; x < w; ++x)
          out[oracle::at(((n * h + y) * w + x) * c + i)] = v[from++];
  return out;
}

Values pattern(std::int64_t n, int period, int offset) {
  Values v(oracle::at(n));
  for (std::int64_t i = 0; i < n; ++i) v[oracle::at(i)] = static_cast<double>(i % period - offset);
  return v;
}

double sum(const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
double sum_abs(const Values& v) {
  return std::accumulate(v.begin(), v.end(), 0.0,
                         [](double a, double b) { return a + std::abs(b); });
}

}  // namespace

TEST_CASE("case 26 [CONV] grouped conv with Cout >> groups, on the oracle") {
  const Conv2dParams grouped{.n = 1, .h = 1, .w = 1, .c = 4, .k = 16, .r = 1, .s = 1, .groups = 2};
  const Values y = oracle::conv2d(grouped, Values{0, 0, 0, 1}, Values(32, 1.0));
  for (std::size_t k = 0; k < 16; ++k) CHECK(y[k] == (k < 8 ? 0 : 1));

  const Conv2dParams depthwise{.n = 1, .h = 4, .w = 4, .c = 3, .k = 3, .r = 3, .s = 3, .groups = 3};
  Values w(27);
  for (std::size_t i = 0; i < 27; ++i) w[i] = static_cast<double>(i / 9 + 1);
  const Values z = oracle::conv2d(depthwise, Values(48, 1.0), w);
  REQUIRE(z.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) CHECK(z[i] == static_cast<double>(9 * (i % 3 + 1)));
}

TEST_CASE("case 28 [CONV] stride 2, pad 1, dilation 2, on the oracle") {
  const Conv2dParams p{.n = 1,
                       .h = 7,
                       .w = 7,
                       .c = 1,
                       .k = 1,
                       .r = 3,
                       .s = 3,
                       .stride_h = 2,
                       .stride_w = 2,
                       .pad_h = 1,
                       .pad_w = 1,
                       .dilation_h = 2,
                       .dilation_w = 2};
  const Values x = pattern(49, 49, 0), w(9, 1.0), dy(9, 1.0);
  const Values nine{64, 102, 72, 138, 216, 150, 120, 186, 128};
  CHECK(oracle::conv2d(p, x, w) == nine);
  CHECK(oracle::conv2d_wgrad(p, x, dy) == nine);
  Values dx(49, 0.0);
  const double inner[3][3] = {{4, 6, 4}, {6, 9, 6}, {4, 6, 4}};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) dx[(2 * i + 1) * 7 + 2 * j + 1] = inner[i][j];
  CHECK(oracle::conv2d_dgrad(p, w, dy) == dx);
  CHECK(oracle::conv2d_bias_grad(p, dy) == Values{9});
}

TEST_CASE("case 30 [CONV] odd channels, full fwd/dgrad/wgrad/bias check, on the oracle") {
  const Conv2dParams p{.n = 2,
                       .h = 7,
                       .w = 7,
                       .c = 3,
                       .k = 5,
                       .r = 3,
                       .s = 3,
                       .stride_h = 2,
                       .stride_w = 2,
                       .pad_h = 1,
                       .pad_w = 1};
  const Values x = channels_last(pattern(p.x_size(), 5, 2), 2, 3, 7, 7);
  const Values w = channels_last(pattern(p.w_size(), 3, 1), 5, 3, 3, 3);
  const Values dy = channels_last(pattern(p.y_size(), 3, 1), 2, 5, 4, 4);
  const Values y = oracle::conv2d(p, x, w, Values{1, -1, 2, -2, 3});
  REQUIRE(y.size() == 2 * 5 * 4 * 4);
  CHECK(sum(y) == 96);
  double max_abs = 0;
  for (const double v : y) max_abs = std::max(max_abs, std::abs(v));
  CHECK(max_abs == 6);
  const double last[16] = {4, 0, 5, 3, 4, 1, 6, 1, 5, 1, 1, 5, 4, 0, 5, 3};
  for (std::size_t i = 0; i < 16; ++i) CHECK(y[(16 + i) * 5 + 4] == last[i]);
  const Values dx = oracle::conv2d_dgrad(p, w, dy);
  CHECK(sum(dx) == 0);
  CHECK(sum_abs(dx) == 168);
  const Values dw = oracle::conv2d_wgrad(p, x, dy);
  CHECK(sum(dw) == -1);
  CHECK(sum_abs(dw) == 389);
  CHECK(oracle::conv2d_bias_grad(p, dy) == Values{0, -1, 1, 0, -1});
}

TEST_CASE("case 31 [CONV] bias for every batch element, on the oracle") {
  const Conv2dParams p{.n = 8, .h = 2, .w = 2, .c = 1, .k = 3, .r = 1, .s = 1};
  const Values y = oracle::conv2d(p, Values(32, 1.0), Values(3, 0.0), Values{1, 2, 3});
  CHECK(Values(y.end() - 3, y.end()) == Values{1, 2, 3});
  CHECK(sum(y) == 192);
}

TEST_CASE("case 33 [CONV] geometry errors and empty batch, on the oracle") {
  const Conv2dParams good{.n = 1, .h = 4, .w = 4, .c = 4, .k = 4, .r = 3, .s = 3};
  const Values x(64, 1.0), w(144, 1.0);
  CHECK_NOTHROW(oracle::conv2d(good, x, w));
  Conv2dParams p = good;
  p.h = p.w = 2;
  CHECK_THROWS_AS(oracle::conv2d(p, Values(16), w), Error);
  p = good;
  p.stride_h = 0;
  CHECK_THROWS_AS(oracle::conv2d(p, x, w), Error);
  p = good;
  p.dilation_w = 0;
  CHECK_THROWS_AS(oracle::conv2d(p, x, w), Error);
  p = good;
  p.groups = 3;
  CHECK_THROWS_AS(oracle::conv2d(p, x, w), Error);
  p = good;
  p.pad_h = -1;
  CHECK_THROWS_AS(oracle::conv2d(p, x, w), Error);

  const Conv2dParams empty{.n = 0, .h = 8, .w = 8, .c = 3, .k = 4, .r = 3, .s = 3};
  CHECK(oracle::conv2d(empty, {}, Values(108, 1.0)).empty());
  CHECK(oracle::conv2d_wgrad(empty, {}, {}) == Values(108, 0.0));
  CHECK(oracle::conv2d_bias_grad(empty, {}) == Values(4, 0.0));
}

TEST_CASE("conv2d oracle: asymmetric kernel, stride and dilation by hand") {
  // A 1x2 kernel with dilation 2 and horizontal stride 1 on one row: y[q] = x[q] + 10 x[q + 2].
  const Conv2dParams p{
      .n = 1, .h = 2, .w = 4, .c = 1, .k = 1, .r = 1, .s = 2, .stride_h = 2, .dilation_w = 2};
  CHECK(oracle::conv2d(p, Values{1, 2, 3, 4, 5, 6, 7, 8}, Values{1, 10}) == Values{31, 42});
  CHECK(oracle::conv2d_dgrad(p, Values{1, 10}, Values{1, 2}) == Values{1, 2, 10, 20, 0, 0, 0, 0});
}
