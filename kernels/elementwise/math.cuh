// exp, log, tanh, the sigmoid and the normal distribution function for kernels.
//
// fp32 is written out in fused multiply-adds: the same bits on a GPU and on the emulator, and no
// fp64, which many GPUs have little of. The largest errors, in units of u = 2^-24 relative to the
// exact value, are at most 2 for exp and log (1 ulp), 4 for tanh, 5 for the sigmoid, 10 + x^2 / 2
// for the normal distribution function; subnormal results carry one more rounding. fp64 takes the C
// library's functions (CUDA's on a GPU).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace math {

  // 2^n for -126 <= n <= 127.
  ROUNDOFF_DEVICE float power_of_two(int n) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
  }

  // x = n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^20: n, and exp(r) - 1 by its series to r^7
  // (r^8 / 8! < 2^-27), relative to r. n ln 2 is taken off in two parts; the first is exact.
  struct ReducedExp {
    int n;
    float less_one;
  };
  ROUNDOFF_DEVICE ReducedExp reduce_exp(float x) {
    constexpr float kToInteger = 0x1.8p23F;  // adding it rounds to an integer
    const float shifted = fmaf(x, 0x1.715476p+0F, kToInteger);
    const float n = shifted - kToInteger;
    float r = fmaf(n, -0x1.62e4p-1F, x);
    r = fmaf(n, -0x1.7f7d1cp-20F, r);
    float q = fmaf(r, 1.0F / 5040, 1.0F / 720);
    q = fmaf(q, r, 1.0F / 120);
    q = fmaf(q, r, 1.0F / 24);
    q = fmaf(q, r, 1.0F / 6);
    q = fmaf(q, r, 0.5F);
    const auto integer = static_cast<int>(std::bit_cast<std::uint32_t>(shifted) -
                                          std::bit_cast<std::uint32_t>(kToInteger));
    return {integer, fmaf(r * r, q, r)};
  }

  // NaN stays NaN.
  ROUNDOFF_DEVICE float clamp(float x, float limit) {
    const float low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
  }

  // 2^n in two steps, of which only the last one can round.
  ROUNDOFF_DEVICE float exponential(float x) {
    const ReducedExp e = reduce_exp(clamp(x, 105.0F));
    const int half = e.n / 2;
    return (1.0F + e.less_one) * power_of_two(half) * power_of_two(e.n - half);
  }
  ROUNDOFF_DEVICE double exponential(double x) { return exp(x); }

  // x = m 2^k with m in [sqrt 1/2, sqrt 2); with f = m - 1, s = f / (2 + f), w = s^2 / 3 + s^4 / 5
  // + s^6 / 7 + s^8 / 9:  log(1 + f) = f - s (f - 2 w). The sum with k ln 2 keeps its rounding
  // error.
  ROUNDOFF_DEVICE float logarithm(float x) {
    constexpr std::uint32_t kRootHalf = 0x3F3504F3U;
    float scaled = x;
    int k = 0;
    if (x < 0x1p-126F) {  // subnormal, zero or negative
      scaled = x * 0x1p32F;
      k = -32;
    }
    const auto bits = std::bit_cast<std::uint32_t>(scaled) - kRootHalf;
    k += static_cast<int>(bits) >> 23;
    const float f = std::bit_cast<float>((bits & 0x7FFFFFU) + kRootHalf) - 1.0F;
    const float s = f / (2.0F + f);
    const float z = s * s;
    float w = fmaf(z, 1.0F / 9, 1.0F / 7);
    w = fmaf(w, z, 1.0F / 5);
    w = fmaf(w, z, 1.0F / 3);
    const float n = static_cast<float>(k);
    const float high = n * 0x1.62e4p-1F;  // exact
    const float sum = high + f;
    const float lost = k == 0 ? 0.0F : (high - sum) + f;
    const float rest = fmaf(n, 0x1.7f7d1cp-20F, lost);
    const float result = sum + fmaf(-s, fmaf(-2.0F * z, w, f), rest);
    if (x > 0.0F && x < INFINITY) return result;
    if (x == 0.0F) return -INFINITY;
    return x < 0.0F ? NAN : x + x;  // infinity and NaN as they are
  }
  ROUNDOFF_DEVICE double logarithm(double x) { return log(x); }

  // 1 / (1 + exp(-x)), from exp(-|x|).
  template <class A>
  ROUNDOFF_DEVICE A sigmoid(A x) {
    const A e = exponential(x < A(0) ? x : -x);
    return (x < A(0) ? e : A(1)) / (A(1) + e);
  }

  // e / (e + 2), e = exp(2 |x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1): exact where n is 0.
  ROUNDOFF_DEVICE float tangent(float x) {
    const float size = fabsf(x);
    const ReducedExp reduced = reduce_exp(2.0F * (size > 10.0F ? 10.0F : size));
    const float scale = power_of_two(reduced.n);
    const float e = fmaf(scale, reduced.less_one, scale - 1.0F);
    return copysignf(e / (e + 2.0F), x);
  }
  ROUNDOFF_DEVICE double tangent(double x) { return tanh(x); }

  // Phi(x), the normal distribution function, and phi(x), its density.
  template <class A>
  struct Normal {
    A distribution;
    A density;
  };
  // Phi(-z) = exp(-z^2 / 2) h(z). With t = (z - 3) / (z + 3), h(z) (z + 3) is a polynomial in t,
  // fitted (in Chebyshev points, for 0 <= z <= 14.5) to 2^-24. z^2 in two parts, so that the
  // exponential keeps its relative accuracy. From z = 15 on everything is 0 in fp32.
  ROUNDOFF_DEVICE Normal<float> normal(float x) {
    const float size = fabsf(x);
    const float z = size > 15.0F ? 15.0F : size;
    const float square = z * z;
    const float low = fmaf(z, z, -square);
    const float e = exponential(-0.5F * square);
    const float gauss = fmaf(e, -0.5F * low, e);
    const float r = 1.0F / (z + 3.0F);
    const float t = (z - 3.0F) * r;
    float p = fmaf(t, 0x1.d05c08p-15F, 0x1.172f6ep-13F);
    p = fmaf(p, t, -0x1.0076a8p-12F);
    p = fmaf(p, t, -0x1.0f1d78p-10F);
    p = fmaf(p, t, 0x1.0c7896p-10F);
    p = fmaf(p, t, 0x1.c8c610p-8F);
    p = fmaf(p, t, -0x1.56d414p-7F);
    p = fmaf(p, t, -0x1.832d2ap-5F);
    p = fmaf(p, t, 0x1.d71382p-3F);
    p = fmaf(p, t, -0x1.04c72ap-1F);
    p = fmaf(p, t, 0x1.754a76p-1F);
    const float tail = gauss * (p * r);
    return {x > 0.0F ? 1.0F - tail : tail, 0.3989422804F * gauss};
  }
  ROUNDOFF_DEVICE Normal<double> normal(double x) {
    return {0.5 * erfc(-x * 0.70710678118654752440), 0.39894228040143267794 * exp(-0.5 * x * x)};
  }

  // x weight; where the weight has underflowed to 0, x = -inf gives the limit 0 and not inf * 0.
  template <class A>
  ROUNDOFF_DEVICE A weighted(A x, A weight) {
    return weight == A(0) ? (x < A(0) ? A(-0.0) : A(0)) : x * weight;
  }

  // Twice the argument of gelu's tanh: gelu_tanh(x) = x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).
  template <class A>
  ROUNDOFF_DEVICE A gelu_tanh_argument(A x) {
    return A(2) * (A(0.79788456080286535588) * (x + A(0.044715) * x * x * x));
  }
  // s + x s (1 - s) u', s = sigmoid(u).
  template <class A>
  ROUNDOFF_DEVICE A gelu_tanh_slope(A x) {
    const A u = gelu_tanh_argument(x);
    const A s = sigmoid(u);
    const A du = A(2 * 0.79788456080286535588) * (A(1) + A(3 * 0.044715) * x * x);
    const A product = s * sigmoid(-u);
    return s + (product == A(0) ? A(0) : product * x * du);
  }

  }  // namespace math
}  // namespace

}  // namespace roundoff
