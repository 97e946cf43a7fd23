#include "study/list.h"

#include <array>

namespace roundoff::study {

std::span<const Study> studies() {
  // One line a study, in the order of a report.
  static constexpr std::array kStudies{
      Study{"scaler", "Where does a loss scale settle, when does it fail, what is clipped when?",
            run_scaler},
  };
  return kStudies;
}

}  // namespace roundoff::study
