#include <algorithm>

#include "tests/verify/rounding.h"

using namespace roundoff;
using oracle::at;
using oracle::MatmulParams;
using oracle::Values;

namespace {

// A plain fp32 loop over k; leaves out product `dropped`.
std::vector<float> sequential(const MatmulParams& p, const Values& a, const Values& b, bool fused,
                              std::int64_t dropped = -1) {
  std::vector<float> y(at(p.m * p.n));
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        if (l == dropped) continue;
        const auto u = static_cast<float>(a[at(i * p.k + l)]);
        const auto v = static_cast<float>(b[at(l * p.n + j)]);
        sum = fused ? std::fma(u, v, sum) : sum + u * v;
      }
      y[at(i * p.n + j)] = sum;
    }
  return y;
}

// Cuts towards zero to a multiple of 2^exponent.
long double cut(long double x, int exponent) {
  return std::ldexp(std::trunc(std::ldexp(x, -exponent)), exponent);
}

// One dot product in a tensor core's arithmetic, as verify/bound/linear.h describes it.
float tensor_core_dot(const AlignedSums& t, std::int64_t k, const double* a, const double* b) {
  const auto exponent_of = [&](double x) {
    return std::max(static_cast<int>(std::ilogb(x)), t.operands.emin);
  };
  float c = 0;
  for (std::int64_t l0 = 0; l0 < k; l0 += t.block) {
    const std::int64_t end = std::min(k, l0 + t.block);
    int emax = c != 0 ? std::ilogb(c) : -1000;
    for (std::int64_t l = l0; l < end; ++l)
      if (a[l] != 0 && b[l] != 0) emax = std::max(emax, exponent_of(a[l]) + exponent_of(b[l]));
    if (emax == -1000) continue;
    const int grid = emax - 23 - t.extra_bits;
    long double sum = cut(c, grid);
    for (std::int64_t l = l0; l < end; ++l) sum += cut(static_cast<long double>(a[l]) * b[l], grid);
    if (sum == 0) {
      c = 0;
      continue;
    }
    const int last = std::max(static_cast<int>(std::ilogb(sum)), -126) - 23;
    c = static_cast<float>(cut(sum, last));
  }
  return c;
}

}  // namespace

TEST_CASE("gamma and its relatives") {
  CHECK(gamma(0, 0x1p-24) == 0);
  CHECK(gamma(4, 0x1p-3) == 1);
  CHECK(std::isinf(gamma(2048, 0x1p-11)));
  CHECK(compounded(0.5) == 1);
  CHECK(sum_factor({}, 100) == gamma(100, 0x1p-24));
  const double probabilistic = sum_factor({.lambda = 5}, 10000);
  CHECK(probabilistic == doctest::Approx(5 * 100 * 0x1p-24).epsilon(1e-4));
  CHECK(sum_factor({.depth = [](std::int64_t n) { return n / 10; }}, 100) == gamma(10, 0x1p-24));
  // An exact value that the output holds needs no tolerance; one that it does not hold needs one.
  CHECK(rounded_tolerance(1.5, 0, kFp16) == 0);
  CHECK(rounded_tolerance(1 + 0x1p-11, 0, kFp16) > 0x1p-12);
  CHECK(rounded_tolerance(1, 0x1p-20, kFp32) > 0x1p-20);
}

TEST_CASE("products of plain fp32 loops stay within the hard and the probabilistic bound") {
  for (const DType in : {DType::fp32, DType::fp16, DType::bf16})
    for (const DType out : {DType::fp32, DType::fp16, DType::bf16})
      for (const std::int64_t k : {1, 2, 17, 300}) {
        const MatmulParams p{.m = 5, .n = 7, .k = k};
        const auto seed = static_cast<unsigned>(k);
        const Values a = normal(5 * k, in, seed), b = normal(k * 7, in, seed + 1);
        const Arithmetic hard{.output = format_of(out)};
        const Arithmetic likely{.output = format_of(out), .lambda = 6};
        for (const bool fused : {false, true}) {
          const std::vector<float> y = sequential(p, a, b, fused);
          check(y, out, bound::matmul(p, a, b, {}, hard));
          const Comparison c = check(y, out, bound::matmul(p, a, b, {}, likely));
          // The bound is no blank cheque: some element comes within a factor 1000 of it.
          if (k > 1 && out == DType::fp32) CHECK(c.bound_ratio > 1e-3);
          if (out != DType::fp32) CHECK(c.bound_ratio > 0.1);
        }
      }
}

TEST_CASE("an fp16 accumulator breaks the fp32 bound, and holds its own") {
  const MatmulParams p{.m = 1, .n = 8, .k = 100};
  const Values a = normal(100, DType::fp16, 3), b = normal(800, DType::fp16, 4);
  std::vector<float> y(8);
  for (std::size_t j = 0; j < 8; ++j) {
    Half sum(0.0F);
    for (std::size_t l = 0; l < 100; ++l)
      sum = Half(std::fma(static_cast<float>(a[l]), static_cast<float>(b[l * 8 + j]),
                          static_cast<float>(sum)));
    y[j] = static_cast<float>(sum);
  }
  check(y, DType::fp16, bound::matmul(p, a, b, {}, {.accumulator = kFp16, .output = kFp16}));
  std::vector<Half> stored;
  for (const float v : y) stored.emplace_back(v);
  const Bound fp32 = bound::matmul(p, a, b, {}, {.output = kFp16});
  CHECK_FALSE(compare({stored.data(), DType::fp16, {8}}, fp32).holds);
}

TEST_CASE("the running bound holds for the loop that it follows, and finds every dropped term") {
  const MatmulParams p{.m = 1, .n = 4, .k = 1024};
  const Values a = normal(p.k, DType::fp16, 5), b = normal(p.k * 4, DType::fp16, 6);
  const Bound running = bound::matmul_running(p, a, b, {.lambda = 6});
  const Bound proven = bound::matmul_running(p, a, b, {});
  check(sequential(p, a, b, false), DType::fp32, running);
  check(sequential(p, a, b, true), DType::fp32, running);
  check(sequential(p, a, b, true), DType::fp32, proven);
  int dropped = 0, found = 0;
  for (std::int64_t l = 0; l < p.k; l += 7) {
    const std::vector<float> y = sequential(p, a, b, false, l);
    for (std::size_t j = 0; j < 4; ++j) {
      const double term = std::abs(a[at(l)] * b[at(l * 4) + j]);
      const bool right = judge(y[j], running.reference[j], running.tolerance[j], kFp32);
      // Found wherever the term is larger than twice the tolerance: 2^-11 of a typical one.
      if (term > 2 * running.tolerance[j]) CHECK_FALSE(right);
      ++dropped;
      found += right ? 0 : 1;
    }
  }
  CHECK(found > dropped * 99 / 100);
}

TEST_CASE("tensor-core arithmetic stays within its bound, subnormal operands included") {
  for (const AlignedSums& t : {kV100, kA100, kH100})
    for (const double scale : {1.0, 0x1p-14, 0x1p-20})
      for (const std::int64_t k : {1, 15, 16, 100, 1000}) {
        const MatmulParams p{.m = 1, .n = 1, .k = k};
        for (unsigned seed = 0; seed < 10; ++seed) {
          // One operand small: products of subnormals with numbers around 1.
          const Values a = normal(k, DType::fp16, 2 * seed, scale);
          const Values b = normal(k, DType::fp16, 2 * seed + 1);
          check({tensor_core_dot(t, k, a.data(), b.data())}, DType::fp32,
                bound::matmul(p, a, b, {}, {.tensor_core = t}));
        }
      }
}

TEST_CASE("without raising subnormals to emin the tensor-core bound would break") {
  // 2^-24 is aligned as if it were 2^-14: times 2^15 it cuts its neighbours 2^10 times too early.
  const AlignedSums t{4, 0, kFp16};
  const double odd = 1 + 0x1p-10;
  const double small = (2 - 0x1p-10) * 0x1p-9;
  const Values a{0x1p-24, odd, odd, odd}, b{0x1p15, small, small, small};
  const MatmulParams p{.m = 1, .n = 1, .k = 4};
  const double got = tensor_core_dot(t, 4, a.data(), b.data());
  const double exact = oracle::matmul(p, a, b)[0];  // all terms are positive: S is the sum
  CHECK(std::abs(got - exact) > ((t.block + 1) + 1) * 0x1p-23 * exact);
  check({static_cast<float>(got)}, DType::fp32, bound::matmul(p, a, b, {}, {.tensor_core = t}));
}

TEST_CASE("alpha, beta, C, tf32 operands and matmul gradients have their share") {
  const MatmulParams p{
      .batch = 3, .m = 4, .n = 5, .k = 6, .shared_b = true, .alpha = 0.3, .beta = -0.7};
  const Values a = normal(p.a_size(), DType::fp32, 7), b = normal(p.b_size(), DType::fp32, 8),
               c = normal(p.y_size(), DType::fp32, 9), dy = normal(p.y_size(), DType::fp32, 10);
  const auto alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  MatmulParams held = p;  // alpha and beta as fp32 holds them
  held.alpha = alpha;
  held.beta = beta;
  for (const bool tf32 : {false, true}) {
    std::vector<float> af = as_float(a), bf = as_float(b);
    Arithmetic arithmetic;
    if (tf32) {
      round_to_tf32(af.data(), p.a_size());
      round_to_tf32(bf.data(), p.b_size());
      arithmetic.operand_rounding = kTf32;
    }
    std::vector<float> y, da(at(p.a_size()), 0.0F), db(at(p.b_size()), 0.0F), dc;
    for (std::size_t batch = 0; batch < 3; ++batch)
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 5; ++j) {
          float sum = 0;
          const std::size_t iy = (batch * 4 + i) * 5 + j;
          for (std::size_t l = 0; l < 6; ++l) {
            sum += af[(batch * 4 + i) * 6 + l] * bf[l * 5 + j];
            da[(batch * 4 + i) * 6 + l] += static_cast<float>(dy[iy]) * bf[l * 5 + j];
            db[l * 5 + j] += static_cast<float>(dy[iy]) * af[(batch * 4 + i) * 6 + l];
          }
          y.push_back(alpha * sum + beta * static_cast<float>(c[iy]));
          dc.push_back(beta * static_cast<float>(dy[iy]));
        }
    for (float& v : da) v *= alpha;
    for (float& v : db) v *= alpha;
    check(y, DType::fp32, bound::matmul(held, a, b, c, arithmetic));
    const auto g = bound::matmul_backward(held, a, b, dy, arithmetic);
    check(da, DType::fp32, g.a);
    check(db, DType::fp32, g.b);
    check(dc, DType::fp32, g.c);
  }
  // Rounded operands do break the bound of an operation that should not round them.
  std::vector<float> af = as_float(a);
  round_to_tf32(af.data(), p.a_size());
  const Values rounded_a(af.begin(), af.end());
  const MatmulParams plain{.batch = 3, .m = 4, .n = 5, .k = 6, .shared_b = true};
  const Bound strict = bound::matmul(plain, a, b, {}, {});
  const std::vector<float> rounded = as_float(oracle::matmul(plain, rounded_a, b));
  CHECK_FALSE(compare({rounded.data(), DType::fp32, {60}}, strict).holds);
}

TEST_CASE("convolution: plain fp32 loops stay within the bounds of all four sums") {
  const oracle::Conv2dParams p{.n = 2,
                               .h = 6,
                               .w = 5,
                               .c = 4,
                               .k = 6,
                               .r = 3,
                               .s = 2,
                               .stride_h = 2,
                               .pad_h = 1,
                               .pad_w = 1,
                               .groups = 2};
  const Values x = normal(p.x_size(), DType::fp16, 11), w = normal(p.w_size(), DType::fp16, 12),
               bias = normal(p.k, DType::fp16, 13), dy = normal(p.y_size(), DType::fp16, 14);
  std::vector<float> y(at(p.y_size()), 0.0F), dx(at(p.x_size()), 0.0F), dw(at(p.w_size()), 0.0F),
      db(6, 0.0F);
  for (std::int64_t i = 0; i < p.y_size(); ++i) {
    const std::int64_t k = i % 6, q = i / 6 % p.q(), row = i / 6 / p.q() % p.p(),
                       n = i / 6 / p.q() / p.p();
    db[at(k)] += static_cast<float>(dy[at(i)]);
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t s = 0; s < 2; ++s)
        for (std::int64_t c = 0; c < 2; ++c) {
          const std::int64_t in_h = row * 2 + r - 1, in_w = q + s - 1;
          if (in_h < 0 || in_h >= 6 || in_w < 0 || in_w >= 5) continue;
          const std::size_t ix = at(((n * 6 + in_h) * 5 + in_w) * 4 + k / 3 * 2 + c);
          const std::size_t iw = at(((k * 3 + r) * 2 + s) * 2 + c);
          y[at(i)] += static_cast<float>(x[ix]) * static_cast<float>(w[iw]);
          dx[ix] += static_cast<float>(dy[at(i)]) * static_cast<float>(w[iw]);
          dw[iw] += static_cast<float>(dy[at(i)]) * static_cast<float>(x[ix]);
        }
    y[at(i)] += static_cast<float>(bias[at(k)]);
  }
  check(y, DType::fp16, bound::conv2d(p, x, w, bias, {.output = kFp16}));
  check(dx, DType::fp16, bound::conv2d_dgrad(p, w, dy, {.output = kFp16}));
  check(dw, DType::fp32, bound::conv2d_wgrad(p, x, dy, {}));
  check(db, DType::fp32, bound::conv2d_bias_grad(p, dy, {}));
}

TEST_CASE("where the accumulator may overflow on the way the bound promises nothing") {
  const std::vector<double> a{300, 300};
  const std::vector<double> b{300, -299};
  MatmulParams p;
  p.m = p.n = 1;
  p.k = 2;
  Arithmetic narrow;
  narrow.accumulator = kFp16;
  CHECK(std::isinf(bound::matmul(p, a, b, {}, narrow).tolerance[0]));
  CHECK(bound::matmul(p, a, b, {}, {}).tolerance[0] < 1);
}
