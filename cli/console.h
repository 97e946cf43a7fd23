// Where a run's results, notes and warnings go.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "bench/table.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace roundoff::cli {

class Console {
 public:
  Console(std::ostream& out, std::ostream& err, std::vector<std::string> command_line);

  // The results. Whoever writes here keeps the lines stable: scripts read them.
  std::ostream& out() { return out_; }
  // Progress bars and notes go to stderr(), and only where quiet() is false.
  std::ostream& err() { return err_; }
  const Terminal& out_terminal() const { return out_terminal_; }
  const Terminal& err_terminal() const { return err_terminal_; }
  bool quiet() const { return quiet_; }
  void set_quiet(bool quiet) { quiet_ = quiet; }
  // The program's arguments as they were given, its name first.
  const std::vector<std::string>& command_line() const { return command_line_; }

  // "roundoff: note: ..." unless quiet; "roundoff: warning: ..." always.
  void note(std::string_view text);
  void warn(std::string_view text);
  // "roundoff: error: ..." in one line.
  void error(std::string_view text);
  // "roundoff: skipped: ...": something that is absent.
  void skipped(std::string_view text);
  // For a ProgressBar on err(): silent when quiet.
  Terminal progress_terminal() const;

  // Whether emit() will be able to write, for commands that take long to get there. Throws as it.
  void check(const CommonOptions& options) const;
  // Prints the table to stdout, or writes what --json and --csv ask for; "-" is stdout, in place of
  // the text. Throws UsageError where both ask for stdout, FileError where a file cannot be
  // written.
  void emit(const Table& table, const CommonOptions& options);
  // Its first half: what goes to files.
  void emit_files(const Table& table, const CommonOptions& options) const;

 private:
  void line(std::string_view kind, const char* colour, std::string_view text);

  std::ostream& out_;
  std::ostream& err_;
  Terminal out_terminal_;
  Terminal err_terminal_;
  bool quiet_ = false;
  std::vector<std::string> command_line_;
};

}  // namespace roundoff::cli
