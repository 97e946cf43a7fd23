#include "verify/difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace roundoff {

namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
// Noise is taken to stay below so many standard deviations (the lambda of docs/numerics.md).
constexpr double kLambda = 6;

// About eps^(1/3) max(|x|, 1/16), a power of two, times `widen`.
double step(double x, double widen) {
  const double scale = std::floor(std::log2(std::max(std::abs(x), 0x1p-4)));
  return widen * std::exp2(scale + std::round(std::log2(kEpsilon) / 3));
}

}  // namespace

double function_noise(const std::function<double(double)>& f, double x, double widen) {
  constexpr int kPoints = 7;
  // An eighth of the difference's step: noise is seen at the scale where it does harm, and of the
  // smooth part of f fourth differences leave less than 2^-80.
  const double d = step(x, widen) / 8;
  const auto one_sided = [&](double direction) {
    std::array<double, kPoints> table{};
    for (int i = 0; i < kPoints; ++i) table[static_cast<std::size_t>(i)] = f(x + direction * i * d);
    // Independent errors of deviation s give k-th differences of variance s^2 (2k)! / (k!)^2.
    double variance = 1;
    double noise = 0;
    for (int k = 1; k < kPoints; ++k) {
      variance *= (2.0 * k) * (2.0 * k - 1) / (static_cast<double>(k) * k);
      double squares = 0;
      for (int i = 0; i + k < kPoints; ++i) {
        double& t = table[static_cast<std::size_t>(i)];
        t = table[static_cast<std::size_t>(i + 1)] - t;
        squares += t * t;
      }
      if (k >= 4) noise = std::max(noise, std::sqrt(squares / (kPoints - k) / variance));
    }
    return noise;
  };
  // The smaller side: a kink beside x is not noise.
  return std::max(std::abs(f(x)) * kEpsilon / 2, std::min(one_sided(1), one_sided(-1)));
}

double Difference::ratio(double gradient) const {
  if (std::isnan(gradient)) return std::numeric_limits<double>::infinity();
  const double outside = std::max({low - gradient, gradient - high, 0.0});
  return outside == 0 ? 0 : outside / tolerance;
}

Difference central_difference(const std::function<double(double)>& f, double x, double noise,
                              double widen) {
  const double h = step(x, widen);
  const double at_x = f(x);
  struct Slopes {
    double left, right, central;
  };
  // Divided by the steps really made: x + h is rounded, its distance from x is exact.
  const auto slopes = [&](double distance) {
    const double up = x + distance;
    const double down = x - distance;
    const double f_up = f(up);
    const double f_down = f(down);
    return Slopes{(at_x - f_down) / (x - down), (f_up - at_x) / (up - x),
                  (f_up - f_down) / (up - down)};
  };
  const Slopes whole = slopes(h);
  const Slopes half = slopes(h / 2);

  Difference d;
  // central(h) = f' + c h^2 + O(h^4): the two differ by 3/4 of the first one's error, which bounds
  // the extrapolation's. Rounding: 4/3 of a difference over h, 1/3 of one over 2 h.
  d.value = half.central + (half.central - whole.central) / 3;
  const double rounding = 3 * kLambda * noise / h;
  d.tolerance = std::abs(half.central - whole.central) + rounding;
  // The one-sided slopes of a smooth function differ by h f'': half the step, half the difference.
  // A kink at x keeps its jump. A kink at distance t h beside x shows (1 - t) of it at h and (1 - 2
  // t) at h/2, which looks smooth for t near 1/3; at h/4 none of it is left then.
  const Slopes quarter = slopes(h / 4);
  const auto jump = [](const Slopes& s) { return std::abs(s.right - s.left); };
  const auto halves = [&](const Slopes& wide, const Slopes& narrow, double noise_of_jump) {
    return std::abs(jump(narrow) - jump(wide) / 2) <= jump(wide) / 8 + noise_of_jump;
  };
  d.kink = !halves(whole, half, 4 * rounding) || !halves(half, quarter, 8 * rounding);
  d.low = d.high = d.value;
  if (d.kink) {
    // One-sided slopes have an error of h f'' / 2, which one extrapolation takes out; two of them
    // tell what is left. The side without the kink is the one to trust.
    const auto side = [&](double wide, double middle, double narrow) {
      const double slope = 2 * narrow - middle;
      d.low = std::min({d.low, slope, narrow});
      d.high = std::max({d.high, slope, narrow});
      return std::abs(slope - (2 * middle - wide));
    };
    d.low = d.high = quarter.left;
    const double left = side(whole.left, half.left, quarter.left);
    const double right = side(whole.right, half.right, quarter.right);
    d.tolerance = std::min(left, right) + 8 * rounding +
                  4 * kEpsilon * std::max(std::abs(d.low), std::abs(d.high));
  }
  return d;
}

Difference best_difference(const std::function<double(double)>& f, double x, double gradient) {
  Difference best;
  for (const double widen : {1.0, 16.0, 256.0}) {
    const Difference d = central_difference(f, x, function_noise(f, x, widen), widen);
    if (widen == 1 || d.ratio(gradient) < best.ratio(gradient)) best = d;
    if (best.ratio(gradient) <= 1) break;
  }
  return best;
}

}  // namespace roundoff
