// How the losses of single items become the loss of a batch.
#pragma once

#include <string_view>

namespace roundoff {

enum class Reduction : unsigned char { none, sum, mean };

constexpr std::string_view name(Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return "none";
    case Reduction::sum:
      return "sum";
    case Reduction::mean:
      return "mean";
  }
  return "?";
}

}  // namespace roundoff
