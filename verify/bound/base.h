// Error bounds: how far a correct implementation may be from the exact result, element by element,
// computed from the format, the depth of the sums and the operands. Never typed in.
//
// u = unit_roundoff() and eta = half the smallest subnormal of a format; gamma_k = k u / (1 - k u).
// Unless a family says otherwise: operands are exact (already rounded), arithmetic happens in
// `accumulator` with one rounding an operation, and the result is rounded once to `output`.
// Sources: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (gamma, sums, 3.1 to
// 4.2); Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019 (probabilistic); docs/numerics.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/format.h"
#include "verify/oracle/base.h"

namespace roundoff {

enum class BoundKind : unsigned char {
  proven,         // holds for every rounding error, to all orders
  probabilistic,  // fails with probability at most 2 exp(-lambda^2 / 2) a sum, for independent
                  // rounding errors of mean 0
  derived,        // derived in this project, in the comment beside it, and confirmed by test
};
std::string_view name(BoundKind kind);

// What was expected of a result, and how far it may be off.
struct Bound {
  std::vector<double> reference;  // by the oracle
  std::vector<double> tolerance;  // |actual - reference| is at most this
  BoundKind kind = BoundKind::proven;
  double lambda = 0;  // of a probabilistic bound

  // "proven", "probabilistic (lambda = 6)", "derived".
  std::string kind_name() const;
};

// Tensor cores: blocks of `block` products and the running sum are aligned to the largest exponent,
// cut to 2^-(23 + extra_bits) of it, added exactly, and cut to fp32.
struct AlignedSums {
  int block = 16;
  int extra_bits = 2;
  Format operands = kFp16;  // subnormal operands align as if they had its emin
};
inline constexpr AlignedSums kV100{4, 0, kFp16};
inline constexpr AlignedSums kA100{8, 1, kFp16};
inline constexpr AlignedSums kH100{16, 2, kFp16};

struct Arithmetic {
  Format accumulator = kFp32;
  Format output = kFp32;
  // Roundings that a term of a sum of n terms passes through at most; absent: n, which holds for
  // every order. A sum in s parts that are added pairwise has n / s + ceil(log2 s).
  std::function<std::int64_t(std::int64_t)> depth{};
  // Above 0: sums are bounded probabilistically, with lambda sqrt(h) u in place of gamma_h.
  double lambda = 0;
  // exp, log, tanh, erf of the accumulator's type are within so many ulp.
  double libm_ulps = 1;
  // The processor, or a vector exponential, gives 0 for subnormal results.
  bool flushes_subnormals = false;
  // The operation itself first rounds its operands (tf32).
  std::optional<Format> operand_rounding{};
  std::optional<AlignedSums> tensor_core{};
  // With tensor_core: kernels of a device, some of which use it. A sum may have been formed on it,
  // in blocks that each run of the depth fills up with zeros and in parts that are added in fp32,
  // or in plain fp32: the larger bound stands.
  bool or_plain = false;

  double u() const { return accumulator.unit_roundoff(); }
  // Largest absolute error of one operation that underflows.
  double underflow() const {
    // fp64's, 2^-1075, is no double.
    return flushes_subnormals ? accumulator.min_normal() : std::max(accumulator.eta(), 0x1p-1074);
  }
  // The relative error of a function within libm_ulps: an ulp is at most 2 u.
  double libm() const { return 2 * libm_ulps * u(); }
  double sum_depth(std::int64_t terms) const {
    return static_cast<double>(depth ? depth(terms) : terms);
  }
  BoundKind sum_kind() const { return lambda > 0 ? BoundKind::probabilistic : BoundKind::proven; }
};

// k u / (1 - k u); infinite from k u = 1 on.
double gamma(double k, double u);
// The relative error of a product of factors (1 + d) or 1 / (1 + d) whose |d| add up to t:
// t / (1 - t), infinite from t = 1 on.
double compounded(double t);
// The factor g of a sum of products of depth h (+ extra roundings outside the sum): gamma or its
// probabilistic counterpart exp(lambda sqrt(h) u + h u^2 / (1 - u)) - 1.
double sum_factor(const Arithmetic& a, std::int64_t terms, double extra = 0);

// The tolerance of a value that arithmetic gives within `error` and that is then rounded to the
// output: error + u_o (|value| + error) + eta_o, and nothing for an exact value that the output
// holds. Covers the oracle's own rounding to fp64 (2^-53 |value|) for fp64 outputs.
double rounded_tolerance(long double value, long double error, const Format& output);

// `error`, or infinity where a sum of terms of this total magnitude may overflow the accumulator in
// some order of summation: a partial sum is at most the magnitude and its error.
double unless_overflow(double error, double magnitude, const Arithmetic& a);

// A running sum in place of a new one: an accumulating output holds `before` and gets the result
// added, with one more rounding in the output's format. terms > 0: or each of so many terms is
// added to it in turn, in that format: gamma_{n+1} of |before| and of the terms.
Bound accumulated(const Bound& bound, std::span<const double> before, const Format& output,
                  std::int64_t terms = 0);

}  // namespace roundoff
