// Another program, run without a shell and with a limit of time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace roundoff::study {

struct ProcessResult {
  bool found = false;      // false: there is no such program (on PATH)
  bool timed_out = false;  // it was ended
  int status = -1;         // exit status, or 128 + signal
  std::string output;      // stdout and stderr, the first 4 KiB
};

// Runs argv in `folder`, stdin empty, and waits. Throws Error where no process can be made.
ProcessResult run_process(const std::vector<std::string>& argv, const std::filesystem::path& folder,
                          double limit_seconds);

}  // namespace roundoff::study
