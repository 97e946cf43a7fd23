// How far rounding can take a gradient: a bound for one small network, in closed form.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace roundoff::study {

// z = W2 relu(W1 x + b1) + b2 with cross-entropy over the classes.
struct MlpShape {
  std::int64_t inputs = 0, hidden = 0, classes = 0;
  std::int64_t parameters() const { return hidden * (inputs + 1) + classes * (hidden + 1); }
};

struct BoundedGradient {
  std::vector<double> value;  // in fp64, in the order W1 [h, in], b1, W2 [c, h], b2
  // |fp32 gradient - exact gradient| of each element, for every order of summation, with or without
  // fused multiply-adds, and however the batch is cut into at most `parts` micro-batches whose
  // gradients are added in fp32. Underflow is left out.
  std::vector<double> bound;
};

// Of the mean loss over the samples whose label is not negative. weights as `value`; x [n, in];
// labels [n]. Two computations of the gradient differ by at most twice the bound.
//
// Derivation, u = 2^-24 and gamma_k = k u / (1 - k u): a linear layer's sums have relative errors
// gamma_k of the sums of magnitudes, and pass on the errors of what they are fed (Higham 2002,
// chapter 3). relu passes an error on; where a pre-activation is within its error of 0 the mask is
// unknown, and the whole gradient counts. Softmax turns an error of D in every logit into a
// relative one of exp(2 D) - 1, and adds its own (docs/numerics.md). The sum over samples adds
// gamma_(n + parts + 2).
BoundedGradient bounded_gradient(const MlpShape& shape, std::span<const double> weights,
                                 std::span<const double> x, std::span<const std::int64_t> labels,
                                 std::int64_t parts);

}  // namespace roundoff::study
