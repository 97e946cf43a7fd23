// The probe and the shadow run of a training run: what they write, and when.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/probe.h"
#include "models/run.h"
#include "models/shadow.h"

namespace roundoff {

struct InstrumentSettings {
  std::filesystem::path out;     // of probe.jsonl and shadow.json; empty: only in memory
  std::int64_t probe_every = 0;  // windows 1, 1 + N, 1 + 2N, ... are probed; 0: none
  bool shadow = false;           // before the run's first window, and before its last
  bool resume = false;           // go on behind what lies in `out`
  double kept = 0.99;            // share of elements that FittedScale::smallest keeps
};

// One object of probe.jsonl: of a window that was probed, or of one that was skipped.
struct ProbeLine {
  std::int64_t step = 0;  // from 1
  double scale = 1;
  bool did_step = false;
  bool probed = false;
  // Why the update was skipped, in one sentence; empty where it was not.
  std::string skip_reason = {};
  NonFinite first = {};
  FittedScale fitted = {};
  std::vector<ProbedTensor> tensors = {};
};
std::string json_line(const ProbeLine& line);

class Instruments {
 public:
  // Throws UsageError for a negative interval.
  explicit Instruments(InstrumentSettings settings);

  // Joins the hooks of a run, whose own keep working. The object outlives the run.
  void attach(RunHooks& hooks);

  // What a run has left so far.
  const std::vector<ShadowReport>& shadows() const { return shadows_; }
  const std::optional<ProbeLine>& last_probe() const { return last_; }
  std::int64_t probed() const { return probed_; }

 private:
  bool probes(std::int64_t step) const;
  void before(Trainer& trainer);
  void after(Trainer& trainer);
  void look_for_scale(Trainer& trainer);
  void write(const ProbeLine& line);

  InstrumentSettings settings_;
  std::optional<Probe> probe_;  // of the window that runs
  SamplerState sampler_;        // before it
  std::int64_t step_ = 0;       // its number, from 1
  bool first_ = true;
  bool opened_ = false;
  std::optional<ProbeLine> last_;
  std::vector<ShadowReport> shadows_;
  std::vector<std::string> earlier_shadows_;
  std::int64_t probed_ = 0;
};

// The report as one JSON object.
std::string shadow_json(const ShadowReport& report);

}  // namespace roundoff
