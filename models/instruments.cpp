#include "models/instruments.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/file.h"

namespace roundoff {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kProbeFile = "probe.jsonl";
constexpr const char* kShadowFile = "shadow.json";

void number(Json& json, const std::string& key, double value) {
  json[key] = std::isfinite(value) ? Json(value) : Json();
  if (!std::isfinite(value))
    json[key + "_class"] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json stats_json(const TensorStats& s) {
  Json json;
  json["dtype"] = name(s.dtype);
  json["elements"] = s.elements;
  json["zeros"] = s.zeros;
  json["subnormals"] = s.subnormals;
  json["below_2^-24"] = s.below_fp16;
  json["zero_in_fp16"] = s.flushed_fp16;
  json["inf"] = s.infinities;
  json["nan"] = s.nans;
  json["amax"] = s.amax;
  json["doublings_left"] = s.doublings_left();
  int low = TensorStats::kLowest, high = TensorStats::kHighest;
  while (low <= high && s.at_exponent(low) == 0) ++low;
  while (high >= low && s.at_exponent(high) == 0) --high;
  Json counts = Json::array();
  for (int e = low; e <= high; ++e) counts.push_back(s.at_exponent(e));
  json["exponents"] = {{"from", counts.empty() ? 0 : low}, {"counts", counts}};
  return json;
}

Json tensor_json(const ProbedTensor& t) {
  Json json;
  json["kind"] = name(t.kind);
  json["index"] = t.index;
  if (!t.operation.empty()) json["operation"] = t.operation;
  json["name"] = t.name;
  json["stored"] = stats_json(t.stats);
  if (t.kind == ProbedTensor::Kind::parameter) json["unscaled"] = stats_json(t.unscaled);
  return json;
}

Json error_json(const ShadowError& e) {
  Json json;
  number(json, "relative", e.relative);
  number(json, "max_ulp", e.max_ulp);
  number(json, "rms_ulp", e.rms_ulp);
  number(json, "bits", e.bits());
  return json;
}

// Reads lines of windows up to `steps`; those of windows that the checkpoint does not know are
// dropped.
std::string earlier_lines(const std::filesystem::path& path, std::int64_t steps) {
  std::ifstream in(path);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
      fail_file("probe", path.string(), "a line of it is not that of a window");
    if (json["step"].get<std::int64_t>() <= steps) kept += line + "\n";
  }
  return kept;
}

// What is known of a skipped window that was not watched.
std::string skip_reason(const Trainer& trainer, const StepResult& result) {
  if (result.valid == 0) return "no valid target in the window";
  if (result.offender < 0) return "no gradient";
  return concat(
      "the gradient of ",
      trainer.model().parameters().entries()[static_cast<std::size_t>(result.offender)].name,
      " is not finite");
}

}  // namespace

std::string json_line(const ProbeLine& line) {
  Json json;
  json["step"] = line.step;
  json["scale"] = line.scale;
  json["did_step"] = line.did_step;
  json["probed"] = line.probed;
  json["skip"] = line.skip_reason.empty() ? Json() : Json(line.skip_reason);
  if (!line.probed) return json.dump();
  if (line.first) {
    json["first_nonfinite"] = {
        {"text", line.first.text()},         {"pass", name(line.first.pass)},
        {"node", line.first.node},           {"operation", line.first.operation},
        {"node_name", line.first.node_name}, {"tensor", line.first.tensor},
        {"dtype", name(line.first.dtype)},   {"micro_batch", line.first.micro_batch}};
  } else {
    json["first_nonfinite"] = nullptr;
  }
  const auto known = [](double scale) { return scale == 0 ? Json() : Json(scale); };
  json["scale_that_fits"] = {{"largest", known(line.fitted.largest)},
                             {"limit", line.fitted.limit},
                             {"smallest", known(line.fitted.smallest)},
                             {"kept", line.fitted.kept}};
  Json tensors = Json::array();
  for (const ProbedTensor& t : line.tensors) tensors.push_back(tensor_json(t));
  json["tensors"] = std::move(tensors);
  json["provenance"] = "counted";
  return json.dump();
}

std::string shadow_json(const ShadowReport& report) {
  Json json;
  json["step"] = report.step;
  json["samples"] = report.samples;
  json["scale"] = report.scale;
  number(json, "loss", report.loss);
  number(json, "fp64_loss", report.fp64_loss);
  Json rows = Json::array();
  for (const ShadowRow& row : report.rows) {
    Json r;
    r["pass"] = row.pass == ShadowRow::Pass::forward ? "forward" : "backward";
    r["node"] = row.node;
    r["operation"] = row.operation;
    r["name"] = row.name;
    r["tensor"] = row.tensor;
    r["dtype"] = name(row.dtype);
    r["elements"] = row.elements;
    r["local"] = error_json(row.local);
    r["total"] = error_json(row.total);
    r["bits_lost"] = row.bits_lost();
    rows.push_back(std::move(r));
  }
  json["rows"] = std::move(rows);
  json["provenance"] = "measured";
  return json.dump();
}

Instruments::Instruments(InstrumentSettings settings) : settings_(std::move(settings)) {
  if (settings_.probe_every < 0)
    throw UsageError(concat("[probe] every ", settings_.probe_every,
                            " windows; at least 1 expected, or 0 for none"));
}

bool Instruments::probes(std::int64_t step) const {
  return settings_.probe_every > 0 && (step - 1) % settings_.probe_every == 0;
}

void Instruments::attach(RunHooks& hooks) {
  hooks.looks = [this](const Trainer& trainer) {
    const bool shadows =
        settings_.shadow && (first_ || trainer.steps_done() + 1 == trainer.total_steps());
    return shadows || probes(trainer.steps_done() + 1);
  };
  hooks.before_window = [this](Trainer& trainer) { before(trainer); };
  hooks.after_window = [this](Trainer& trainer) { after(trainer); };
  if (settings_.probe_every == 0) return;
  hooks.on_step = [this, then = hooks.on_step](const Trainer& trainer, const StepResult& result) {
    if (then) then(trainer, result);
    if (result.did_step || probe_) return;
    ProbeLine line{.step = trainer.steps_done(), .scale = result.scale};
    // A device's windows are done later than they are queued.
    for (const Trainer::Finished& f : trainer.finished())
      if (&f.result == &result) line.step = f.step;
    line.skip_reason = skip_reason(trainer, result) + "; this window was not probed";
    write(line);
  };
}

void Instruments::before(Trainer& trainer) {
  const std::int64_t next = trainer.steps_done() + 1;
  if (settings_.shadow && (first_ || next == trainer.total_steps())) {
    shadows_.push_back(shadow_step(trainer));
    if (!settings_.out.empty()) {
      const std::filesystem::path path = settings_.out / kShadowFile;
      if (shadows_.size() == 1 && settings_.resume && std::filesystem::exists(path)) {
        const Bytes text = read_file(path);
        const Json old = Json::parse(text.begin(), text.end(), nullptr, false);
        if (!old.is_object() || !old.contains("windows") || !old["windows"].is_array())
          fail_file("shadow", path.string(), "it does not hold windows");
        for (const Json& window : old["windows"]) earlier_shadows_.push_back(window.dump());
      }
      Json all = Json::array();
      for (const std::string& window : earlier_shadows_) all.push_back(Json::parse(window));
      for (const ShadowReport& report : shadows_) all.push_back(Json::parse(shadow_json(report)));
      write_file_atomically(path, Json{{"windows", all}}.dump(1) + "\n");
    }
  }
  first_ = false;
  if (!probes(next)) return;
  step_ = next;
  sampler_ = trainer.sampler().state();
  probe_.emplace(trainer.context());
  probe_->begin(trainer.scaler().scale());
  trainer.context().observer = &*probe_;
}

void Instruments::after(Trainer& trainer) {
  if (!probe_) return;
  trainer.context().observer = nullptr;
  const StepResult& result = trainer.last();
  ProbeLine line{.step = step_, .scale = result.scale, .did_step = result.did_step, .probed = true};
  line.first = probe_->first_nonfinite();
  for (const ProbedTensor* t : probe_->tensors()) line.tensors.push_back(*t);
  if (!result.did_step)
    line.skip_reason = line.first ? line.first.text() : skip_reason(trainer, result);
  line.fitted = probe_->fitted_scale(settings_.kept);
  last_ = std::move(line);
  // Where the gradients overflowed, how large they were can be seen at a smaller scale only.
  if (!result.did_step && last_->first.pass == NonFinite::Pass::backward) look_for_scale(trainer);
  probe_.reset();
  ++probed_;
  write(*last_);
}

// The window once more, with the weights that the skip left as they were.
void Instruments::look_for_scale(Trainer& trainer) {
  Sampler& sampler = trainer.sampler();
  const SamplerState now = sampler.state();
  sampler.restore(sampler_);
  const std::vector<MicroBatch> window = trainer.cut(sampler.next(), trainer.config().micro_batch);
  sampler.restore(now);
  Context& context = trainer.context();
  ParameterArena& parameters = trainer.model().parameters();
  const Scoped<RngKey> rng(context.rng, context.rng);
  context.rng.step = static_cast<std::uint64_t>(step_ - 1);
  const Scoped<NodeObserver*> observed(context.observer, &*probe_);
  for (double scale = probe_->scale() / 16; scale >= 0x1p-60; scale /= 256) {
    probe_->begin(scale);
    accumulate_window(context, trainer.model(), window, scale,
                      {.label_smoothing = trainer.config().label_smoothing});
    probe_->has_gradients(parameters);
    parameters.zero_grad();
    parameters.discard_buffers();
    const FittedScale fitted = probe_->fitted_scale(settings_.kept);
    if (fitted.largest == 0) continue;
    last_->fitted = fitted;
    return;
  }
}

void Instruments::write(const ProbeLine& line) {
  if (settings_.out.empty()) return;
  const std::filesystem::path path = settings_.out / kProbeFile;
  if (!opened_) {
    opened_ = true;
    write_file_atomically(path, settings_.resume && std::filesystem::exists(path)
                                    ? earlier_lines(path, line.step - 1)
                                    : std::string());
  }
  std::ofstream file(path, std::ios::app);
  file << json_line(line) << '\n' << std::flush;
  if (!file) fail_file("probe", path.string(), "cannot be written");
}

}  // namespace roundoff
