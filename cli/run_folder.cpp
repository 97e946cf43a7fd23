#include "cli/run_folder.h"

#include <cmath>
#include <cstdio>

#include "cli/console.h"
#include "cli/interrupt.h"
#include "engine/io/file.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRunFiles[] = {
    "config.toml",      "environment.json", "metrics.jsonl",
    "last.safetensors", "best.safetensors", "best-of-epochs.safetensors",
    "summary.json",     "probe.jsonl",      "shadow.json"};

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f%%", 100 * share);
  return text;
}

}  // namespace

void check_run_folder(const fs::path& out, bool overwrite) {
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status))
    throw UsageError(concat("[train] --out ", out.string(), " exists and is not a folder"));
  if (!overwrite && !fs::is_empty(out, error))
    throw UsageError(concat("[train] --out ", out.string(),
                            " exists; --overwrite replaces the run in it, --resume continues it"));
}

void open_run_folder(const fs::path& out, const std::string& config,
                     const std::string& environment) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail_file("train", out.string(), "the folder cannot be made: ", error.message());
  for (const char* file : kRunFiles) fs::remove(out / file, error);
  write_file_atomically(out / "config.toml", config);
  write_file_atomically(out / "environment.json", environment);
}

RunSummary run_with_progress(const TrainConfig& config, const Dataset& data,
                             const RunSettings& settings, const std::string& label,
                             Console& console, std::function<void()> on_start,
                             Instruments* instruments) {
  const GracefulInterrupt interrupt;
  std::unique_ptr<ProgressBar> bar;
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  double loss = 0;
  RunHooks hooks;
  const auto aside = [&](auto&& say) {
    if (bar) bar->clear();
    say();
  };
  hooks.note = [&](std::string_view text) { aside([&] { console.note(text); }); };
  hooks.warning = [&](std::string_view text) { aside([&] { console.warn(text); }); };
  hooks.on_start = std::move(on_start);
  hooks.stop = [&] { return interrupt.requested(); };
  hooks.on_step = [&](const Trainer& trainer, const StepResult& step) {
    if (!bar) {
      bar = std::make_unique<ProgressBar>(
          console.err(), console.progress_terminal(), label, trainer.total_steps(), "img",
          static_cast<double>(config.micro_batch * config.accumulate), trainer.steps_done() - 1);
    }
    if (std::isfinite(step.loss)) {
      // Running means over about fifty windows, so that the line can be read.
      loss = loss == 0 ? step.loss : 0.98 * loss + 0.02 * step.loss;
    }
    correct += step.correct;
    samples += step.samples;
    const double share =
        samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples);
    char details[96];
    std::snprintf(details, sizeof(details), "loss %.3f acc %s scale %.6g skip %lld", loss,
                  percent(share).c_str(), step.scale, static_cast<long long>(trainer.skipped()));
    bar->update(trainer.steps_done(), details);
  };
  hooks.on_epoch = [&](const EpochReport& report) {
    correct = 0;
    samples = 0;
    hooks.note(concat(label, ": epoch ", report.epoch, ": validation loss ", report.validation.loss,
                      ", accuracy ", percent(report.validation.accuracy()),
                      report.best ? " (best so far)" : ""));
  };
  if (instruments != nullptr) instruments->attach(hooks);
  RunSummary summary = run_training(config, data, settings, hooks);
  bar.reset();
  return summary;
}

}  // namespace roundoff::cli
