// The flags that describe a training run, and the configuration that they make.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "models/run.h"

namespace roundoff::cli {

struct TrainOptions {
  std::string model = "convnet";
  std::string data = "fashion-mnist";
  std::vector<std::int64_t> hidden{128};
  bool batch_norm = false;
  double dropout = 0;
  std::string precision = "fp32";
  std::string device = "cpu";
  std::int64_t epochs = 1;
  std::int64_t steps = 0;
  std::int64_t micro_batch = 64;
  std::int64_t accumulate = 1;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double clip = std::numeric_limits<double>::infinity();
  std::uint64_t seed = 1;
  std::string scale;
  double init_scale = 65536;
  double growth = 2;
  double backoff = 0.5;
  std::int32_t interval = 2000;
  double min_scale = kMinLossScale;
  double max_scale = kMaxLossScale;
  std::int64_t max_skips = 0;
  std::string accumulator = "fp32";
  bool reproducible = false;
  bool stochastic_rounding = false;
  std::string weight_grad = "fp32";
  std::string autocast;
  double label_smoothing = 0;
  std::string graph = "auto";
};

void add_train_options(CLI::App& command, TrainOptions& options);

// fp32, fp64, fp16, v100, a100 or h100. Throws UsageError naming the command and the flag.
Accumulator parse_accumulator(std::string_view command, std::string_view flag,
                              const std::string& text);

// Throws UsageError naming the flag, AbsentError for a device that is not there.
TrainConfig train_config(const TrainOptions& options);

}  // namespace roundoff::cli
