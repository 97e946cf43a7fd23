// The path of conv2d that fills vectors (kernels/conv2d/direct.h): its geometries, tails and types.
#include "kernels/conv2d/direct.h"

#include <doctest/doctest.h>

#include "kernels/base/simd.h"
#include "tests/kernels/array.h"
#include "tests/kernels/sum_bound.h"
#include "verify/oracle/conv2d.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

oracle::Conv2dParams oracle_params(const Conv2dShape& z, const Conv2dParams& p) {
  return {.n = z.n,
          .h = z.h,
          .w = z.w,
          .c = z.c,
          .k = z.k,
          .r = z.r,
          .s = z.s,
          .stride_h = p.stride[0],
          .stride_w = p.stride[1],
          .pad_h = p.padding[0],
          .pad_w = p.padding[1],
          .dilation_h = p.dilation[0],
          .dilation_w = p.dilation[1],
          .groups = 1};
}

std::vector<double> plus(std::vector<double> a, double b) {
  for (double& v : a) v += b;
  return a;
}

// Runs the three passes where they are served and holds them to the bound; outputs overwrite, or
// are fp32 and added to 1. Returns how many passes ran.
int check_passes(const Conv2dShape& z, const Conv2dParams& p, DType dtype, DType out, Write write,
                 std::mt19937& random) {
  const oracle::Conv2dParams o = oracle_params(z, p);
  const Shape xs = z.x(), ys = z.y(), ws{z.k, z.r, z.s, z.c};
  const std::vector<double> xv = normal(o.x_size(), dtype, random),
                            wv = normal(o.w_size(), dtype, random),
                            bv = normal(o.k, DType::fp32, random),
                            gv = normal(o.y_size(), dtype, random);
  const std::vector<double> xa = absolute(xv), wa = absolute(wv), ba = absolute(bv),
                            ga = absolute(gv);
  const Array x(dtype, xs, xv), w(dtype, ws, wv), bias(DType::fp32, {z.k}, bv), dy(dtype, ys, gv);
  const double held = write == Write::accumulate ? 1 : 0;
  Scratch scratch;
  int ran = 0;
  const auto check = [&](bool serves, const Shape& shape, const auto& run,
                         const std::vector<double>& want, const std::vector<double>& sums,
                         std::int64_t terms) {
    if (!serves) return;
    ++ran;
    Array y =
        write == Write::accumulate ? Array(out, shape, ones(shape.numel())) : Array(out, shape);
    run(y.out(write));
    CHECK(y.guards_intact());
    // A sum that is held joins as one more term.
    CHECK(worst_ratio(y.values(), plus(want, held), plus(sums, held), terms + 1, DType::fp32,
                      out) <= 1);
  };
  check(
      direct_forward_serves(z, p), ys,
      [&](const Out& y) { direct_forward(z, p, *x, *w, *bias, y, scratch); },
      oracle::conv2d(o, xv, wv, bv), oracle::conv2d(o, xa, wa, ba), z.c * z.r * z.s + 1);
  check(
      direct_grad_input_serves(z, p), xs,
      [&](const Out& dx) { direct_grad_input(z, p, *dy, *w, dx, scratch); },
      oracle::conv2d_dgrad(o, wv, gv), oracle::conv2d_dgrad(o, wa, ga), z.k * z.r * z.s);
  check(
      direct_grad_weight_serves(z, p), ws,
      [&](const Out& dw) { direct_grad_weight(z, p, *x, *dy, dw, scratch); },
      oracle::conv2d_wgrad(o, xv, gv), oracle::conv2d_wgrad(o, xa, ga), z.n * z.p * z.q);
  return ran;
}

}  // namespace

TEST_CASE("direct convolution agrees with the oracle within the bound") {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  int ran = 0;
  for (int trial = 0; trial < 250; ++trial) {
    CAPTURE(trial);
    Conv2dParams p;
    p.stride = {pick({1, 1, 2}), pick({1, 1, 2, 3})};
    p.padding = {pick({0, 1, 2, 5}), pick({0, 1, 2, 5})};
    p.dilation = {pick({1, 1, 2}), pick({1, 1, 3})};
    const Shape x{pick({1, 2, 3}), pick({1, 4, 9}), pick({4, 7, 12, 13, 25, 31}),
                  pick({1, 3, 4, 8, 16, 33})};
    const Shape w{pick({4, 8, 15, 16, 17, 32, 40, 49}), pick({1, 2, 3}), pick({1, 3, 5}), x[3]};
    if ((w[1] - 1) * p.dilation[0] + 1 > x[1] + 2 * p.padding[0] ||
        (w[2] - 1) * p.dilation[1] + 1 > x[2] + 2 * p.padding[1])
      continue;
    const Conv2dShape z = conv2d_shape(x, w, p);
    const DType dtype = kTypes[random() % 3];
    const bool accumulate = random() % 3 == 0;
    ran += check_passes(z, p, dtype, accumulate ? DType::fp32 : kTypes[random() % 3],
                        accumulate ? Write::accumulate : Write::overwrite, random);
  }
  if (simd::kPresent)
    CHECK(ran > 200);
  else
    CHECK(ran == 0);
}

TEST_CASE("direct convolution: rows that exceed one block, in fp32 and rounded from fp32") {
  std::mt19937 random(6);
  for (const DType out : {DType::fp32, DType::bf16}) {
    const Conv2dParams p{.padding = {1, 1}};
    const Conv2dShape z = conv2d_shape({1, 60, 100, 16}, {24, 3, 3, 16}, p);
    CHECK(check_passes(z, p, DType::fp32, out, Write::overwrite, random) ==
          (simd::kPresent ? 3 : 0));
  }
}

TEST_CASE("direct convolution rounds fp32 operands to tf32 where asked to") {
  // 1 + 2^-11 is a tie and becomes 1; 1 + 3 2^-11 becomes 1 + 2^-9.
  Conv2dParams p{.tf32 = true};
  const Conv2dShape z = conv2d_shape({1, 4, 4, 1}, {16, 1, 1, 1}, p);
  if (!direct_forward_serves(z, p)) return;
  Scratch scratch;
  const Array x(DType::fp32, z.x(), std::vector<double>(16, 1 + 0x1p-11)),
      w(DType::fp32, {16, 1, 1, 1}, std::vector<double>(16, 1 + 0x3p-11)),
      dy(DType::fp32, z.y(), std::vector<double>(256, 1 + 0x1p-11));
  Array y(DType::fp32, z.y()), dx(DType::fp32, z.x()), dw(DType::fp32, {16, 1, 1, 1});
  direct_forward(z, p, *x, *w, ConstView::absent(), y.view(), scratch);
  for (const double v : y.values()) CHECK(v == 1 + 0x1p-9);
  if (direct_grad_input_serves(z, p)) {
    direct_grad_input(z, p, *dy, *w, dx.view(), scratch);
    for (const double v : dx.values()) CHECK(v == 16 * (1 + 0x1p-9));
  }
  direct_grad_weight(z, p, *x, *dy, dw.view(), scratch);
  for (const double v : dw.values()) CHECK(v == 16);
}

TEST_CASE("direct convolution gives a sample the same bits whatever batch it is in") {
  std::mt19937 random(9);
  const Conv2dParams p{.padding = {1, 1}};
  const Conv2dShape whole = conv2d_shape({5, 13, 14, 16}, {20, 3, 3, 16}, p);
  if (!direct_forward_serves(whole, p)) return;
  Conv2dShape one = whole;
  one.n = 1;
  Scratch scratch;
  const Array w(DType::fp32, {20, 3, 3, 16}, normal(20 * 9 * 16, DType::fp32, random));
  const std::vector<double> xv = normal(whole.x().numel(), DType::fp32, random),
                            gv = normal(whole.y().numel(), DType::fp32, random);
  Array y(DType::fp32, whole.y()), dx(DType::fp32, whole.x());
  direct_forward(whole, p, *Array(DType::fp32, whole.x(), xv), *w, ConstView::absent(), y.view(),
                 scratch);
  direct_grad_input(whole, p, *Array(DType::fp32, whole.y(), gv), *w, dx.view(), scratch);
  for (std::int64_t n = 0; n < whole.n; ++n) {
    const auto part = [&](const std::vector<double>& from, const Shape& shape) {
      const auto begin = from.begin() + n * shape.numel();
      return std::vector<double>(begin, begin + shape.numel());
    };
    Array y1(DType::fp32, one.y()), dx1(DType::fp32, one.x());
    direct_forward(one, p, *Array(DType::fp32, one.x(), part(xv, one.x())), *w, ConstView::absent(),
                   y1.view(), scratch);
    direct_grad_input(one, p, *Array(DType::fp32, one.y(), part(gv, one.y())), *w, dx1.view(),
                      scratch);
    CHECK(y1.values() == part(y.values(), one.y()));
    CHECK(dx1.values() == part(dx.values(), one.x()));
  }
}

TEST_CASE("direct convolution leaves geometries with far taps to others") {
  const std::int64_t far = std::int64_t{1} << 29;
  const Conv2dParams p{.padding = {far, far}, .dilation = {2 * far, 2 * far}};
  const Conv2dShape z = conv2d_shape({1, 16, 16, 16}, {16, 2, 2, 16}, p);
  CHECK(z.p == 16);
  CHECK_FALSE(direct_forward_serves(z, p));
  CHECK_FALSE(direct_grad_input_serves(z, p));
  CHECK_FALSE(direct_grad_weight_serves(z, p));
  // Which compute what they are: every tap lies in the padding.
  Scratch scratch;
  Array y(DType::fp32, z.y());
  conv2d_forward(Ref{}, p, *Array(DType::fp32, z.x(), ones(4096)),
                 *Array(DType::fp32, {16, 2, 2, 16}, ones(1024)), ConstView::absent(), y.view(),
                 scratch);
  for (const double v : y.values()) CHECK(v == 0);
}
