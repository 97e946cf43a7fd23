// roundoff formats: the formats that the program knows, and what follows from each.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/console.h"
#include "kernels/base/format.h"

namespace roundoff::cli {

namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> formats;
};

int run(const Options& o, Console& console) {
  constexpr auto kCited = Provenance::cited;
  constexpr auto kModelled = Provenance::modelled;
  Table table("formats", {{"format"},
                          {"p", kCited},
                          {"emin", kCited},
                          {"emax", kCited},
                          {"infinities"},
                          {"nan"},
                          {"overflow"},
                          {"width", kModelled, 0, "bits"},
                          {"u", kModelled, 3},
                          {"max", kModelled, 5},
                          {"min_normal", kModelled, 4},
                          {"min_subnormal", kModelled, 4}});
  const auto add = [&](const Format& f) {
    const std::string overflow = f.saturates ? "saturates" : f.infinities ? "infinity" : "nan";
    table.add_row({format_name(f), std::int64_t{f.precision}, std::int64_t{f.emin},
                   std::int64_t{f.emax}, f.infinities, f.nan, overflow,
                   f.has_layout() ? Cell(std::int64_t{f.width()}) : Cell(), f.unit_roundoff(),
                   f.max_finite(), f.min_normal(), f.min_subnormal()});
  };
  std::vector<Format> chosen;
  for (const std::string& text : o.formats)
    chosen.push_back(typed([&] { return parse_format(text); }));
  if (chosen.empty())
    for (const FormatRow& row : format_rows()) chosen.push_back(row.format);
  for (const Format& f : chosen) add(f);
  table.add_note("p: significant bits, the hidden bit included; u = 2^-p, half an ulp of 1");
  console.emit(table, o.common);
  return kDone;
}

}  // namespace

Command add_formats(CLI::App& app) {
  CLI::App* command = app.add_subcommand("formats", "List the number formats and their limits");
  auto o = std::make_shared<Options>();
  command->add_option("FORMAT", o->formats, "Only these: a name, or p=P,emin=E,emax=E");
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff formats", "roundoff formats fp16 bf16 p=5,emin=-6,emax=7",
                          "roundoff formats --json formats.json"});
  return {command, [o](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, console);
          }};
}

}  // namespace roundoff::cli
