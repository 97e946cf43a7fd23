// Central differences whose error is estimated from the differences themselves, for checking a
// gradient without a typed tolerance. For functions computed in fp64.
#pragma once

#include <functional>

namespace roundoff {

// The rounding noise of f near x: the standard deviation that makes high-order differences over
// small steps not vanish (Hamming's difference table; Moré and Wild, Estimating computational
// noise, 2011). At least half an ulp of f(x). `widen` as below.
double function_noise(const std::function<double(double)>& f, double x, double widen = 1);

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

// f is evaluated at x, x +- h, x +- h/2 and x +- h/4, with h about eps^(1/3) max(|x|, 1/16), a
// power of two, times `widen`.
Difference central_difference(const std::function<double(double)>& f, double x, double noise,
                              double widen = 1);

// The difference that speaks best for `gradient`: where the usual step disagrees, steps 2^4 and 2^8
// times wider are asked too. A wrong gradient is wrong at every step; rounding errors inside f that
// f itself does not show (a value that is rounded away later) disturb the small ones only.
Difference best_difference(const std::function<double(double)>& f, double x, double gradient);

}  // namespace roundoff
