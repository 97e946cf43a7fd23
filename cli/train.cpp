// roundoff train: one training run.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/run_folder.h"
#include "cli/train_options.h"
#include "engine/data/dataset.h"
#include "engine/io/file.h"
#include "models/instruments.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  CommonOptions common;
  TrainOptions train;
  std::string out;
  std::string resume;
  bool overwrite = false;
  std::string amp_check = "stop";
  bool accum_check = false;
  std::int64_t early_stop = 0;
  std::int64_t checkpoint_every = 0;
  bool verbose = false;
  std::int64_t probe = 0;
  bool shadow = false;
};

AmpCheck parse_amp_check(const std::string& text) {
  if (text == "stop") return AmpCheck::stop;
  if (text == "fallback") return AmpCheck::fallback;
  if (text == "off") return AmpCheck::off;
  throw UsageError(concat("[train] --amp-check is '", text, "'; stop, fallback or off expected"));
}

std::string text_of(const fs::path& path) {
  const Bytes bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The dtype of every node, weight and gradient of one forward and backward pass.
class DtypeReport : public NodeObserver {
 public:
  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override {
    for (const Tensor& input : inputs)
      if (input.leaf() != nullptr) used_[input.leaf().get()] = input.dtype();
    if (index < 0) return;
    rows_.push_back({operation.name, inputs[0].dtype(), outputs[0].dtype(), DType::u8});
  }
  void runs_backward(std::int64_t index, const Node&, const Tensor& gradient) override {
    if (index < static_cast<std::int64_t>(rows_.size()))
      rows_[static_cast<std::size_t>(index)].gradient = gradient.dtype();
  }

  void print(Trainer& trainer, std::ostream& out) const {
    Table nodes("dtypes of nodes", {{"node"}, {"input"}, {"output"}, {"gradient"}});
    for (const Row& row : rows_)
      nodes.add_row({std::string(row.operation), std::string(name(row.input)),
                     std::string(name(row.output)),
                     row.gradient == DType::u8 ? "-" : std::string(name(row.gradient))});
    nodes.print(out);
    Table weights("dtypes of weights",
                  {{"weight"}, {"shape"}, {"master"}, {"compute"}, {"gradient"}});
    const ParameterArena& parameters = trainer.model().parameters();
    for (const ParameterEntry& e : parameters.entries()) {
      const Leaf& leaf = *e.tensor.leaf();
      const auto used = used_.find(&leaf);
      const DType compute = used == used_.end() ? e.tensor.dtype() : used->second;
      weights.add_row({e.name, concat(e.shape), std::string(name(e.tensor.dtype())),
                       std::string(name(compute)), std::string(name(leaf.grad.dtype()))});
    }
    weights.print(out);
  }

 private:
  struct Row {
    std::string_view operation;
    DType input;
    DType output;
    DType gradient;
  };
  std::vector<Row> rows_;
  std::map<const Leaf*, DType> used_;  // the dtype in which nodes read a weight
};

void report_dtypes(const TrainConfig& config, const Dataset& data, std::ostream& out) {
  Trainer trainer(config, data);
  DtypeReport report;
  trainer.context().observer = &report;
  std::vector<MicroBatch> window =
      trainer.cut(trainer.sampler().next(), std::min<std::int64_t>(config.micro_batch, 2));
  window.resize(1);
  accumulate_window(trainer.context(), trainer.model(), window, trainer.scaler().scale(), {});
  report.print(trainer, out);
}

Table summary_table(const RunSummary& s) {
  constexpr auto kMeasured = Provenance::measured;
  constexpr auto kCounted = Provenance::counted;
  Table table("training run", {{"precision"},
                               {"effective_precision"},
                               {"steps", kCounted},
                               {"updates", kCounted},
                               {"skipped", kCounted},
                               {"final_scale", kCounted, 0},
                               {"train_loss", kMeasured, 4},
                               {"val_accuracy", kMeasured, 4},
                               {"test_accuracy", kMeasured, 4},
                               {"test_low", kMeasured, 4},
                               {"test_high", kMeasured, 4},
                               {"seconds", kMeasured, 4},
                               {"images_per_second", kMeasured, 4}});
  const Interval test = s.test.interval();
  table.add_row({std::string(name(s.precision)), std::string(name(s.effective_precision)), s.steps,
                 s.updates, s.skipped, s.final_scale, s.train_loss, s.validation.accuracy(),
                 s.test.accuracy(), test.low, test.high, s.seconds, s.images_per_second});
  table.add_note(
      "test accuracy of the checkpoint with the best validation loss; test_low and "
      "test_high: Wilson's 95% interval over the test images");
  return table;
}

// The rows that lost the most bits, of the last window that ran beside fp64.
Table shadow_table(const ShadowReport& report, std::size_t rows) {
  constexpr auto kMeasured = Provenance::measured;
  Table table(concat("bits lost, before window ", report.step), {{"pass"},
                                                                 {"node"},
                                                                 {"operation"},
                                                                 {"tensor"},
                                                                 {"dtype"},
                                                                 {"bits_lost", kMeasured, 3},
                                                                 {"local_bits", kMeasured, 3},
                                                                 {"local_max_ulp", kMeasured, 3},
                                                                 {"local", kMeasured, 3},
                                                                 {"total_bits", kMeasured, 3},
                                                                 {"total", kMeasured, 3}});
  for (std::size_t i = 0; i < std::min(rows, report.rows.size()); ++i) {
    const ShadowRow& r = report.rows[i];
    const bool output = r.tensor == "output" && !r.name.empty();
    table.add_row({std::string(r.pass == ShadowRow::Pass::forward ? "forward" : "backward"),
                   std::int64_t{r.node}, r.operation,
                   output ? concat(r.tensor, " (", r.name, ")") : r.tensor,
                   std::string(name(r.dtype)), r.bits_lost(), r.local.bits(), r.local.max_ulp,
                   r.local.relative, r.total.bits(), r.total.relative});
  }
  table.add_note(
      "local: what the node added, against fp64 on its own inputs; total: against a run in fp64 "
      "from the start; both relative, L2, largest local error first");
  if (rows < report.rows.size())
    table.add_note(concat("the ", rows, " largest of ", report.rows.size(),
                          "; shadow.json in the run's folder has all"));
  return table;
}

int run(const Options& o, const CLI::App& command, Console& console) {
  const bool resume = !o.resume.empty();
  const fs::path out = resume ? o.resume : o.out;
  TrainConfig config = train_config(o.train);
  RunSettings settings;
  settings.out = out;
  settings.resume = resume;
  settings.amp_check = parse_amp_check(o.amp_check);
  settings.accum_check = o.accum_check;
  settings.early_stop = o.early_stop;
  settings.checkpoint_every = o.checkpoint_every;
  if (o.early_stop < 0 || o.checkpoint_every < 0)
    throw UsageError("[train] --early-stop and --checkpoint-every are at least 0");
  Instruments instruments(
      {.out = out, .probe_every = o.probe, .shadow = o.shadow, .resume = resume});
  if (o.probe > 0 && out.empty())
    throw UsageError("[train] --probe writes probe.jsonl into the run's folder; --out is missing");
  if (!resume && !out.empty()) check_run_folder(out, o.overwrite);
  console.check(o.common);
  const Dataset data = load_dataset(config.data);
  // A run that goes on further has the settings of that from now on.
  const std::string resolved =
      resolved_config(command, {"overwrite", "quiet", "json", "csv", "verbose"},
                      {{"data", {absolute_data(o.train.data)}}});
  const auto on_start = [&] {
    if (out.empty()) return;
    if (resume) {
      write_file_atomically(out / "config.toml", resolved);
      std::error_code error;
      const fs::path environment = out / "environment.json";
      const std::string earlier = fs::exists(environment, error) ? text_of(environment) : "";
      write_file_atomically(
          environment, resumed_environment_json(earlier, console.command_line(), data.sources));
    } else {
      open_run_folder(out, resolved, environment_json(console.command_line(), data.sources));
    }
  };
  if (out.empty()) console.note("without --out nothing of this run is kept");
  if (o.verbose) report_dtypes(config, data, console.err());

  RunSummary summary;
  try {
    summary = run_with_progress(config, data, settings, o.train.precision, console, on_start,
                                &instruments);
  } catch (const SelfTestFailed& e) {
    console.error(e.what());
    return kNotHeld;
  }
  if (summary.interrupted) {
    throw Interrupted(
        out.empty() ? std::string("[train] interrupted; nothing was kept, there is no --out")
                    : concat("[train] interrupted after window ", summary.steps,
                             " and saved; continue with: roundoff train --resume ", out.string()));
  }
  console.emit(summary_table(summary), o.common);
  if (!instruments.shadows().empty()) {
    // Where stdout is a file for scripts, it stays one.
    const bool plain = o.common.json != "-" && o.common.csv != "-";
    shadow_table(instruments.shadows().back(), 16).print(plain ? console.out() : console.err());
  }
  if (o.probe > 0)
    console.note(concat(instruments.probed(), " windows probed: ", (out / "probe.jsonl").string()));
  if (!out.empty()) console.note(concat("the run lies in ", out.string()));
  return kDone;
}

}  // namespace

Command add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model in one precision");
  auto o = std::make_shared<Options>();
  add_train_options(*command, o->train);
  command->add_option("--out", o->out, "Folder of the run")->type_name("DIR");
  command->add_flag("--overwrite", o->overwrite, "Replace the run that lies in --out");
  command
      ->add_option(
          "--resume", o->resume,
          "Continue the run in DIR with its own settings; --steps and --epochs may be more, and a "
          "reproducible run's windows cut otherwise")
      ->type_name("DIR");
  command
      ->add_option("--amp-check", o->amp_check,
                   "Before a 16-bit run, compare predictions with fp32: stop, fallback or off")
      ->capture_default_str();
  command->add_flag("--accum-check", o->accum_check,
                    "First compare an accumulated gradient with the whole batch's");
  command
      ->add_option("--early-stop", o->early_stop,
                   "End after so many epochs without a better validation loss; 0: never")
      ->capture_default_str();
  command
      ->add_option("--checkpoint-every", o->checkpoint_every,
                   "Windows between checkpoints inside an epoch; 0: at epochs' ends only")
      ->capture_default_str();
  command
      ->add_option("--probe", o->probe,
                   "Write exponents, overflow margins and the first infinity of every N-th window "
                   "to probe.jsonl; 0: never")
      ->capture_default_str();
  command->add_flag(
      "--shadow", o->shadow,
      "Run the first and the last window in fp64 too, and rank operations by the bits "
      "that they lost");
  command->add_flag("--verbose", o->verbose, "Show the dtype of every node, weight and gradient");
  add_common_options(*command, o->common, true);
  add_examples(
      *command,
      {"roundoff train --precision bf16 --epochs 2 --out runs/a",
       "roundoff train --precision fp16 --micro-batch 16 --accumulate 4 --clip 1 --out runs/b",
       "roundoff train --resume runs/b"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
