// Training runs side by side, as a result that study/report.h writes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/run_files.h"
#include "study/study.h"

namespace roundoff::cli {

struct Comparison {
  study::Result result;
  // What makes the comparison say less than it seems to: other data, another model, several
  // settings at once. For the person, loudly; they are in the result, too.
  std::vector<std::string> warnings;
};

// Runs that differ in nothing but the seed are one group; the first run's group is what the others
// are compared with, seed by seed. A seed counts once in a group, its first run. At least one run.
Comparison compare_runs(std::span<const RunFiles> runs);

}  // namespace roundoff::cli
