// The program as a function.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace roundoff::cli {

// The parser with every subcommand, as --help shows it.
struct Program {
  Program();
  ~Program();

  std::unique_ptr<CLI::App> app;
  std::vector<Command> commands;
};

// Runs `arguments` (the program's name first) and returns the exit status. Never throws.
int run_program(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace roundoff::cli
