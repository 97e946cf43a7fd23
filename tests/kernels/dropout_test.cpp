#include "kernels/dropout/dropout.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/convert.h"

using namespace roundoff;

namespace {

template <class T>
View view(std::vector<T>& v, const Shape& shape) {
  return {v.data(), dtype_of<T>, shape};
}

std::vector<float> run(const DropoutParams& params, std::vector<float> x, const Shape& shape) {
  std::vector<float> y(x.size(), 77.0F);
  dropout_forward(Ref{}, params, view(x, shape), view(y, shape));
  return y;
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("case 65 [DROP] p = 1") {
  CHECK(run({.p = 1.0}, {1, -2, 3}, Shape{3}) == std::vector<float>{0, 0, 0});
  CHECK(run({.p = 1.0}, {kNaN, kInf, -kInf}, Shape{1, 3}) == std::vector<float>{0, 0, 0});
  std::vector<float> dy{1, kInf, kNaN}, dx(3, 5.0F);
  dropout_backward(Ref{}, {.p = 1.0}, view(dy, Shape{3}), view(dx, Shape{3}));
  CHECK(dx == std::vector<float>{0, 0, 0});
}

TEST_CASE("case 66 [DROP] p = 0 and invalid p") {
  const std::vector<std::uint32_t> patterns{0x80000000U, 0x7F800001U, 0xFF800000U, 0x00000001U,
                                            0x3F800001U};
  std::vector<float> x;
  for (const std::uint32_t p : patterns) x.push_back(std::bit_cast<float>(p));
  const std::vector<float> y = run({.p = 0.0}, x, Shape{5});
  for (std::size_t i = 0; i < 5; ++i) CHECK(std::bit_cast<std::uint32_t>(y[i]) == patterns[i]);
  for (const double p : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(validate(DropoutParams{.p = p}), UsageError);
  CHECK_THROWS_WITH(run({.p = 1.5}, {1}, Shape{1}), "[dropout] p 1.5, expected in [0, 1]");
}

TEST_CASE("case 69 [DROP] new mask each step, same mask in backward and on replay") {
  const std::size_t n = 100000;
  const Shape shape{100, 1000};
  const std::vector<float> x(n, 1.25F);
  const DropoutParams step1{.p = 0.3, .stream = {123, 1, 0}},
      step2{.p = 0.3, .stream = {123, 2, 0}};
  const std::vector<float> first = run(step1, x, shape);
  CHECK(run(step2, x, shape) != first);
  CHECK(run(step1, x, shape) == first);
  std::vector<float> dy(n, 1.25F), dx(n);
  dropout_backward(Ref{}, step1, view(dy, shape), view(dx, shape));
  CHECK(dx == first);
  std::size_t kept = 0;
  const double want = 1.25 / 0.7;
  for (const float y : first) {
    if (y == 0.0F) continue;
    ++kept;
    REQUIRE(std::abs(static_cast<double>(y) - want) <= 0x1p-23);  // 1 ulp in [1, 2)
  }
  // Five standard deviations of a binomial count.
  CHECK(std::abs(static_cast<double>(kept) / static_cast<double>(n) - 0.7) <=
        5 * std::sqrt(0.3 * 0.7 / static_cast<double>(n)));
}

TEST_CASE("the mask follows the global sample, not the cut of the batch") {
  for (const std::int64_t width : {1, 13, 256, 700, 1025}) {
    const std::int64_t samples = 7;
    std::vector<float> x(static_cast<std::size_t>(samples * width), 1.0F);
    DropoutParams params{.p = 0.5, .stream = {9, 4, 2}, .sample0 = 1000};
    const std::vector<float> whole = run(params, x, Shape{samples, width});
    std::vector<float> cut;
    for (const std::int64_t m : {1, 4, 2}) {
      x.resize(static_cast<std::size_t>(m * width), 1.0F);
      const std::vector<float> part = run(params, x, Shape{m, width});
      cut.insert(cut.end(), part.begin(), part.end());
      params.sample0 += static_cast<std::uint64_t>(m);
    }
    CHECK(cut == whole);
    // And it is the mask that the header states.
    for (std::int64_t s = 0; s < samples; ++s)
      for (std::int64_t e = 0; e < width; ++e) {
        const bool dropped = params.stream.bits(static_cast<std::uint32_t>(1000 + s),
                                                static_cast<std::uint64_t>(e)) < 0x80000000U;
        REQUIRE(whole[static_cast<std::size_t>(s * width + e)] == (dropped ? 0.0F : 2.0F));
      }
  }
}

TEST_CASE("dropping selects: NaN and infinity in dropped elements become 0, kept ones stay") {
  const std::int64_t n = 1200;
  const DropoutParams params{.p = 0.5, .stream = {1, 1, 1}};
  std::vector<float> ones(static_cast<std::size_t>(n), 1.0F),
      bad(static_cast<std::size_t>(n), kNaN);
  const std::vector<float> mask = run(params, ones, Shape{1, n});
  const std::vector<float> y = run(params, bad, Shape{1, n});
  for (std::size_t i = 0; i < y.size(); ++i)
    REQUIRE((mask[i] == 0.0F ? y[i] == 0.0F : std::isnan(y[i])));
}

TEST_CASE("16-bit and fp64 values, accumulation into fp32, and what is not wanted") {
  const DropoutParams params{.p = 0.3, .stream = {5, 6, 7}};
  const Shape shape{4, 9};
  std::vector<float> ones(36, 1.0F);
  const std::vector<float> mask = run(params, ones, shape);
  std::vector<Half> h(36, Half(3.0F)), hy(36);
  std::vector<BFloat16> b(36, BFloat16(3.0F)), by(36);
  std::vector<double> d(36, 3.0), dy(36);
  dropout_forward(Ref{}, params, view(h, shape), view(hy, shape));
  dropout_forward(Ref{}, params, view(b, shape), view(by, shape));
  dropout_forward(Ref{}, params, view(d, shape), view(dy, shape));
  std::vector<float> sum(36, 100.0F);
  dropout_backward(Ref{}, params, view(h, shape), Out(view(sum, shape), Write::accumulate));
  const float kept = static_cast<float>(3.0 * (1.0 / 0.7));
  for (std::size_t i = 0; i < 36; ++i) {
    const bool drop = mask[i] == 0.0F;
    CHECK(hy[i].bits == (drop ? 0 : Half(kept).bits));
    CHECK(by[i].bits == (drop ? 0 : BFloat16(kept).bits));
    CHECK(dy[i] == (drop ? 0.0 : 3.0 * (1.0 / 0.7)));
    CHECK(sum[i] == (drop ? 100.0F : 100.0F + kept));
  }
  dropout_forward(Ref{}, params, view(h, shape), Out());
}

TEST_CASE("shapes of every kind, and bad input") {
  CHECK(run({.p = 0.5}, {}, Shape{0, 5}).empty());
  CHECK(run({.p = 0.5}, {}, Shape{5, 0}).empty());
  const float scalar = run({.p = 0.5}, {2.0F}, Shape{})[0];
  CHECK((scalar == 0.0F || scalar == 4.0F));
  std::vector<float> x(4), y(3);
  CHECK_THROWS_AS(dropout_forward(Ref{}, {}, view(x, Shape{4}), view(y, Shape{3})), Error);
  std::vector<std::int64_t> integers(4);
  CHECK_THROWS_AS(dropout_forward(Ref{}, {}, view(integers, Shape{4}), view(x, Shape{4})), Error);
  const DropoutParams far{.p = 0.5, .stream = {}, .sample0 = (std::uint64_t{1} << 32) - 1};
  CHECK_THROWS_AS(dropout_forward(Ref{}, far, view(x, Shape{4}), view(x, Shape{4})), Error);
  CHECK_NOTHROW(dropout_forward(Ref{}, far, view(x, Shape{1, 4}), view(x, Shape{1, 4})));
}
