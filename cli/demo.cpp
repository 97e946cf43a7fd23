// roundoff demo: one network, three precisions, one table.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "cli/command.h"
#include "cli/compare_runs.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/run_folder.h"
#include "cli/train_options.h"
#include "engine/io/file.h"
#include "study/report.h"
#include "study/text.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16, Precision::fp16};
// Marks a folder as this command's own, which --overwrite writes again.
constexpr const char* kMark = "demo.json";
constexpr const char* kReport = "report";

struct Options {
  CommonOptions common;
  TrainOptions train;
  std::string out = "runs/demo";
  bool overwrite = false;
};

std::string format(const char* pattern, double a, double b = 0, double c = 0) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, a, b, c);
  return text;
}

std::string percent_interval(double value, const Interval& interval) {
  return format("%.2f [%.2f, %.2f]", 100 * value, 100 * interval.low, 100 * interval.high);
}

// How the first gradient compares with fp32's at the same weights and on the same samples.
struct GradientComparison {
  double relative_deviation = std::nan("");  // |g - r| / |r|
  double cosine = std::nan("");
  double flushed = std::nan("");  // share of r's non-zero elements that are zero in g
};

GradientComparison compare_gradients(const std::vector<float>& g, const std::vector<float>& r) {
  GradientComparison result;
  if (g.empty() || g.size() != r.size()) return result;
  double difference = 0;
  double gg = 0;
  double rr = 0;
  double gr = 0;
  std::int64_t nonzero = 0;
  std::int64_t flushed = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double a = g[i];
    const double b = r[i];
    difference += (a - b) * (a - b);
    gg += a * a;
    rr += b * b;
    gr += a * b;
    nonzero += b != 0;
    flushed += b != 0 && a == 0;
  }
  result.relative_deviation = std::sqrt(difference / rr);
  result.cosine = gr / std::sqrt(gg * rr);
  result.flushed = static_cast<double>(flushed) / static_cast<double>(nonzero);
  return result;
}

std::string label(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : concat(name(precision), " mixed");
}

Table demo_table(const std::vector<RunSummary>& runs) {
  constexpr auto kMeasured = Provenance::measured;
  constexpr auto kCounted = Provenance::counted;
  Table table("one network in three precisions", {{"precision"},
                                                  {"loss", kMeasured, 4},
                                                  {"val %", kMeasured, 4},
                                                  {"test % [95%]", kMeasured},
                                                  {"test - fp32, points [95%]", kMeasured},
                                                  {"gradient deviation", kMeasured, 2},
                                                  {"gradient cosine", kMeasured, 8},
                                                  {"flushed %", kMeasured, 2},
                                                  {"skipped", kCounted},
                                                  {"scale", kCounted, 0},
                                                  {"activations MiB", kCounted, 3},
                                                  {"seconds", kMeasured, 3}});
  const RunSummary& reference = runs.front();
  for (const RunSummary& s : runs) {
    const bool self = &s == &reference;
    const GradientComparison gradient =
        compare_gradients(s.first_gradient.values, reference.first_gradient.values);
    const PairedDifference paired = paired_difference(reference.test.correct, s.test.correct);
    const auto against = [&](double value) { return self ? Cell() : Cell(value); };
    const double activations =
        static_cast<double>(s.memory.peak[static_cast<std::size_t>(MemoryCategory::activations)]);
    table.add_row({label(s.precision), s.train_loss, 100 * s.validation.accuracy(),
                   percent_interval(s.test.accuracy(), s.test.interval()),
                   self ? Cell()
                        : Cell(format("%+.2f [%+.2f, %+.2f]", 100 * paired.difference,
                                      100 * paired.interval.low, 100 * paired.interval.high)),
                   against(gradient.relative_deviation), against(gradient.cosine),
                   against(100 * gradient.flushed), s.skipped, s.final_scale,
                   activations / (1024.0 * 1024.0), s.seconds});
  }
  return table;
}

void add_notes(Table& table, const std::vector<RunSummary>& runs, const TrainConfig& config,
               const fs::path& out) {
  const RunSummary& first = runs.front();
  table.add_note(concat("one seed (", config.seed,
                        ") ranks nothing: another seed moves the accuracy by as much as a "
                        "precision may"));
  table.add_note(
      "intervals are 95%: Wilson's for an accuracy, paired over the same test images for a "
      "difference; they cover the choice of test images, not the choice of seed");
  table.add_note(
      "gradient: that of the first window at the same weights; flushed: elements that fp32 has and "
      "this precision rounds to zero");
  table.add_note(
      "seconds are a CPU's, where 16 bit is converted and saves nothing: they say nothing about a "
      "GPU");
  if (first.updates < config.scaler.growth_interval)
    table.add_note(concat(first.updates, " updates are fewer than the growth interval of ",
                          config.scaler.growth_interval,
                          ": the loss scale had no chance to grow, only to shrink"));
  table.add_note(
      "activations: the largest sum of bytes that was held for the backward pass at once");
  table.add_note(concat("the runs lie in ", out.string(),
                        "/{fp32,bf16,fp16}: metrics.jsonl, summary.json, checkpoints"));
  table.add_note(concat("the report: ", (out / kReport / "index.html").string()));
}

void check_folder(const fs::path& out, bool overwrite) {
  std::error_code error;
  if (!fs::exists(out)) return;
  if (fs::exists(out / kMark)) {
    if (overwrite) return;
    throw UsageError(concat("[demo] --out ", out.string(),
                            " exists; --overwrite replaces the demonstration in it"));
  }
  if (!fs::is_directory(out) || !fs::is_empty(out, error))
    throw UsageError(concat("[demo] --out ", out.string(),
                            " exists and is not an earlier demonstration; name another folder"));
}

// The table, the three curves and what they were made with, as one page.
void write_page(const fs::path& out, const Table& table, const std::vector<RunSummary>& runs,
                const std::string& environment, const std::string& settings, Console& console) {
  std::vector<RunFiles> files;
  double seconds = 0;
  for (const RunSummary& s : runs) {
    files.push_back(read_run(out / name(s.precision), "demo"));
    seconds += s.seconds;
  }
  study::Result result = compare_runs(files).result;
  result.title = "Demonstration: one network in fp32, bf16 and fp16";
  result.question = "What does the precision change, if nothing else changes?";
  result.tables.insert(result.tables.begin(), table);
  study::ReportContext context;
  context.program = version_line();
  context.command = "roundoff";
  for (std::size_t i = 1; i < console.command_line().size(); ++i)
    context.command += " " + study::shell_word(console.command_line()[i]);
  context.environment = environment;
  context.config = settings;
  context.seconds = seconds;
  context.device = files.front().device;
  study::write_report(out / kReport, "demo", result, context);
}

int run(const Options& o, const CLI::App& command, Console& console) {
  const fs::path out = o.out;
  check_folder(out, o.overwrite);
  TrainConfig config = train_config(o.train);
  const Dataset data = load_dataset(config.data);
  console.check(o.common);
  const std::string environment = environment_json(console.command_line(), data.sources);
  const std::vector<std::string_view> no_settings{"out",  "overwrite", "precision",
                                                  "json", "csv",       "quiet"};

  std::vector<RunSummary> runs;
  for (const Precision precision : kPrecisions) {
    config.precision = precision;
    const std::string folder(name(precision));
    std::string settings = resolved_config(command, no_settings);
    settings += "precision = \"" + folder + "\"\n";
    // What is refused leaves nothing behind.
    const auto on_start = [&] {
      open_run_folder(out / folder, settings, environment);
      write_file_atomically(out / kMark, environment);
    };
    runs.push_back(run_with_progress(config, data, {.out = out / folder}, label(precision), console,
                                     on_start));
    if (runs.back().interrupted)
      throw Interrupted(concat("[demo] interrupted; what was done lies in ", out.string()));
  }
  Table table = demo_table(runs);
  add_notes(table, runs, config, out);
  write_page(out, table, runs, environment, resolved_config(command, no_settings), console);
  console.emit(table, o.common);
  return kDone;
}

}  // namespace

Command add_demo(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("demo", "Train one network in fp32, bf16 and fp16 and compare");
  auto o = std::make_shared<Options>();
  o->train.schedule = "cosine";
  o->train.warmup = 100;
  o->train.lr = 2e-3;
  o->train.clip = 1.0;
  add_train_options(*command, o->train);
  // The precision is what the demonstration varies.
  command->remove_option(command->get_option("--precision"));
  command->add_option("--out", o->out, "Folder of the three runs")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_flag("--overwrite", o->overwrite, "Replace the demonstration that lies in --out");
  add_common_options(*command, o->common, true);
  add_examples(*command,
               {"roundoff demo", "roundoff demo --data glyphs --epochs 2 --out runs/glyphs"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
