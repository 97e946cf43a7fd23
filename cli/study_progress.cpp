#include "cli/study_progress.h"

#include <algorithm>
#include <ostream>

#include "cli/console.h"

namespace roundoff::cli {

StudyProgress::StudyProgress(Console& console, std::string name, std::size_t index,
                             std::size_t count)
    : console_(console), label_(concat(name, " (", index, " of ", count, ")")) {}

void StudyProgress::say(std::string_view what) {
  if (console_.quiet()) return;
  const Terminal terminal = console_.progress_terminal();
  if (!terminal.interactive) {
    console_.note(concat(label_, ": ", what));
    return;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string line = concat(label_, " ", format_duration(seconds), " ", what);
  // One column stays free: a full line would make some terminals scroll.
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(terminal.width - 1, 10))));
  console_.err() << '\r' << line << "\x1b[K" << std::flush;
  visible_ = true;
}

void StudyProgress::clear() {
  if (!visible_) return;
  console_.err() << "\r\x1b[K" << std::flush;
  visible_ = false;
}

}  // namespace roundoff::cli
