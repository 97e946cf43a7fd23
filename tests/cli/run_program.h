// Runs the built program as a person would.
#pragma once

#include <string>
#include <vector>

namespace roundoff::test {

struct Result {
  int status = -1;  // exit status; 128 + n where signal n ended it
  std::string out;
  std::string err;
};

// `arguments` without the program's name; stdout and stderr are files, no terminals. Each of
// `environment` is "NAME=value".
Result run_program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
// The same, and sends SIGINT once `said` stands in its stderr.
Result interrupt_program(const std::vector<std::string>& arguments, const std::string& said);
// As run_program with both on one pseudo-terminal of `columns` columns; all output is in `out`.
Result run_on_terminal(const std::vector<std::string>& arguments, int columns,
                       const std::vector<std::string>& environment = {});

// A folder that goes away at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // Writes `text` to a file of this name and returns its path.
  std::string file(const std::string& name, const std::string& text) const;

 private:
  std::string folder_;
};

std::string read_text(const std::string& path);
bool contains(const std::string& text, const std::string& part);
// True where the text is one line that begins with "roundoff: error: [operation] ".
bool is_one_line_error(const std::string& text, const std::string& operation);

}  // namespace roundoff::test
