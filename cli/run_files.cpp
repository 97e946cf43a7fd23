#include "cli/run_files.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "cli/config.h"
#include "engine/io/file.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

// What a run writes is far smaller; what is larger is something else.
constexpr std::uint64_t kMostText = std::uint64_t{1} << 30;

std::string read_text(const fs::path& path) {
  const Bytes bytes = read_file(path, kMostText);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A number, or what null stands for beside its class.
double number(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (value.is_number()) return value.get<double>();
  const std::string kind = json.value(std::string(key) + "_class", "nan");
  if (kind == "inf") return std::numeric_limits<double>::infinity();
  if (kind == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

// Reads with `read`; what the JSON lacks or has wrong is a fault of the file.
template <class F>
void checked(const char* operation, const fs::path& path, F&& read) {
  try {
    read();
  } catch (const Json::exception& error) {
    std::string what = error.what();
    // "[json.exception.type.number] words".
    if (const std::size_t at = what.find("] "); at != std::string::npos) what = what.substr(at + 2);
    fail_file(operation, path.string(), "is not what a run writes: ", what);
  }
}

void read_summary(RunFiles& run, const char* operation) {
  const fs::path path = run.folder / "summary.json";
  const std::string text = read_text(path);
  checked(operation, path, [&] {
    const Json json = Json::parse(text);
    const std::string asked = json.at("precision").get<std::string>();
    run.precision = json.at("effective_precision").get<std::string>();
    if (run.precision != asked) run.precision += " (asked: " + asked + ")";
    run.device = json.at("device").get<std::string>();
    run.seed = json.at("seed").get<std::uint64_t>();
    run.test_samples = json.at("test_samples").get<std::int64_t>();
    for (const auto& [key, place] : {std::pair{"steps", &run.steps},
                                     {"updates", &run.updates},
                                     {"skipped", &run.skipped},
                                     {"final_scale", &run.final_scale},
                                     {"best_epoch", &run.best_epoch},
                                     {"train_loss", &run.train_loss},
                                     {"val_loss", &run.val_loss},
                                     {"val_accuracy", &run.val_accuracy},
                                     {"test_loss", &run.test_loss},
                                     {"test_accuracy", &run.test_accuracy},
                                     {"first_grad_norm", &run.first_grad_norm},
                                     {"seconds", &run.seconds}})
      *place = number(json, key);
    run.activation_bytes = number(json.at("memory"), "activations");
  });
}

void read_windows(RunFiles& run, const char* operation) {
  const fs::path path = run.folder / "metrics.jsonl";
  const std::string text = read_text(path);
  std::size_t line = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    ++line;
    checked(operation, fs::path(concat(path.string(), " line ", line)), [&] {
      const Json json = Json::parse(std::string_view(text).substr(from, to - from));
      Window w;
      w.step = number(json, "step");
      w.epoch = number(json, "epoch");
      w.loss = number(json, "loss");
      w.lr = number(json, "lr");
      w.grad_norm = number(json, "grad_norm");
      w.scale = number(json, "scale");
      w.found_inf = json.at("found_inf").get<bool>();
      w.did_step = json.at("did_step").get<bool>();
      run.windows.push_back(w);
    });
    from = to + 1;
  }
}

// A run of an older or a foreign program may lack it: then nothing is known of the data.
void read_sums(RunFiles& run) {
  std::error_code error;
  const fs::path path = run.folder / "environment.json";
  if (!fs::exists(path, error)) return;
  const Json json = Json::parse(read_text(path), nullptr, false);
  if (!json.is_object() || !json.contains("data") || !json["data"].is_array()) return;
  for (const Json& file : json["data"])
    if (file.is_object())
      run.data_sums += file.value("file", "") + " " + file.value("sha256", "") + "\n";
}

}  // namespace

std::map<std::string, std::string> read_run_settings(const fs::path& folder) {
  const fs::path path = folder / "config.toml";
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  return read_settings(read_text(path), path.string());
}

RunFiles read_run(const fs::path& folder, const char* operation) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail_file(operation, folder.string(), "is not a folder of a run");
  for (const char* file : {"summary.json", "metrics.jsonl", "config.toml"})
    if (!fs::exists(folder / file, error))
      fail_file(operation, folder.string(), "has no ", file,
                "; a folder that roundoff train --out has finished expected");
  RunFiles run;
  run.folder = folder;
  run.settings = read_run_settings(folder);
  read_summary(run, operation);
  read_windows(run, operation);
  read_sums(run);
  return run;
}

}  // namespace roundoff::cli
