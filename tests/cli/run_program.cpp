#include "tests/cli/run_program.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace roundoff::test {

namespace {

[[noreturn]] void execute(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), ROUNDOFF_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> settings = environment;
  for (std::string& setting : settings) putenv(setting.data());
  execv(argv[0], argv.data());
  _exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// AddressSanitizer says once a program that it cannot follow every switch of stacks; the emulator
// tells it of each.
std::string without_asan_remark(const std::string& text) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);)
    if (line.find("ASan doesn't fully support makecontext") == std::string::npos)
      kept += line + '\n';
  if (!text.empty() && text.back() != '\n' && !kept.empty()) kept.pop_back();
  return kept;
}

}  // namespace

namespace {

// watch(child, path of its stderr) is called as soon as it runs.
template <class F>
Result run_with(const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment, F&& watch) {
  const TemporaryFolder folder;
  const std::string out = folder.path("out");
  const std::string err = folder.path("err");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    const int o = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    const int e = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    const int i = open("/dev/null", O_RDONLY);
    if (dup2(i, 0) < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0) _exit(126);
    execute(arguments, environment);
  }
  watch(child, err);
  Result r;
  r.status = wait_for(child);
  r.out = read_text(out);
  r.err = without_asan_remark(read_text(err));
  return r;
}

}  // namespace

Result run_program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment) {
  return run_with(arguments, environment, [](pid_t, const std::string&) {});
}

Result interrupt_program(const std::vector<std::string>& arguments, const std::string& said) {
  return run_with(arguments, {}, [&](pid_t child, const std::string& err) {
    siginfo_t ended{};
    while (!contains(read_text(err), said)) {
      // One that ends without a word is not waited for.
      if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          ended.si_pid == child)
        return;
      usleep(2000);
    }
    kill(child, SIGINT);
  });
}

Result run_on_terminal(const std::vector<std::string>& arguments, int columns,
                       const std::vector<std::string>& environment) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  if (child == 0) execute(arguments, environment);
  if (child < 0) throw std::runtime_error("forkpty failed");
  Result r;
  char buffer[4096];
  // Reading fails, rather than ends, once the other side has closed.
  for (ssize_t n = 0; (n = read(master, buffer, sizeof buffer)) > 0;)
    r.out.append(buffer, static_cast<std::size_t>(n));
  r.status = wait_for(child);
  close(master);
  return r;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "roundoff-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}
std::string TemporaryFolder::file(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool is_one_line_error(const std::string& text, const std::string& operation) {
  return text.rfind("roundoff: error: [" + operation + "] ", 0) == 0 &&
         std::count(text.begin(), text.end(), '\n') == 1 && text.back() == '\n';
}

}  // namespace roundoff::test
