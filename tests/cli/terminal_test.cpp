#include "cli/terminal.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <sstream>

using namespace roundoff::cli;

TEST_CASE("the progress bar: silent off a terminal, within the width on one, erased at the end") {
  std::ostringstream silent;
  {
    ProgressBar bar(silent, Terminal{}, "epoch 1", 10);
    for (int i = 1; i <= 10; ++i) bar.update(i, "loss 0.5");
  }
  CHECK(silent.str().empty());

  std::ostringstream out;
  {
    ProgressBar bar(out, Terminal{true, false, 90}, "epoch 1", 10, "images", 64);
    bar.update(5, "loss 0.5");
    bar.update(10, "loss 0.25");
  }
  const std::string text = out.str();
  CHECK(text.find("epoch 1 [==========          ]  50%") != std::string::npos);
  CHECK(text.find("epoch 1 [====================] 100%") != std::string::npos);
  CHECK(text.find("images/s") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.substr(text.size() - 4) == "\r\x1b[K");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, '\r');) CHECK(line.size() < 90 + 3);

  // Where there is less room the bar gives way, not the details.
  std::ostringstream narrow;
  {
    ProgressBar bar(narrow, Terminal{true, false, 56}, "epoch 1", 10, "images", 64);
    bar.update(10, "loss 0.25");
  }
  CHECK(narrow.str().find("loss 0.25") != std::string::npos);

  std::ostringstream odd;
  ProgressBar bar(odd, Terminal{true, false, 3}, "x", 0);
  bar.update(7);  // more than there is, and hardly any room
  CHECK_FALSE(odd.str().empty());
}

TEST_CASE("durations") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(65.4) == "1:05");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
  CHECK(format_duration(std::nan("")) == "?");
}
