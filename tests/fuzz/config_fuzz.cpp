#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/config.h"
#include "kernels/base/check.h"

namespace {

using Strings = std::vector<std::string>;

// Beside two of the program's own commands, one with an option of every kind.
void add_sample(CLI::App& app) {
  struct Values {
    std::string out, scale = "dynamic";
    int epochs = 1;
    unsigned accumulate = 1;
    double lr = 1e-3;
    bool shadow = false;
    Strings params;
    std::vector<int> sizes;
    std::vector<double> weights;
  };
  auto v = std::make_shared<Values>();
  CLI::App* sample = app.add_subcommand("sample", "sample");
  sample->add_option("--out", v->out);
  sample->add_option("--scale", v->scale)->capture_default_str();
  sample->add_option("--epochs", v->epochs)->capture_default_str();
  sample->add_option("--accumulate", v->accumulate)->capture_default_str();
  sample->add_option("--lr", v->lr)->capture_default_str();
  sample->add_flag("--shadow", v->shadow);
  sample->add_option("--param", v->params);
  sample->add_option("--size", v->sizes);
  sample->add_option("--weights", v->weights);
  sample->callback([v] {});
}

struct Parser {
  Parser() {
    add_sample(app);
    commands.push_back(roundoff::cli::add_round(app));
    commands.push_back(roundoff::cli::add_scaler(app));
  }
  const CLI::App& command(const std::string& name) const { return *app.get_subcommand(name); }

  // The settings that `name` then runs with, as text.
  std::string run(const std::string& name, Strings settings) {
    settings.insert(settings.begin(), name);
    if (name == "round") settings.insert(settings.end(), {"--", "1"});
    std::reverse(settings.begin(), settings.end());
    app.parse(settings);
    return roundoff::cli::resolved_config(command(name));
  }

  CLI::App app{"fuzz", "fuzz"};
  std::vector<roundoff::cli::Command> commands;  // they own what the options write to
};

}  // namespace

// Any text is settings, wrong usage or an error. Settings that parse can be written and read back,
// and what is written then is the same text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Parser shape;  // parsing changes a parser, so that it serves only to be looked at
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string name : {"sample", "scaler", "round"}) {
    const auto read = [&](std::string_view toml) {
      return roundoff::cli::config_arguments(shape.command(name), toml, "fuzz", {});
    };
    std::string first;
    try {
      first = Parser().run(name, read(text));
    } catch (const roundoff::Error&) {
      continue;
    } catch (const CLI::ParseError&) {
      continue;
    }
    const std::string second = Parser().run(name, read(first));  // what was written must be taken
    if (Parser().run(name, read(second)) != second) std::abort();
  }
  return 0;
}
