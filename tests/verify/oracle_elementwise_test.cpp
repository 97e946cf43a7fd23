#include <cmath>
#include <limits>

#include "tests/verify/check_gradient.h"
#include "verify/oracle/binary.h"
#include "verify/oracle/reduce.h"
#include "verify/oracle/select.h"
#include "verify/oracle/unary.h"

using namespace roundoff;
using oracle::Binary;
using oracle::Reduce;
using oracle::Unary;
using oracle::Values;

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

TEST_CASE("unary oracle: known values and derivatives by differences") {
  CHECK(oracle::unary(Unary::gelu, 1.0) == doctest::Approx(0.8413447460685429).epsilon(1e-15));
  CHECK(oracle::unary(Unary::gelu, -10.0) == doctest::Approx(-7.619853024160593e-23));
  CHECK(oracle::unary(Unary::gelu_tanh, 1.0) == doctest::Approx(0.8411919906082768).epsilon(1e-15));
  CHECK(oracle::unary(Unary::sigmoid, -700.0) > 0);  // no overflow on the way
  CHECK(oracle::unary(Unary::sigmoid, 800.0) == 1);
  CHECK(std::isnan(oracle::unary(Unary::relu, kNaN)));
  CHECK(std::isnan(oracle::unary(Unary::log, -1.0)));
  CHECK(oracle::unary(Unary::log, 0.0) == -kInf);
  CHECK(oracle::unary_backward(Unary::relu, Values{-1, 0, 2}, Values{kInf, kInf, 3}) ==
        Values{0, 0, 3});
  for (const Unary f : {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::tanh, Unary::sigmoid,
                        Unary::exp, Unary::log}) {
    Values x = sample(20, 1);
    if (f == Unary::log)
      for (double& v : x) v += 1.6;
    const Values dy = sample(20, 2);
    check_gradient([&](const Values& v) { return dot(oracle::unary(f, v), dy); }, x,
                   oracle::unary_backward(f, x, dy));
  }
}

TEST_CASE("case 71 [AUTO] broadcast gradient must be reduced, on the oracle") {
  const Values b{0, 1, 2, 3, 4, 5};
  auto g = oracle::binary_backward(Binary::mul, Values{2}, {1}, b, {3, 2}, Values(6, 1.0));
  CHECK(g.a == Values{15});
  CHECK(g.b == Values(6, 2.0));
  g = oracle::binary_backward(Binary::mul, Values{1, 2, 3}, {3, 1}, Values{10, 20}, {1, 2},
                              Values(6, 1.0));
  CHECK(g.a == Values{30, 30, 30});
  CHECK(g.b == Values{6, 6});
  g = oracle::binary_backward(Binary::add, Values(14), {7, 2}, Values(2), {2}, Values(14, 1.0));
  CHECK(g.b == Values{7, 7});
}

TEST_CASE("binary oracle: broadcasting, empty extents, errors, gradients by differences") {
  CHECK(oracle::binary(Binary::sub, Values{1, 2}, {2, 1}, Values{10, 20, 30}, {3}) ==
        Values{-9, -19, -29, -8, -18, -28});
  CHECK(oracle::broadcast({4, 1, 3}, {5, 1}) == Shape{4, 5, 3});
  CHECK(oracle::binary(Binary::add, Values{}, {0, 3}, Values{1, 2, 3}, {3}).empty());
  CHECK_THROWS_AS(oracle::broadcast({2}, {3}), Error);
  for (const Binary f : {Binary::add, Binary::sub, Binary::mul, Binary::div}) {
    const Shape sa{2, 1, 3}, sb{4, 1};
    const Values a = sample(6, 3), dy = sample(24, 4);
    Values b = sample(4, 5);
    for (double& v : b) v += 2;
    const auto g = oracle::binary_backward(f, a, sa, b, sb, dy);
    check_gradient([&](const Values& v) { return dot(oracle::binary(f, v, sa, b, sb), dy); }, a,
                   g.a);
    check_gradient([&](const Values& v) { return dot(oracle::binary(f, a, sa, v, sb), dy); }, b,
                   g.b);
  }
}

TEST_CASE("case 13 [RED] intermediate sum overflows though the mean fits, on the oracle") {
  CHECK(oracle::reduce(Reduce::mean, Values{40000, 40000, 40000}, {3}, {}) == Values{40000});
  CHECK(oracle::reduce(Reduce::mean, Values(100000, 1.0), {100000}, {}) == Values{1});
}

TEST_CASE("case 15 [RED] max must not swallow NaN, on the oracle") {
  for (const Values& x : {Values{1, kNaN, 2}, Values{kNaN, 1}, Values{-kInf, kNaN}})
    CHECK(std::isnan(oracle::reduce(Reduce::max, x, {static_cast<std::int64_t>(x.size())}, {})[0]));
}

TEST_CASE("case 18 [RED] norm over many elements, on the oracle") {
  const Values x(2000000, 1.0);  // a tenth of the case's length, which the kernels' test has
  CHECK(oracle::reduce(Reduce::norm, x, {2000000}, {})[0] == doctest::Approx(1414.2135623730951));
}

TEST_CASE("case 70 [AUTO] max(x) + x, on the oracle") {
  const Values x{2, 3};
  CHECK(oracle::reduce_backward(Reduce::max, x, {2}, {}, Values{2}) == Values{0, 2});
}

TEST_CASE("reduce oracle: axes, ties, safety and gradients") {
  const Values x{1, 2, 3, 4, 5, 6};
  const std::int64_t last[] = {-1}, first[] = {0};
  CHECK(oracle::reduce(Reduce::sum, x, {2, 3}, last) == Values{6, 15});
  CHECK(oracle::reduce(Reduce::mean, x, {2, 3}, first) == Values{2.5, 3.5, 4.5});
  CHECK(oracle::reduce(Reduce::max, x, {2, 3}, first) == Values{4, 5, 6});
  CHECK(oracle::reduce(Reduce::norm, Values{3e300, 4e300}, {2}, {}) == Values{5e300});
  CHECK(oracle::reduce(Reduce::norm, Values{3e-300, 4e-300}, {2}, {})[0] ==
        doctest::Approx(5e-300).epsilon(1e-15));
  CHECK(oracle::reduce(Reduce::sum, Values{}, {0, 2}, first) == Values{0, 0});
  CHECK_THROWS_AS(oracle::reduce(Reduce::max, Values{}, {0, 2}, first), Error);
  const Values tie{7, 7};
  CHECK(oracle::reduce_backward(Reduce::max, tie, {2}, {}, Values{1}, oracle::Ties::share) ==
        Values{0.5, 0.5});
  CHECK(oracle::reduce_backward(Reduce::max, tie, {2}, {}, Values{1}) == Values{1, 0});
  CHECK(oracle::reduce_backward(Reduce::norm, Values{0, 0}, {2}, {}, Values{1}) == Values{0, 0});
  const std::int64_t outer[] = {0, 2};
  for (const Reduce f : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::norm}) {
    const Shape shape{3, 2, 4};
    const Values v = sample(24, 6), dy = sample(2, 7);
    check_gradient([&](const Values& u) { return dot(oracle::reduce(f, u, shape, outer), dy); }, v,
                   oracle::reduce_backward(f, v, shape, outer, dy));
  }
}

TEST_CASE("case 65 [DROP] p = 1, on the oracle") {
  CHECK(oracle::dropout(1, Values{1, -2, 3}, std::vector<std::uint8_t>{0, 0, 0}) ==
        Values{0, 0, 0});
}

TEST_CASE("case 66 [DROP] p = 0, eval, and invalid p, on the oracle") {
  const std::vector<std::uint8_t> all{1, 1};
  CHECK(oracle::dropout(0, Values{0.1, -2}, all) == Values{0.1, -2});
  for (const double p : {-0.1, 1.1, kNaN})
    CHECK_THROWS_AS(oracle::dropout(p, Values(2), all), Error);
  // A dropped NaN is dropped: selection, not multiplication.
  CHECK(oracle::dropout(0.5, Values{kNaN, 3}, std::vector<std::uint8_t>{0, 1}) == Values{0, 6});
}

TEST_CASE("embedding oracle: rows and their gradients, repeated rows added") {
  const Values table{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> index{2, 0, 2};
  CHECK(oracle::embedding(3, 2, table, index) == Values{5, 6, 1, 2, 5, 6});
  CHECK(oracle::embedding_backward(3, 2, index, Values{1, 2, 3, 4, 5, 6}) ==
        Values{3, 4, 0, 0, 6, 8});
  CHECK(oracle::embedding_backward(3, 2, index, Values{1, 2, 3, 4, 5, 6}, 2) ==
        Values{3, 4, 0, 0, 0, 0});
  CHECK_THROWS_AS(oracle::embedding(3, 2, table, std::vector<std::int64_t>{3}), Error);
  CHECK_THROWS_AS(oracle::embedding(3, 2, table, std::vector<std::int64_t>{-1}), Error);
}

TEST_CASE("gelu at infinity has its limits, not NaN") {
  const std::vector<double> x{-kInf, kInf};
  const std::vector<double> one{1, 1};
  for (const Unary f : {Unary::gelu, Unary::gelu_tanh}) {
    CHECK(oracle::unary(f, x) == Values{0, kInf});
    CHECK(oracle::unary_backward(f, x, one) == Values{0, 1});
  }
}
