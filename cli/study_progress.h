// What is being done, on stderr: one line that is drawn over on a terminal, a note each elsewhere.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace roundoff::cli {

class Console;

class StudyProgress {
 public:
  StudyProgress(Console& console, std::string name, std::size_t index, std::size_t count);
  ~StudyProgress() { clear(); }
  StudyProgress(const StudyProgress&) = delete;
  StudyProgress& operator=(const StudyProgress&) = delete;

  void say(std::string_view what);
  void clear();

 private:
  Console& console_;
  std::string label_;
  bool visible_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace roundoff::cli
