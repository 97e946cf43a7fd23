// Functions that a product may apply to its results before their one rounding.
#pragma once

namespace roundoff {

enum class Activation : unsigned char {
  none,
  relu,  // max(x, 0); NaN stays NaN
  gelu,  // x Phi(x), Phi by erfc
};

}  // namespace roundoff
