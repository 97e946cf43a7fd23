// Softmax, log-softmax and log-sum-exp over rows of n.
//
// With m = max x, D_i = m - x_i, s = sum exp(-D_i), p_i = exp(-D_i) / s, and u_e = u_l = 2 u ulps
// for exp and log; d = 0 where every x_i - m is exact in the arithmetic, else 1:
//   rho = d u ln n + u_e + gamma_h        relative error of s: a rounded difference changes exp by
//                                         d u D_i, and sum p_i D_i <= ln n
//   log-sum-exp, absolute                 rho + u_l log s + u |y|
//   softmax, relative                     rho + u_e + (d D_i + 2) u: quotient, or reciprocal and
//                                         product
//   log-softmax as (x_i - m) - log s      rho + u_l log s + d u D_i + u |y|
// An exponential that underflows adds the underflow's absolute error. m + log s subtracted from x_i
// at the end is another formula, and a bad one: it loses log s where m is large.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/softmax.h"

namespace roundoff {
struct Tracked;
}

namespace roundoff::bound {

Bound softmax(const oracle::SoftmaxParams& p, oracle::In x, const Arithmetic& a);
Bound log_softmax(const oracle::SoftmaxParams& p, oracle::In x, const Arithmetic& a);

// From x: the y that the gradient is formed from is within its own bound, and was rounded to
// `saved` where that is given.
Bound softmax_backward(const oracle::SoftmaxParams& p, oracle::In x, oracle::In dy,
                       const Arithmetic& a, std::optional<Format> saved = std::nullopt);
Bound log_softmax_backward(const oracle::SoftmaxParams& p, oracle::In x, oracle::In dy,
                           const Arithmetic& a, std::optional<Format> saved = std::nullopt);

// One row's quantities with their errors, for the losses built on them.
struct SoftmaxRow {
  std::vector<Tracked> p;      // softmax
  std::vector<Tracked> log_p;  // log-softmax, not yet rounded to an output
};
SoftmaxRow softmax_row(std::span<const double> x, const Arithmetic& a);

}  // namespace roundoff::bound
