#include "cli/console.h"

#include <unistd.h>

#include <filesystem>
#include <ostream>

#include "engine/io/file.h"
#include "kernels/base/check.h"

namespace roundoff::cli {

Console::Console(std::ostream& out, std::ostream& err, std::vector<std::string> command_line)
    : out_(out),
      err_(err),
      out_terminal_(detect_terminal(1)),
      err_terminal_(detect_terminal(2)),
      command_line_(std::move(command_line)) {}

void Console::line(std::string_view kind, const char* colour, std::string_view text) {
  std::string one(text);
  for (char& c : one)
    if (c == '\n' || c == '\r') c = ' ';
  out_ << std::flush;
  if (err_terminal_.colour) {
    err_ << "roundoff: " << colour << kind << ":\x1b[0m " << one << std::endl;
  } else {
    err_ << "roundoff: " << kind << ": " << one << std::endl;
  }
}

void Console::note(std::string_view text) {
  if (!quiet_) line("note", "\x1b[36m", text);
}
void Console::warn(std::string_view text) { line("warning", "\x1b[33m", text); }
void Console::error(std::string_view text) { line("error", "\x1b[31m", text); }

void Console::skipped(std::string_view text) { line("skipped", "\x1b[33m", text); }

Terminal Console::progress_terminal() const {
  Terminal t = err_terminal_;
  t.interactive = t.interactive && !quiet_;
  return t;
}

void Console::check(const CommonOptions& options) const {
  if (options.json == "-" && options.csv == "-")
    throw UsageError("[output] --json - and --csv - both ask for stdout");
  for (const std::string& file : {options.json, options.csv}) {
    if (file.empty() || file == "-") continue;
    const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
    if (::access(folder.c_str(), W_OK) != 0 || std::filesystem::is_directory(file))
      fail_file("output", file, "cannot be written");
  }
}

void Console::emit_files(const Table& table, const CommonOptions& options) const {
  check(options);
  if (!options.json.empty() && options.json != "-")
    write_file_atomically(options.json, table.json());
  if (!options.csv.empty() && options.csv != "-") write_file_atomically(options.csv, table.csv());
}

void Console::emit(const Table& table, const CommonOptions& options) {
  emit_files(table, options);
  if (options.json == "-") {
    out_ << table.json();
  } else if (options.csv == "-") {
    out_ << table.csv();
  } else {
    table.print(out_, out_terminal_.interactive ? out_terminal_.width : 0);
  }
}

}  // namespace roundoff::cli
