#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <new>
#include <ostream>

#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "engine/io/file.h"

namespace roundoff::cli {

namespace {

using AddCommand = Command (*)(CLI::App&);
// In the order of --help.
constexpr AddCommand kCommands[] = {
    add_demo,  add_train, add_eval,  add_compare, add_study,   add_check,
    add_bench, add_op,    add_round, add_scaler,  add_formats, add_info,
};

// A plain decimal that 64 bit hold, so that settings read back as they were typed: CLI11 alone
// takes 010 for 8, clamps what is too large and wraps what is negative.
std::string strict_integer(const std::string& text, bool natural) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && std::to_string(value) == text && (!natural || value >= 0)) return {};
  return concat("'", text.substr(0, 40), "' is not ",
                natural ? "an integer from 0 to 2^63 - 1" : "an integer of 64 bit");
}

void check_integers(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    const bool natural = type.compare(0, 4, "UINT") == 0;
    if (!natural && type.compare(0, 3, "INT") != 0) continue;
    option->check(
        CLI::Validator([natural](std::string& text) { return strict_integer(text, natural); }, ""));
  }
}

std::string names_of(const std::vector<Command>& commands) {
  std::string names;
  for (const Command& command : commands)
    names += (names.empty() ? "" : ", ") + command.app->get_name();
  return names;
}

// Parses and runs; every failure leaves as an exception.
int run(const Program& program, Console& console, const std::vector<std::string>& arguments) {
  const std::string first = arguments.size() < 2 ? "" : arguments[1];
  if (first == "--help" || first == "-h") {
    console.out() << program.app->help();
    return kDone;
  }
  if (first == "--version") {
    console.out() << version_line() << '\n';
    return kDone;
  }
  const auto chosen =
      std::find_if(program.commands.begin(), program.commands.end(),
                   [&](const Command& command) { return command.app->get_name() == first; });
  if (chosen == program.commands.end()) {
    const std::string what = first.empty() ? "no subcommand" : "unknown subcommand '" + first + "'";
    throw UsageError(concat("[roundoff] ", what, "; ", names_of(program.commands),
                            ", --help or --version expected"));
  }
  CLI::App& command = *chosen->app;
  const std::vector<std::string> rest(arguments.begin() + 2, arguments.end());
  const auto before = std::find(rest.begin(), rest.end(), "--");
  const auto asks = [&](const char* flag) {
    return std::find(rest.begin(), before, flag) != before;
  };
  if (asks("--help") || asks("-h")) {
    console.out() << command.help("roundoff");
    return kDone;
  }
  try {
    std::vector<std::string> prepared = prepare_arguments(command, rest);
    prepared.insert(prepared.begin(), first);
    std::reverse(prepared.begin(), prepared.end());  // CLI11 parses from the back
    program.app->parse(std::move(prepared));
  } catch (const CLI::ParseError& error) {
    throw UsageError(concat("[", first, "] ", error.what(), "; see roundoff ", first, " --help"));
  }
  return chosen->run(console);
}

}  // namespace

void add_common_options(CLI::App& command, CommonOptions& options, bool table) {
  command
      .add_option("--config", options.config,
                  "Settings in TOML, under the flags' long names; flags win")
      ->type_name("FILE");
  if (table) {
    command.add_option("--json", options.json, "Write the table as JSON; - is stdout")
        ->type_name("FILE");
    command.add_option("--csv", options.csv, "Write the table as CSV; - is stdout")
        ->type_name("FILE");
  }
  command.add_flag("--quiet", options.quiet, "No progress and no notes");
}

void add_examples(CLI::App& command, const std::vector<std::string>& lines) {
  std::string text = lines.size() == 1 ? "Example:" : "Examples:";
  for (const std::string& line : lines) text += "\n  " + line;
  command.footer(text);
}

Program::Program()
    : app(std::make_unique<CLI::App>("Mixed-precision numerics: train, check, measure.")) {
  app->name("roundoff");
  app->require_subcommand(1);
  app->set_version_flag("--version", version_line());
  app->footer(
      "roundoff SUBCOMMAND --help says more, with examples.\n"
      "Exit status: 0 done; 1 a check did not hold; 2 wrong usage; 3 bad input or failure;\n"
      "77 skipped, something is absent; 130 after Ctrl-C.");
  for (const AddCommand add : kCommands) {
    commands.push_back(add(*app));
    check_integers(*commands.back().app);
  }
}
Program::~Program() = default;

int run_program(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Console console(out, err, arguments);
  int status = kFailed;
  try {
    const Program program;
    status = run(program, console, arguments);
    out.flush();
    ROUNDOFF_CHECK(out.good(), "output", "stdout cannot be written");
  } catch (const UsageError& e) {
    console.error(e.what());
    return kUsage;
  } catch (const AbsentError& e) {
    console.skipped(e.what());
    return kAbsent;
  } catch (const Interrupted& e) {
    console.note(e.what());
    return kInterrupted;
  } catch (const Error& e) {
    console.error(e.what());
    return kFailed;
  } catch (const std::bad_alloc&) {
    console.error("[memory] not enough memory");
    return kFailed;
  } catch (const std::exception& e) {
    console.error(concat("[internal] ", e.what()));
    return kFailed;
  }
  return status;
}

}  // namespace roundoff::cli
