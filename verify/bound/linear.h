// Sums of products: GEMM and convolution.
//
// With S the same sum of products of magnitudes (|alpha| |A||B| + |beta C|):
//   tolerance = g S + u_o (|Y| + g S) + eta_o + underflow of the K products
// where g is gamma_h for round-to-nearest in any order, with or without FMA (Higham 3.1); its
// probabilistic counterpart (Higham and Mary); or, on tensor cores,
//   ceil(K / b) ((b + 1) 2^-extra + 1) 2^-23,
// because each block aligns b + 1 addends, each cut by less than 2^-(23 + extra) of the largest,
// and cuts the sum to fp32 once more; S then takes each non-zero operand as at least 2^emin, where
// subnormal operands are aligned. Truncation is biased: never sqrt(K) there.
// An operation that rounds its operands itself (tf32) adds (2 u_low + u_low^2) S.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/conv2d.h"
#include "verify/oracle/matmul.h"

namespace roundoff::bound {

// The bound of sums of `terms` products, given their exact values and S; `extra` roundings outside
// the sum. `before`: how many times larger the sum is before a factor outside it, which may
// overflow. `runs`: into how many stretches, each of whole blocks, a kernel may cut the terms
// (Arithmetic::or_plain).
Bound products(std::vector<double> reference, std::span<const double> magnitude, std::int64_t terms,
               const Arithmetic& a, double extra = 0, double before = 1, std::int64_t runs = 1);
// That of alpha: 1 / |alpha| where it is below 1.
double before_alpha(double alpha);

Bound matmul(const oracle::MatmulParams& p, oracle::In a, oracle::In b, oracle::In c,
             const Arithmetic& arithmetic);

struct MatmulGradients {
  Bound a, b, c;
};
MatmulGradients matmul_backward(const oracle::MatmulParams& p, oracle::In a, oracle::In b,
                                oracle::In dy, const Arithmetic& arithmetic);

// The running bound for sums formed one product after another in the order of k: g S is replaced by
// u sum |s_k|, s_k the partial sums, over 1 - K u (proven), or by lambda u sqrt(sum s_k^2)
// (probabilistic). Products are exact or fused. It is the one that notices a dropped term.
Bound matmul_running(const oracle::MatmulParams& p, oracle::In a, oracle::In b,
                     const Arithmetic& arithmetic);

// The running bound where the order of summation is not known, for operands whose order says
// nothing (random ones). The n terms t of a sum, in random order, have partial sums with
//   sum over k of E s_k^2 = m^2 n (n + 1) (2 n + 1) / 6 + v n (n + 1) / 6,   m, v mean and variance
// of t (drawing without replacement), so that n roundings, independent and of mean 0, add up to
//   lambda u sqrt(sum E s_k^2 + sum t^2),
// the last for products that are rounded themselves. A bias b that joins first or last adds
// n b^2 + |b m| n (n + 1). Derived here for sums in one chain; blocks and trees have smaller
// partial sums. Never for tensor cores, which truncate. `sum` and `squares` are those of t and t^2;
// `bias` may be empty.
Bound products_random_order(std::vector<double> reference, std::span<const double> sum,
                            std::span<const double> squares, std::int64_t terms,
                            const Arithmetic& a, double lambda = 6,
                            std::span<const double> bias = {});

Bound conv2d(const oracle::Conv2dParams& p, oracle::In x, oracle::In w, oracle::In bias,
             const Arithmetic& arithmetic);
Bound conv2d_dgrad(const oracle::Conv2dParams& p, oracle::In w, oracle::In dy,
                   const Arithmetic& arithmetic);
Bound conv2d_wgrad(const oracle::Conv2dParams& p, oracle::In x, oracle::In dy,
                   const Arithmetic& arithmetic);
Bound conv2d_bias_grad(const oracle::Conv2dParams& p, oracle::In dy, const Arithmetic& arithmetic);

}  // namespace roundoff::bound
