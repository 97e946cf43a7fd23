// What the program's output goes to, and a progress bar for where that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace roundoff::cli {

struct Terminal {
  bool interactive = false;  // a person watches: progress bars and colours make sense
  bool colour = false;       // interactive, and neither NO_COLOR nor TERM=dumb asks otherwise
  int width = 80;            // columns
};

// `descriptor` is 1 for stdout, 2 for stderr.
Terminal detect_terminal(int descriptor);

// "1:05", "2:03:04".
std::string format_duration(double seconds);

// One line that is drawn over and over: label, bar, share done, rate, time left, details. Draws
// nothing where the terminal is not interactive. Erased when finished or destroyed.
class ProgressBar {
 public:
  // `total` steps, of which `done` lie behind already (a resumed run); each step is `weight` of
  // `unit`, in which the rate is shown.
  ProgressBar(std::ostream& out, const Terminal& terminal, std::string label, std::int64_t total,
              std::string unit = "steps", double weight = 1.0, std::int64_t done = 0);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second, and always at the last step.
  void update(std::int64_t done, std::string_view details = {});
  // Erases the line, so that something else can be printed; the next update draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& out_;
  Terminal terminal_;
  std::string label_;
  std::string unit_;
  std::int64_t total_;
  std::int64_t first_;
  double weight_;
  Clock::time_point start_;
  Clock::time_point drawn_;
  bool visible_ = false;
};

}  // namespace roundoff::cli
