// roundoff eval: a checkpoint's model on a split that it was not trained on.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/run_files.h"
#include "engine/data/corruption.h"
#include "engine/io/file.h"
#include "kernels/simt/runtime.h"
#include "models/checkpoint.h"
#include "models/evaluate.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  CommonOptions common;
  std::string checkpoint;
  std::string split = "test";
  std::string data;
  std::string device = "cpu";
  std::int64_t severity = 3;
  std::int64_t seed = 1;
};

// The checkpoint as it was prepared, or --data; a folder is in the run's own settings.
std::string data_of(const Options& o, const fs::path& file, const CheckpointModel& saved) {
  if (!o.data.empty()) return o.data;
  const std::map<std::string, std::string> settings = read_run_settings(file.parent_path());
  if (const auto at = settings.find("data"); at != settings.end()) return at->second;
  for (const char* kind : {"idx", "npy", "cifar10"})
    if (saved.data == kind)
      throw UsageError(concat("[eval] the checkpoint was trained on ", saved.data,
                              " data, and does not know its folder; --data ", saved.data,
                              ":DIR expected"));
  return saved.data;
}

std::string numbers(const std::vector<double>& values) {
  std::string out;
  for (const double v : values) out += (out.empty() ? "" : " ") + shortest(v);
  return out;
}

void check_preparation(const fs::path& file, const CheckpointModel& saved, const Dataset& data) {
  const std::string origin = file.string();
  if (data.image != saved.model.input || data.classes != saved.model.classes)
    throw Error(concat("[eval] ", origin, " takes images of ", saved.model.input, " in ",
                       saved.model.classes, " classes; ", data.name, " has ", data.image, " in ",
                       data.classes));
  if (data.normalization != saved.normalization)
    throw Error(concat("[eval] ", origin, " was trained on data with mean ",
                       numbers(saved.normalization.mean), " and deviation ",
                       numbers(saved.normalization.deviation), "; ", data.name, " has ",
                       numbers(data.normalization.mean), " and ",
                       numbers(data.normalization.deviation), ": it was prepared otherwise"));
}

// What would be read and then change nothing is refused.
void check_corruption_flags(const Options& o, const CLI::App& command, const Dataset& data) {
  for (const char* flag : {"--severity", "--seed"}) {
    if (command.get_option(flag)->count() == 0) continue;
    if (o.split != "corrupt")
      throw UsageError(concat("[eval] ", flag, " goes with --split corrupt; --split is ", o.split));
    if (data.corrupted.has_value())
      throw UsageError(concat("[eval] ", flag, " does not go with ", data.name,
                              ", which has a corrupted set of its own: nothing is spoilt here"));
  }
}

int run(const Options& o, const CLI::App& command, Console& console) {
  if (o.split != "val" && o.split != "test" && o.split != "corrupt")
    throw UsageError(concat("[eval] --split is '", o.split, "'; val, test or corrupt expected"));
  if (o.severity < 1 || o.severity > 5)
    throw UsageError(concat("[eval] --severity is ", o.severity, "; 1 to 5 expected"));
  if (o.seed < 0) throw UsageError(concat("[eval] --seed is ", o.seed, "; at least 0 expected"));
  console.check(o.common);
  const Device device = parse_device(o.device);
  std::error_code error;
  fs::path file = o.checkpoint;
  if (fs::is_directory(file, error)) file /= "best.safetensors";
  const CheckpointModel saved = read_checkpoint_model(file);
  const Dataset data = load_dataset(data_of(o, file, saved));
  check_preparation(file, saved, data);
  check_corruption_flags(o, command, data);

  Context context(device == Device::cpu ? nullptr : simt::open(device));
  const std::unique_ptr<Model> model = make_model(saved.model);
  apply_precision(context, saved.precision);
  model->parameters().allocate(context.allocator, arena_settings(saved.precision, saved.seed));
  load_weights(file, *model);

  const bool corrupt_split = o.split == "corrupt";
  const bool own = corrupt_split && data.corrupted.has_value();
  Split spoilt;
  if (corrupt_split && !own)
    spoilt = corrupt(data.test, static_cast<int>(o.severity), static_cast<std::uint64_t>(o.seed));
  const Split& split = o.split == "val" ? data.validation
                       : own            ? *data.corrupted
                       : corrupt_split  ? spoilt
                                        : data.test;
  const Evaluation all = evaluate(context, *model, split, data.normalization);

  constexpr auto kMeasured = Provenance::measured;
  constexpr auto kCounted = Provenance::counted;
  Table table("evaluation", {{"checkpoint"},
                             {"data"},
                             {"split"},
                             {"corruption"},
                             {"precision"},
                             {"n", kCounted},
                             {"correct", kCounted},
                             {"accuracy", kMeasured, 5},
                             {"low", kMeasured, 4},
                             {"high", kMeasured, 4},
                             {"loss", kMeasured, 5}});
  const auto add = [&](const std::string& kind, std::int64_t n, std::int64_t correct, Cell loss) {
    const Interval interval = wilson_interval(correct, n);
    const double accuracy = n == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(n);
    table.add_row({file.string(), data.name, o.split, kind, std::string(name(saved.precision)), n,
                   correct, accuracy, interval.low, interval.high, std::move(loss)});
  };
  add(own             ? "the data's own"
      : corrupt_split ? "all in turn"
                      : "none",
      all.samples, all.correct_count, all.loss);
  if (corrupt_split && !own) {
    for (int kind = 0; kind < kCorruptions; ++kind) {
      std::int64_t n = 0;
      std::int64_t correct = 0;
      for (std::int64_t i = kind; i < all.samples; i += kCorruptions) {
        ++n;
        correct += all.correct[static_cast<std::size_t>(i)];
      }
      add(std::string(name(static_cast<Corruption>(kind))), n, correct, {});
    }
    table.add_note(concat("the test images spoilt at severity ", o.severity, " of 5, seed ", o.seed,
                          ", one kind after the other (docs/studies.md)"));
  }
  table.add_note("low and high: Wilson's 95% interval over the images; loss: mean cross-entropy");
  console.emit(table, o.common);
  return kDone;
}

}  // namespace

Command add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Accuracy and loss of a checkpoint on a split");
  auto o = std::make_shared<Options>();
  command
      ->add_option("--checkpoint", o->checkpoint,
                   "A checkpoint, or a run's folder, whose best.safetensors is taken")
      ->type_name("FILE")
      ->required();
  command->add_option("--split", o->split, "val, test or corrupt")->capture_default_str();
  command->add_option("--data", o->data, "Where the data lie; by default what the run trained on");
  command->add_option("--device", o->device, "cpu, sim or cuda")->capture_default_str();
  command
      ->add_option("--severity", o->severity,
                   "corrupt: how badly, 1 to 5; not for data with a corrupted set of its own")
      ->capture_default_str();
  command->add_option("--seed", o->seed, "corrupt: of the noise and the shifts")
      ->capture_default_str();
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff eval --checkpoint runs/a --split test",
                          "roundoff eval --checkpoint runs/a/last.safetensors --split corrupt "
                          "--severity 5 --json -"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
