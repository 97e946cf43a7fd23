// A run's folder and a run with a progress bar: what `train` and `demo` share.
#pragma once

#include <filesystem>
#include <string>

#include "cli/command.h"
#include "models/instruments.h"
#include "models/run.h"

namespace roundoff::cli {

// Refuses a folder that holds something, unless `overwrite`, and anything that is no folder.
// Throws UsageError; changes nothing.
void check_run_folder(const std::filesystem::path& out, bool overwrite);
// Makes the folder and removes the files of an earlier run, and only those; then writes config.toml
// and environment.json.
void open_run_folder(const std::filesystem::path& out, const std::string& config,
                     const std::string& environment);

// run_training with a live progress bar on a terminal and a note an epoch elsewhere. Ctrl-C ends
// the run after its window, with a checkpoint. on_start: see RunHooks. `instruments` may be null.
RunSummary run_with_progress(const TrainConfig& config, const Dataset& data,
                             const RunSettings& settings, const std::string& label,
                             Console& console, std::function<void()> on_start = {},
                             Instruments* instruments = nullptr);

}  // namespace roundoff::cli
