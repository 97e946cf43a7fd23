// Study `sanity`: the first thing to run on a new setup. Does a tiny set get learnt by heart in
// every precision, and which faults of an accumulation loop does that find?
#include <algorithm>
#include <cmath>

#include "models/trainer.h"
#include "study/citation.h"
#include "study/experiment.h"
#include "study/faulty_loops.h"
#include "study/list.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr std::int64_t kSamples = 48;
const std::vector<std::int64_t> kEqual{6, 6, 6, 6};
const std::vector<std::int64_t> kUnequal{11, 8, 4, 1};
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32,      Precision::bf16,
                                     Precision::fp16, Precision::pure_bf16, Precision::pure_fp16};

// The first samples of each class in turn, as training, validation and test set alike.
Dataset tiny_set(const Dataset& from) {
  std::vector<std::int64_t> chosen;
  std::vector<std::int64_t> next(static_cast<std::size_t>(from.classes), 0);
  const std::int64_t wanted = std::min(kSamples, from.train.size());
  for (std::int64_t c = 0; static_cast<std::int64_t>(chosen.size()) < wanted;
       c = (c + 1) % from.classes) {
    std::int64_t& at = next[static_cast<std::size_t>(c)];
    while (at < from.train.size() && from.train.labels[static_cast<std::size_t>(at)] != c) ++at;
    if (at < from.train.size()) chosen.push_back(at++);
    const bool exhausted = std::all_of(next.begin(), next.end(),
                                       [&](std::int64_t n) { return n >= from.train.size(); });
    if (exhausted) break;
  }
  Dataset tiny = from;
  Shape shape = from.train.images.shape;
  const std::size_t bytes = from.train.images.bytes.size() / from.train.labels.size();
  shape.set(0, static_cast<std::int64_t>(chosen.size()));
  Split split;
  split.images = HostArray(from.train.images.type, shape);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto source = static_cast<std::size_t>(chosen[i]);
    std::copy_n(from.train.images.bytes.begin() + static_cast<std::ptrdiff_t>(source * bytes),
                bytes, split.images.bytes.begin() + static_cast<std::ptrdiff_t>(i * bytes));
    split.labels.push_back(from.train.labels[source]);
  }
  tiny.train = tiny.validation = tiny.test = split;
  tiny.corrupted.reset();
  return tiny;
}

struct Fit {
  std::vector<double> losses;  // a window each
  std::int64_t learnt = -1;    // first window of an epoch in which every sample was right
  double accuracy = 0;         // at the end
  std::int64_t skipped = 0;
};

Fit fit(const Dataset& data, Precision precision, Device device, std::uint64_t seed,
        std::int64_t steps) {
  TrainConfig config;
  config.model = {.model = "mlp", .hidden = {32}};
  config.precision = precision;
  config.device = device;
  config.steps = steps;
  config.micro_batch = 6;
  config.accumulate = 4;
  config.optimizer.kind = OptimizerSettings::Kind::adam;
  config.schedule.lr = 5e-3;
  config.seed = seed;
  Trainer trainer(config, data);
  Fit result;
  std::int64_t right = 0;
  const auto note = [&] {
    for (const Trainer::Finished& f : trainer.finished()) {
      result.losses.push_back(f.result.loss);
      right = f.result.correct == f.result.samples ? right + f.result.samples : 0;
      if (right >= data.train.size() && result.learnt < 0) result.learnt = f.step;
    }
  };
  while (!trainer.done()) {
    trainer.step();
    note();
  }
  trainer.settle();
  note();
  result.accuracy = trainer.evaluate(data.train).accuracy();
  result.skipped = trainer.skipped();
  return result;
}

// Part 1: a row a precision, the curves of the first seed, and the claim on it.
void add_fits(Result& result, const Dataset& data, const Options& options, std::int64_t steps) {
  constexpr auto kMeasured = Provenance::measured;
  constexpr auto kCounted = Provenance::counted;
  Table table("A tiny set learnt by heart", {{"precision"},
                                             {"seeds that learn all", kCounted},
                                             {"seeds", kCounted},
                                             {"windows until all are right, median", kCounted, 4},
                                             {"last loss, median", kMeasured, 3},
                                             {"accuracy, lowest", kMeasured, 4, "%"},
                                             {"skipped windows, most", kCounted}});
  Figure curves{"loss",
                concat("Loss of each window of ", kSamples / 2, " samples, first seed (",
                       result.seeds.front(), ")."),
                "window", "cross-entropy, nats per sample"};
  curves.log_y = true;
  Figure dots{"windows-to-learn",
              "Windows until every sample was right in a whole pass: a dot a seed.", "precision",
              "windows"};
  dots.provenance = kCounted;
  bool mixed_learns = true;
  std::string seen;
  for (const Precision precision : kPrecisions) {
    std::vector<double> learnt, losses;
    double lowest = 1;
    std::int64_t skipped = 0;
    Series single{std::string(name(precision))};
    single.style = Series::Style::dots;
    for (const std::uint64_t seed : result.seeds) {
      if (seed == result.seeds.front())
        begin(options, concat("learning by heart in ", name(precision)));
      const Fit f = fit(data, precision, options.device, seed, steps);
      if (f.learnt >= 0) learnt.push_back(static_cast<double>(f.learnt));
      losses.push_back(f.losses.back());
      lowest = std::min(lowest, f.accuracy);
      skipped = std::max(skipped, f.skipped);
      single.x.push_back(static_cast<double>(dots.categories.size()));
      single.y.push_back(f.learnt >= 0 ? static_cast<double>(f.learnt) : std::nan(""));
      if (seed != result.seeds.front()) continue;
      Series curve{std::string(name(precision)), {}, f.losses};
      for (std::size_t i = 0; i < f.losses.size(); ++i)
        curve.x.push_back(static_cast<double>(i + 1));
      curves.series.push_back(std::move(curve));
    }
    dots.categories.emplace_back(name(precision));
    dots.series.push_back(std::move(single));
    table.add_row({std::string(name(precision)), static_cast<std::int64_t>(learnt.size()),
                   static_cast<std::int64_t>(result.seeds.size()),
                   learnt.empty() ? Cell() : Cell(median(learnt)), median(losses), 100 * lowest,
                   skipped});
    if (!is_pure(precision)) {
      mixed_learns = mixed_learns && lowest == 1;
      seen += concat(seen.empty() ? "" : "; ", name(precision), ": ", 100 * lowest, "%");
    }
  }
  table.add_note(concat("Windows of 4 micro-batches of 6, ", steps, " windows, Adam at 0.005"));
  result.tables.push_back(std::move(table));
  result.figures.push_back(std::move(curves));
  result.figures.push_back(std::move(dots));
  result.claims.push_back(
      {"With fp32 masters every seed learns the tiny set by heart, in fp32, tf32, bf16 and fp16.",
       "lowest accuracy over seeds: " + seen, mixed_learns});
}

// One way to look for a fault: what is compared with the large batch.
struct Check {
  const char* name;
  std::vector<std::int64_t> sizes;
  OptimizerSettings::Kind optimizer;
  std::int64_t windows;
};

// Part 2: faults against ways to look for them.
// |u(A g) - u(g)| / |u(g)| of Adam's first update u(g) = g / (|g| + eps), bias correction done.
double adam_distance(std::span<const double> gradient, double a, double eps) {
  double apart = 0, size = 0;
  for (const double g : gradient) {
    const double right = g / (std::abs(g) + eps), wrong = a * g / (std::abs(a * g) + eps);
    apart += (wrong - right) * (wrong - right);
    size += right * right;
  }
  return std::sqrt(apart / size);
}

void add_faults(Result& result, const Dataset& data, const Options& options,
                std::int64_t long_run) {
  using Kind = OptimizerSettings::Kind;
  const std::vector<Check> checks{{"SGD, equal, 1 window", kEqual, Kind::sgd, 1},
                                  {"Adam, equal, 1 window", kEqual, Kind::adam, 1},
                                  {"SGD, unequal, 1 window", kUnequal, Kind::sgd, 1},
                                  {"SGD, unequal, 2 windows", kUnequal, Kind::sgd, 2}};
  std::vector<Column> columns{{"fault"}};
  for (const Check& check : checks) columns.push_back({check.name, Provenance::measured, 2});
  columns.push_back({"accuracy after long run", Provenance::measured, 4, "%"});
  Table table(
      "Distance of the update from the large batch's over the tolerance, smallest over seeds",
      columns);
  Table found("What finds which fault", [&] {
    std::vector<Column> names{{"fault"}};
    for (const Check& check : checks) names.push_back({check.name});
    names.push_back({"learning by heart"});
    return names;
  }());
  Figure figure{
      "distance",
      "Distance of the update from the large batch's over its computed tolerance, smallest "
      "over seeds: a fault above 1 is found.",
      "fault", "distance / tolerance"};
  figure.log_y = true;
  std::vector<double> tolerance(checks.size(), 0);
  std::vector<Series> series;
  for (const Check& check : checks) {
    series.emplace_back(Series{check.name});
    series.back().style = Series::Style::dots;
  }

  int found_by_last = 0;
  int missed_by_heart = 0;
  double right_worst = 0;
  bool equal_hides_average = true;
  double equal_average = 0;  // distance / tolerance
  // Of loops that do not divide: the distance with SGD and with Adam, and how far the latter is
  // from what Adam's eps leaves of it, over the tolerance.
  double sgd_division = HUGE_VAL, adam_division = 0, adam_unexplained = 0;
  std::string last_seen;
  for (int index = 0; index < kFaults; ++index) {
    const auto fault = static_cast<Fault>(index);
    std::vector<Cell> row{std::string(name(fault))};
    std::vector<Cell> verdicts{std::string(name(fault))};
    for (std::size_t c = 0; c < checks.size(); ++c) {
      const Check& check = checks[c];
      double smallest = HUGE_VAL;
      double largest = 0;
      bool in_all = true;
      for (const std::uint64_t seed : result.seeds) {
        if (seed == result.seeds.front())
          begin(options, concat("fault '", name(fault), "', ", check.name));
        LoopSettings settings;
        settings.model = {.model = "mlp", .hidden = {32}};
        settings.optimizer.kind = check.optimizer;
        settings.lr = check.optimizer == Kind::sgd ? 0.1 : 1e-3;
        settings.seed = seed;
        settings.sizes = check.sizes;
        LoopSettings whole = settings;
        whole.sizes = {kSamples / 2};
        const SampleGradients gradients = sample_gradients(whole, data);
        double norm = 0;
        for (const double g : gradients.mean) norm += g * g;
        // Half the gradient's norm: the window is clipped.
        if (fault == Fault::clips_every_micro_batch)
          settings.max_norm = whole.max_norm = 0.5 * std::sqrt(norm);
        const LoopOutcome reference = run_loop(Fault::none, whole, data, check.windows);
        const LoopOutcome outcome = run_loop(fault, settings, data, check.windows);
        const double distance = update_distance(outcome, reference);
        // Of one window; a second one, at a rate at which training is stable, does not enlarge what
        // the first left, and adds its own.
        const double bound = first_update_tolerance(whole, gradients, reference) *
                             static_cast<double>(check.windows * check.windows);
        tolerance[c] = std::max(tolerance[c], bound);
        smallest = std::min(smallest, distance / bound);
        largest = std::max(largest, distance / bound);
        in_all = in_all && distance > bound;
        if (fault == Fault::does_not_divide && check.optimizer == Kind::adam) {
          const double left = adam_distance(gradients.mean, static_cast<double>(check.sizes.size()),
                                            settings.optimizer.eps);
          adam_division = std::max(adam_division, distance);
          adam_unexplained = std::max(adam_unexplained, std::abs(distance - left) / bound);
        } else if (fault == Fault::does_not_divide) {
          sgd_division = std::min(sgd_division, distance);
        }
        if (fault == Fault::none) right_worst = std::max(right_worst, distance / bound);
      }
      const double shown = fault == Fault::none ? largest : smallest;
      row.emplace_back(shown);
      verdicts.emplace_back(std::string(fault == Fault::none ? (in_all ? "FALSE ALARM" : "passes")
                                        : in_all             ? "found"
                                                             : "missed"));
      series[c].x.push_back(index);
      series[c].y.push_back(shown);
      const bool last = c + 1 == checks.size();
      if (last && fault != Fault::none) found_by_last += in_all;
      if (last && fault != Fault::none && !in_all)
        last_seen += concat(last_seen.empty() ? "; missed: " : ", ", name(fault));
      if (fault == Fault::averages_means && c == 0) {
        equal_hides_average = !in_all;
        equal_average = largest;
      }
    }
    LoopSettings settings;
    settings.model = {.model = "mlp", .hidden = {32}};
    settings.optimizer.kind = Kind::adam;
    settings.lr = 5e-3;
    settings.seed = result.seeds.front();
    settings.sizes = kUnequal;
    if (fault == Fault::clips_every_micro_batch) settings.max_norm = 0.5;
    const LoopOutcome outcome = run_loop(fault, settings, data, long_run);
    const bool learnt = outcome.accuracy == 1;
    row.emplace_back(100 * outcome.accuracy);
    verdicts.emplace_back(std::string(fault == Fault::none ? (learnt ? "passes" : "FALSE ALARM")
                                      : learnt             ? "missed"
                                                           : "found"));
    if (fault != Fault::none) missed_by_heart += learnt;
    figure.categories.emplace_back(name(fault));
    table.add_row(std::move(row));
    found.add_row(std::move(verdicts));
  }
  figure.series = std::move(series);
  Table tolerances("Tolerances of the distances, relative to the large batch's update",
                   {{"comparison"}, {"tolerance", Provenance::modelled, 2}});
  for (std::size_t c = 0; c < checks.size(); ++c)
    tolerances.add_row({std::string(checks[c].name), tolerance[c]});
  tolerances.add_note(
      "Computed from the depth of the sums and the samples' gradients; the largest over seeds.");
  table.add_note("The row 'none' shows the largest over seeds.");
  found.add_note("Found: beyond the tolerance in every seed; learning by heart: the first seed.");
  result.tables.push_back(std::move(found));
  result.tables.push_back(std::move(table));
  result.tables.push_back(std::move(tolerances));
  result.figures.push_back(std::move(figure));

  const auto count = [](int n) { return concat(n, " of ", kFaults - 1, " faults"); };
  result.claims.push_back(
      {"A right loop over micro-batches makes the large batch's update, within "
       "the computed tolerance, in every comparison.",
       concat("largest distance / tolerance: ", right_worst), right_worst <= 1});
  result.claims.push_back(
      {"Two windows of unequal micro-batches with SGD, compared with the large batch, find every "
       "fault.",
       "found " + count(found_by_last) + last_seen, found_by_last == kFaults - 1});
  result.claims.push_back({"Learning a tiny set by heart misses faults that the comparison finds.",
                           "missed " + count(missed_by_heart), missed_by_heart > 0});
  result.claims.push_back(
      {"Equal micro-batches hide the naive mean of means, because there it is right.",
       concat("largest distance / tolerance ", digits(equal_average, 2)), equal_hides_average});
  result.claims.push_back(
      {"Adam's first update hides a gradient that is A times too large: what its eps makes of it "
       "is "
       "all that is left.",
       concat("distance at most ", digits(adam_division, 2), " with Adam, at least ",
              digits(sgd_division, 2), " with SGD; beyond what eps makes, at most ",
              digits(adam_unexplained, 2), " of the tolerance"),
       adam_unexplained <= 1 && adam_division < sgd_division});
}

}  // namespace

Result run_sanity(const Options& options) {
  Result result;
  result.title = "Sanity: a tiny set by heart, and the faults that this misses";
  result.question =
      "Does training work at all in each precision, and is learning a tiny set by heart a test of "
      "an accumulation loop?";
  result.seeds = study_seeds(options, options.quick ? 3 : 5);
  const std::string source = options.data.empty() ? "glyphs" : options.data;
  begin(options, concat("loading ", source));
  const Dataset data = tiny_set(load_dataset(source));
  const std::int64_t steps = options.quick ? 100 : 300;
  result.method = {
      concat("The first ", data.train.size(), " training samples of ", source,
             ", each class in turn, are trained on by an mlp with 32 hidden units until it knows "
             "them by heart, in every precision, over the same seeds."),
      "Then loops with one deliberate fault each train in fp32. The same window is also one large "
      "batch, at the same weights: the distance is |update - large batch's update| / |large "
      "batch's update|. It is judged by a tolerance that follows from the format: each element of "
      "a "
      "gradient is within depth * u * mean|g| over the samples, u = 2^-24, carried through the "
      "optimizer's formula; first order, derived here."};
  add_fits(result, data, options, steps);
  if (options.device != Device::cpu)
    result.skipped.emplace_back("the faulty loops on a device: they run on the cpu");
  add_faults(result, data, options, options.quick ? 60 : 200);
  result.shows = {"Whether the setup trains in each precision, in seconds.",
                  "Which comparison finds which fault: an equal window, an optimizer without "
                  "scale, or a single "
                  "window each hide one that the others find."};
  result.does_not_show = {
      "That a precision suffices for a real task: a set learnt by heart asks little of it.",
      "Faults of other kinds; these are the ones that accumulation loops are known for."};
  result.references = {{"goodfellow2016deep",
                        "book",
                        {{"author", "Goodfellow, Ian and Bengio, Yoshua and Courville, Aaron"},
                         {"title", "Deep Learning"},
                         {"publisher", "MIT Press"},
                         {"year", "2016"},
                         {"note", "section 11.5: fit a tiny dataset"}}},
                       mixed_precision_training()};
  return result;
}

}  // namespace roundoff::study
