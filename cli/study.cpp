// roundoff study: the field's questions as experiments, each with a report.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/study_progress.h"
#include "engine/data/dataset.h"
#include "engine/io/file.h"
#include "study/experiment.h"
#include "study/report.h"
#include "study/study.h"
#include "study/text.h"

namespace roundoff::cli {

namespace fs = std::filesystem;
using study::Listing;
using study::ReportContext;
using study::Study;

namespace {

constexpr const char* kNotRun = "not run: interrupted";

struct Options {
  CommonOptions common;
  std::vector<std::string> names;
  bool list = false;
  bool quick = false;
  std::string device = "cpu";
  std::vector<std::uint64_t> seeds;
  std::string data;
  std::string out = "report";
  bool overwrite = false;
};

std::string known_names() {
  std::string names;
  for (const Study& s : study::studies()) names += std::string(s.name) + ", ";
  return names + "all";
}

// In the list's order, each once.
std::vector<const Study*> chosen(const std::vector<std::string>& names) {
  if (names.empty())
    throw UsageError(concat("[study] no study named; ", known_names(), " or --list expected"));
  const std::span<const Study> all = study::studies();
  for (const std::string& name : names)
    if (name != "all" &&
        std::none_of(all.begin(), all.end(), [&](const Study& s) { return s.name == name; }))
      throw UsageError(concat("[study] unknown study '", name, "'; ", known_names(), " expected"));
  std::vector<const Study*> result;
  for (const Study& s : all)
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return name == "all" || name == s.name; }))
      result.push_back(&s);
  return result;
}

void check_folder(const fs::path& out, bool overwrite, const std::vector<const Study*>& studies) {
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status))
    throw UsageError(concat("[study] --out ", out.string(), " exists and is not a folder"));
  if (fs::is_empty(out, error)) return;
  if (!overwrite)
    throw UsageError(
        concat("[study] --out ", out.string(),
               " exists; --overwrite replaces the studies named and keeps the others"));
  if (!fs::exists(out / study::kStudiesFile, error))
    throw UsageError(concat("[study] --out ", out.string(),
                            " exists and is not an earlier report; name another folder"));
  for (const Study* s : studies)
    if (!study::takes_report(out / s->name))
      throw UsageError(concat("[study] ", (out / s->name).string(),
                              " exists and is not a study's report; name another folder"));
}

// What --config reads back to these studies, and to the same seeds and data.
std::string settings(const Options& o, const CLI::App& command,
                     const std::vector<std::string>& names,
                     const std::vector<std::uint64_t>& seeds) {
  std::vector<std::string> typed_seeds;
  for (const std::uint64_t seed : seeds) typed_seeds.push_back(std::to_string(seed));
  std::vector<std::string> data;
  if (!o.data.empty()) data.push_back(absolute_data(o.data));
  return resolved_config(command, {"out", "overwrite", "list", "json", "csv", "quiet"},
                         {{"names", names}, {"seeds", typed_seeds}, {"data", data}});
}

// The line that makes one study again, or all that were asked for.
std::string command_line(const Options& o, const std::string& names) {
  std::string line = "roundoff study " + names;
  if (o.quick) line += " --quick";
  if (o.device != "cpu") line += " --device " + study::shell_word(o.device);
  for (std::size_t i = 0; i < o.seeds.size(); ++i)
    line += concat(i == 0 ? " --seeds " : ",", o.seeds[i]);
  if (!o.data.empty()) line += " --data " + study::shell_word(o.data);
  return line + " --out " + study::shell_word(o.out);
}

// This run's listings and, in the list's order, what lies in the folder from earlier ones.
std::vector<Listing> with_earlier(const fs::path& out, const std::vector<Listing>& now) {
  std::vector<Listing> all;
  for (const Study& s : study::studies()) {
    const auto at = std::find_if(now.begin(), now.end(),
                                 [&](const Listing& listing) { return listing.name == s.name; });
    // What an interrupt left undone has its earlier report still.
    std::optional<Listing> earlier;
    if (at == now.end() || at->reason == kNotRun) earlier = study::read_listing(out / s.name);
    if (earlier) {
      all.push_back(std::move(*earlier));
    } else if (at != now.end()) {
      all.push_back(*at);
    }
  }
  return all;
}

// `finished` and, of what was asked for, what an interrupt left undone.
std::vector<Listing> with_not_run(const std::vector<Listing>& finished,
                                  const std::vector<const Study*>& studies) {
  std::vector<Listing> all = finished;
  for (std::size_t i = finished.size(); i < studies.size(); ++i) {
    Listing& listing = all.emplace_back();
    listing.name = studies[i]->name;
    listing.state = Listing::State::skipped;
    listing.reason = kNotRun;
  }
  return all;
}

Table summary(const std::vector<Listing>& studies, const fs::path& out) {
  Table table("studies", {{"study"},
                          {"state"},
                          {"held", Provenance::counted},
                          {"claims", Provenance::counted},
                          {"seconds", Provenance::measured, 3},
                          {"file"}});
  for (const Listing& s : studies) {
    const bool done = s.state == Listing::State::done;
    const char* state = done                                ? "done"
                        : s.state == Listing::State::failed ? "failed"
                        : s.reason == kNotRun               ? kNotRun
                                                            : "skipped";
    table.add_row({s.name, std::string(state), done ? Cell(s.held) : Cell(),
                   done ? Cell(s.claims) : Cell(), done ? Cell(s.seconds) : Cell(),
                   done ? Cell((out / s.name / "index.html").string()) : Cell()});
  }
  return table;
}

int list_studies(const Options& o, Console& console) {
  Table table("studies", {{"study"}, {"question"}});
  for (const Study& s : study::studies())
    table.add_row({std::string(s.name), std::string(s.question)});
  console.emit(table, o.common);
  return kDone;
}

int status_of(const std::vector<Listing>& studies) {
  const auto any = [&](auto&& is) { return std::any_of(studies.begin(), studies.end(), is); };
  if (any([](const Listing& s) { return s.state == Listing::State::failed; })) return kFailed;
  if (any([](const Listing& s) { return s.held < s.claims; })) return kNotHeld;
  if (any([](const Listing& s) { return s.state == Listing::State::done; })) return kDone;
  return kAbsent;
}

int run(const Options& o, const CLI::App& command, Console& console) {
  if (o.list) return list_studies(o, console);
  const std::vector<const Study*> studies = chosen(o.names);
  study::check_seeds(o.seeds);
  const Device device = parse_device(o.device);
  const fs::path out = o.out;
  check_folder(out, o.overwrite, studies);
  console.check(o.common);

  ReportContext context;
  context.program = version_line();
  context.quick = o.quick;
  context.device = o.device;
  context.config = settings(o, command, o.names, o.seeds);
  // A folder that does not exist, or files that contradict themselves, end the command at once.
  std::vector<SourceFile> sources;
  if (!o.data.empty()) sources = load_dataset(o.data).sources;
  context.environment = environment_json(console.command_line(), sources);
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail_file("study", out.string(), "the folder cannot be made: ", error.message());
  std::string names;
  for (const Study* s : studies) names += (names.empty() ? "" : " ") + std::string(s->name);
  const bool all = studies.size() == study::studies().size();
  ReportContext index = context;
  index.command = command_line(o, all ? "all" : names);
  write_file_atomically(out / "config.toml", context.config);
  write_file_atomically(out / "environment.json", context.environment);

  const auto show = [&](const std::vector<Listing>& listings) {
    Table table = summary(listings, out);
    table.add_note(concat("all of them: ", (out / "index.html").string()));
    console.emit(table, o.common);
    for (const Listing& s : listings)
      if (s.held < s.claims)
        console.error(concat("[study] ", s.name, ": ", s.claims - s.held, " of ", s.claims,
                             " claims do not hold, first: ", s.not_held));
  };
  const GracefulInterrupt interrupt;
  std::vector<Listing> finished;
  // Whatever happens, what is finished is listed.
  study::write_index(out, with_earlier(out, finished), index);
  for (const Study* s : studies) {
    const std::string name(s->name);
    StudyProgress progress(console, name, finished.size() + 1, studies.size());
    study::Options options;
    options.quick = o.quick;
    options.device = device;
    options.seeds = o.seeds;
    options.data = o.data;
    options.progress = [&](std::string_view what) { progress.say(what); };
    options.stop = [&] { return interrupt.requested(); };
    Listing listing;
    listing.name = name;
    listing.program = context.program;
    listing.quick = o.quick;
    const auto begin = std::chrono::steady_clock::now();
    try {
      study::begin(options, "begins");
      const study::Result result = s->run(options);
      context.seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      context.command = command_line(o, name);
      context.config = settings(o, command, {name}, result.seeds.empty() ? o.seeds : result.seeds);
      context.up = "../index.html";
      listing = study::write_report(out / name, name, result, context);
    } catch (const study::Interrupted&) {
      progress.clear();
      const std::vector<Listing> listings = with_not_run(finished, studies);
      study::write_index(out, with_earlier(out, listings), index);
      show(listings);
      throw Interrupted(concat("[study] interrupted in ", name, "; ", finished.size(), " of ",
                               studies.size(), " studies are finished and lie in ", out.string()));
    } catch (const AbsentError& e) {
      progress.clear();
      console.skipped(concat(name, ": ", e.what()));
      listing.state = Listing::State::skipped;
      listing.reason = e.what();
    } catch (const UsageError&) {
      throw;
    } catch (const Error& e) {
      // The others still have their answers.
      progress.clear();
      console.error(concat(e.what(), " (study ", name, ")"));
      listing.state = Listing::State::failed;
      listing.reason = e.what();
    }
    finished.push_back(std::move(listing));
    study::write_index(out, with_earlier(out, finished), index);
  }

  show(finished);
  return status_of(finished);
}

}  // namespace

Command add_study(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("study", "Run experiments on mixed precision and write reports");
  auto o = std::make_shared<Options>();
  std::string names = "Studies: ";
  names += known_names();
  // As a flag, too, so that a file can name them.
  command->add_option("names,--names", o->names, names)->type_name("NAME");
  command->add_flag("--list", o->list, "Print the studies and their questions");
  command->add_flag("--quick", o->quick, "Smaller: under 40 seconds a study on two cores");
  command->add_option("--device", o->device, "cpu, sim or cuda")->capture_default_str();
  command->add_option("--seeds", o->seeds, "In place of each study's own seeds")
      ->delimiter(',')
      ->allow_extra_args(false);  // what follows names studies
  command->add_option("--data", o->data, "In place of each study's own data, as in train");
  command->add_option("--out", o->out, "Folder of the reports")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_flag("--overwrite", o->overwrite,
                    "Replace these studies' reports in --out, keep the others'");
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff study all --quick --out report",
                          "roundoff study amp --seeds 1,2,3,4,5 --out report --overwrite"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
