// Loss scaling: what the scaler does, what it cannot do, and the order of what stands around it.
#include <algorithm>
#include <cmath>

#include "study/citation.h"
#include "study/experiment.h"
#include "study/list.h"
#include "study/scaler_parts.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;
constexpr auto kModelled = Provenance::modelled;

// The state machine under gradients that are finite up to a threshold.
struct Replay {
  std::int64_t skipped = 0;
  std::int64_t first_skips = 0;  // before the first update
  std::vector<double> scale;     // of every window
};
Replay replay(const ScalerConfig& config, double threshold, std::int64_t windows) {
  Replay r;
  ScalerState state = initial_state(config);
  bool updated = false;
  for (std::int64_t i = 0; i < windows; ++i) {
    const bool found_inf = state.scale > threshold;
    r.scale.push_back(state.scale);
    r.skipped += found_inf;
    updated = updated || !found_inf;
    r.first_skips += !updated;
    state = transition(config, state, found_inf);
  }
  return r;
}

void state_machine(Result& result) {
  // A scale that doubles every `interval` windows and halves on overflow, under a threshold of
  // 2^20: one window in interval + 1 is lost.
  constexpr double kThreshold = 0x1p20;
  Table table("The state machine under a threshold of 2^20",
              {{"growth interval"},
               {"windows", kModelled},
               {"skipped", kModelled},
               {"skipped after settling", kModelled},
               {"windows / (interval + 1)", kModelled},
               {"settles at", kModelled}});
  bool settles = true;
  bool loses = true;
  std::string seen;
  for (const std::int32_t interval : {1, 4, 20, 100}) {
    const ScalerConfig config{.init_scale = 0x1p16, .growth_interval = interval};
    // Four growths lead to the threshold; the fifth overflows. From there on, whole periods.
    const std::int64_t rise = 5 * interval;
    const std::int64_t periods = 50;
    const std::int64_t windows = rise + periods * (interval + 1);
    const Replay r = replay(config, kThreshold, windows);
    // The scale of windows that step, once it has reached the threshold.
    double low = kThreshold;
    double high = 0;
    for (std::int64_t i = rise; i < windows; ++i) {
      const double s = r.scale[static_cast<std::size_t>(i)];
      if (s > kThreshold) continue;
      low = std::min(low, s);
      high = std::max(high, s);
    }
    settles = settles && low == kThreshold && high == kThreshold;
    loses = loses && r.skipped == periods;
    table.add_row(
        {std::int64_t{interval}, windows, r.skipped, r.skipped, periods, power_of_two(high)});
    seen += concat(seen.empty() ? "" : "; ", "interval ", interval, ": ", r.skipped, " of ",
                   periods, " periods' windows skipped, scale ", power_of_two(high));
  }
  table.add_note("Growth 2, back-off 1/2, from 2^16; the rise to the threshold skips nothing.");
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"Under a constant threshold the scale settles at the largest power of two that the "
       "gradients bear, and one window in (growth interval + 1) is skipped.",
       seen, settles && loses});
}

struct Setting {
  const char* name;
  ScalerConfig config;
};

struct Run {
  std::int64_t windows = 0;
  std::int64_t skipped = 0;
  std::int64_t surprises = 0;  // windows that stepped or skipped against what they bear
  std::int64_t strays = 0;     // windows whose scale the state machine does not explain
  double first = 0, last = 0;  // mean loss of the first and the last tenth
  // Beside the same gradient in fp32: means over every twentieth part of the run, where its window
  // steps; NaN where none does.
  double flushed = 0;     // share of elements
  double difference = 0;  // |g - fp32| / |fp32|
  double final_scale = 0;
  std::vector<double> scale, bears;
};

Run train(const Options& options, const Dataset& data, const ScalerConfig& config,
          std::int64_t windows) {
  const Setup setup{.model = {.model = "tiny-mlp"},
                    .precision = Precision::fp16,
                    .scaler = config,
                    .seed = first_seed(options),
                    .device = options.device};
  Experiment e(setup, data);
  Sampler sampler({.seed = first_seed(options), .count = data.train.size(), .batch = 50});
  Run run;
  ScalerState expected = initial_state(config);
  double near = 0x1p16;
  std::vector<double> lost, apart;
  const std::int64_t tenth = std::max<std::int64_t>(1, windows / 10);
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::vector<MicroBatch> window = e.window(sampler.next(), 50);
    const double bears = e.largest_scale(window, near);
    near = bears > 0 ? bears : near;
    if ((i + 1) % (windows / 20) == 0 && static_cast<double>(e.scaler.scale()) <= bears) {
      const std::vector<double> low = e.gradient(window, static_cast<double>(e.scaler.scale()));
      const AutocastScope off(e.context, DType::fp32);
      const std::vector<double> reference = e.gradient(window, 1);
      lost.push_back(static_cast<double>(flushed(low, reference)) /
                     static_cast<double>(std::max<std::int64_t>(1, nonzeros(reference))));
      apart.push_back(relative_difference(low, reference));
    }
    const StepResult r = e.step(window, {.lr = 1e-3});
    // Between a power of two that is borne and the next one, which is not, nothing is known.
    const bool must_step = r.scale <= bears;
    const bool must_skip = r.scale >= 2 * bears;
    run.surprises += (must_step && r.found_inf) || (must_skip && !r.found_inf);
    run.strays += static_cast<double>(expected.scale) != r.scale;
    expected = transition(config, expected, r.found_inf);
    run.scale.push_back(r.scale);
    run.bears.push_back(bears);
    run.skipped += !r.did_step;
    if (i < tenth) run.first += r.loss / static_cast<double>(tenth);
    if (i >= windows - tenth) run.last += r.loss / static_cast<double>(tenth);
  }
  run.windows = windows;
  run.flushed = lost.empty() ? std::nan("") : mean(lost);
  run.difference = lost.empty() ? std::nan("") : mean(apart);
  run.final_scale = e.scaler.scale();
  return run;
}

std::vector<double> numbers(std::size_t n) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i + 1);
  return x;
}

}  // namespace

void scaler_dynamics(const Options& options, Result& result) {
  state_machine(result);
  const Dataset data = study_data(
      options,
      {.train_scenes = 40, .validation_scenes = 4, .test_scenes = 4, .images_per_scene = 25});
  need_samples("scaler", data, 50);
  const std::int64_t windows = options.quick ? 240 : 1200;
  const std::vector<Setting> settings{
      {"dynamic, interval 20", {.init_scale = 0x1p16, .growth_interval = 20}},
      {"starts at 2^40", {.init_scale = 0x1p40, .growth_interval = 20}},
      {"interval 1", {.init_scale = 0x1p16, .growth_interval = 1}},
      {"growth 16", {.init_scale = 0x1p16, .growth_factor = 16, .growth_interval = 20}},
      {"back-off 0.9 from 2^40",
       {.init_scale = 0x1p40, .backoff_factor = 0.9, .growth_interval = 20}},
      {"default interval 2000 from 1", {.init_scale = 1, .growth_interval = 2000}},
      {"fixed at 1", {.init_scale = 1, .dynamic = false}},
      {"fixed at 2^-18", {.init_scale = 0x1p-18, .dynamic = false}},
      {"fixed at 2^40", {.init_scale = 0x1p40, .dynamic = false}},
  };
  Table table("Settings of the scaler: tiny-mlp in fp16, windows of 50 images",
              {{"setting"},
               {"windows", kCounted},
               {"skipped", kCounted},
               {"final scale", kCounted},
               {"gradient elements flushed", kCounted, 3, "%"},
               {"gradient's difference to fp32", kMeasured, 3},
               {"loss, first tenth", kMeasured, 4},
               {"loss, last tenth", kMeasured, 4}});
  std::vector<Run> runs;
  for (const Setting& setting : settings) {
    begin(options, concat("scaler: ", setting.name));
    const Run r = train(options, data, setting.config, windows);
    std::vector<Cell> row{setting.name, r.windows, r.skipped, power_of_two(r.final_scale)};
    add_number(row, 100 * r.flushed);
    add_number(row, r.difference);
    row.emplace_back(r.first);
    row.emplace_back(r.last);
    table.add_row(std::move(row));
    runs.push_back(r);
  }
  table.add_note(
      "Flushed: zero in fp16, not zero in fp32 at the same weights; difference: |g - g32| / |g32|. "
      "Means over 20 windows of the run, those that step; nothing where none does.");
  result.tables.push_back(std::move(table));

  std::int64_t surprises = 0;
  std::int64_t strays = 0;
  for (const Run& r : runs) {
    surprises += r.surprises;
    strays += r.strays;
  }
  const std::int64_t all = windows * static_cast<std::int64_t>(runs.size());
  result.claims.push_back(
      {"A window is skipped exactly where its scale is above the largest one that its own "
       "gradients bear, measured beforehand with powers of two.",
       concat(surprises, " windows of ", all, " went against it; 0 expected"), surprises == 0});
  result.claims.push_back(
      {"The scale of every window follows from the outcome of the windows before it by the state "
       "machine, to the bit.",
       concat(strays, " windows of ", all, " had another scale; 0 expected"), strays == 0});
  const Run& fixed_high = runs.back();
  result.claims.push_back({"A fixed scale above what the gradients bear never trains.",
                           concat(fixed_high.windows - fixed_high.skipped, " updates in ",
                                  fixed_high.windows, " windows at 2^40; 0 expected"),
                           fixed_high.skipped == fixed_high.windows});
  const double low = runs[7].flushed;
  const double dynamic = runs[0].flushed;
  result.claims.push_back(
      {"A fixed scale that is too low loses gradient elements that the dynamic one keeps.",
       concat(digits(100 * low), "% flushed at 2^-18, ", digits(100 * dynamic),
              "% under the dynamic scale"),
       low > dynamic});
  result.claims.push_back(
      {"A growth interval of 1 loses more windows than one of 20.",
       concat(runs[2].skipped, " of ", windows, " skipped against ", runs[0].skipped),
       runs[2].skipped > runs[0].skipped});

  const std::vector<double> x = numbers(static_cast<std::size_t>(windows));
  result.figures.push_back(
      {.name = "scale",
       .caption = "The scale doubles every 20 windows until it passes what the gradients bear, "
                  "falls back by half, and tries again; from 2^40 it first comes down one window "
                  "at a time.",
       .x_label = "window",
       .y_label = "loss scale",
       .series = {{"borne by the window", x, runs[0].bears, Series::Style::dots},
                  {"interval 20", x, runs[0].scale, Series::Style::line},
                  {"from 2^40", x, runs[1].scale, Series::Style::line},
                  {"back-off 0.9 from 2^40", x, runs[4].scale, Series::Style::line}},
       .log_y = true,
       .provenance = kCounted});
}

Result run_scaler(const Options& options) {
  Result result;
  result.title = "Loss scaling: how the scale moves, what it cannot fit, and the order of things";
  result.question =
      "Where does a dynamic loss scale settle, when does it fail, and what goes wrong when "
      "dividing, unscaling and clipping change places?";
  result.method = {
      "The scaler is PyTorch's state machine: after a window with an infinity or NaN the scale "
      "is multiplied by the back-off factor and the update is skipped; after a growth interval of "
      "finite windows in a row it is multiplied by the growth factor.",
      concat("A small network (one hidden layer of 16, fp16 products with fp32 masters) trains on ",
             options.data.empty() ? "generated images" : options.data,
             ". Before every window, the largest power of two that leaves all its gradients finite "
             "is found by running its backward pass at several scales; the run itself does not "
             "know it."),
      "Two linear regressions in fp16 show what lies outside the reach of a scale: targets in "
      "large units, which need a scale below 1, and two targets 2^32 apart in unit, whose "
      "gradients are 2^64 apart and fit under no common scale.",
      "The same window is then divided, unscaled and clipped in right and wrong orders. Where "
      "both sides are made from the same vectors of gradients, they are compared in fp64, and "
      "the bound of a comparison is the rounding of its own arithmetic."};
  scaler_dynamics(options, result);
  scaler_range(options, result);
  scaler_order(options, result);
  result.shows = {
      "A dynamic scale finds the largest power of two that the gradients bear and pays one "
      "skipped window a growth interval for it.",
      "A floor of 1 under the scale, or a fixed scale, can stop training altogether: every "
      "window is skipped.",
      "One scale moves all gradients together: it cannot help where they are further apart than "
      "fp16 is wide. Normalising the targets can.",
      "Gradients are unscaled first and clipped then, over the window as a whole."};
  result.does_not_show = {
      "How often large models overflow: thresholds here are those of a small network.",
      "Whether skipped windows harm the final accuracy; see the study amp for a paired "
      "comparison."};
  result.references = {mixed_precision_training(),
                       {"pascanu2013difficulty",
                        "inproceedings",
                        {{"author", "Pascanu, Razvan and Mikolov, Tomas and Bengio, Yoshua"},
                         {"title", "On the difficulty of training recurrent neural networks"},
                         {"booktitle", "International Conference on Machine Learning"},
                         {"year", "2013"}}}};
  set_one_seed(options, result);
  return result;
}

}  // namespace roundoff::study
