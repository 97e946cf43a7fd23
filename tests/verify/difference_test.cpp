#include "verify/difference.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace roundoff;

TEST_CASE("central differences come with a tolerance that holds and that finds small errors") {
  struct Case {
    double (*f)(double);
    double (*derivative)(double);
  };
  const Case cases[] = {
      {[](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }},
      {[](double x) { return std::sin(x) + 1000; }, [](double x) { return std::cos(x); }},
      {[](double x) { return x * x * x; }, [](double x) { return 3 * x * x; }},
      {[](double x) { return 1 / (x * x + 0.01); },
       [](double x) { return -2 * x / ((x * x + 0.01) * (x * x + 0.01)); }},
  };
  for (const Case& c : cases)
    for (const double x : {-3.7, -0.5, 0.0, 1e-5, 0.3, 1.0, 12.25}) {
      const Difference d = central_difference(c.f, x, function_noise(c.f, x));
      CHECK_FALSE(d.kink);
      CHECK(d.ratio(c.derivative(x)) <= 1);
      CHECK(d.ratio(c.derivative(x) * (1 + 1e-5) + 1e-5) > 1);
      CHECK(d.ratio(std::nan("")) > 1);
    }
}

TEST_CASE("a kink within the step is seen, and the slopes on its sides are accepted") {
  const auto relu = [](double x) { return x > 0 ? x : 0.0; };
  for (const double x : {0.0, 1e-8, -3e-7}) {
    const Difference d = central_difference(relu, x, function_noise(relu, x));
    CHECK(d.kink);
    CHECK(d.ratio(x > 0 ? 1 : 0) <= 1);
    if (x == 0) CHECK(d.ratio(1) <= 1);
    CHECK(d.ratio(1.001) > 1);
    CHECK(d.ratio(-0.001) > 1);
  }
  const Difference away = central_difference(relu, 0.01, function_noise(relu, 0.01));
  CHECK_FALSE(away.kink);
  CHECK(away.ratio(1) <= 1);
  CHECK(away.ratio(0) > 1);
}

TEST_CASE("a kink anywhere within the step is seen") {
  const double h = 0x1p-17 / 2;  // the step at 0.5
  for (const double t :
       {-0.9, -0.5, -1.0 / 3, -0.2, -0.1, 0.05, 0.16, 0.3, 1.0 / 3, 0.36, 0.45, 0.8}) {
    const double x = 0.5, edge = x + t * h;
    const auto bent = [&](double v) { return v * v + (v > edge ? 3 * (v - edge) : 0); };
    const Difference d = central_difference(bent, x, function_noise(bent, x));
    INFO("kink at ", t, " of the step");
    CHECK(d.kink);
    CHECK(d.ratio(t < 0 ? 4 : 1) <= 1);
  }
}

TEST_CASE("rounding inside a function that the function does not show is found by wider steps") {
  const double x = 0.25;
  // Over the usual step 1 + 1e-11 sin(x) is constant: the difference is 0, and says it is certain.
  const auto hidden = [](double v) { return (1 + 1e-11 * std::sin(v)) - 1; };
  const double gradient = 1e-11 * std::cos(x);
  CHECK(central_difference(hidden, x, function_noise(hidden, x)).ratio(gradient) > 1);
  CHECK(best_difference(hidden, x, gradient).ratio(gradient) <= 1);
  // Wider steps are no excuse for a wrong gradient.
  const auto shown = [](double v) { return (1 + 1e-6 * std::sin(v)) - 1; };
  CHECK(best_difference(shown, x, 1e-6 * std::cos(x)).ratio(1e-6 * std::cos(x)) <= 1);
  CHECK(best_difference(shown, x, 1.01e-6).ratio(1.01e-6) > 1);
  CHECK(best_difference(shown, x, 0).ratio(0) > 1);
}

TEST_CASE("the noise of a function is measured, not assumed") {
  // Adding and subtracting 2^20 leaves errors of up to 2^-33.
  const auto noisy = [](double x) { return (std::sin(x) + 0x1p20) - 0x1p20; };
  const double noise = function_noise(noisy, 0.7);
  CHECK(noise > 0x1p-37);
  CHECK(noise < 0x1p-32);
  CHECK(function_noise([](double x) { return std::sin(x); }, 0.7) < 0x1p-50);
}
