// What a training run left in its folder, read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace roundoff::cli {

// A line of metrics.jsonl; what is null there is the infinity or NaN that it stands for.
struct Window {
  double step = 0, epoch = 0, loss = 0, lr = 0, grad_norm = 0, scale = 1;
  bool found_inf = false;
  bool did_step = false;
};

struct RunFiles {
  std::filesystem::path folder;
  std::map<std::string, std::string> settings;  // config.toml, by key
  std::string precision;                        // effective, where it differs from what was asked
  std::string device;
  std::uint64_t seed = 0;
  double steps = 0, updates = 0, skipped = 0, final_scale = 1, best_epoch = 0;
  double train_loss = 0, val_loss = 0, val_accuracy = 0;
  double test_loss = 0, test_accuracy = 0;
  std::int64_t test_samples = 0;
  double first_grad_norm = 0, seconds = 0;
  double activation_bytes = 0;
  std::vector<Window> windows;
  // Sums of the data files, "name sha256" lines, from environment.json.
  std::string data_sums;

  std::string setting(const std::string& key) const {
    const auto at = settings.find(key);
    return at == settings.end() ? std::string() : at->second;
  }
};

// config.toml alone; empty where there is none.
std::map<std::string, std::string> read_run_settings(const std::filesystem::path& folder);

// Throws FileError, naming the folder and the file, for a folder that is not a finished run's, and
// for files that are damaged. `operation`: for the error.
RunFiles read_run(const std::filesystem::path& folder, const char* operation);

}  // namespace roundoff::cli
