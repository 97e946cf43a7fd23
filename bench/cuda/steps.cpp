// Whole training steps on a GPU, each one captured graph: with our products, and with the vendor's
// in their place and everything else ours.
#include <cmath>

#include "bench/cuda/run.h"
#include "bench/steps.h"
#include "bench/training.h"
#include "models/self_test.h"
#include "models/step_graph.h"

namespace roundoff::bench {

namespace {

// A model in training whose step is a graph.
class GraphStep {
 public:
  GraphStep(const std::shared_ptr<simt::Runtime>& runtime, const StepProblem& problem,
            VendorLibrary* library)
      : context_(runtime) {
    context_.products = library;
    apply_precision(context_, problem.precision);
    model_ = make_model(training_model(problem.model));
    model_->parameters().allocate(context_.allocator, arena_settings(problem.precision, 1));
    optimizer_ = std::make_unique<Optimizer>(context_, model_->parameters(), OptimizerSettings{});
    scaler_ =
        std::make_unique<LossScaler>(ScalerConfig{.enabled = problem.precision == Precision::fp16});
    step_ =
        std::make_unique<DeviceStep>(context_, *optimizer_, *scaler_, ClipParams{}, LearningRate{});
    batch_ = training_batch(context_.allocator, problem.model);
    // Where there is a 16-bit type: its predictions agree with fp32's within computed bounds.
    if (is_mixed(problem.precision)) {
      const AmpCheckResult amp = amp_check(context_, *model_, batch_.x, 2);
      checked_ = amp.text();
      holds_ = amp.holds;
    }
    if (library != nullptr) library->reset_log();  // of what the check asked for in fp32
    graph_ = std::make_unique<StepGraph>(context_, *model_, *step_, LossSettings{});
    constexpr int kWindows = 3;  // one by one, captured, launched
    for (int i = 0; i < kWindows; ++i) {
      graph_->queue({&batch_, 1});
      const auto record = step_->wait();
      ROUNDOFF_CHECK(record.has_value(), "bench", "the window has no outcome");
      const StepResult result = step_result(*record);
      loss_ = result.loss;
      holds_ = holds_ && std::isfinite(loss_) && (result.did_step || result.found_inf);
    }
  }

  bool holds() const { return holds_; }
  std::string verified() const {
    return concat("loss ", loss_, " in the third window", checked_.empty() ? "" : "; ", checked_);
  }
  std::int64_t kernels() const { return graph_->graph()->kernels(); }
  Replay replay() {
    return {.stream = &context_.queue()->stream(), .queue = [this] { graph_->replay(); }};
  }

 private:
  Context context_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<DeviceStep> step_;
  MicroBatch batch_;
  std::unique_ptr<StepGraph> graph_;
  std::string checked_;
  double loss_ = 0;
  bool holds_ = true;
};

struct Entry {
  Row row;
  std::unique_ptr<GraphStep> step;
};

void run_step(Report& report, const StepProblem& problem, const RunSettings& settings,
              const Bench& bench, VendorLibrary* vendor) {
  if (settings.progress)
    settings.progress(concat("step ", problem.model, ' ', name(problem.precision)));
  std::vector<Entry> entries;
  for (VendorLibrary* library : {static_cast<VendorLibrary*>(nullptr), vendor}) {
    if (library == nullptr && !entries.empty()) break;
    Entry e;
    e.row.operation = e.row.pass = "step";
    e.row.problem = concat(problem.model, ", batch ", training_batch_size(problem.model));
    e.row.dtype = e.row.out_dtype = name(problem.precision);
    e.row.kernel = library == nullptr ? "all ours" : "vendor's products";
    if (library != nullptr) {
      for (const bool convolution : {false, true})
        if (vendor->refusal_for(convolution).empty())
          e.row.kernel += concat(convolution ? ", " : ": ", vendor->name_for(convolution));
    }
    e.step = std::make_unique<GraphStep>(bench.runtime, problem, library);
    e.row.verified = e.step->verified();
    e.row.broken = !e.step->holds();
    if (library != nullptr) {
      if (vendor->log().taken == 0)
        e.row.refusal =
            concat("the vendor's libraries took no product, ", vendor->log().declined_text());
      else if (!vendor->log().declined.empty())
        e.row.sample = concat("products that ours computed, ", vendor->log().declined_text());
    }
    entries.push_back(std::move(e));
  }
  std::vector<Replay> replays;
  std::vector<Row*> rows;
  for (Entry& e : entries) {
    if (e.row.broken || !e.row.refusal.empty()) continue;
    replays.push_back(e.step->replay());
    rows.push_back(&e.row);
  }
  const std::vector<Timing> timings = take_turns(replays, *bench.stopwatch, bench.timing);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Spread s = timings[i].seconds();
    rows[i]->add("us", bench.times, s.median * 1e6, "us");
    rows[i]->add("us_low", bench.times, s.low * 1e6, "us");
    rows[i]->add("us_high", bench.times, s.high * 1e6, "us");
    rows[i]->add("samples/s", bench.times,
                 static_cast<double>(training_batch_size(problem.model)) / s.median);
    if (i == 0 && rows.size() == 2) {
      const Spread r = ratio(timings[1], timings[0]);
      rows[i]->add("vs_vendor", bench.times, r.median, "x");
      rows[i]->add("vs_vendor_low", bench.times, r.low, "x");
      rows[i]->add("vs_vendor_high", bench.times, r.high, "x");
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].step != nullptr)
      entries[i].row.add("kernels", Provenance::counted, entries[i].step->kernels());
    report.rows.push_back(std::move(entries[i].row));
  }
}

}  // namespace

Report run_steps_on(const Bench& bench, const std::vector<StepProblem>& steps,
                    const RunSettings& settings) {
  ROUNDOFF_CHECK(bench.times != Provenance::measured || bench.runtime->device() == Device::cuda,
                 "bench", "a time on the emulator is no measurement of a GPU");
  std::unique_ptr<VendorLibrary> vendor;
  if (settings.baseline) vendor = std::make_unique<VendorLibrary>(bench.runtime, bench.vendor);
  Report report;
  for (const StepProblem& step : steps) run_step(report, step, settings, bench, vendor.get());
  report.notes.emplace_back(
      "steps: the whole window as one graph that is launched again and again on the same batch; "
      "the vendor's row has its matrix products and convolutions in place of ours, and the rest "
      "of the step ours");
  return report;
}

Report run_steps_on_cuda(const std::vector<StepProblem>& steps, const RunSettings& settings) {
  return run_steps_on(open_gpu(), steps, settings);
}

}  // namespace roundoff::bench
