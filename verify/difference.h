// Central differences whose error is estimated from the differences themselves, for checking a
// gradient without a typed tolerance. For functions computed in fp64.
#pragma once

#include <functional>

namespace roundoff {

// The rounding noise of f near x: the standard deviation that makes high-order differences over
// tiny steps not vanish (Hamming's difference table; Moré and Wild, Estimating computational noise,
// 2011). At least half an ulp of f(x).
double function_noise(const std::function<double(double)>& f, double x);

struct Difference {
  double value = 0;      // the derivative of f at x
  double tolerance = 0;  // truncation and rounding together
  // Where f has a kink closer to x than the step, the one-sided slopes, low <= high; else both are
  // `value`. A gradient there may be anything between them.
  double low = 0, high = 0;
  bool kink = false;

  // How far `gradient` lies outside [low, high], as a multiple of the tolerance; holds up to 1.
  double ratio(double gradient) const;
};

// f is evaluated at x, x +- h and x +- h/2 with h about eps^(1/3) max(|x|, 1/16), a power of two.
Difference central_difference(const std::function<double(double)>& f, double x, double noise);

}  // namespace roundoff
