// Elementwise functions of one argument and their derivatives.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

enum class Unary : unsigned char {
  relu,       // max(x, 0); NaN stays NaN; derivative 0 at 0
  gelu,       // x Phi(x), Phi the normal distribution function
  gelu_tanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  tanh,
  sigmoid,
  exp,
  log,
};

double unary(Unary f, double x);
double unary_derivative(Unary f, double x);

Values unary(Unary f, In x);
// dx = dy f'(x); relu selects instead of multiplying, so that an infinite dy does not become NaN.
Values unary_backward(Unary f, In x, In dy);

}  // namespace roundoff::oracle
