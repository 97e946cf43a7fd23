#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config.h"
#include "cli/program.h"
#include "kernels/base/check.h"

namespace {

using Strings = std::vector<std::string>;

// Beside the program's own commands, one with an option of every kind.
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

}  // namespace

// Any text is settings, wrong usage or an error. Settings that parse can be written and read back,
// and what is written then is the same text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"sample", "scaler", "round"}) {
    std::string written;
    try {
      for (int pass = 0; pass < 3; ++pass) {
        const roundoff::cli::Program program;
        add_sample(*program.app);
        CLI::App& command = *program.app->get_subcommand(name);
        Strings arguments = {name};
        const Strings settings = roundoff::cli::config_arguments(
            command, pass == 0 ? text : std::string_view(written), "fuzz", {});
        arguments.insert(arguments.end(), settings.begin(), settings.end());
        if (command.get_name() == "round") arguments.insert(arguments.end(), {"--", "1"});
        std::reverse(arguments.begin(), arguments.end());
        try {
          program.app->parse(arguments);
        } catch (const CLI::ParseError&) {
          if (pass == 0) break;
          std::abort();  // what was written must be taken
        }
        const std::string resolved = roundoff::cli::resolved_config(command);
        if (pass == 2 && resolved != written) std::abort();
        written = resolved;
      }
    } catch (const roundoff::Error&) {
      if (!written.empty()) std::abort();
    }
  }
  return 0;
}
