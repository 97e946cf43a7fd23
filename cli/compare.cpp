// roundoff compare: training runs side by side.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <ostream>
#include <set>

#include "cli/command.h"
#include "cli/compare_runs.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "engine/io/file.h"
#include "study/citation.h"
#include "study/report.h"
#include "study/text.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> runs;
  std::string out;
  bool tex = false;
  bool overwrite = false;
};

void check_folder(const fs::path& out, bool overwrite) {
  std::error_code error;
  if (!study::takes_report(out))
    throw UsageError(concat("[compare] --out ", out.string(),
                            " exists and is not an earlier comparison; name another folder"));
  if (!overwrite && fs::exists(out, error) && !fs::is_empty(out, error))
    throw UsageError(
        concat("[compare] --out ", out.string(), " exists; --overwrite replaces the report in it"));
}

int run(const Options& o, const CLI::App& command, Console& console) {
  check_folder(o.out, o.overwrite);
  console.check(o.common);
  std::vector<RunFiles> runs;
  std::set<fs::path> seen;
  for (const std::string& folder : o.runs) {
    std::error_code error;
    // However it is spelt, a folder is one run.
    const fs::path place = fs::canonical(folder, error);
    if (!error && !seen.insert(place).second) {
      console.warn(concat("[compare] ", folder, " is named more than once; it counts once"));
      continue;
    }
    runs.push_back(read_run(folder, "compare"));
  }
  const Comparison comparison = compare_runs(runs);
  for (const std::string& warning : comparison.warnings) console.warn("[compare] " + warning);

  study::ReportContext context;
  context.program = version_line();
  context.command = "roundoff compare";
  for (const std::string& folder : o.runs) context.command += " " + study::shell_word(folder);
  context.command += " --out " + study::shell_word(o.out);
  context.environment = environment_json(console.command_line(), {});
  context.config =
      resolved_config(command, {"out", "overwrite", "tex", "json", "csv", "quiet", "runs"});
  context.device = runs.front().device;
  study::write_report(o.out, "compare", comparison.result, context);

  const std::vector<Table>& tables = comparison.result.tables;
  if (o.tex) {
    console.emit_files(tables.front(), o.common);
    for (std::size_t i = 0; i < tables.size(); ++i)
      console.out() << (i == 0 ? "" : "\n")
                    << study::tex_table(tables[i], concat("compare-", i + 1));
  } else if (o.common.json == "-" || o.common.csv == "-") {
    console.emit(tables.front(), o.common);
  } else {
    console.emit_files(tables.front(), o.common);
    CommonOptions text;
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (i != 0) console.out() << '\n';
      console.out() << tables[i].title() << '\n';
      console.emit(tables[i], text);
    }
  }
  console.note(concat("the report: ", (fs::path(o.out) / "index.html").string()));
  return kDone;
}

}  // namespace

Command add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Training runs side by side, with paired differences");
  auto o = std::make_shared<Options>();
  command->add_option("runs", o->runs, "Folders that roundoff train --out has finished")
      ->type_name("RUN")
      ->required();
  command->add_option("--out", o->out, "Folder of the report")->type_name("DIR")->required();
  command->add_flag("--tex", o->tex, "Print the tables as LaTeX in place of text");
  command->add_flag("--overwrite", o->overwrite, "Replace the report that lies in --out");
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff compare runs/fp32 runs/bf16 runs/fp16 --out compared",
                          "roundoff compare runs/* --out compared --overwrite --tex"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
