// Functions that a product may apply to its results before their one rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace roundoff {

enum class Activation : unsigned char {
  none,
  relu,  // max(x, 0); NaN stays NaN
  gelu,  // x Phi(x), Phi by erfc
};

// On the host.
template <class T>
void activate(Activation activation, T* values, std::int64_t n) {
  if (activation == Activation::relu) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = values[i] <= T{0} ? T{0} : values[i];
  } else if (activation == Activation::gelu) {
    constexpr T kHalfRoot = T(std::numbers::sqrt2 / 2);
    for (std::int64_t i = 0; i < n; ++i) {
      const T phi = T(0.5) * std::erfc(-values[i] * kHalfRoot);
      // Where the weight has underflowed to 0, -infinity gives the limit.
      values[i] = phi == T{0} ? std::copysign(T{0}, values[i]) : values[i] * phi;
    }
  }
}

}  // namespace roundoff
