#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>

namespace roundoff::cli {

Terminal detect_terminal(int descriptor) {
  Terminal t;
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::strcmp(kind, "dumb") == 0;
  t.interactive = isatty(descriptor) == 1 && !dumb;
  const char* no_colour = std::getenv("NO_COLOR");
  t.colour = t.interactive && (no_colour == nullptr || *no_colour == '\0');
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) t.width = size.ws_col;
  return t;
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 360000.0 * 1000) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  char text[32];
  const auto h = static_cast<int>(whole / 3600);
  const auto m = static_cast<int>(whole / 60 % 60);
  const auto s = static_cast<int>(whole % 60);
  if (h > 0) {
    std::snprintf(text, sizeof text, "%d:%02d:%02d", h, m, s);
  } else {
    std::snprintf(text, sizeof text, "%d:%02d", m, s);
  }
  return text;
}

ProgressBar::ProgressBar(std::ostream& out, const Terminal& terminal, std::string label,
                         std::int64_t total, std::string unit, double weight, std::int64_t done)
    : out_(out),
      terminal_(terminal),
      label_(std::move(label)),
      unit_(std::move(unit)),
      total_(std::max<std::int64_t>(total, 1)),
      first_(done),
      weight_(weight),
      start_(Clock::now()),
      drawn_(start_ - std::chrono::seconds(1)) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::clear() {
  if (!visible_) return;
  out_ << "\r\x1b[K" << std::flush;
  visible_ = false;
}

void ProgressBar::update(std::int64_t done, std::string_view details) {
  if (!terminal_.interactive) return;
  const Clock::time_point now = Clock::now();
  if (done < total_ && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share =
      std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const auto steps = static_cast<double>(done - first_);
  const double rate = seconds > 0 ? steps / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total_ - done) / rate : -1;

  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " %3.0f%% %.4g %s/s %s left", std::floor(100 * share),
                rate * weight_, unit_.c_str(), format_duration(left).c_str());
  // One column stays free: a full line would make some terminals scroll.
  const auto width = static_cast<std::size_t>(std::max(terminal_.width - 1, 10));
  // The bar takes what the rest leaves, since the details are what a person reads.
  constexpr std::size_t kWidest = 20;
  const std::size_t rest = label_.size() + std::strlen(numbers) + details.size() + 4;
  const std::size_t bar = std::clamp(width > rest ? width - rest : 0, std::size_t{0}, kWidest);
  std::string line = label_;
  if (bar >= 4) {
    const auto filled = static_cast<std::size_t>(static_cast<double>(bar) * share);
    line += " [" + std::string(filled, '=') + std::string(bar - filled, ' ') + "]";
  }
  line += numbers;
  if (!details.empty()) (line += " ") += details;
  if (line.size() > width) line.resize(width);
  out_ << '\r' << line << "\x1b[K" << std::flush;
  visible_ = true;
}

}  // namespace roundoff::cli
