#include "bench/steps.h"

#include <algorithm>
#include <cmath>

#include "bench/measure.h"
#include "bench/training.h"
#include "kernels/simt/runtime_sim.h"
#include "models/train_step.h"

namespace roundoff::bench {

namespace {

#if defined(ROUNDOFF_HAS_CHECKED)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

Row begin_step(const StepProblem& step, std::int64_t batch) {
  Row row;
  row.operation = "step";
  row.pass = "step";
  row.problem = concat(step.model, ", batch ", batch);
  row.dtype = row.out_dtype = name(step.precision);
  return row;
}

// The emulator runs few samples.
std::int64_t samples_on_sim(const StepProblem& step) {
  return step.model == "convnet" ? 8 : training_batch_size(step.model);
}

struct CountedStep {
  simt::Counters counters;
  simt::RuntimeCounters runtime;
  double loss = 0;
  bool stepped = false;
};

CountedStep count_step(const StepProblem& problem, int capability, bool instrumented) {
  simt::SimOptions options;
  options.emulator.profile = instrumented;
  options.emulator.architecture =
      capability >= 90 ? simt::SimArchitecture::sm_90a : simt::SimArchitecture::sm_80;
  const std::shared_ptr<simt::Runtime> runtime = simt::open_sim(options);
  simt::Emulator& emulator = simt::emulator(*runtime);
  CountedStep counted;
  Context context(runtime, instrumented);
  apply_precision(context, problem.precision);
  const std::unique_ptr<Model> model = make_model(training_model(problem.model));
  model->parameters().allocate(context.allocator, arena_settings(problem.precision, 1));
  Optimizer optimizer(context, model->parameters(), {});
  LossScaler scaler({.enabled = problem.precision == Precision::fp16});
  DeviceStep step(context, optimizer, scaler, {}, {});
  const MicroBatch batch =
      training_batch(context.allocator, problem.model, samples_on_sim(problem));
  // The first windows allocate what the later ones use again; traffic is the same in all.
  const int windows = instrumented ? 1 : 3;
  for (int i = 0; i < windows; ++i) {
    const simt::RuntimeCounters before = runtime->counters();
    emulator.reset_counters();
    queue_window(context, *model, step, {&batch, 1}, {});
    counted.runtime = runtime->counters() - before;
    counted.counters = emulator.counters();
    const auto record = step.wait();
    ROUNDOFF_CHECK(record.has_value(), "bench", "the window has no outcome");
    const StepResult result = step_result(*record);
    counted.loss = result.loss;
    counted.stepped = result.did_step;
  }
  return counted;
}

}  // namespace

std::vector<StepProblem> step_problems(const std::vector<DType>& dtypes) {
  std::vector<StepProblem> steps;
  for (const char* model : {"tiny-mlp", "convnet"})
    for (const DType dtype : dtypes) {
      if (dtype == DType::fp64)
        throw UsageError("[bench] step takes --dtype fp32, bf16 and fp16, not fp64");
      steps.push_back({model, dtype == DType::bf16   ? Precision::bf16
                              : dtype == DType::fp16 ? Precision::fp16
                                                     : Precision::fp32});
    }
  return steps;
}

Report run_steps_on_sim(const std::vector<StepProblem>& steps, const RunSettings& settings,
                        const SimSettings& sim) {
  constexpr auto kCounted = Provenance::counted;
  Report report;
  for (const StepProblem& step : steps) {
    if (settings.progress)
      settings.progress(concat("step ", step.model, ' ', name(step.precision)));
    Row row = begin_step(step, samples_on_sim(step));
    const CountedStep fast = count_step(step, sim.capability, false);
    row.verified = concat("the update was made, the loss is ", fast.loss,
                          "; results of the operations are verified one by one");
    row.broken = !fast.stepped || !std::isfinite(fast.loss);
    if (!row.broken) {
      row.add("launches", kCounted, fast.runtime.launches);
      row.add("copies", kCounted, fast.runtime.copies);
      row.add("fills", kCounted, fast.runtime.fills);
      row.add("syncs", kCounted, fast.runtime.synchronisations);
      row.add("allocations", kCounted, fast.runtime.allocations);
      if (kInstrumented) {
        const simt::Counters c = count_step(step, sim.capability, true).counters;
        row.add("MB", kCounted,
                (32.0 * static_cast<double>(c.global_load_sectors + c.global_store_sectors) +
                 static_cast<double>(c.tma_bytes)) *
                    1e-6);
        row.add("load_sectors", kCounted, static_cast<std::int64_t>(c.global_load_sectors));
        row.add("store_sectors", kCounted, static_cast<std::int64_t>(c.global_store_sectors));
        row.add("excess_wavefronts", kCounted,
                static_cast<std::int64_t>(c.shared_excess_wavefronts));
      }
      row.add("barriers", kCounted, static_cast<std::int64_t>(fast.counters.barriers));
    }
    report.rows.push_back(std::move(row));
  }
  report.notes.emplace_back(
      "steps: a window in the middle of a run, queued; the host reads the outcome later, and that "
      "wait is not counted");
  return report;
}

Report run_steps_on_cpu(const std::vector<StepProblem>& steps, const RunSettings& settings) {
  constexpr auto kMeasured = Provenance::measured;
  Report report;
  for (const StepProblem& step : steps) {
    if (settings.progress)
      settings.progress(concat("step ", step.model, ' ', name(step.precision)));
    Row row = begin_step(step, training_batch_size(step.model));
    TrainingStep run(step.model, step.precision);
    run();  // throws where the loss is not finite
    row.verified = "the loss is finite";
    const Contender contender{step.model, [&] { run(); }};
    const Spread s = measure({&contender, 1}, {})[0].seconds();
    row.add("us", kMeasured, s.median * 1e6, "us");
    row.add("us_low", kMeasured, s.low * 1e6, "us");
    row.add("us_high", kMeasured, s.high * 1e6, "us");
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace roundoff::bench
