#include "study/study.h"

namespace roundoff::study {

std::span<const Study> studies() {
  // One line a study, in the order of a report.
  return {};
}

}  // namespace roundoff::study
