// Where a figure comes from. Figures of different provenance never share a column.
#pragma once

#include <string_view>

namespace roundoff {

enum class Provenance : unsigned char {
  none,       // text, or what a person typed
  measured,   // by a clock or on a device
  counted,    // by the emulator, by the run itself, or in the machine code
  modelled,   // by arithmetic that is defined exactly
  predicted,  // by a cost model
  cited,      // from a publication or a specification
};

constexpr std::string_view name(Provenance provenance) {
  constexpr std::string_view kNames[] = {"",         "measured",  "counted",
                                         "modelled", "predicted", "cited"};
  return kNames[static_cast<int>(provenance)];
}

}  // namespace roundoff
