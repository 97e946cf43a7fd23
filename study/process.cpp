#include "study/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/base/check.h"

extern char** environ;

namespace roundoff::study {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKept = 4096;

struct Actions {
  posix_spawn_file_actions_t value{};
  Actions() { posix_spawn_file_actions_init(&value); }
  ~Actions() { posix_spawn_file_actions_destroy(&value); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
};

// Reads until the other side closes or the time is up; false for the latter.
bool drain(int descriptor, Clock::time_point end, std::string& into) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{descriptor, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    char buffer[1024];
    const ssize_t n = ::read(descriptor, buffer, sizeof buffer);
    if (n == 0 || (n < 0 && errno != EINTR)) return true;
    if (n > 0 && into.size() < kKept)
      into.append(buffer, std::min(static_cast<std::size_t>(n), kKept - into.size()));
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const std::filesystem::path& folder,
                          double limit_seconds) {
  ROUNDOFF_CHECK(!argv.empty(), "process", "nothing to run");
  std::vector<std::string> words = argv;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  int pipe_ends[2];
  ROUNDOFF_CHECK(::pipe2(pipe_ends, O_CLOEXEC) == 0, "process", argv[0],
                 ": no pipe: ", std::strerror(errno));
  Actions actions;
  posix_spawn_file_actions_addchdir_np(&actions.value, folder.c_str());
  posix_spawn_file_actions_addopen(&actions.value, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions.value, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions.value, pipe_ends[1], 2);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, pointers[0], &actions.value, nullptr, pointers.data(), environ);
  ::close(pipe_ends[1]);
  ProcessResult result;
  if (error != 0) {
    ::close(pipe_ends[0]);
    if (error == ENOENT || error == EACCES || error == ENOTDIR) return result;
    throw Error(concat("[process] ", argv[0], " cannot be run: ", std::strerror(error)));
  }
  result.found = true;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(limit_seconds));
  bool late = !drain(pipe_ends[0], end, result.output);
  ::close(pipe_ends[0]);
  // A program may close its output before it ends.
  int status = 0;
  for (;;) {
    if (late && !result.timed_out) {
      ::kill(child, SIGKILL);
      result.timed_out = true;
    }
    const pid_t got = ::waitpid(child, &status, late ? 0 : WNOHANG);
    if (got == child || (got < 0 && errno != EINTR)) break;
    if (late) continue;
    late = Clock::now() >= end;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace roundoff::study
