// A subcommand of the program: one file each. Adding one takes an add_NAME here and a line in
// kCommands of program.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/base/check.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace roundoff::cli {

class Console;

// Exit statuses that scripts rely on.
inline constexpr int kDone = 0;
inline constexpr int kNotHeld = 1;        // a check, comparison or study did not hold
inline constexpr int kUsage = 2;          // wrong usage
inline constexpr int kFailed = 3;         // bad input, or a failure at run time
inline constexpr int kAbsent = 77;        // skipped: a GPU or a data set is absent
inline constexpr int kInterrupted = 130;  // after Ctrl-C

// Owns, in `run`, the variables that its options write to: keep it while the App parses.
struct Command {
  CLI::App* app = nullptr;
  // Called after parsing, when this subcommand was asked for; returns an exit status. Throws
  // UsageError, AbsentError, Interrupted or any other exception for the statuses above.
  std::function<int(Console&)> run;
};

// Options that subcommands share. It must outlive the App: keep it in what `run` captures.
struct CommonOptions {
  std::string config;
  std::string json;
  std::string csv;
  bool quiet = false;
};
// --config and --quiet, and with `table` also --json and --csv.
void add_common_options(CLI::App& command, CommonOptions& options, bool table);
// "Example:" with one line each, under the options of --help.
void add_examples(CLI::App& command, const std::vector<std::string>& lines);

// Calls f, which reads what a person typed: its errors are wrong usage.
template <class F>
auto typed(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

Command add_bench(CLI::App& app);
Command add_check(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_demo(CLI::App& app);
Command add_eval(CLI::App& app);
Command add_formats(CLI::App& app);
Command add_info(CLI::App& app);
Command add_op(CLI::App& app);
Command add_round(CLI::App& app);
Command add_scaler(CLI::App& app);
Command add_study(CLI::App& app);
Command add_train(CLI::App& app);

}  // namespace roundoff::cli
