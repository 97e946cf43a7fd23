#include <cmath>
#include <limits>

#include "tests/verify/check_gradient.h"
#include "verify/oracle/pool2d.h"

using namespace roundoff;
using oracle::Pool2dParams;
using oracle::Values;

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
}  // namespace

TEST_CASE("pooling oracle: values, ties, padding and NaN by hand") {
  const Pool2dParams p{.n = 1, .h = 2, .w = 3, .c = 1, .kernel_h = 2, .kernel_w = 2};
  const Values x{1, 5, 2, 5, 3, 4};
  CHECK(oracle::max_pool2d(p, x) == Values{5, 5});
  CHECK(oracle::avg_pool2d(p, x) == Values{3.5, 3.5});
  CHECK(oracle::max_pool2d_backward(p, x, Values{1, 10}) == Values{0, 11, 0, 0, 0, 0});
  CHECK(oracle::avg_pool2d_backward(p, Values{4, 8}) == Values{1, 3, 2, 1, 3, 2});
  CHECK(std::isnan(oracle::max_pool2d(p, Values{1, kNaN, 2, 5, 3, 4})[1]));

  // The padding never wins a maximum, and counts in an average unless told otherwise.
  Pool2dParams padded{.n = 1,
                      .h = 2,
                      .w = 2,
                      .c = 1,
                      .kernel_h = 2,
                      .kernel_w = 2,
                      .stride_h = 2,
                      .stride_w = 2,
                      .pad_h = 1,
                      .pad_w = 1};
  const Values negative{-1, -2, -3, -4};
  CHECK(oracle::max_pool2d(padded, negative) == negative);
  CHECK(oracle::avg_pool2d(padded, negative) == Values{-0.25, -0.5, -0.75, -1});
  padded.count_include_pad = false;
  CHECK(oracle::avg_pool2d(padded, negative) == negative);
}

TEST_CASE("pooling oracle: gradients by differences, channels apart") {
  const Pool2dParams p{.n = 2,
                       .h = 5,
                       .w = 4,
                       .c = 2,
                       .kernel_h = 3,
                       .kernel_w = 2,
                       .stride_h = 2,
                       .pad_h = 1,
                       .pad_w = 1};
  const Values x = sample(p.x_size(), 8), dy = sample(p.y_size(), 9);
  check_gradient([&](const Values& v) { return dot(oracle::max_pool2d(p, v), dy); }, x,
                 oracle::max_pool2d_backward(p, x, dy));
  check_gradient([&](const Values& v) { return dot(oracle::avg_pool2d(p, v), dy); }, x,
                 oracle::avg_pool2d_backward(p, dy));
}

TEST_CASE("pooling oracle: impossible geometry is refused") {
  const Pool2dParams good{.n = 1, .h = 4, .w = 4, .c = 1, .kernel_h = 2, .kernel_w = 2};
  CHECK_NOTHROW(oracle::max_pool2d(good, Values(16)));
  for (auto bad : {&Pool2dParams::kernel_h, &Pool2dParams::stride_w}) {
    Pool2dParams p = good;
    p.*bad = 0;
    CHECK_THROWS_AS(oracle::max_pool2d(p, Values(16)), Error);
  }
  Pool2dParams p = good;
  p.pad_w = 2;
  CHECK_THROWS_AS(oracle::avg_pool2d(p, Values(16)), Error);
  p = good;
  p.kernel_h = 5;
  CHECK_THROWS_AS(oracle::avg_pool2d(p, Values(16)), Error);
}
