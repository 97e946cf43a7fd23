// roundoff scaler: the loss scaler's state machine, replayed.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/console.h"
#include "kernels/base/check.h"
#include "kernels/step/scaler_transition.h"

namespace roundoff::cli {

namespace {

struct Options {
  CommonOptions common;
  std::string pattern;
  ScalerConfig config;
};

int run(const Options& o, Console& console) {
  validate(o.config);
  for (std::size_t i = 0; i < o.pattern.size(); ++i)
    if (o.pattern[i] != '.' && o.pattern[i] != 'X')
      throw UsageError(concat("[scaler] --pattern holds '", o.pattern[i], "' at position ", i + 1,
                              "; . (finite gradients) or X (a non-finite one) expected"));
  constexpr auto kModelled = Provenance::modelled;
  Table table(
      "scaler",
      {{"update"}, {"gradients"}, {"scale", kModelled, 0}, {"tracker", kModelled}, {"did_step"}});
  ScalerState state = initial_state(o.config);
  for (std::size_t i = 0; i < o.pattern.size(); ++i) {
    const bool found_inf = o.pattern[i] == 'X';
    state = transition(o.config, state, found_inf);
    table.add_row({static_cast<std::int64_t>(i + 1), std::string(1, o.pattern[i]),
                   static_cast<double>(state.scale), std::int64_t{state.growth_tracker},
                   !found_inf});
  }
  table.add_note("scale and tracker as they are after the update");
  console.emit(table, o.common);
  return kDone;
}

}  // namespace

Command add_scaler(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("scaler", "Replay the loss scaler: a line for each update");
  auto o = std::make_shared<Options>();
  command->add_option("--pattern", o->pattern, "A character an update: . finite, X non-finite")
      ->required();
  const auto add = [&](const char* name, double& variable, const char* description) {
    // CLI11 would show six digits of a default.
    command->add_option(name, variable, description)->default_str(shortest(variable));
  };
  add("--init", o->config.init_scale, "Scale before the first update");
  add("--growth", o->config.growth_factor, "Factor of growth, above 1");
  add("--backoff", o->config.backoff_factor, "Factor after an X, between 0 and 1");
  command
      ->add_option("--interval", o->config.growth_interval,
                   "Finite updates in a row before the scale grows")
      ->capture_default_str();
  add("--min", o->config.min_scale, "The scale never falls below this");
  add("--max", o->config.max_scale, "The scale never grows past this");
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff scaler --pattern '..X..' --interval 2",
                          "roundoff scaler --pattern XXX --init 1 --csv scale.csv"});
  return {command, [o](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, console);
          }};
}

}  // namespace roundoff::cli
