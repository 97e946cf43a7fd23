#include "models/checkpoint.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/io/safetensors.h"

namespace roundoff {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kRunKey = "roundoff.run";

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json model_json(const ModelSettings& model) {
  Json json;
  json["name"] = model.model;
  json["input"] =
      std::vector<std::int64_t>(model.input.extents().begin(), model.input.extents().end());
  json["classes"] = model.classes;
  json["hidden"] = model.hidden;
  json["batch_norm"] = model.batch_norm;
  json["dropout"] = model.dropout;
  return json;
}

ModelSettings model_settings(const Json& json) {
  ModelSettings model;
  model.model = json.at("name").get<std::string>();
  const auto input = json.at("input").get<std::vector<std::int64_t>>();
  model.input = Shape(std::span<const std::int64_t>(input));
  model.classes = json.at("classes").get<std::int64_t>();
  model.hidden = json.at("hidden").get<std::vector<std::int64_t>>();
  model.batch_norm = json.at("batch_norm").get<bool>();
  model.dropout = json.at("dropout").get<double>();
  return model;
}

ModelSettings full_model_settings(const Trainer& trainer) {
  ModelSettings model = trainer.config().model;
  model.input = trainer.data().image;
  model.classes = trainer.data().classes;
  return model;
}

// What a run cannot change half-way, as text that both sides of a comparison show.
Json identity_json(const Trainer& trainer) {
  const TrainConfig& c = trainer.config();
  Json json;
  json["model"] = model_json(full_model_settings(trainer));
  json["precision"] = name(c.precision);
  // Not the folder: the same files may lie elsewhere when the run goes on.
  json["data"] = trainer.data().name.substr(0, trainer.data().name.find(':'));
  json["mean"] = trainer.data().normalization.mean;
  json["deviation"] = trainer.data().normalization.deviation;
  Json sources = Json::object();
  for (const SourceFile& source : trainer.data().sources) sources[source.name] = source.sha256;
  json["sources"] = sources;
  json["training_samples"] = trainer.data().train.size();
  json["seed"] = c.seed;
  json["reproducible"] = c.reproducible;
  if (c.reproducible) {
    // However it is cut.
    json["window"] = c.micro_batch * c.accumulate;
  } else {
    json["micro_batch"] = c.micro_batch;
    json["accumulate"] = c.accumulate;
  }
  json["optimizer"] = name(c.optimizer.kind);
  json["momentum"] = c.optimizer.momentum;
  json["nesterov"] = c.optimizer.nesterov;
  json["beta1"] = c.optimizer.beta1;
  json["beta2"] = c.optimizer.beta2;
  json["eps"] = c.optimizer.eps;
  json["weight_decay"] = c.optimizer.weight_decay;
  // Named only where it is on, so that checkpoints of other runs stay what they were.
  if (c.optimizer.stochastic_rounding) json["stochastic_rounding"] = c.optimizer.rounding_seed;
  json["schedule"] = name(c.schedule.kind);
  json["lr"] = c.schedule.lr;
  json["warmup"] = c.schedule.warmup;
  json["clip"] = number(c.clip);
  json["label_smoothing"] = c.label_smoothing;
  json["accumulator"] = name(c.accumulator);
  json["weight_grad_16bit"] = c.weight_grad_16bit;
  Json autocast = Json::object();
  for (const auto& [op, dtype] : c.autocast) autocast[op] = name(dtype);
  json["autocast"] = autocast;
  return json;
}

Json scaler_json(const LossScalerState& scaler) {
  Json json = Json::object();
  if (!scaler.enabled) return json;
  json["scale"] = scaler.state.scale;
  json["growth_tracker"] = scaler.state.growth_tracker;
  json["consecutive_skips"] = scaler.state.consecutive_skips;
  json["init_scale"] = scaler.config.init_scale;
  json["growth_factor"] = scaler.config.growth_factor;
  json["backoff_factor"] = scaler.config.backoff_factor;
  json["growth_interval"] = scaler.config.growth_interval;
  json["min_scale"] = scaler.config.min_scale;
  json["max_scale"] = scaler.config.max_scale;
  json["dynamic"] = scaler.config.dynamic;
  return json;
}

LossScalerState scaler_state(const Json& json) {
  LossScalerState scaler;
  if (json.empty()) return scaler;
  scaler.enabled = true;
  scaler.state.scale = json.at("scale").get<float>();
  scaler.state.growth_tracker = json.at("growth_tracker").get<std::int32_t>();
  scaler.state.consecutive_skips = json.at("consecutive_skips").get<std::int32_t>();
  scaler.config.init_scale = json.at("init_scale").get<double>();
  scaler.config.growth_factor = json.at("growth_factor").get<double>();
  scaler.config.backoff_factor = json.at("backoff_factor").get<double>();
  scaler.config.growth_interval = json.at("growth_interval").get<std::int32_t>();
  scaler.config.min_scale = json.at("min_scale").get<double>();
  scaler.config.max_scale = json.at("max_scale").get<double>();
  scaler.config.dynamic = json.at("dynamic").get<bool>();
  return scaler;
}

Json run_json(Trainer& trainer, const CheckpointNotes& notes) {
  const Trainer::Progress progress = trainer.progress();
  Json json;
  json["version"] = kVersion;
  json["identity"] = identity_json(trainer);
  json["steps"] = progress.steps;
  json["updates"] = progress.updates;
  json["samples"] = progress.samples;
  json["epoch"] = progress.sampler.epoch;
  json["position"] = progress.sampler.position;
  json["scaler"] = scaler_json(trainer.scaler().state());
  json["best_validation_loss"] = number(notes.best_validation_loss);
  json["best_epoch"] = notes.best_epoch;
  json["epochs_without_better"] = notes.epochs_without_better;
  json["first_grad_norm"] = number(notes.first_grad_norm);
  json["seconds"] = notes.seconds;
  json["train_loss"] = number(notes.train_loss);
  json["epoch_loss_sum"] = number(notes.epoch_loss_sum);
  json["epoch_updates"] = notes.epoch_updates;
  json["schedule_length"] = trainer.schedule_length();
  json["requested_precision"] = name(notes.requested_precision);
  return json;
}

double number_or_nan(const Json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

// A file's run description; every way in which it may be malformed becomes one FileError.
Json parse_run(const SafetensorsFile& file, const std::string& origin) {
  const auto at = file.metadata.find(kRunKey);
  if (at == file.metadata.end())
    fail_file("checkpoint", origin, "is not a checkpoint of a run (no metadata '", kRunKey, "')");
  Json run = Json::parse(at->second, nullptr, false);
  if (run.is_discarded() || !run.is_object() || run.value("version", 0) != kVersion)
    fail_file("checkpoint", origin, "the description of the run cannot be read");
  return run;
}

template <class F>
auto read_json(const std::string& origin, F&& f) {
  try {
    return f();
  } catch (const nlohmann::json::exception& e) {
    fail_file("checkpoint", origin,
              "the description of the run is not what was written: ", e.what());
  }
}

const HostArray& find(const SafetensorsFile& file, const std::string& name, const Shape& shape,
                      DType dtype, const std::string& origin) {
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) fail_file("checkpoint", origin, "has no tensor '", name, "'");
  const HostArray& array = at->second;
  if (!(array.shape == shape) || array.type != element_type(dtype))
    fail_file("checkpoint", origin, "tensor '", name, "' is ", roundoff::name(array.type), ' ',
              array.shape, ", expected ", roundoff::name(dtype), ' ', shape);
  return array;
}

// A tensor of the file and where its bytes go; copied once everything was found.
struct Copy {
  const HostArray* from;
  Tensor to;
};

void plan_weights(const SafetensorsFile& file, Model& model, const std::string& origin,
                  std::vector<Copy>& copies) {
  for (const ParameterEntry& e : model.parameters().entries())
    copies.push_back({&find(file, e.name, e.shape, e.tensor.dtype(), origin), e.tensor});
  for (const Buffer& b : model.parameters().buffers())
    copies.push_back({&find(file, b.name, b.shape, b.dtype, origin), b.value});
}

void carry_out(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) copy.to.write(copy.from->bytes.data());
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, Trainer& trainer,
                     const CheckpointNotes& notes) {
  trainer.settle();
  trainer.optimizer().read_counts();
  ParameterArena& parameters = trainer.model().parameters();
  std::vector<TensorBytes> tensors;
  std::vector<std::int64_t> steps;
  std::vector<Tensor> held;  // what the host can read, until it is written
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    tensors.emplace_back(name, held.emplace_back(on_host(tensor)).const_view());
  };
  const auto add_flat = [&](const std::string& prefix, const Tensor& flat) {
    if (!flat.defined()) return;
    const Tensor host = on_host(flat);
    for (const ParameterEntry& e : parameters.entries())
      add(prefix + e.name, host.slice(e.offset, e.shape));
  };
  add_flat("", parameters.flat_master());
  for (const ParameterEntry& e : parameters.entries()) steps.push_back(e.steps);
  for (const Buffer& b : parameters.buffers()) add(b.name, b.value);
  add_flat("optimizer.first.", trainer.optimizer().first_moment());
  add_flat("optimizer.second.", trainer.optimizer().second_moment());
  tensors.emplace_back(
      "optimizer.steps",
      ConstView{steps.data(), DType::i64, {static_cast<std::int64_t>(steps.size())}});
  write_safetensors(path, tensors, {{kRunKey, run_json(trainer, notes).dump()}});
}

CheckpointNotes load_checkpoint(const std::filesystem::path& path, Trainer& trainer) {
  const std::string origin = path.string();
  const SafetensorsFile file = read_safetensors(path);
  if (!file.checksummed) fail_file("checkpoint", origin, "carries no checksum");
  const Json run = parse_run(file, origin);

  const Json mine = identity_json(trainer);
  const Json& theirs = run.at("identity");
  for (const auto& [key, value] : mine.items()) {
    // Files that do not say are of runs that were not.
    const Json absent = key == "reproducible" ? Json(false) : Json();
    const Json other = theirs.is_object() ? theirs.value(key, absent) : Json();
    ROUNDOFF_CHECK(other == value, "resume", origin, " was trained with ", key, " = ", other.dump(),
                   ", this run has ", value.dump());
  }

  // Settings that are named only where they are on.
  if (theirs.is_object())
    for (const auto& [key, value] : theirs.items())
      ROUNDOFF_CHECK(mine.contains(key), "resume", origin, " was trained with ", key, " = ",
                     value.dump(), ", this run without");

  ParameterArena& parameters = trainer.model().parameters();
  std::vector<Copy> copies;
  plan_weights(file, trainer.model(), origin, copies);
  const auto plan_moments = [&](const char* prefix, const Tensor& flat) {
    if (!flat.defined()) return;
    for (const ParameterEntry& e : parameters.entries())
      copies.push_back({&find(file, prefix + e.name, e.shape, DType::fp32, origin),
                        flat.slice(e.offset, e.shape)});
  };
  plan_moments("optimizer.first.", trainer.optimizer().first_moment());
  plan_moments("optimizer.second.", trainer.optimizer().second_moment());
  const auto count = static_cast<std::int64_t>(parameters.entries().size());
  const HostArray& steps = find(file, "optimizer.steps", {count}, DType::i64, origin);

  CheckpointNotes notes;
  Trainer::Progress progress;
  LossScalerState scaler;
  read_json(origin, [&] {
    progress = {run.at("steps").get<std::int64_t>(),
                run.at("updates").get<std::int64_t>(),
                run.at("samples").get<std::int64_t>(),
                {run.at("epoch").get<std::int64_t>(), run.at("position").get<std::int64_t>()}};
    scaler = scaler_state(run.at("scaler"));
    notes.best_validation_loss = number_or_nan(run.at("best_validation_loss"));
    notes.best_epoch = run.at("best_epoch").get<std::int64_t>();
    notes.epochs_without_better = run.at("epochs_without_better").get<std::int64_t>();
    notes.first_grad_norm = number_or_nan(run.at("first_grad_norm"));
    notes.seconds = run.at("seconds").get<double>();
    notes.train_loss = number_or_nan(run.at("train_loss"));
    notes.epoch_loss_sum = number_or_nan(run.at("epoch_loss_sum"));
    notes.epoch_updates = run.at("epoch_updates").get<std::int64_t>();
    notes.schedule_length = run.at("schedule_length").get<std::int64_t>();
    notes.requested_precision = parse_precision(run.at("requested_precision").get<std::string>());
    return true;
  });

  // Both refuse what makes no sense, and change nothing then.
  trainer.scaler().load(scaler);
  trainer.restore(progress);
  carry_out(copies);
  std::size_t i = 0;
  for (ParameterEntry& e : parameters.entries()) e.steps = steps.as<std::int64_t>()[i++];
  trainer.optimizer().write_counts();
  parameters.discard_buffers();
  parameters.zero_grad();
  parameters.changed(/*copies_written=*/false);
  return notes;
}

CheckpointModel read_checkpoint_model(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const Json run = parse_run(read_safetensors(path), origin);
  return read_json(origin, [&] {
    const Json& identity = run.at("identity");
    CheckpointModel result;
    result.model = model_settings(identity.at("model"));
    result.precision = parse_precision(identity.at("precision").get<std::string>());
    result.requested_precision = parse_precision(run.at("requested_precision").get<std::string>());
    result.data = identity.at("data").get<std::string>();
    result.normalization.mean = identity.at("mean").get<std::vector<double>>();
    result.normalization.deviation = identity.at("deviation").get<std::vector<double>>();
    result.seed = identity.at("seed").get<std::uint64_t>();
    return result;
  });
}

void load_weights(const std::filesystem::path& path, Model& model) {
  const SafetensorsFile file = read_safetensors(path);
  std::vector<Copy> copies;
  plan_weights(file, model, path.string(), copies);
  carry_out(copies);
  model.parameters().discard_buffers();
  model.parameters().changed(/*copies_written=*/false);
}

}  // namespace roundoff
